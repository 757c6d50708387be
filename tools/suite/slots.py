"""How tasks are run: several at a time, in slots, each of which has one set of servers.

A slot is a thread that takes tasks from a common list until none is left. What happens is told to
the main thread as events; it alone talks to people.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
import traceback
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from local_servers.children import ServerError
from local_servers.lifetime import running
from suite.records import Follower, Record
from terminal import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from local_servers.lifetime import Servers
    from suite.lots import Task

STALLED_SECONDS: Final = 900.0
"""No test waits longer than tests/guard.py says; after this, a lot hangs."""
NOT_STARTED: Final = 127
CANCELLED: Final = "ended before its time"
_PATIENCE_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.2
_TICK_SECONDS: Final = 1.0
_NO_TESTS: Final = 5  # pytest's exit status


@dataclass(frozen=True)
class Result:
    """How a task ended.

    Attributes:
        task: The task.
        status: Its exit status; 128 + n if signal n ended it.
        seconds: How long it ran.
        log: What it printed.
        record: What it told of its tests.
        troubles: What else went wrong.
    """

    task: Task
    status: int
    seconds: float
    log: Path
    record: Record = field(default_factory=Record)
    troubles: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there was no test, and need not be."""
        return self.task.may_be_empty and self.status == self.record.status == _NO_TESTS

    @property
    def cancelled(self) -> bool:
        """Whether it was ended because of another's failure."""
        return CANCELLED in self.troubles

    @property
    def crashed(self) -> bool:
        """Whether it failed otherwise than by a failed test."""
        if self.cancelled or self.is_empty:
            return False
        if self.troubles:
            return True
        if not self.task.tests:
            return self.status != 0
        told = self.record.status == self.status
        return not told or (self.status != 0 and not self.record.failures)

    @property
    def failures(self) -> int:
        """How many failures it counts for."""
        return len(self.record.failures) + self.crashed


@dataclass(frozen=True)
class Began:
    """A slot has begun a task."""

    slot: int
    task: Task
    follower: Follower


@dataclass(frozen=True)
class Ended:
    """A slot has ended a task."""

    slot: int
    result: Result


@dataclass(frozen=True)
class Broken:
    """A slot can't go on; the message says why."""

    slot: int
    message: str


@dataclass(frozen=True)
class Closed:
    """A slot has stopped its servers: it is the last that it tells."""

    slot: int


Event = Began | Ended | Broken | Closed


