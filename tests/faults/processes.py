"""Sweepers in processes of their own, of which some are killed: ``python -m`` this with a JSON job.

Importing takes a hundred times as long as a sweeper is to live, so one process imports, and forks
for each sweeper. It prints what came of them, as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

ROWS = 20
"""Rows in a batch: so few that a sweep has many batches to be killed in."""


def run(**job: Any) -> Any:
    """Do a job in a new process, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.processes", json.dumps(job)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    if done.returncode:
        raise AssertionError(done.stderr[-3000:])
    return json.loads(done.stdout)


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
            engine, model, pace=pace, on_progress=lambda _: os.write(ready, b"."), **options
        )
        report = sweeper.run_once()
        engine.dispose()
        return report.to_dict()

    if "kills" in job:
        return _kill(sweep, job["kills"], job["seed"])
    return _together(sweep, job["number"])


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


def _together(work: Any, number: int) -> list[Any]:
    """Let so many sweepers work at the same time, and return their reports."""
    started = [_fork(work, each) for each in range(number)]
    reports = []
    for process, signs, news in started:
        while os.read(signs, 4096):
            pass
        with os.fdopen(news) as told:
            reports.append(json.loads(told.read()))
        os.close(signs)
        os.waitpid(process, 0)
    return reports


if __name__ == "__main__":
    json.dump(_main(json.loads(sys.argv[1])), sys.stdout)
