"""How many rows there are, and have expired: of one instant, or said to be an estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, text

from tests.sql.sweeping import HOUR, add, cart
from ttl_odm import Stored
from ttl_odm.sqlalchemy.sweep import counts
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from ttl_odm.sweeper import Counted

EXPIRED, LIVE = 40, 5


@pytest.fixture(params=["few", "many", "walked"])
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A model; its table is said to be a big one, or has to be walked."""
    if request.param == "many":
        monkeypatch.setattr(counts, "_FEW", 0)
    return cart(sweep="scan") if request.param == "walked" else cart()


def filled(engine: Engine, model: Any, expired: int = EXPIRED, live: int = LIVE) -> None:
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        rows = [(key, None, 2 * HOUR) for key in range(expired)]
        add(connection, "carts", rows + [(expired + key, None, 0) for key in range(live)])


@pytest.fixture
def swept_meanwhile(engine: Engine) -> Iterator[list[str]]:
    """Before each statement another connection deletes some of the rows that have expired."""
    sent: list[str] = []

    def sweep(_c: Any, _k: Any, statement: str, *_: Any) -> None:
        if not statement.startswith(("SELECT", "WITH")) or "FROM carts" not in statement:
            return
        sent.append(statement)
        other = engine.raw_connection()
        try:
            cursor = other.cursor()
            cursor.execute(f"DELETE FROM carts WHERE id < {7 * len(sent)}")  # noqa: S608
            cursor.close()
            other.commit()
        finally:
            other.close()

    event.listen(engine, "before_cursor_execute", sweep)
    yield sent
    event.remove(engine, "before_cursor_execute", sweep)


def counted(engine: Engine, model: Any) -> Counted:
    store = SQLAlchemyStore(engine, model)
    store.targets()
    return store.count("carts")


def assert_only_live_ones_are_the_rest(engine: Engine, model: Any, swept: list[str]) -> None:
    """Check a count during which rows that have expired are deleted."""
    filled(engine, model)
    found = counted(engine, model)
    assert swept
    assert (found.rows - found.due, found.is_estimated) == (LIVE, False)


@pytest.mark.every_server
def test_a_sweep_between_two_statements_makes_nothing_of_the_rest(
    engine: Engine, model: Any, swept_meanwhile: list[str]
) -> None:
    assert_only_live_ones_are_the_rest(engine, model, swept_meanwhile)


@pytest.mark.every_server
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_nor_does_a_sweep_between_two_scopes(engine: Engine, swept_meanwhile: list[str]) -> None:
    assert_only_live_ones_are_the_rest(engine, cart(Stored(HOUR, by="id")), swept_meanwhile)


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_an_estimate_knows_what_was_deleted_since_the_last_analysis(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "_FEW", 0)
    model = cart()
    filled(engine, model, expired=0, live=1_000)
    is_postgresql = engine.dialect.name == "postgresql"
    # A backend says what it did when it is idle, or asked to: not in between, after the analysis.
    said = text("SELECT pg_stat_force_next_flush()" if is_postgresql else "SELECT 1")
    with engine.begin() as connection:
        connection.execute(said)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"ANALYZE {'' if is_postgresql else 'TABLE '}carts"))
    assert 900 < counted(engine, model).rows < 1_100
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM carts WHERE id >= 300"))
        connection.execute(said)
    found = counted(engine, model)
    assert (found.rows < 500, found.is_estimated) == (True, True)