class Tasks:
    """The tasks that no slot has taken yet."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = [*tasks]
        self._lock = threading.Lock()

    def take(self) -> Task | None:
        """Return the next one."""
        with self._lock:
            return self._tasks.pop(0) if self._tasks else None

    def put_back(self, tasks: Sequence[Task]) -> None:
        """Let tasks be taken before all others."""
        with self._lock:
            self._tasks[:0] = tasks

    def drop(self) -> list[Task]:
        """Leave all of them undone, and return them."""
        with self._lock:
            dropped, self._tasks = self._tasks, []
            return dropped


@dataclass(frozen=True)
class Shared:
    """What all slots have in common.

    Attributes:
        tasks: Where they take tasks.
        variables: The environment variables of all tasks, besides ours.
        servers: What to give to `local_servers.lifetime.running`.
        events: Where they tell what happens.
        stopping: Set when everything has to end.
    """

    tasks: Tasks
    variables: Mapping[str, str]
    servers: Sequence[str]
    events: SimpleQueue[Event] = field(default_factory=SimpleQueue)
    stopping: threading.Event = field(default_factory=threading.Event)


class Slot(threading.Thread):
    """Runs one task after another.

    Args:
        number: Its number, from 1 on.
        shared: What it has in common with the others.
        folder: A folder of its own, which others may pass through.
    """

    def __init__(self, number: int, shared: Shared, folder: Path) -> None:
        super().__init__(name=f"slot {number}")
        self._number = number
        self._shared = shared
        self._folder = folder
        files = folder / "tmp"
        files.mkdir(mode=0o711, parents=True)
        self._variables = {**shared.variables, "TMPDIR": str(files)}
        self._servers: Servers | None = None
        self._stack = contextlib.ExitStack()
        self._done = 0
        self._task: Task | None = None
        self._cancelled: Task | None = None

    def cancel(self, task: Task) -> None:
        """End a task, unless it has ended."""
        self._cancelled = task

    def run(self) -> None:
        """Run tasks until none is left, then stop the servers."""
        try:
            with contextlib.ExitStack() as self._stack:
                while not self._shared.stopping.is_set() and (task := self._shared.tasks.take()):
                    self._run(task)
        except ServerError as error:
            self._tell_broken(str(error))
        except Exception:  # noqa: BLE001 - a thread's traceback would be nobody's failure
            self._tell_broken(traceback.format_exc())
        finally:
            self._shared.events.put(Closed(self._number))

    def _tell_broken(self, message: str) -> None:
        if not self._shared.stopping.is_set():
            self._shared.events.put(Broken(self._number, message))

    def _run(self, task: Task) -> None:
        self._task = task
        variables = {**os.environ, **self._variables}
        if task.servers:
            variables |= self._running_servers()
        self._done += 1
        place = self._folder / f"{self._done}"
        log, record = place.with_suffix(".log"), place.with_suffix(".jsonl")
        follower = Follower(record)
        self._shared.events.put(Began(self._number, task, follower))
        began = time.monotonic()
        words = [*task.command, *(["--record", str(record)] if task.tests else [])]
        status, troubles = self._process(words, variables, log, follower)
        follower.read()
        follower.close()
        if task.servers and (lost := self._lost_servers()):
            troubles += lost
        seconds = time.monotonic() - began
        result = Result(task, status, seconds, log, follower.record, tuple(troubles))
        self._shared.events.put(Ended(self._number, result))

    def _running_servers(self) -> dict[str, str]:
        """Return the addresses of this slot's servers, which it starts when it first needs any."""
        if self._servers is None:
            self._servers = self._stack.enter_context(
                running(self._shared.servers, tell=lambda _: None)
            )
        # Its files of SQLite are in a folder of ours.
        return {name: url for name, url in self._servers.items() if name != "TMPDIR"}

    def _lost_servers(self) -> list[str]:
        """Say which servers have ended by themselves; the next task gets new ones."""
        lost = self._servers.lost() if self._servers else []
        if lost:
            self._servers = None
            self._stack.close()
        return lost

    def _process(
        self, words: Sequence[str], variables: dict[str, str], log: Path, follower: Follower
    ) -> tuple[int, list[str]]:
        """Run a process to its end, or until everything stops, or until it hangs."""
        troubles: list[str] = []
        with log.open("wb") as output:
            try:
                process = subprocess.Popen(
                    words,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C is for us, who then interrupt it; and its own children end with it.
                    start_new_session=True,
                )
            except OSError as error:
                return NOT_STARTED, [f"cannot run {words[0]}: {error.strerror}"]
        try:
            moved = time.monotonic()
            while process.poll() is None and not self._is_to_end():
                if follower.read():
                    moved = time.monotonic()
                if time.monotonic() - moved > STALLED_SECONDS:
                    where = f" in {follower.record.running}" if follower.record.running else ""
                    minutes = STALLED_SECONDS / 60
                    troubles.append(f"nothing has happened for {minutes:.0f} minutes{where}")
                    process.send_signal(signal.SIGABRT)  # faulthandler shows where each thread is
                    break
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
        finally:
            end(process)
        if self._is_to_end():
            troubles.append(CANCELLED)
        status = process.returncode
        return (128 - status if status < 0 else status), troubles

    def _is_to_end(self) -> bool:
        return self._shared.stopping.is_set() or self._cancelled is self._task


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a session of its own, and what is left of its children.

    Interrupt it first: pytest then closes its fixtures, which it does not on SIGTERM.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if process.poll() is None:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE_SECONDS)
    # The session keeps its number as long as one of its processes is there.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(slots: Sequence[Slot], shared: Shared, heard: Callable[[Event | None], None]) -> None:
    """Run all slots to their end; an interruption ends their tasks and servers first.

    Args:
        slots: The slots.
        shared: What they have in common.
        heard: Is called with each event, and now and then with None.
    """
    try:
        for slot in slots:
            slot.start()
        still_open = len(slots)
        while still_open:
            try:
                event: Event | None = shared.events.get(timeout=_TICK_SECONDS)
            except Empty:
                event = None
            heard(event)
            if isinstance(event, Broken):
                shared.stopping.set()
            still_open -= isinstance(event, Closed)
    finally:
        shared.stopping.set()
        with undisturbed():
            for slot in slots:
                if slot.ident is not None:
                    slot.join()
