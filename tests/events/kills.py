"""Processes that hold seats and deliver events, and that are killed at random moments.

`kill_at_random` runs them, `assert_each_once` compares what they left behind. `hold_seats` and
`work` are what they do, as far as that doesn't depend on the library.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from contextlib import ExitStack, suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final, NoReturn
from uuid import uuid4

from tests.guard import GUARD
from ttl_odm.events import EventWorker
from ttl_odm.events import worker as workers
from ttl_odm.sweeper import TransientStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerProcess

KILLS: Final = int(os.environ.get("TTL_ODM_TEST_KILLS", "6"))

LIFETIME: Final = 1
"""Seconds for which a seat is held."""

AFTERWARDS: Final = 1.1
"""Seconds until all seats have expired, and events that a process had taken are due again."""

LEASE_DURATION: Final = 1.0
"""Seconds; otherwise no process would sweep for ten seconds after most kills."""

HIDDEN: Final = 0.5
REST: Final = 0.02
"""Seconds, or the other processes would wait for a core."""

SEATS: Final = 50
LIFE: Final = 20
"""Characters of a life's name."""

_PRELOADED: Final = ["tests.events.killed", "tests.events.mongo_killed", "tests.django_app.killed"]


# --- in the process of the test


def kill_at_random(
    run: Callable[..., None],
    words_for: Callable[[int], Sequence[Any]],
    after_kill: Callable[[int], None] = lambda _: None,
) -> None:
    """Start a process that writes and two that work; kill one after the other, `KILLS` times.

    Args:
        run: What each process runs, with `words_for(its number)`, "write" or "work", and a pipe
            into which it sends None when it begins to work, or has written for the first time.
        words_for: Returns the first arguments of `run`.
        after_kill: Is called with the number of each process that was killed.
    """
    random = Random()  # noqa: S311 (any moment will do)
    # They are forked from a process that has imported everything, or they would start for longer
    # than they live.
    processing = multiprocessing.get_context("forkserver")
    processing.set_forkserver_preload(_PRELOADED)

    def start(number: int) -> ForkServerProcess:
        ours, theirs = processing.Pipe(duplex=False)
        words = (*words_for(number), "write" if number == 0 else "work", theirs)
        process = processing.Process(target=run, args=words, daemon=True)
        process.start()
        ending.callback(end, process, number)
        with ours, theirs:
            assert ours.poll(GUARD)
        return process

    def end(process: ForkServerProcess, number: int) -> None:
        process.kill()
        process.join(GUARD)
        assert process.exitcode == -signal.SIGKILL
        after_kill(number)

    with ExitStack() as ending:
        processes = {number: start(number) for number in range(3)}
        for kill in range(KILLS):
            time.sleep(random.uniform(0.0, 0.5))
            number = kill % len(processes)
            end(processes[number], number)
            processes[number] = start(number)
    time.sleep(AFTERWARDS)


def assert_each_once(
    recorded: Collection[str], lives: Collection[str], handled: Collection[str]
) -> None:
    """Check that each life has one event, and that each event was handled.

    Args:
        recorded: The lives of all events.
        lives: The lives that were written.
        handled: The ids of the events that a handler got, each once.
    """
    assert len(recorded) == len(set(recorded))
    assert set(recorded) == set(lives)
    assert len(lives) > KILLS / 3  # each of the writers has written
    assert len(handled) == len(lives)


# --- in theirs


def hold_seats(
    hold: Callable[[int, str], None], failures: tuple[type[Exception], ...], ready: Connection
) -> NoReturn:
    """Hold any seats, for ever.

    Args:
        hold: Writes the seat of a number, and its life, in a transaction.
        failures: What it raises if the seat is held already, or if another process writes.
        ready: Gets None when the first seat is held.
    """
    random = Random()  # noqa: S311 (any seat will do)
    has_written = False
    while True:
        time.sleep(REST)
        with suppress(*failures):
            hold(random.randrange(SEATS), new_life())
            if not has_written:
                ready.send(None)
                has_written = True


def new_life() -> str:
    """Return the name of a life that no other row has."""
    return uuid4().hex[:LIFE]


def work(engine: Any, targets: Any, ready: Connection) -> NoReturn:
    """Sweep and deliver, for ever; say when it begins."""
    ready.send(None)
    workers.LEASE_DURATION = LEASE_DURATION
    worker = EventWorker(engine, targets, poll=0.01, hidden=HIDDEN)
    while True:
        time.sleep(REST)
        with suppress(TransientStoreError):  # of SQLite: another process writes
            worker.run_once()
