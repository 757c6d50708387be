"""Every write through the gate resets ``_ts`` by the server's clock; nothing else does."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from tests.clocks import age
from tests.sql.models import web_session
from ttl_odm.sqlalchemy import touch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def model(engine: Engine) -> Any:
    made = web_session(3600)
    made.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(made(id="a"))
        session.commit()
        age(session.connection(), "web_sessions", "a", 1000)
        session.commit()
    return made


@pytest.fixture
def session(engine: Engine, model: Any) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


def stamp(session: Session, model: Any) -> datetime:
    query = select(model.last_modified).where(model.id == "a")
    return session.execute(query, execution_options={"include_expired": True}).scalar_one()


def flush(session: Session, model: Any) -> None:
    session.get(model, "a").views = 1
    session.commit()


def flush_of_the_ttl_alone(session: Session, model: Any) -> None:
    session.get(model, "a").ttl = 7200
    session.commit()


def flush_with_a_stale_copy(session: Session, model: Any) -> None:
    row = session.get(model, "a")
    row.views, row.last_modified = 1, LONG_AGO
    session.commit()


def merge_of_a_stale_copy(session: Session, model: Any) -> None:
    session.merge(model(id="a", last_modified=LONG_AGO, views=5))
    session.commit()


def bulk_update(session: Session, model: Any) -> None:
    session.execute(update(model).where(model.id == "a").values(views=1))


def bulk_update_with_a_value_for_the_stamp(session: Session, model: Any) -> None:
    session.execute(update(model).where(model.id == "a").values(last_modified=LONG_AGO))


def core_update(session: Session, model: Any) -> None:
    session.connection().execute(model.__table__.update().values(views=1))


def core_update_with_parameters(session: Session, model: Any) -> None:
    session.connection().execute(model.__table__.update(), {"views": 1, "_ts": LONG_AGO})


def core_update_in_order(session: Session, model: Any) -> None:
    table = model.__table__
    session.connection().execute(table.update().ordered_values((table.c.views, 1)))


def bulk_update_by_primary_key(session: Session, model: Any) -> None:
    session.execute(update(model), [{"id": "a", "views": 1}])


def bulk_update_mappings(session: Session, model: Any) -> None:
    session.bulk_update_mappings(model, [{"id": "a", "views": 1}])


def touching(session: Session, model: Any) -> None:
    touch(session.get(model, "a"))
    session.commit()


RESETTING = [
    flush,
    flush_of_the_ttl_alone,
    flush_with_a_stale_copy,
    merge_of_a_stale_copy,
    bulk_update,
    bulk_update_with_a_value_for_the_stamp,
    core_update,
    core_update_with_parameters,
    core_update_in_order,
    bulk_update_by_primary_key,
    bulk_update_mappings,
    touching,
]


@pytest.mark.parametrize("write", RESETTING, ids=lambda write: write.__name__)
def test_a_write_resets_the_last_modification(
    session: Session, model: Any, write: Callable[[Session, Any], None]
) -> None:
    before = stamp(session, model)
    write(session, model)
    assert timedelta(seconds=990) < stamp(session, model) - before < timedelta(seconds=1100)


def test_a_flush_without_a_net_change_writes_and_resets_nothing(
    session: Session, model: Any
) -> None:
    before = stamp(session, model)
    row = session.get(model, "a")
    row.views = row.views
    session.commit()
    assert stamp(session, model) == before


KEEPING: dict[str, Callable[[Any], Any]] = {
    "bulk": lambda model: update(model).where(model.id == "a").values(views=1),
    "Core": lambda model: model.__table__.update().values(views=1),
}


@pytest.mark.parametrize("statement", KEEPING.values(), ids=KEEPING)
def test_keep_last_modified_writes_without_resetting(
    session: Session, model: Any, statement: Callable[[Any], Any]
) -> None:
    before = stamp(session, model)
    session.execute(statement(model), execution_options={"keep_last_modified": True})
    assert stamp(session, model) == before
    session.execute(statement(model).execution_options(keep_last_modified=True))
    assert stamp(session, model) == before
    session.execute(statement(model))  # the same cached SQL
    assert stamp(session, model) > before


def test_keep_last_modified_holds_for_an_update_by_primary_key(
    session: Session, model: Any
) -> None:
    before = stamp(session, model)
    rows = [{"id": "a", "views": 3}]
    session.execute(update(model), rows, execution_options={"keep_last_modified": True})
    session.execute(update(model).execution_options(keep_last_modified=True), rows)
    assert stamp(session, model) == before
    session.execute(update(model), rows)
    assert stamp(session, model) > before


def test_keep_last_modified_on_a_connection_covers_a_flush(engine: Engine, model: Any) -> None:
    with (
        engine.connect().execution_options(keep_last_modified=True) as connection,
        Session(connection) as session,
    ):
        before = stamp(session, model)
        session.get(model, "a").views = 1
        session.commit()
        assert stamp(session, model) == before


def test_keep_last_modified_lets_a_caller_set_it(session: Session, model: Any) -> None:
    session.execute(
        insert(model),
        [{"id": "old", "last_modified": LONG_AGO, "ttl": -1}, {"id": "new"}][:1],
        execution_options={"keep_last_modified": True},
    )
    query = select(model.last_modified).where(model.id == "old")
    assert session.scalars(query).one() == LONG_AGO


INSERTS: dict[str, Callable[[Session, Any], Any]] = {
    "flush": lambda s, m: (s.add(m(id="n", last_modified=LONG_AGO)), s.flush()),
    "flush of several": lambda s, m: (
        s.add_all([m(id="n", last_modified=LONG_AGO), m(id="o", last_modified=LONG_AGO)]),
        s.flush(),
    ),
    "ORM insert": lambda s, m: s.execute(insert(m).values(id="n", last_modified=LONG_AGO)),
    "ORM bulk insert": lambda s, m: s.execute(insert(m), [{"id": "n"}, {"id": "o"}]),
    "Core insert": lambda s, m: s.connection().execute(
        m.__table__.insert(), {"id": "n", "_ts": LONG_AGO}
    ),
    "Core multi-values": lambda s, m: s.connection().execute(
        m.__table__.insert().values([{"id": "n", "views": 0}, {"id": "o", "views": 0}])
    ),
    "Core multi-values with a stamp": lambda s, m: s.connection().execute(
        m.__table__.insert().values(
            [{"id": "n", "views": 0, "_ts": LONG_AGO}, {"id": "o", "views": 0, "_ts": LONG_AGO}]
        )
    ),
    "INSERT FROM SELECT": lambda s, m: s.connection().execute(
        m.__table__.insert().from_select(["id"], select(m.id.concat("n")))
    ),
    "INSERT FROM SELECT with a stamp": lambda s, m: s.connection().execute(
        m.__table__.insert().from_select(["id", "_ts"], select(m.id.concat("n"), m.last_modified))
    ),
}


@pytest.mark.parametrize("write", INSERTS.values(), ids=INSERTS)
def test_an_insert_is_stamped_by_the_server(
    session: Session, model: Any, write: Callable[[Session, Any], Any]
) -> None:
    before = stamp(session, model)
    write(session, model)
    stamps = session.scalars(select(model.last_modified).where(model.id != "a")).all()
    assert stamps
    for each in stamps:
        assert each - before > timedelta(seconds=990)


@pytest.mark.parametrize("is_ordered", [False, True])
def test_an_objects_last_modification_is_the_databases_after_a_bulk_update(
    session: Session, model: Any, *, is_ordered: bool
) -> None:
    row = session.get(model, "a")
    before = row.last_modified
    write = update(model)
    session.execute(write.ordered_values((model.views, 3)) if is_ordered else write.values(views=3))
    assert row.views == 3
    assert row.last_modified > before + timedelta(seconds=900)
