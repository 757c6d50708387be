"""What happens to one who still holds an object whose row has expired, or wants its key."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import func, insert, select, text, update
from sqlalchemy.exc import IntegrityError, InvalidRequestError
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

import ttl_odm
from tests.clocks import age
from ttl_odm.sqlalchemy import ExpiredError, include_expired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine


@pytest.fixture
def session(engine: Engine, model: Any) -> Iterator[Session]:
    with Session(engine) as session:
        session.add_all(
            [
                model(id="live", email="live@example.org", views=7),
                model(id="dead", email="dead@example.org", views=7),
            ]
        )
        session.commit()
        yield session


def expire(session: Session, key: str = "dead") -> None:
    """Let a row expire behind the session's back."""
    age(session.connection(), "web_sessions", key, 4000)
    session.commit()


def stored(session: Session, model: Any) -> dict[str, int]:
    """What is in the table, expired or not, read raw."""
    rows = session.execute(text("SELECT id, views FROM web_sessions")).all()
    assert model.__tablename__ == "web_sessions"
    return {row.id: row.views for row in rows}


def test_an_update_of_an_expired_object_raises_and_stores_nothing(
    session: Session, model: Any
) -> None:
    live, dead = session.get(model, "live"), session.get(model, "dead")
    age(session.connection(), "web_sessions", "dead", 4000)
    live.views = 8
    dead.views = 9
    with pytest.raises(ExpiredError, match="WebSession 'dead' can't be updated") as caught:
        session.commit()
    assert isinstance(caught.value, StaleDataError)
    assert isinstance(caught.value, ttl_odm.ExpiredError)
    assert (caught.value.model, caught.value.key) == ("WebSession", "dead")
    session.rollback()
    assert stored(session, model) == {"live": 7, "dead": 7}


def test_so_does_an_object_whose_attributes_a_commit_has_let_go(
    session: Session, model: Any
) -> None:
    live, dead = session.get(model, "live"), session.get(model, "dead")
    expire(session)  # commits
    live.views = 8
    dead.views = 9
    with pytest.raises(ExpiredError, match="WebSession 'dead' can't be updated"):
        session.commit()
    session.rollback()
    assert stored(session, model) == {"live": 7, "dead": 7}


def test_a_delete_of_an_expired_object_raises_and_stores_nothing(
    session: Session, model: Any
) -> None:
    rows = session.scalars(select(model)).all()
    age(session.connection(), "web_sessions", "dead", 4000)
    for row in rows:
        session.delete(row)
    with pytest.raises(ExpiredError, match="WebSession 'dead' can't be deleted"):
        session.flush()
    session.rollback()
    assert stored(session, model) == {"live": 7, "dead": 7}


def test_deleting_live_objects_warns_of_nothing(session: Session, model: Any) -> None:
    for row in session.scalars(select(model)).all():
        session.delete(row)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.commit()
    assert stored(session, model) == {}


def test_an_object_whose_row_was_purged_meanwhile_fails_in_the_same_way(
    session: Session, model: Any
) -> None:
    dead = session.get(model, "dead")
    session.execute(text("DELETE FROM web_sessions WHERE id = 'dead'"))
    dead.views = 9
    with pytest.raises(ExpiredError, match="has expired, or was deleted"):
        session.flush()
    session.rollback()


def test_get_refresh_and_attribute_access_find_it_gone(session: Session, model: Any) -> None:
    session.expire_on_commit = False
    dead = session.get(model, "dead")
    expire(session)
    with pytest.raises(InvalidRequestError):
        session.refresh(dead)
    assert session.get(model, "dead") is None
    assert session.get(model, "dead", execution_options={"include_expired": True}).id == "dead"


def test_get_serves_live_objects_from_memory(session: Session, model: Any) -> None:
    rows = session.scalars(select(model)).all()
    statements: list[str] = []
    cursor_execute: Any = session.connection().dialect.do_execute
    session.connection().dialect.do_execute = lambda *args: (  # type: ignore[method-assign]
        statements.append(args[1]),
        cursor_execute(*args),
    )[1]
    for _ in range(50):
        for row in rows:
            assert session.get(model, row.id) is row
    assert statements == []


def test_get_misses_an_object_that_expired_since_it_was_loaded(
    session: Session, model: Any
) -> None:
    session.expire_on_commit = False
    with Session(session.get_bind()) as other:
        age(other.connection(), "web_sessions", "dead", 3300)
        other.commit()
    dead = session.get(model, "dead", populate_existing=True)
    assert dead.time_left is not None
    model.__ttl__ = 3000  # memory alone knows now that it is over
    assert dead.is_expired
    assert session.get(model, "dead") is None
    assert session.get(model, "live") is not None


def test_merging_an_object_whose_row_has_expired_inserts_it_anew(
    session: Session, model: Any
) -> None:
    session.get(model, "dead")
    expire(session)
    model.__ttl__ = 3000
    merged = session.merge(model(id="dead", email="new@example.org"))
    session.commit()
    assert (merged.email, merged.views) == ("new@example.org", 0)
    assert stored(session, model) == {"live": 7, "dead": 0}


def insert_by_flush(session: Session, model: Any, **values: Any) -> None:
    session.add(model(**values))
    session.flush()


