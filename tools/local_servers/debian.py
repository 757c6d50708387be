"""Installing a server from Debian's packages, without leaving a system-wide server running."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from local_servers.children import ServerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Debian asks this script before it starts any service that it has just installed.
_POLICY = Path("/usr/sbin/policy-rc.d")
_LOCK_SECONDS = 120
_LOCKED = "Could not get lock"
_REFUSE = "#!/bin/sh\n# Written by ttl_odm's tools/servers.py for one apt-get run.\nexit 101\n"


def can_install() -> bool:
    """Tell whether this is Debian (or its like) and we may install packages."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(packages: Sequence[str]) -> None:
    """Install packages, starting none of their services.

    Raises:
        ServerError: apt-get failed; with what it printed last.
    """
    with _no_services():
        _apt_get("update")
        _apt_get("install", "--yes", "--no-install-recommends", *packages)


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    # A policy that is there already is the machine's owner's: it stays, and it decides.
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text(_REFUSE)
    try:
        _POLICY.chmod(0o755)
        yield
    finally:
        _POLICY.unlink(missing_ok=True)


def _apt_get(*arguments: str) -> None:
    """Run apt-get; while another one runs, wait for it: `update` doesn't do so by itself."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while (finished := _run(arguments)).returncode and _LOCKED in finished.stdout:
        if time.monotonic() > deadline:
            break
        time.sleep(1)
    if finished.returncode != 0:
        message = f"apt-get {' '.join(arguments)} failed:\n{finished.stdout[-2000:]}"
        raise ServerError(message)


def _run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["apt-get", "-o", f"DPkg::Lock::Timeout={_LOCK_SECONDS}", "--quiet", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
