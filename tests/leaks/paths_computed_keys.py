"""UPDATEs whose new keys the database computes, and those that the ORM gives conditions to.

A row moves to where an expired one is; or a tenant's rows are written, and only theirs live on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, case, delete, event, func, literal, select, update
from sqlalchemy.orm import with_loader_criteria

from tests.leaks.paths_aliased_writes import (
    UNSYNCHRONIZED,
    living_on,
    seats_after,
    vouchers_after,
)
from tests.leaks.paths_writes import table
from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


# Keys that the database computes


@path("UPDATE of a number by one, of a table", writes=True)
def _(s: Session, m: World) -> Any:
    seats = table(m.Seat)
    return seats_after(s, m, update(seats).where(seats.c.id == 1).values(number=seats.c.number + 1))


@path("UPDATE of all numbers by three, of a table", writes=True)
def _(s: Session, m: World) -> Any:
    seats = table(m.Seat)
    return seats_after(s, m, update(seats).values(number=seats.c.number + 3))


@path("UPDATE of a number by one, of a class", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(update(m.Seat).where(m.Seat.number == 3).values({m.Seat.number: m.Seat.number + 1}))
    return seats_after(s, m)


@path(
    "UPDATE of a number by one, of a class, with RETURNING",
    without=("mariadb", "mysql"),
    writes=True,
)
def _(s: Session, m: World) -> Any:
    moved = update(m.Seat).where(m.Seat.id == 1).values(number=m.Seat.number + 1)
    return sorted(s.scalars(moved.returning(m.Seat.number)))


@path("UPDATE of a part of a key, of a class", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(update(m.Seat).where(m.Seat.id == 1).values(place=m.Seat.place + 1))
    return seats_after(s, m)


@path("UPDATE of both parts of a key, one by an expression", writes=True)
def _(s: Session, m: World) -> Any:
    moved = update(m.Seat).where(m.Seat.id == 5).values(stage_id=1, place=m.Seat.place - 3)
    s.execute(moved)
    return seats_after(s, m)


@path("UPDATE of the primary key by an expression", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(update(m.Seat).where(m.Seat.id == 3).values(id=m.Seat.id + 1))
    return seats_after(s, m)


@path("UPDATE of a number by a CASE", writes=True)
def _(s: Session, m: World) -> Any:
    seats = table(m.Seat)
    number = case((seats.c.id == 1, 2), (seats.c.id == 3, 4), else_=seats.c.number)
    return seats_after(s, m, update(seats).values(number=number))


@path("UPDATE of a number by a subquery", writes=True)
def _(s: Session, m: World) -> Any:
    seats, stage = table(m.Seat), table(m.Stage).alias()
    size = select(func.max(stage.c.size) + 1).scalar_subquery()
    return seats_after(s, m, update(seats).where(seats.c.id == 1).values(number=size))


@path("UPDATE of a number by a correlated subquery", writes=True)
def _(s: Session, m: World) -> Any:
    seats, stages = table(m.Seat), table(m.Stage)
    size = select(stages.c.size + 1).where(stages.c.id == seats.c.stage_id).scalar_subquery()
    return seats_after(s, m, update(seats).where(seats.c.id == 3).values(number=size))


@path("UPDATE FROM gives a number", writes=True)
def _(s: Session, m: World) -> Any:
    seats, stages = table(m.Seat), table(m.Stage)
    mine = (seats.c.stage_id == stages.c.id) & (seats.c.id == 1)
    return seats_after(s, m, update(seats).where(mine).values({seats.c.number: stages.c.size + 1}))


@path("UPDATE of numbers by many sets of values", writes=True)
def _(s: Session, m: World) -> Any:
    seats = table(m.Seat)
    moved = update(seats).where(seats.c.id == bindparam("seat"))
    moved = moved.values(number=seats.c.number + bindparam("by"))
    s.connection().execute(moved, [{"seat": 1, "by": 1}, {"seat": 3, "by": 1}])
    return seats_after(s, m)


@path("UPDATE of a number by a value and an expression in turn", writes=True)
def _(s: Session, m: World) -> Any:
    seats = table(m.Seat)
    first = update(seats).where(seats.c.id == 1)
    last = update(seats).where(seats.c.id == 3)
    return seats_after(
        s, m, first.values(number=2), first.values(number=seats.c.number + 2), last.values(number=2)
    )


@path("a flush that moves a row by an expression", writes=True)
def _(s: Session, m: World) -> Any:
    seat = s.get_one(m.Seat, 1)
    seat.number = m.Seat.number + literal(1)
    s.flush()
    return seat.number, seats_after(s, m)


@path("a flush that moves a joined subclass's row by an expression", writes=True)
def _(s: Session, m: World) -> Any:
    voucher = s.get_one(m.Voucher, 3)
    voucher.code = m.Voucher.code + 1
    s.flush()
    return vouchers_after(s, m)


@path("UPDATE of a code by one, of a joined subclass", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(update(m.Voucher).where(m.Voucher.code == 1).values(code=m.Voucher.code + 1))
    return vouchers_after(s, m)


@path("UPDATE of a base's unique text by an expression", writes=True)
def _(s: Session, m: World) -> Any:
    passes = table(m.Pass)
    holder = func.replace(passes.c.holder, "ann", "bob")
    s.connection().execute(update(passes).where(passes.c.id == 1).values(holder=holder))
    return sorted(s.scalars(select(m.Pass.holder)))


@path("UPDATE of the key of a joined subclass's table", writes=True)
def _(s: Session, m: World) -> Any:
    vouchers, passes = table(m.Voucher), table(m.Pass)
    for moved in (vouchers, passes):
        s.connection().execute(update(moved).where(moved.c.id == 3).values(id=moved.c.id + 1))
    return vouchers_after(s, m)


# Conditions that the ORM adds


@path("UPDATE of a joined subclass with loader criteria", answer=[1, 5], writes=True)
def _(s: Session, m: World) -> Any:
    ours = with_loader_criteria(m.Voucher, m.Voucher.tenant == 1)
    return living_on(
        s, m, m.Voucher, lambda: s.execute(update(m.Voucher).values(used=1).options(ours))
    )


@path("UPDATE of a joined subclass with criteria by a function", answer=[3, 5], writes=True)
def _(s: Session, m: World) -> Any:
    answers = []
    for tenant in (1, 2):  # the second comes from the cache, with another tenant
        ours = with_loader_criteria(m.Voucher, lambda cls: cls.tenant == tenant)  # noqa: B023
        with s.begin_nested() as savepoint:
            used = update(m.Voucher).values(used=1).options(ours)
            answers.append(living_on(s, m, m.Voucher, lambda: s.execute(used)))  # noqa: B023
            savepoint.rollback()
    return answers[1] if answers[0] == [1, 5] else answers


@path("UPDATE of a joined subclass with criteria of the session", answer=[3, 5], writes=True)
def _(s: Session, m: World) -> Any:
    @event.listens_for(s, "do_orm_execute")
    def add_tenant(state: Any) -> None:
        theirs = with_loader_criteria(m.Voucher, m.Voucher.tenant == 2, include_aliases=True)
        state.statement = state.statement.options(theirs)

    used = update(m.Voucher).where(m.Voucher.code < 5).values(used=1)
    return living_on(s, m, m.Voucher, lambda: s.execute(used, execution_options=UNSYNCHRONIZED))


@path("UPDATE of a joined subclass by a subquery with criteria", answer=[1, 5], writes=True)
def _(s: Session, m: World) -> Any:
    small = with_loader_criteria(m.Stage, m.Stage.size == 3)
    used = update(m.Voucher).where(m.Voucher.tenant.in_(select(m.Stage.id))).values(used=1)
    used = used.options(small).execution_options(**UNSYNCHRONIZED)
    return living_on(s, m, m.Voucher, lambda: s.execute(used))


@path("UPDATE of a class with loader criteria and a new number", writes=True)
def _(s: Session, m: World) -> Any:
    here = with_loader_criteria(m.Seat, m.Seat.stage_id == 1)
    moved = update(m.Seat).where(m.Seat.number > 2).values(number=m.Seat.number + 1)
    s.execute(moved.options(here))
    return seats_after(s, m)


@path("DELETE of a class with loader criteria: rows left", writes=True)
def _(s: Session, m: World) -> Any:
    here = with_loader_criteria(m.Seat, m.Seat.stage_id == 1)
    gone = s.execute(delete(m.Seat).options(here))
    return gone.rowcount, seats_after(s, m)  # type: ignore[attr-defined]


@path("UPDATE of a single-table subclass's rows alone", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(update(m.Login).values(name="x"), execution_options=UNSYNCHRONIZED)
    return rows(s.execute(select(m.Event.id, m.Event.name)))
