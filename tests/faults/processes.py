"""Sweepers in processes of their own, of which some are killed.

Importing takes a hundred times as long as a sweeper is to live, so one process imports, and forks
for each job, which forks for each sweeper. Jobs and what came of them are JSON.
"""

from __future__ import annotations

import atexit
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
import traceback
from functools import cache
from typing import Any

TIMEOUT = 240
"""Seconds that the longest job may take, on a busy machine."""

ROWS = 20
"""Rows in a batch: so few that a sweep has many batches to be killed in."""


class _Nursery:
    """A process that has imported everything, and forks a new one for each job."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.close)

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """Do a job, and return what came of it."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{json.dumps(job)}\n")
        stdin.flush()
        if not select.select([stdout], [], [], TIMEOUT)[0]:
            self._process.kill()
            raise AssertionError(f"No answer: {job}")
        came: dict[str, Any] = json.loads(stdout.readline())
        return came

    def close(self) -> None:
        """Let it end."""
        self._process.communicate("")


@cache
def _nursery() -> _Nursery:
    return _Nursery()


def run(**job: Any) -> Any:
    """Do a job in a new process, and return what it says.

    On a host with a wrong clock (``clock``: seconds) that process imports everything anew.
    """
    if job.get("clock"):
        line = f"{json.dumps(job)}\n"
        done = subprocess.run(
            [sys.executable, "-m", "tests.faults.processes", "once"],
            input=line,
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT,
        )
        came = json.loads(done.stdout)
    else:
        came = _nursery().run(job)
    if "error" in came:
        raise AssertionError(came["error"])
    return came["result"]


def _shift_clocks(seconds: float) -> None:
    """Let the host's clock be wrong, for all that is imported from now on."""
    import datetime as dt

    real_time, real = time.time, dt.datetime
    off = dt.timedelta(seconds=seconds)
    time.time = lambda: real_time() + seconds

    class AnyDatetime(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

    class Shifted(real, metaclass=AnyDatetime):  # type: ignore[misc, valid-type]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real.now(tz) + off

        @classmethod
        def utcnow(cls) -> Any:
            return real.now(dt.timezone.utc).replace(tzinfo=None) + off

    dt.datetime = Shifted  # type: ignore[misc]


def _main(job: dict[str, Any]) -> Any:
    if job.get("clock"):
        _shift_clocks(job["clock"])
    from sqlalchemy import create_engine

    from tests.faults.carts import cart
    from ttl_odm.sqlalchemy import AdvisoryLeases
    from ttl_odm.sweeper import Pace, Sweeper

    model = cart(job["mode"])
    engine = create_engine(job["url"])
    engine.connect().close()
    engine.dispose()

    def sweep(number: int, ready: int) -> dict[str, Any]:
        engine.dispose(close=False)
        random.seed(number)
        options = {"lease": True, "lease_name": f"{number}", **job.get("options", {})}
        if job.get("advisory"):
            options["lease"] = AdvisoryLeases(engine)
        pace = Pace(start=ROWS, lowest=1, highest=ROWS, target=10)
        sweeper = Sweeper(
            engine, model, pace=pace, nice=0, on_progress=lambda _: os.write(ready, b"."), **options
        )
        report = sweeper.run_once()
        engine.dispose()
        return report.to_dict()

    came = _kill(sweep, job["kills"], job["seed"]) if "kills" in job else None
    return _together(sweep, job["number"], first=1_000) if "number" in job else came


def _fork(work: Any, number: int) -> tuple[int, int, int]:
    """Start a process; return its number, and pipes for its signs of life and its report."""
    signs, sign = os.pipe()
    news, tell = os.pipe()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            with os.fdopen(tell, "w") as out:
                json.dump(work(number, sign), out)
            status = 0
        finally:
            os._exit(status)
    os.close(sign)
    os.close(tell)
    return process, signs, news


def _kill(work: Any, kills: int, seed: int) -> dict[str, int]:
    """Kill so many sweepers, each a moment after its first batch or in it."""
    chance = random.Random(seed)  # noqa: S311
    killed = finished = 0
    while killed < kills and finished < kills:
        process, signs, news = _fork(work, killed + finished)
        if chance.random() < 0.8:
            os.read(signs, 1)
        time.sleep(chance.uniform(0.001, 0.03))
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        os.close(signs)
        os.close(news)
        if os.WIFSIGNALED(status):
            killed += 1
        else:
            finished += 1
    return {"killed": killed, "finished": finished}


def _together(work: Any, number: int, *, first: int = 0) -> list[Any]:
    """Let so many sweepers work at the same time, and return their reports."""
    started = [_fork(work, each) for each in range(first, first + number)]
    reports = []
    for process, signs, news in started:
        while os.read(signs, 4096):
            pass
        with os.fdopen(news) as told:
            reports.append(json.loads(told.read()))
        os.close(signs)
        os.waitpid(process, 0)
    return reports


def _result(job: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": _main(job)}
    except BaseException:  # noqa: BLE001 (whoever asked raises it)
        return {"error": traceback.format_exc()}


def _serve() -> None:
    """Do the jobs that come on standard input, a line each, each in a process of its own."""
    import tests.faults.carts  # noqa: F401 (for all that are forked)

    for line in sys.stdin:
        news, tell = os.pipe()
        process = os.fork()
        if process == 0:
            try:
                with os.fdopen(tell, "w") as out:
                    json.dump(_result(json.loads(line)), out)
            finally:
                os._exit(0)
        os.close(tell)
        with os.fdopen(news) as told:
            sys.stdout.write(f"{told.read()}\n")
        sys.stdout.flush()
        os.waitpid(process, 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["once"]:
        json.dump(_result(json.loads(sys.stdin.readline())), sys.stdout)
    else:
        _serve()
