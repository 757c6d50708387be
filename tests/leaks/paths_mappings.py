"""Unusual mappings: attributes, keys and relationships; classes that share a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.orm import (
    aliased,
)
from sqlalchemy.orm.exc import StaleDataError

from tests.leaks.models_unusual import Point
from tests.leaks.paths_unusual import dialect_insert
from tests.leaks.paths_writes import table
from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


# Attributes and keys


@path("UPDATE of a hybrid", writes=True)
def _(s: Session, m: World) -> Any:
    held = s.scalars(select(m.Guest)).all()
    count = s.execute(update(m.Guest).values({m.Guest.name: "max muster"})).rowcount
    return count, sorted(guest.name for guest in held)


@path("UPDATE of a composite attribute", writes=True)
def _(s: Session, m: World) -> Any:
    held = s.scalars(select(m.Guest)).all()
    at = m.Guest.position == Point(1, 1)
    count = s.execute(update(m.Guest).where(at).values({m.Guest.position: Point(5, 6)})).rowcount
    return count, sorted((guest.id, guest.position.x) for guest in held)


@path("composite attributes, compared and selected")
def _(s: Session, m: World) -> Any:
    at = s.execute(select(m.Guest.position).where(m.Guest.position != Point(3, 3)))
    return sorted((point.x, point.y) for (point,) in at)


@path("composite attributes in a bundle of an alias")
def _(s: Session, m: World) -> Any:
    guest = aliased(m.Guest)
    return rows(s.execute(select(guest.id, guest.position).where(guest.position == Point(1, 1))))


@path("pickled values")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Guest.luggage).where(m.Guest.luggage.is_not(None))))


@path("get() with a key of a type of its own")
def _(s: Session, m: World) -> Any:
    return [getattr(s.get(m.Guest, f"g{n}"), "name", None) for n in (1, 2, 3, 4)]


@path("a flush of new objects with keys of a type of their own", writes=True)
def _(s: Session, m: World) -> Any:
    s.add_all([m.Guest(id="g2", first="new"), m.Guest(id="g4", first="new")])
    s.flush()
    return sorted(s.scalars(select(m.Guest.first)))


@path("an upsert with a key of a type of its own", writes=True)
def _(s: Session, m: World) -> Any:
    added = dialect_insert(s, m.Guest)
    rows_ = [{"id": f"g{n}", "first": "new", "x": 9} for n in (1, 2, 3, 4)]
    if s.get_bind().dialect.name == "mysql":
        added = added.on_duplicate_key_update(x=added.inserted.x)
    else:
        added = added.on_conflict_do_update(index_elements=["id"], set_={"x": added.excluded.x})
    s.execute(added, rows_)
    return rows(s.execute(select(m.Guest.id, m.Guest.first, m.Guest.x)))


@path("a default that reads", writes=True)
def _(s: Session, m: World) -> Any:
    s.add(m.Room(id=9, floor=9, number=9))
    s.flush()
    return s.scalar(select(m.Room.guest_count).where(m.Room.id == 9))


@path("an onupdate that reads", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(update(m.Room).where(m.Room.id == 1).values(number=7))
    return s.scalar(select(m.Room.guest_count).where(m.Room.id == 1))


@path("INSERT of many rows, one of whose columns has a default that reads", writes=True)
def _(s: Session, m: World) -> Any:
    rooms = table(m.Room)
    s.connection().execute(insert(rooms), [{"id": n, "floor": n, "number": n} for n in (8, 9)])
    return rows(s.execute(select(rooms.c.id, rooms.c.guest_count).where(rooms.c.id > 7)))


@path("a composite unique value of an expired row, by executemany", writes=True)
def _(s: Session, m: World) -> Any:
    new = [{"id": 7, "floor": 1, "number": 2}, {"id": 8, "floor": 2, "number": 2}]
    s.connection().execute(insert(table(m.Room)), new)
    return sorted(s.scalars(select(m.Room.id)))


# Relationships that write


@path("a write-only relationship that inserts", writes=True)
def _(s: Session, m: World) -> Any:
    gil = s.get_one(m.Guest, "g1")
    s.execute(gil.stays.insert(), [{"room_id": 3, "nights": 9}])
    return rows(s.execute(select(m.Stay.guest_id, m.Stay.room_id, m.Stay.nights)))


@path("a write-only relationship that updates", writes=True)
def _(s: Session, m: World) -> Any:
    return [
        s.execute(s.get_one(m.Guest, k).stays.update().values(nights=9)).rowcount
        for k in ("g1", "g3")
    ]


@path("a write-only relationship that deletes", writes=True)
def _(s: Session, m: World) -> Any:
    guests = [s.get_one(m.Guest, key) for key in ("g1", "g3")]
    return [s.execute(guest.stays.delete()).rowcount for guest in guests]


@path("a dynamic relationship that updates and deletes", writes=True)
def _(s: Session, m: World) -> Any:
    gil, ida = s.get_one(m.Guest, "g1"), s.get_one(m.Guest, "g3")
    return gil.stays_dynamic.update({"nights": 9}), ida.stays_dynamic.delete()


@path("a row of an association table that has expired, added anew", writes=True)
def _(s: Session, m: World) -> Any:
    gil = s.get_one(m.Guest, "g1")
    gil.rooms.append(s.get_one(m.Room, 3))
    s.flush()
    return rows(s.execute(select(m.Stay.room_id, m.Stay.nights).where(m.Stay.guest_id == "g1")))


@path("a list that keeps the places of its objects", writes=True)
def _(s: Session, m: World) -> Any:
    gil = s.get_one(m.Guest, "g1")
    gil.wishes.insert(1, m.Wish(id=9, what="pie"))
    s.flush()
    return [(wish.what, wish.place) for wish in gil.wishes]


@path("a dictionary of related objects")
def _(s: Session, m: World) -> Any:
    return sorted(s.get_one(m.Room, 1).stays_by_nights)


@path("a flush that updates a row after others, which has expired", answer="stale", writes=True)
def _(s: Session, m: World) -> Any:
    room = s.get_one(m.Room, 1)
    m.pass_time(s, room)
    room.head = m.Guest(id="g9")
    try:
        s.flush()
    except StaleDataError:
        return "stale"
    return "changed"


# Classes that share a table


@path("a class of a part of another's table")
def _(s: Session, m: World) -> Any:
    s.scalars(select(m.OrderNumber)).all()
    gone = s.get(m.OrderNumber, 2) is None
    return sorted(o.number for o in s.scalars(select(m.OrderNumber))), gone


@path("a flush of a class of a part of another's table", answer="stale", writes=True)
def _(s: Session, m: World) -> Any:
    number = s.get_one(m.OrderNumber, 1)
    m.pass_time(s, number)
    number.number = "x"
    try:
        s.flush()
    except StaleDataError:
        return "stale"
    return "changed"


@path("a class of a join")
def _(s: Session, m: World) -> Any:
    return sorted((o.name, o.number) for o in s.scalars(select(m.CustomerOrder)))


@path("a class of a subquery")
def _(s: Session, m: World) -> Any:
    return sorted(o.number for o in s.scalars(select(m.BigOrder))), s.get(m.BigOrder, 2) is None


@path("get() of objects of a part of a table, of a join and of a subquery", answer=[True] * 3)
def _(s: Session, m: World) -> Any:
    classes = {m.OrderNumber: 1, m.CustomerOrder: (1, 1), m.BigOrder: 4}
    held = [s.get_one(cls, key) for cls, key in classes.items()]
    m.pass_time(s, s.get_one(m.Order, 1), s.get_one(m.Order, 4))
    return [s.get(type(row), inspect(row).identity) is None for row in held]


@path("a flush of a class of a join, one of whose rows has expired", answer="stale", writes=True)
def _(s: Session, m: World) -> Any:
    row = s.get_one(m.CustomerOrder, (1, 1))
    m.pass_time(s, s.get_one(m.Order, 1))
    row.number = "x"
    try:
        s.flush()
    except StaleDataError:
        return "stale"
    return "changed"


@path("a DELETE of an object of a join, one of whose rows has expired", answer="stale", writes=True)
def _(s: Session, m: World) -> Any:
    row = s.get_one(m.CustomerOrder, (1, 1))
    m.pass_time(s, s.get_one(m.Order, 1))
    s.delete(row)
    try:
        s.flush()
    except StaleDataError:
        return "stale"
    return "deleted"


@path("UPDATE of a class of a part of another's table: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    return s.execute(update(m.OrderNumber).values(number="x")).rowcount
