"""Asking a sweeper to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ttl_odm.sweeper import stop_on_signals
from ttl_odm.sweeper.stop import Stop

LONG = 1_200.0
"""Seconds that no wait here lasts, on the slowest machine."""


def seconds_of(call: Any) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_a_wait_lasts_as_long_as_it_was_told_to() -> None:
    assert seconds_of(lambda: Stop().wait(0.01)) >= 0.01
    assert seconds_of(lambda: asyncio.run(Stop().wait_async(0.01))) >= 0.01


@pytest.mark.slow
def test_waits_of_next_to_nothing_end() -> None:
    # queue.SimpleQueue.get hangs here, by the thousandth time or so.
    for number in range(5_000):
        Stop().wait(number % 10 * 1e-7)


@pytest.mark.parametrize("seconds", [LONG, 1e308, float("inf")])
def test_a_sweeper_may_be_asked_to_stop_twice(seconds: float) -> None:
    stop = Stop()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(stop.wait, seconds)
        for _ in range(100):
            stop.ask()
        assert waiting.result(LONG / 2) is None


def test_after_a_stop_nobody_waits() -> None:
    stop = Stop()
    stop.ask()
    assert stop.asked
    assert seconds_of(lambda: stop.wait(LONG)) < LONG
    assert seconds_of(lambda: asyncio.run(stop.wait_async(LONG))) < LONG


def test_a_stop_wakes_every_thread_that_waits() -> None:
    stop = Stop()
    threads = [threading.Thread(target=stop.wait, args=[LONG]) for _ in range(3)]
    for thread in threads:
        thread.start()
    stop.ask()
    for thread in threads:
        thread.join(LONG / 2)
        assert not thread.is_alive()


@pytest.mark.parametrize("seconds", [LONG, 1e308, float("inf")])
async def test_a_stop_from_another_thread_wakes_a_coroutine(seconds: float) -> None:
    stop = Stop()
    waiting = asyncio.create_task(stop.wait_async(seconds))
    await asyncio.sleep(0)
    thread = threading.Thread(target=stop.ask)
    thread.start()
    await asyncio.wait_for(waiting, LONG / 2)
    thread.join()


class Sweeper:
    def __init__(self) -> None:
        self.stop_ = Stop()

    def stop(self) -> None:
        self.stop_.ask()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_sweeper_that_sleeps(number: signal.Signals) -> None:
    sweeper = Sweeper()
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    with stop_on_signals(sweeper):
        threading.Timer(0.02, os.kill, [os.getpid(), number]).start()
        assert seconds_of(lambda: sweeper.stop_.wait(LONG)) < LONG
    assert sweeper.stop_.asked
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


async def test_a_signal_stops_a_coroutine_that_sleeps() -> None:
    sweeper = Sweeper()
    with stop_on_signals(sweeper):
        waiting = asyncio.create_task(sweeper.stop_.wait_async(LONG))
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(waiting, LONG / 2)


def test_a_second_signal_does_what_it_always_did() -> None:
    sweeper = Sweeper()
    # A shell starts jobs in the background with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stop_on_signals(sweeper):
            os.kill(os.getpid(), signal.SIGINT)
            sweeper.stop_.wait(LONG)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_handlers_are_set_back_also_after_an_error() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ZeroDivisionError), stop_on_signals(Sweeper(), signals=(signal.SIGTERM,)):
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGTERM) is before


PROCESS = """
import asyncio
from ttl_odm.sweeper import {kind}, stop_on_signals
from ttl_odm.testing import {store}

store = {store}()
store.create("carts", 60)
for key in range(100):
    store.put("carts", key, age=3600)
sweeper = {kind}(store, on_report=lambda report: print(report.deleted, flush=True))
with stop_on_signals(sweeper):
    {run}
leases = getattr(store.leases, "_leases", store.leases)
print(leases.read("ttl_odm").holder)
"""


@pytest.mark.parametrize(
    ("kind", "store", "run"),
    [
        ("Sweeper", "InMemoryStore", "sweeper.run_forever(interval=3600)"),
        ("AsyncSweeper", "AsyncInMemoryStore", "asyncio.run(sweeper.run_forever(interval=3600))"),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_told_to_end_gives_the_lease_back_and_ends_well(
    kind: str, store: str, run: str, number: signal.Signals
) -> None:
    code = PROCESS.format(kind=kind, store=store, run=run)
    command = [sys.executable, "-W", "error", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "100\n"
        process.send_signal(number)
        assert process.stdout.read() == "None\n"
    assert process.returncode == 0