def insert_by_flush_of_several(session: Session, model: Any, **values: Any) -> None:
    session.add_all([model(**values), model(id="another")])
    session.flush()


def insert_by_orm(session: Session, model: Any, **values: Any) -> None:
    session.execute(insert(model).values(**values))


def insert_by_orm_in_bulk(session: Session, model: Any, **values: Any) -> None:
    session.execute(insert(model), [values, {**values, "id": "another", "email": None}])


def insert_by_bulk_save(session: Session, model: Any, **values: Any) -> None:
    session.bulk_save_objects([model(**values)])


def insert_by_core(session: Session, model: Any, **values: Any) -> None:
    session.connection().execute(model.__table__.insert(), {"views": 0, **values})


def insert_by_core_values(session: Session, model: Any, **values: Any) -> None:
    session.connection().execute(model.__table__.insert().values(views=0, **values))


def insert_by_core_multi_values(session: Session, model: Any, **values: Any) -> None:
    rows = [{"views": 0, **values}, {"id": "another", "email": None, "views": 0}]
    session.connection().execute(model.__table__.insert().values(rows))


def insert_by_core_expression(session: Session, model: Any, **values: Any) -> None:
    values["id"] = func.lower(values["id"].upper())
    session.connection().execute(model.__table__.insert().values(views=0, **values))


def insert_from_select(session: Session, model: Any, **values: Any) -> None:
    from sqlalchemy import literal

    names = [*values, "views"]
    row = select(*(literal(value).label(name) for name, value in values.items()), literal(0))
    session.connection().execute(model.__table__.insert().from_select(names, row))


INSERTS = [
    insert_by_flush,
    insert_by_flush_of_several,
    insert_by_orm,
    insert_by_orm_in_bulk,
    insert_by_bulk_save,
    insert_by_core,
    insert_by_core_values,
    insert_by_core_multi_values,
    insert_by_core_expression,
    insert_from_select,
]
WANTED = {
    "its primary key": {"id": "dead", "email": "new@example.org"},
    "its unique value": {"id": "new", "email": "dead@example.org"},
    "both": {"id": "dead", "email": "dead@example.org"},
}


@pytest.mark.parametrize("wanted", WANTED.values(), ids=WANTED)
@pytest.mark.parametrize("write", INSERTS, ids=lambda write: write.__name__)
def test_an_insert_takes_the_key_of_an_expired_row(
    session: Session, model: Any, write: Callable[..., None], wanted: dict[str, str]
) -> None:
    expire(session)
    write(session, model, **wanted)
    session.commit()
    assert session.scalars(select(model.email).where(model.id == wanted["id"])).one()
    kept = stored(session, model)
    assert kept["live"] == 7
    assert kept[wanted["id"]] == 0  # nothing of the old row survives
    assert set(kept) <= {"live", wanted["id"], "another"}


@pytest.mark.parametrize("write", INSERTS, ids=lambda write: write.__name__)
def test_an_insert_never_displaces_a_live_row(
    session: Session, model: Any, write: Callable[..., None]
) -> None:
    expire(session)
    for wanted in ({"id": "live"}, {"id": "new", "email": "live@example.org"}):
        with pytest.raises(IntegrityError):
            write(session, model, **{"email": None, **wanted})
        session.rollback()
        session.expunge_all()
    assert stored(session, model) == {"live": 7, "dead": 7}


def test_one_insert_can_take_the_keys_of_two_expired_rows(session: Session, model: Any) -> None:
    expire(session)
    expire(session, "live")
    session.expunge_all()
    session.add(model(id="live", email="dead@example.org"))
    session.commit()
    assert stored(session, model) == {"live": 0}


def test_a_stale_object_of_the_old_row_does_not_get_in_the_way(
    session: Session, model: Any
) -> None:
    session.expire_on_commit = False
    session.get(model, "dead")
    expire(session)
    model.__ttl__ = 3000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.add(model(id="dead", views=1))
        session.commit()
    assert stored(session, model) == {"live": 7, "dead": 1}


def test_bulk_updates_leave_expired_rows_and_objects_alone(session: Session, model: Any) -> None:
    session.expire_on_commit = False
    dead = session.get(model, "dead")
    live = session.get(model, "live")
    expire(session)
    for strategy in ("auto", "evaluate", "fetch"):
        result: Any = session.execute(
            update(model).values(views=model.views + 1),
            execution_options={"synchronize_session": strategy},
        )
        assert result.rowcount == 1
    assert (dead.views, live.views) == (7, 10)
    assert stored(session, model) == {"live": 10, "dead": 7}


def test_include_expired_reads_but_never_writes(session: Session, model: Any) -> None:
    expire(session)
    read = session.scalars(select(model).options(include_expired())).all()
    assert {row.id for row in read} == {"live", "dead"}
    options = {"include_expired": True, "synchronize_session": False}
    result: Any = session.execute(update(model).values(views=1), execution_options=options)
    assert result.rowcount == 1
    connection = session.connection().execution_options(include_expired=True)
    assert len(connection.execute(select(model.id)).all()) == 2
    assert connection.execute(model.__table__.delete()).rowcount == 1
