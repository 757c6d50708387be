"""The processes that we start, and how each of them ends.

Other people run servers on the same machine, so nothing here ever looks a process up by name:
every signal goes to a process (with the session it leads) that this module started itself.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

READY_SECONDS = 90.0
STOP_SECONDS = 10.0
RESEND_SECONDS = 2.0
POLL_SECONDS = 0.05
TAIL_LINES = 25
_UNHANDLED = (signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL)
_PROCESSES = Path("/proc")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ServerError(Exception):
    """A server could not be found, installed or started; the message says what to do."""


@dataclass(frozen=True)
class Account:
    """The operating system's user that a server runs as."""

    uid: int
    gid: int


def unprivileged_account(preferred: str) -> Account | None:
    """Choose who runs a server that refuses to run as root.

    Args:
        preferred: the user that the server's package makes, such as `postgres`.

    Returns:
        None when we are not root: then the server runs as we do.
    """
    if os.geteuid() != 0:
        return None
    for name in (preferred, "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    message = f"cannot run a server as root, and there is no user {preferred!r} or 'nobody'"
    raise ServerError(message)


def make_folder(path: Path, account: Account | None) -> Path:
    """Make a folder that only `account` (or we) can open."""
    path.mkdir(mode=0o700)
    if account is not None:
        os.chown(path, account.uid, account.gid)
    return path


def tail(log: Path) -> str:
    """Return the last lines of a log, indented, for an error message."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(f"    {line}" for line in lines[-TAIL_LINES:]) or "    (its log is empty)"


@dataclass(frozen=True)
class Child:
    """One process that we started, in a session of its own.

    Attributes:
        process: how we hold it.
        log: the file it writes to.
        stop_signal: what makes it end in good order; None if it soon ends by itself.
    """

    process: subprocess.Popen[bytes]
    log: Path
    stop_signal: signal.Signals | None

    def is_running(self) -> bool:
        """Tell whether the process is still there."""
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Signal the process and the children of its session, if it is still there.

        What no process can handle goes to its children of other sessions too: PostgreSQL gives
        each of its own a session.
        """
        # Until poll() has seen its end, the system gives its number to nobody else.
        if not self.is_running():
            return
        pid = self.process.pid
        with contextlib.suppress(ProcessLookupError):
            if number not in _UNHANDLED:
                os.killpg(pid, number)
                return
            os.killpg(pid, signal.SIGSTOP)  # so that there will be no further children
            for child in _children_of(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, number)
            os.killpg(pid, number)

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Poll `is_ready` until it is true.

        Raises:
            ServerError: the process ended, or was not ready in time.
        """
        deadline = time.monotonic() + READY_SECONDS
        while not is_ready():
            if not self.is_running():
                message = f"it ended with status {self.process.returncode}:\n{tail(self.log)}"
                raise ServerError(message)
            if time.monotonic() > deadline:
                message = f"it was not ready after {READY_SECONDS:.0f} s:\n{tail(self.log)}"
                raise ServerError(message)
            time.sleep(POLL_SECONDS)


class Children:
    """Every process started for one run: safe to use from several threads, ended all at once."""

    def __init__(self) -> None:
        """Begin with no process."""
        self._lock = threading.Lock()
        self._children: list[Child] = []
        self._closed = False

    def start(
        self,
        arguments: Sequence[str],
        *,
        log: Path,
        account: Account | None = None,
        stop_signal: signal.Signals | None = signal.SIGTERM,
        read_from: Path | None = None,
    ) -> Child:
        """Start a process that writes to `log` and works in the log's folder.

        It gets a clean environment, so that nobody's PG* or locale variables change a server, and
        a session of its own, so that Ctrl-C in a terminal reaches us and not the server: tests
        that are being interrupted still need their server to clean up.
        """
        with self._lock, contextlib.ExitStack() as files:
            if self._closed:
                message = "not started: everything is being stopped"
                raise ServerError(message)
            output = files.enter_context(log.open("ab"))
            source = files.enter_context(read_from.open("rb")) if read_from else subprocess.DEVNULL
            process = subprocess.Popen(
                arguments,
                stdin=source,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env={"PATH": _PATH, "LC_ALL": "C", "HOME": str(log.parent)},
                start_new_session=True,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
            child = Child(process, log, stop_signal)
            self._children.append(child)
            return child

    def run(
        self,
        arguments: Sequence[str],
        *,
        log: Path,
        account: Account | None = None,
        read_from: Path | None = None,
    ) -> None:
        """Run a short process to its end, also when everything else is stopped in the meantime.

        (initdb, when interrupted, leaves shared memory behind, and mariadb-install-db a server.)

        Raises:
            ServerError: its exit status was not 0.
        """
        child = self.start(
            arguments, log=log, account=account, stop_signal=None, read_from=read_from
        )
        if child.process.wait() != 0:
            message = f"{arguments[0]} ended with status {child.process.returncode}:\n{tail(log)}"
            raise ServerError(message)

    def lost(self) -> list[str]:
        """Say which servers have ended by themselves, and the last lines of their logs."""
        with self._lock:
            servers = [child for child in self._children if child.stop_signal is not None]
        ended = [child for child in servers if not child.is_running()]
        return [
            f"the server of {child.log.parent.name} has ended, with status "
            f"{child.process.returncode}:\n{tail(child.log)}"
            for child in ended
        ]

    def stop_all(self) -> None:
        """End every process and wait for it; nothing can be started here any more.

        Each gets its own clean stop signal first, and SIGKILL only after `STOP_SECONDS`.
        """
        with self._lock:
            self._closed = True
        deadline = time.monotonic() + STOP_SECONDS
        while left := [child for child in self._children if child.is_running()]:
            overdue = time.monotonic() > deadline
            # Again and again: MariaDB loses a signal that comes early in its start.
            for child in left:
                number = signal.SIGKILL if overdue else child.stop_signal
                if number is not None:
                    child.send(number)
            _wait_for(left, RESEND_SECONDS)
            if overdue:
                return


def _children_of(pid: int) -> list[int]:
    """List the processes that have this one as their parent."""
    if not _PROCESSES.exists():  # not Linux
        command = ["ps", "-A", "-o", "pid=,ppid="]
        table = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        pairs = [line.split() for line in table.splitlines()]
    else:
        pairs = []
        for file in _PROCESSES.glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has just ended
                # After its name, which may have spaces and parentheses: its state, its parent.
                words = file.read_text().rpartition(")")[2].split()
                pairs.append([file.parent.name, words[1]])
    return [int(child) for child, parent in pairs if parent == str(pid)]


def _wait_for(children: Sequence[Child], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(child.is_running() for child in children):
        time.sleep(POLL_SECONDS)
