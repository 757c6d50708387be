"""Four workers of gunicorn: one sweeps, and when it is killed another takes over."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from sqlalchemy import select, text

from tests.guard import GUARD
from tests.integrations.gunicorn_shop import Batch, Cart, db
from tests.sql.sweeping import HOUR, add, left
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from tests.backends import Backend

WORKERS = 4
ROOT = Path(__file__).parents[2]

START = "def post_worker_init(worker): worker.wsgi.extensions['ttl_odm'].start()\n"
"""For gunicorn.conf.py: sweep from the worker's start on, in place of its first request."""


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GUARD
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def gunicorn(url: str, folder: Path, *options: str) -> Iterator[tuple[Any, httpx.Client]]:
    """Serve the shop on a port; give the process, and a client."""
    listening = socket.create_server(("127.0.0.1", 0))
    command = [
        *(sys.executable, "-m", "gunicorn", "--workers", str(WORKERS), *options),
        *("--timeout", "0", "--graceful-timeout", "600"),  # nor is a slow worker a dead one
        *("--bind", f"fd://{listening.fileno()}", "tests.integrations.gunicorn_shop:create_app()"),
    ]
    environment = {**os.environ, "SHOP_DATABASE": url, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[listening.fileno()],
    )
    port = listening.getsockname()[1]
    listening.close()
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=GUARD, trust_env=False
        ) as client:
            yield process, client
    finally:
        process.terminate()
        process.wait(GUARD)
        assert process.stderr is not None
        process.stderr.close()


def workers_of(client: httpx.Client) -> dict[int, dict[str, int]]:
    """Ask, many times at once, until every worker has answered."""
    answers: dict[int, dict[str, int]] = {}

    def ask(_: int) -> dict[str, int]:
        answer: dict[str, int] = client.get("/", headers={"Connection": "close"}).json()
        return answer

    def all_answered() -> bool:
        with ThreadPoolExecutor(2 * WORKERS) as pool:
            answers.update({each["process"]: each for each in pool.map(ask, range(2 * WORKERS))})
        return len(answers) >= WORKERS

    wait_until(all_answered)
    return answers


class Shop:
    """The database of the shop, looked at from outside."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.sweeper = Sweeper(engine, Cart)
        db.metadatas[None].create_all(engine)

    def holder(self) -> int | None:
        """The process that holds the lease."""
        holder = self.sweeper.status().holder
        return None if holder is None else int(holder.split(":")[1])

    def end_lease(self) -> None:
        """Let the lease be as one whose time has come."""
        now = clock_of(self.engine.dialect).now
        ended = text(f"UPDATE ttl_odm_lease SET acquired_until = {now}")  # noqa: S608
        with self.engine.begin() as connection:
            assert connection.execute(ended).rowcount == 1

    def sweep_something(self) -> set[int]:
        """Let rows expire; return the processes that have deleted them."""
        with self.engine.begin() as connection:
            before = set(connection.scalars(select(Batch.id)))
            add(connection, "carts", [(number, None, 2 * HOUR) for number in range(5)])
        wait_until(self._is_empty)
        with self.engine.connect() as connection:
            batches = connection.execute(select(Batch.id, Batch.process, Batch.rows)).all()
        mine = [batch for batch in batches if batch.id not in before]
        assert sum(batch.rows for batch in mine) == 5
        return {batch.process for batch in mine}

    def _is_empty(self) -> bool:
        with self.engine.connect() as connection:
            return not left(connection, Cart)


@pytest.mark.in_turns
@pytest.mark.slow
@pytest.mark.databases("sqlite")
def test_workers_that_serve_sweep_one_at_a_time(
    backend: Backend, engine: Engine, tmp_path: Path
) -> None:
    assert backend.sync_url is not None
    with gunicorn(backend.sync_url, tmp_path) as (server, client):
        takes_over(Shop(engine), server, client)
    assert Shop(engine).holder() is None  # given back


@pytest.mark.in_turns
@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_an_application_that_is_loaded_before_the_fork_sweeps_in_its_workers(
    backend: Backend, engine: Engine, tmp_path: Path
) -> None:
    assert backend.sync_url is not None
    (tmp_path / "hook.py").write_text(START)
    options = ["--preload", "--config", "hook.py"]
    with gunicorn(backend.sync_url, tmp_path, *options) as (server, client):
        takes_over(Shop(engine), server, client)
    assert Shop(engine).holder() is None


def takes_over(shop: Shop, server: Any, client: httpx.Client) -> None:
    """See one worker at work and, when it is killed, another; then end the server."""
    workers = workers_of(client)
    assert {each["parent"] for each in workers.values()} == {server.pid}
    assert {each["sweepers"] for each in workers.values()} == {1}
    first = shop.sweep_something() | shop.sweep_something() | shop.sweep_something()
    assert first == {shop.holder()}
    assert first < set(workers)
    assert shop.sweeper.status().token == 1  # it has never changed hands
    (killed,) = first
    os.kill(killed, signal.SIGKILL)
    shop.end_lease()
    second = shop.sweep_something() | shop.sweep_something()
    assert second == {shop.holder()}
    assert second != first
    assert shop.sweeper.status().token == 2
    server.terminate()
    assert server.wait(GUARD) == 0
