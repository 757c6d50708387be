"""Upserts that move the rows which they meet, to keys of expired rows or off what refers to them.

The update half sets a key to something else than the INSERT brings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, func

from tests.leaks.paths_aliased_writes import seats_after
from tests.leaks.paths_references import firms_left
from tests.leaks.paths_unusual import dialect_insert, on_conflict
from tests.leaks.paths_writes import table
from tests.leaks.registry import path

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World

MET = {"id": 1, "number": 11, "stage_id": 11, "place": 11, "holder": "new"}
"""A new seat with the key of one that there is."""


def upsert(s: Session, added: Any, change: Callable[[Any], dict[str, Any]], **where: Any) -> Any:
    """An INSERT with an update half, which is made of the row that it would insert."""
    if s.get_bind().dialect.name == "mysql":
        return added.on_duplicate_key_update(change(added.inserted))
    return added.on_conflict_do_update(index_elements=["id"], set_=change(added.excluded), **where)


@path("an upsert takes the number of an expired row, by a table", writes=True)
def _(s: Session, m: World) -> Any:
    added = dialect_insert(s, table(m.Seat)).values(MET)
    return seats_after(s, m, upsert(s, added, lambda new: {"number": 2, "holder": new.holder}))


@path("an upsert takes the number of an expired row, by a class", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(upsert(s, dialect_insert(s, m.Seat), lambda _: {"number": 2}), [MET])
    return seats_after(s, m)


@path("an upsert moves the row that it meets by one", writes=True)
def _(s: Session, m: World) -> Any:
    seats = table(m.Seat)
    added = dialect_insert(s, seats).values(MET)
    return seats_after(s, m, upsert(s, added, lambda _: {"number": seats.c.number + 1}))


@path("an upsert makes a number of the row that it meets and the new one", writes=True)
def _(s: Session, m: World) -> Any:
    seats = table(m.Seat)
    added = dialect_insert(s, seats).values(MET)
    numbers = seats_after(
        s, m, upsert(s, added, lambda new: {"number": new.number - 10 * seats.c.number + 1})
    )
    return numbers, seats_after(s, m, upsert(s, added, lambda new: {"number": new.number}))


@path("an upsert sets a part of a key", writes=True)
def _(s: Session, m: World) -> Any:
    seats = table(m.Seat)
    added = dialect_insert(s, seats).values(MET)
    return seats_after(s, m, upsert(s, added, lambda new: {"place": new.place - 9}))


@path("an upsert of many sets of values moves rows", writes=True)
def _(s: Session, m: World) -> Any:
    statement = upsert(s, dialect_insert(s, table(m.Seat)), lambda new: {"number": new.place})
    rows = [{**MET, "place": 2}, {**MET, "id": 3, "number": 13, "place": 4}]
    s.connection().execute(statement, rows)
    return seats_after(s, m)


@path("an upsert moves a row by a value with a name", writes=True)
def _(s: Session, m: World) -> Any:
    seats, added = table(m.Seat), dialect_insert(s, table(m.Seat))
    statement = upsert(s, added, lambda _: {"number": seats.c.number + bindparam("by")})
    s.connection().execute(statement, {**MET, "by": 1})
    return seats_after(s, m)


@path("an upsert of several rows moves them", writes=True)
def _(s: Session, m: World) -> Any:
    seats = table(m.Seat)
    added = dialect_insert(s, seats).values([MET, {**MET, "id": 3, "number": 13, "place": 13}])
    return seats_after(s, m, upsert(s, added, lambda _: {"number": seats.c.number + 1}))


@path("an upsert moves the primary key of the row that it meets", writes=True)
def _(s: Session, m: World) -> Any:
    seats = table(m.Seat)
    added = dialect_insert(s, seats).values(MET)
    return seats_after(s, m, upsert(s, added, lambda new: {"id": new.id + 1}))


@path("an upsert moves a row by a condition", without=("mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    seats = table(m.Seat)
    added = on_conflict(s, seats).values(MET)
    where = seats.c.holder != added.excluded.holder
    return seats_after(s, m, upsert(s, added, lambda _: {"number": 2}, where=where))


@path("an upsert changes a key to which expired rows refer", writes=True)
def _(s: Session, m: World) -> Any:
    firms = table(m.Firm)
    added = dialect_insert(s, firms).values(id=2, code="new", name="new")
    changed = upsert(s, added, lambda new: {"code": func.upper(firms.c.code) + new.code})
    return s.connection().execute(changed).rowcount, firms_left(s, m)


@path("an upsert changes a key to which expired rows refer, to what it inserts", writes=True)
def _(s: Session, m: World) -> Any:
    added = dialect_insert(s, m.Firm)
    s.execute(upsert(s, added, lambda new: {"code": new.code}), [{"id": 2, "code": "new"}])
    return firms_left(s, m)
