"""The fixture ``ttl_clock`` in a run of pytest of its own: found, undone, and free where unused."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

CONFTEST = """
import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from ttl_odm.sqlalchemy import TTLMixin


class Base(DeclarativeBase):
    pass


class Cart(TTLMixin, Base):
    __tablename__ = "carts"
    __ttl__ = 3600
    id: Mapped[int] = mapped_column(primary_key=True)


sent = []


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    engine = create_engine(f"sqlite:///{tmp_path_factory.mktemp('db')}/test")
    event.listen(engine, "connect", lambda c, _: setattr(c, "isolation_level", None))
    event.listen(engine, "do_execute", lambda _, statement, *__: sent.append(statement))
    event.listen(engine, "begin", lambda c: c.exec_driver_sql("BEGIN"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Cart(id=1))
        session.commit()
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine):
    with engine.connect() as connection:
        transaction = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            yield session
        transaction.rollback()
"""

TESTS = """
import asyncio
import sys

import pytest
from conftest import Cart, sent
from sqlalchemy import select


def carts(session):
    return session.scalars(select(Cart.id).order_by(Cart.id)).all()


def check_that_nothing_moved(session):
    assert carts(session) == [1]
    assert "julianday('now') - 2440587.5) * 86400000) AS INTEGER) -" in sent[-1]


def test_1_without_the_fixture_no_clock_is_imported(session):
    assert carts(session) == [1]
    assert "ttl_odm.testing.plugin" in sys.modules
    assert "ttl_odm.testing.clock" not in sys.modules


def test_2_moves_and_fails(ttl_clock, session):
    ttl_clock.advance(3600)
    assert carts(session) == []
    session.add(Cart(id=2))
    session.commit()
    ttl_clock.freeze()
    raise RuntimeError


def test_3_nothing_is_left_of_a_failure(session):
    check_that_nothing_moved(session)


@pytest.fixture
def an_hour_later(ttl_clock):
    ttl_clock.advance(3600)


@pytest.fixture
def broken(ttl_clock):
    ttl_clock.advance(3600)
    raise RuntimeError


def test_4_a_fixture_may_move_it_and_the_test_too(an_hour_later, ttl_clock, session):
    assert carts(session) == []
    assert not [name for name in sys.modules if name.split(".")[:2] == ["ttl_odm", "events"]]
    ttl_clock.advance(-3600)
    assert carts(session) == [1]


def test_5_whose_fixture_fails(broken):
    pass


def test_6_nothing_is_left_of_that_either(session):
    check_that_nothing_moved(session)


@pytest.mark.asyncio
async def test_7_an_asynchronous_test_has_it_too(ttl_clock, session):
    ttl_clock.advance(3600)
    assert await asyncio.to_thread(lambda: None) is None
    assert carts(session) == []


def test_8_nor_of_that(session):
    check_that_nothing_moved(session)
"""

NO_DATABASE = """
import sys


def test_a_suite_that_has_nothing_to_do_with_it_imports_nothing():
    names = {name for name in sys.modules if name.startswith("ttl_odm.")}
    allowed = ("ttl_odm.core", "ttl_odm.errors", "ttl_odm.testing")
    assert all(name.startswith(allowed) for name in names), names
    assert not {"sqlalchemy", "beanie", "django"} & sys.modules.keys()
"""


def pytest_run(folder: Path, **files: str) -> str:
    for name, code in files.items():
        (folder / f"{name}.py").write_text(code)
    # pytest-asyncio wants to be told.
    scope = "asyncio_default_fixture_loop_scope=function"
    command = ["pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-o", scope, "."]
    run = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout + run.stderr


@pytest.mark.slow
def test_the_fixture_is_found_and_undoes_itself(tmp_path: Path) -> None:
    out = pytest_run(tmp_path, conftest=CONFTEST, test_carts=TESTS)
    assert "6 passed" in out, out
    assert "FAILED test_carts.py::test_2_moves_and_fails - RuntimeError" in out
    assert "ERROR test_carts.py::test_5_whose_fixture_fails - RuntimeError" in out


@pytest.mark.slow
def test_a_suite_that_does_not_use_it_pays_nothing(tmp_path: Path) -> None:
    assert "1 passed" in pytest_run(tmp_path, test_other=NO_DATABASE)
