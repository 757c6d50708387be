"""Upserts under the contract: ON CONFLICT on PostgreSQL and SQLite, ON DUPLICATE KEY on MariaDB."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, func, select, text
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import Session

from tests.clocks import age

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

INSERT: dict[str, Any] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
    "mysql": mysql.insert,
}
LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def session(engine: Engine, model: Any) -> Iterator[Session]:
    with Session(engine) as session:
        session.add_all([model(id=key, email=f"{key}@old", views=7) for key in ("live", "dead")])
        session.commit()
        age(session.connection(), "web_sessions", "live", 1000)
        age(session.connection(), "web_sessions", "dead", 4000)
        session.commit()
        session.expunge_all()
        yield session


def upsert(session: Session, target: Any, rows: list[dict[str, Any]], **changes: Any) -> Any:
    """An upsert by primary key that adds to ``views``; ``changes`` are added to its SET."""
    dialect = session.get_bind().dialect.name
    statement = INSERT[dialect](target)
    if len(rows) == 1:
        statement = statement.values(**rows[0])
    table = getattr(target, "__table__", target)
    new = statement.inserted if dialect == "mysql" else statement.excluded
    changes = {"views": table.c.views + new.views, **changes}
    if dialect == "mysql":
        statement = statement.on_duplicate_key_update(**changes)
    else:
        statement = statement.on_conflict_do_update(index_elements=["id"], set_=changes)
    return statement, (rows if len(rows) > 1 else None)


def run(session: Session, target: Any, rows: list[dict[str, Any]], **options: Any) -> None:
    changes = options.pop("changes", {})
    statement, parameters = upsert(session, target, rows, **changes)
    session.execute(statement, parameters, execution_options=options)


def views(session: Session) -> dict[str, int]:
    rows = session.execute(text("SELECT id, views FROM web_sessions"))
    return {row.id: row.views for row in rows}


def stamp(session: Session, model: Any, key: str) -> datetime:
    query = select(model.last_modified).where(model.id == key)
    return session.execute(query, execution_options={"include_expired": True}).scalar_one()


def targets(model: Any) -> list[Any]:
    return [model, model.__table__]


@pytest.mark.parametrize("index", [0, 1], ids=["ORM", "Core"])
@pytest.mark.parametrize("several", [False, True])
def test_an_upsert_updates_the_live_and_replaces_the_expired(
    session: Session, model: Any, index: int, *, several: bool
) -> None:
    rows = [{"id": key, "views": 1} for key in ("live", "dead", "new")]
    before = stamp(session, model, "live")
    if several:
        run(session, targets(model)[index], rows)
    else:
        for row in rows:
            run(session, targets(model)[index], [row])
    assert views(session) == {"live": 8, "dead": 1, "new": 1}
    emails = dict(tuple(r) for r in session.execute(select(model.id, model.email)))
    assert emails == {"live": "live@old", "dead": None, "new": None}
    assert stamp(session, model, "live") - before > timedelta(seconds=900)


def test_an_upsert_replaces_the_expired_beside_a_key_that_the_database_computes(
    session: Session, model: Any
) -> None:
    run(session, model, [{"id": "dead", "email": func.lower("FREE@NEW"), "views": 1}])
    assert session.execute(select(model.id, model.email, model.views).order_by(model.id)).all() == [
        ("dead", "free@new", 1),
        ("live", "live@old", 7),
    ]


def test_a_value_for_the_stamp_is_overruled(session: Session, model: Any) -> None:
    before = stamp(session, model, "live")
    run(session, model.__table__, [{"id": "live", "views": 1}], changes={"_ts": LONG_AGO})
    assert stamp(session, model, "live") > before


def test_keep_last_modified_keeps_it_in_an_upsert(session: Session, model: Any) -> None:
    before = stamp(session, model, "live")
    run(session, model, [{"id": "live", "views": 1}], keep_last_modified=True)
    assert stamp(session, model, "live") == before
    assert views(session)["live"] == 8


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_a_row_that_expires_within_the_upsert_is_not_revived(
    session: Session, model: Any, *, keep: bool, several: bool
) -> None:
    """The moment between a look at the key, where there is one, and the upsert itself."""
    engine = session.get_bind()
    upserts: list[str] = []

    def expire(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT"):
            upserts.append(statement)
            if len(upserts) == 1:
                age(connection, "web_sessions", "live", 4000)

    event.listen(engine, "before_cursor_execute", expire)
    rows = [{"id": key, "views": 1} for key in (("live", "new") if several else ("live",))]
    run(session, model, rows, changes={"ttl": -1}, keep_last_modified=keep)
    found = {row.id: row.views for row in session.scalars(select(model))}
    found.pop("new", None)
    is_tried = engine.dialect.name == "sqlite" and not several  # PostgreSQL: there are two keys
    if is_tried or engine.dialect.name == "mysql":  # the row then makes room, for another try
        assert found == {"live": 1}
        assert (session.get_one(model, "live").email, session.get_one(model, "live").ttl) == (
            None,
            None,
        )
    else:  # the statement leaves the row alone
        assert found == {}
        assert views(session)["live"] == 7


def test_on_conflict_do_nothing_takes_an_expired_key(session: Session, model: Any) -> None:
    dialect = session.get_bind().dialect.name
    statement = INSERT[dialect](model)
    if dialect == "mysql":
        statement = statement.prefix_with("IGNORE")
    else:
        statement = statement.on_conflict_do_nothing()
    for key in ("live", "dead"):
        session.execute(statement.values(id=key, views=1))
    assert views(session) == {"live": 7, "dead": 1}
