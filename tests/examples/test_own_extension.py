"""The extension of examples/own_extension keeps the contract, on every SQL database."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import String, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from tests.guard import GUARD
from tests.locks import wait_until_blocked
from ttl_odm import TTLConfigurationError, TTLError
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin, expired, expires_at, include_expired, touch
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tests.backends import Backend

FOLDER = Path(__file__).parents[2] / "examples" / "own_extension"
OWN = {"inherits": None, "never": -1, "short": 50, "long": 200}
"""Rows of 100 seconds, by their own ttl."""


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The extension, as a program beside it imports it."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import setting

    return setting


@pytest.fixture
def message(engine: Engine, setting: Any) -> Any:
    """A model with four rows, whose default isn't set yet."""
    model = declare(setting)
    model.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([model(id=name, ttl=ttl) for name, ttl in OWN.items()])
        session.flush()
        for name in OWN:
            age(session.connection(), "messages", name, 100)
        session.commit()
    return model


def declare(setting: Any) -> Any:
    """A model whose default is in the settings."""
    from setting.sqlalchemy import settings

    class Base(DeclarativeBase):
        pass

    class Message(TTLMixin, Base):
        __tablename__ = "messages"
        __ttl__ = setting.FromSetting("keep_messages_for")
        id: Mapped[str] = mapped_column(String(30), primary_key=True)
        text: Mapped[str | None] = mapped_column(String(30))

    settings.to_metadata(Base.metadata)
    return Message


def keep_for(engine: Engine, seconds: int | None) -> None:
    """Change the setting, as the application's page does."""
    from setting.sqlalchemy import settings

    with engine.begin() as connection:
        connection.execute(delete(settings))
        connection.execute(insert(settings).values(name="keep_messages_for", value=seconds))


def ids(engine: Engine, model: Any, *conditions: Any) -> set[str]:
    with Session(engine) as session:
        return set(session.scalars(select(model.id).where(*conditions)))


@pytest.mark.parametrize(
    ("seconds", "live"),
    [
        (3600, {"inherits", "never", "long"}),
        (100, {"never", "long"}),
        (-1, {"inherits", "never", "long"}),
        (None, set(OWN)),
        (0, set(OWN)),
    ],
)
def test_reads_go_by_the_setting(
    engine: Engine, message: Any, seconds: int | None, live: set[str]
) -> None:
    keep_for(engine, seconds)
    assert ids(engine, message) == live
    with Session(engine) as session:
        every = session.scalars(select(message.id).options(include_expired()))
        assert set(every) == set(OWN)
        gone = select(message.id).where(expired(message)).options(include_expired())
        assert set(session.scalars(gone)) == set(OWN) - live
        core = select(message.__table__.c.id, func.count().over())
        assert {row[0] for row in session.execute(core)} == live


def test_without_a_setting_ttl_is_off(engine: Engine, message: Any) -> None:
    assert ids(engine, message) == set(OWN)
    assert Sweeper(engine, message).run_once().deleted == 0


def test_writes_go_by_the_setting(engine: Engine, message: Any) -> None:
    keep_for(engine, 60)
    with Session(engine) as session:
        changed = session.execute(update(message).values(text="x"))
        assert changed.rowcount == 2  # type: ignore[attr-defined]
        assert session.execute(touch(message).where(message.id == "inherits")).rowcount == 0
        session.add(message(id="inherits", text="new"))  # the key is free
        session.commit()
    assert ids(engine, message, message.text == "new") == {"inherits"}


def test_a_key_that_a_raised_setting_keeps_is_taken(engine: Engine, message: Any) -> None:
    keep_for(engine, 60)
    keep_for(engine, 3600)
    with Session(engine) as session:
        session.add(message(id="inherits"))
        with pytest.raises(IntegrityError):
            session.commit()


def test_objects_in_memory_follow_a_change(engine: Engine, message: Any) -> None:
    keep_for(engine, 3600)
    with Session(engine, expire_on_commit=False) as session:
        held = session.get(message, "inherits")
        assert held is not None
        session.commit()
        keep_for(engine, 60)
        held.text = "late"
        with pytest.raises(ExpiredError):
            session.flush()
        session.rollback()
        assert session.get(message, "inherits") is None


def test_the_end_is_told_by_the_database(engine: Engine, message: Any) -> None:
    keep_for(engine, 3600)
    with Session(engine) as session:
        held = session.get(message, "inherits")
        with pytest.raises(TTLError, match=r"The default ttl of Message isn't known in Python"):
            _ = held.expires_at
        end = select(expires_at(message) > message.last_modified).where(message.id == "inherits")
        assert session.scalar(end)


def test_a_sweep_goes_by_the_setting(engine: Engine, message: Any) -> None:
    keep_for(engine, 60)
    assert Sweeper(engine, message).run_once().deleted == 2
    keep_for(engine, None)
    assert ids(engine, message) == {"never", "long"}


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_change_waits_for_a_transaction_that_deletes_by_it(engine: Engine, message: Any) -> None:
    keep_for(engine, 60)
    with ThreadPoolExecutor(1) as pool, Session(engine) as session:
        session.add(message(id="inherits"))
        session.flush()  # this has deleted the expired row
        changing = pool.submit(keep_for, engine, 3600)
        wait_until_blocked(engine, "%settings%")
        session.commit()
        changing.result(GUARD)
    assert "inherits" in ids(engine, message)


def test_a_subclass_has_none_of_its_own(setting: Any) -> None:
    base = declare(setting)
    with pytest.raises(TTLConfigurationError, match="declare FromSetting"):

        class Urgent(base):  # type: ignore[misc, valid-type]
            __ttl__ = 5


@pytest.mark.slow
def test_the_program_runs(backend: Backend) -> None:
    assert backend.sync_url is not None
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / "messages.py"), backend.sync_url],
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD,
    )
    assert finished.returncode == 0, finished.stderr
    lines = finished.stdout.splitlines()
    assert lines[:3] == ["no setting: hello", "kept for a day: hello", "kept for a second: None"]
    assert "1 row deleted" in lines[3]
