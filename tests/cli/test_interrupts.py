"""Ctrl-C: it ends what hasn't begun to delete at once, and a sweep at its second time.

The processes wait for lines of standard input, or interrupt themselves where they are to be
interrupted, so nothing here depends on how fast they are.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import func, select

from tests.cli import shop
from tests.cli.running import command, on_a_terminal, variables
from tests.guard import GUARD
from ttl_odm.sqlalchemy import include_expired
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

pytestmark = pytest.mark.databases("sqlite")

FLASK_SHOP = """
from flask import Flask
from ttl_odm.integrations.flask import TTL
from tests.cli import patient

app = Flask("shop")
engine, base, options = patient.blocking()
app.config["TTL_THROTTLE"] = options["throttle"]
TTL(app, engine, base)
"""


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """As in a terminal: a shell starts jobs in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def url(engine: Engine) -> str:
    """A filled database."""
    shop.fill(engine)
    return engine.url.render_as_string(hide_password=False)


def stored(engine: Engine) -> int:
    with engine.connect() as connection:
        rows = select(func.count()).select_from(shop.WebSession).options(include_expired())
        return int(connection.execute(rows).scalar_one())


@contextmanager
def started(*words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that waits somewhere."""
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env=variables(**environment),
    ) as process:
        try:
            read_until(process, "waiting\n")
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], wanted: str) -> None:
    assert process.stderr is not None
    lines: list[str] = []
    while wanted not in lines:
        lines.append(process.stderr.readline())
        assert lines[-1], "".join(lines)


def say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has ended, as it should
        process.stdin.write(f"{line}\n")
        process.stdin.flush()


def end_of(process: subprocess.Popen[str]) -> str:
    """Its last words; it can still read, so that nothing but the signal ends it."""
    assert process.stderr is not None
    errors = process.stderr.read()
    process.wait(GUARD)
    return errors


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sweep", "run"])
def test_a_command_that_is_interrupted_while_it_imports_deletes_nothing_and_ends(
    engine: Engine, url: str, name: str
) -> None:
    app = {"TTL_ODM_APP": "tests.cli.patient:Base", "TTL_ODM_URL": url}
    with started(*command(name), PATIENT="import", **app) as process:
        process.send_signal(signal.SIGINT)
        say(process, "go")
        errors = end_of(process)
    assert (process.returncode, errors) == (1, "\nAborted!\n")
    assert stored(engine) == 15


@pytest.mark.slow
@pytest.mark.parametrize("app", ["blocking", "blocking_in_a_loop", "awaiting"])
@pytest.mark.parametrize("name", ["sweep", "run"])
def test_the_second_interrupt_ends_a_sweep_at_once(
    engine: Engine, url: str, name: str, app: str
) -> None:
    words = command(name, "--app", f"tests.cli.patient:{app}")
    interrupted_twice(engine, words, SHOP_URL=url)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sweep", "run"])
def test_so_it_does_with_flask(engine: Engine, url: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "patient_shop.py").write_text(FLASK_SHOP)
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    words = [sys.executable, "-m", "flask", "--app", "patient_shop", "ttl", name]
    interrupted_twice(engine, words, SHOP_URL=url, PYTHONPATH=path)


def interrupted_twice(engine: Engine, words: list[str], **environment: str) -> None:
    with started(*words, **environment) as process:
        process.send_signal(signal.SIGINT)
        for line in ("once", "twice"):  # a handler runs before the second answer at the latest
            say(process, line)
            read_until(process, f"heard {line}\n")
        process.send_signal(signal.SIGINT)
        errors = end_of(process)
    assert process.returncode == 1
    assert "Aborted!" in errors
    assert "Traceback" not in errors
    assert stored(engine) == 15
    assert SQLAlchemyStore(engine, shop.Base).leases.read("ttl_odm").holder is None


@pytest.mark.slow
@pytest.mark.parametrize("app", ["answering", "answering_async"])
def test_an_interrupt_at_the_question_is_no(engine: Engine, url: str, app: str) -> None:
    status, screen = on_a_terminal(
        command("sweep", "--app", f"tests.cli.patient:{app}"), SHOP_URL=url
    )
    assert status == 1, screen
    assert "Delete 20 rows? [y/N]:" in screen
    assert "Aborted!" in screen
    assert stored(engine) == 15


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--yes"]])
def test_an_interrupt_while_it_counts_deletes_nothing(
    engine: Engine, url: str, words: list[str]
) -> None:
    status, screen = on_a_terminal(
        command("sweep", "--app", "tests.cli.patient:interrupted", *words), SHOP_URL=url
    )
    assert status == 1, screen
    assert "Aborted!" in screen
    assert "Delete" not in screen
    assert stored(engine) == 15
