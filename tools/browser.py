"""Finding the browser that looks at the documentation site: one that is here, or Debian's.

Debian (as root) installs its package `chromium-headless-shell`, as it does with a missing server,
and a font for it.
"""

from __future__ import annotations

import os
import shutil
from typing import Final

from local_servers import debian
from local_servers.children import ServerError

OPTION: Final = "TTL_ODM_TEST_BROWSER"
"""An environment variable: the program to take; `none` leaves out what a browser looks at."""

PROGRAMS: Final = (
    *("chromium", "chromium-headless-shell", "chromium-browser"),
    *("google-chrome", "google-chrome-stable"),
)
PACKAGES: Final = ("chromium-headless-shell", "fonts-dejavu-core")
_HELP: Final = (
    f"Install Chromium or Chrome so that it is on the PATH, or export {OPTION} with its path; or "
    f"leave out what it looks at: {OPTION}=none."
)


class NoBrowserError(Exception):
    """There is none, and none can be had; the message says what to do."""


def browser() -> str:
    """Return the program's path.

    Raises:
        NoBrowserError: It is nowhere.
    """
    named = os.environ.get(OPTION)
    if named:
        return named
    if here := _on_the_path():
        return here
    if not debian.can_install():
        raise NoBrowserError(f"There is no browser, and no apt-get that may install one. {_HELP}")
    try:
        debian.install(PACKAGES)
    except ServerError as error:
        raise NoBrowserError(f"There is no browser. {_HELP} {error}") from error
    if here := _on_the_path():
        return here
    raise NoBrowserError(f"{PACKAGES[0]} is installed, and not on the PATH. {_HELP}")


def _on_the_path() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)
