"""The ways in which the state machine writes: the same change by another route each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import cast, delete, false, insert, inspect, select, union_all, update
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import aliased
from sqlalchemy.orm.exc import StaleDataError

from tests.sql.state_world import AdminSession, WebSession

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

NEXT: Final = object()
"""A value: one more than there is."""

INSERTS: Final = ("flush", "orm", "bulk", "core", "values", "union")
BULK: Final = ("orm", "core", "alias", "core alias")
UPDATES: Final = ("flush", "key", *BULK)
DELETES: Final = ("flush", "held", *BULK)


def insert_by(way: str, session: Session, model: Any, values: dict[str, Any]) -> None:
    """Insert one row, which has no values for what the server or SQLAlchemy is to make."""
    if way == "flush":
        session.add(model(**values))
        session.flush()
    elif way == "orm":
        session.execute(insert(model), [values])
    elif way == "bulk":
        session.bulk_insert_mappings(model, [values])
    else:
        kind = inspect(model).polymorphic_identity
        for table in inspect(model).tables:
            row = {n: v for n, v in {**values, "kind": kind}.items() if n in table.c}
            if way == "core":
                session.execute(insert(table), [row])
            elif way == "values":
                session.execute(insert(table).values(row))
            else:
                # In a UNION psycopg2's values have no types.
                one = select(*(cast(value, table.c[name].type) for name, value in row.items()))
                rows = union_all(one, one.where(false()))
                session.execute(insert(table).from_select(list(row), rows))


def written_by(way: str, model: Any) -> Any:
    """What an UPDATE or DELETE is of."""
    table = model.__table__
    if way == "alias" and model is not AdminSession:  # whose alias is one of a join
        return aliased(model)
    return {"orm": model, "core": table}.get(way, table.alias())


def column_of(target: Any, name: str) -> Any:
    """A column of a class, a table, or an alias of one."""
    return getattr(getattr(target, "c", target), name)


def upsert_views(dialect: str, values: dict[str, Any]) -> Any:
    """An upsert that sets views, by primary key."""
    if dialect == "mysql":
        added = mysql.insert(WebSession).values(values)
        return added.on_duplicate_key_update(views=added.inserted.views)
    make: Any = sqlite.insert if dialect == "sqlite" else postgresql.insert
    upsert = make(WebSession).values(values)
    return upsert.on_conflict_do_update(index_elements=["id"], set_={"views": values["views"]})


def change_by(
    way: str, session: Session, model: Any, key: dict[str, Any], values: dict[str, Any]
) -> int:
    """Set columns of one row (`NEXT`: to one more than it is); return how many it matched."""
    if way == "flush":
        held = session.get(model, key)
        if held is None:
            return 0
        for name, value in values.items():
            setattr(held, name, value)
        changed = session.is_modified(held)
        session.flush()
        return int(changed)
    if way == "key":
        try:
            session.execute(update(model), [{**key, **values}])
        except StaleDataError:  # ExpiredError is one
            return 0
        return 1
    target = written_by(way, model)
    new = {n: column_of(target, n) + 1 if v is NEXT else v for n, v in values.items()}
    changed = update(target).where(*(column_of(target, n) == v for n, v in key.items()))
    result: Any = session.execute(changed.values(new))
    return int(result.rowcount)


def delete_by(way: str, session: Session, model: Any, key: dict[str, Any]) -> int:
    """Delete one row; return how many it matched."""
    if way in ("flush", "held"):
        options = {"include_expired": way == "held"}
        row = session.get(model, key, execution_options=options)
        if row is None:
            return 0
        session.delete(row)
        return 1
    target = written_by(way, model)
    same = [column_of(target, name) == value for name, value in key.items()]
    result: Any = session.execute(delete(target).where(*same))
    return int(result.rowcount)
