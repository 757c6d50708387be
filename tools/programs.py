"""The programs, other than servers, that some tests run: a browser and promtool.

Each is taken from the PATH. Otherwise it is downloaded from Debian and unpacked, not installed.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import Final

from local_servers.children import ServerError
from local_servers.suites import Suite, own_release

LEAVE_OUT: Final = "none"


class NoProgramError(Exception):
    """A program is missing and can't be downloaded; the message says what to do."""


@dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
        title: What people call it.
        option: An environment variable: the program's path, or `none` to leave out its tests.
        names: Its names on the PATH.
        remedy: What to install by hand.
        suite: The Debian packages that have it, as `program`.
    """

    title: str
    option: str
    names: tuple[str, ...]
    remedy: str
    suite: Suite

    def is_left_out(self) -> bool:
        """Whether the tests that need it are left out."""
        return os.environ.get(self.option) == LEAVE_OUT

    def find(self) -> str | None:
        """Return its path, if it is on this machine."""
        named = os.environ.get(self.option)
        if named and named != LEAVE_OUT:
            return named
        on_path = next(filter(None, map(shutil.which, self.names)), None)
        return on_path or (self.suite.find() or {}).get("program")

    def path(self) -> str:
        """Return its path; download it if it is not on this machine.

        Raises:
            NoProgramError: It can't be downloaded.
        """
        if (found := self.find()) is None:
            try:
                self.suite.bring()
            except ServerError as error:
                raise NoProgramError(
                    f"There is no {self.title} ({error}). {self.remedy[0].upper()}"
                    f"{self.remedy[1:]}, or leave out its tests: {self.option}={LEAVE_OUT}."
                ) from error
            found = str(self.suite.folder / dict(self.suite.programs)["program"])
        return found


# The packages have no fonts of the machine's, and the machine may have none. Paths in this file
# are relative to it.
_FONTS: Final = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir prefix="relative">usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
"""

# Of the machine's own release, because a browser starts its own parts: with another release's
# loader (see `Suite.native`) it would not find them.
BROWSER: Final = Program(
    title="browser",
    option="TTL_ODM_TEST_BROWSER",
    names=(
        *("chromium", "chromium-headless-shell", "chromium-browser"),
        *("google-chrome", "google-chrome-stable"),
    ),
    remedy="install Chromium or Chrome so that it is on the PATH, or set TTL_ODM_TEST_BROWSER "
    "to its path",
    suite=Suite(
        own_release() or "stable",
        ("chromium-headless-shell", "fonts-dejavu-core"),
        (("program", "usr/lib/chromium/chromium-headless-shell"),),
        native=True,
        files=(("fonts.conf", _FONTS),),
        variables=(("FONTCONFIG_FILE", "fonts.conf"),),
    ),
)

PROMTOOL: Final = Program(
    title="promtool",
    option="TTL_ODM_TEST_PROMTOOL",
    names=("promtool",),
    remedy="install Prometheus so that promtool is on the PATH",
    suite=Suite("trixie", ("prometheus",), (("program", "usr/bin/promtool"),)),
)

PROGRAMS: Final = (BROWSER, PROMTOOL)
