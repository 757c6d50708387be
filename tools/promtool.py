"""Finding promtool, which checks alert rules: the one on the PATH, or Debian's.

Debian's package ``prometheus`` has it. The package is downloaded and unpacked into a folder, not
installed: no service, no user, no root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_HELP: Final = (
    "Install Prometheus so that promtool is on the PATH; or, on Debian and its like, let "
    "`apt-get download prometheus` work (as root: apt-get update)."
)


class NoPromtoolError(Exception):
    """There is none, and none is available; the message says what to do."""


def promtool(folder: Path) -> str:
    """Return the program's path.

    Args:
        folder: Where it may be unpacked (96 MB).

    Raises:
        NoPromtoolError: It is nowhere.
    """
    there = shutil.which("promtool")
    if there:
        return there
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NoPromtoolError(f"There is no promtool, and no apt-get to get it by. {_HELP}")
    command = ["apt-get", "--quiet", "download", "prometheus"]
    finished = _run(command, folder)
    if finished.returncode and os.geteuid() == 0:  # an image without lists of packages
        _run(["apt-get", "--quiet", "update"], folder)
        finished = _run(command, folder)
    packages = list(folder.glob("prometheus_*.deb"))
    if finished.returncode or not packages:
        raise NoPromtoolError(f"apt-get download prometheus failed: {finished.stderr}\n{_HELP}")
    unpacked = _run(["dpkg-deb", "--extract", str(packages[0]), "."], folder)
    found = folder / "usr" / "bin" / "promtool"
    if not found.is_file():
        raise NoPromtoolError(f"{packages[0].name} has no promtool: {unpacked.stderr}\n{_HELP}")
    return str(found)


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
