"""Writes whose table goes by another name: an alias, a join, the second of several, a CTE.

The answer is what is left, or who lives on: rows are written when 40 of their 60 minutes are over,
and looked at when as many have passed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, exists, func, insert, select, union_all, update
from sqlalchemy.orm import aliased

from tests.leaks.data import DAY
from tests.leaks.paths_writes import table
from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World

UNSYNCHRONIZED = {"synchronize_session": False}
MARIADB_ONLY = ("sqlite", "postgres")
POSTGRES_ONLY = ("sqlite", "mariadb", "mysql")


def seats_after(s: Session, m: World, *statements: Any) -> list[tuple[Any, ...]]:
    """The seats that there are after some statements."""
    for statement in statements:
        s.connection().execute(statement)
    seats = table(m.Seat)
    return rows(
        s.connection().execute(select(seats.c.id, seats.c.number, seats.c.place, seats.c.holder))
    )


def vouchers_after(s: Session, m: World, *statements: Any) -> list[tuple[Any, ...]]:
    """The vouchers."""
    for statement in statements:
        s.connection().execute(statement)
    return rows(s.execute(select(m.Voucher.id, m.Voucher.code, m.Voucher.tenant, m.Voucher.used)))


def living_on(s: Session, m: World, model: Any, write: Callable[[], Any]) -> list[int]:
    """The rows of a class whose lives a write has prolonged, and those without an end."""
    owner = m.Pass if model is m.Voucher else model
    for act in (write, lambda: None):
        m.let_pass(s, model, 2 * DAY // 3)
        act()
    return sorted(s.scalars(select(owner.id)))


# By an alias


@path("UPDATE of an alias takes the number of an expired row", writes=True)
def _(s: Session, m: World) -> Any:
    seat = table(m.Seat).alias()
    return seats_after(s, m, update(seat).where(seat.c.id == 1).values(number=2))


@path("UPDATE of an alias, by the columns of its table, takes an expired number", writes=True)
def _(s: Session, m: World) -> Any:
    seats = table(m.Seat)
    seat = seats.alias("seat")
    return seats_after(s, m, update(seat).where(seat.c.id == 1).values({seats.c.number: 2}))


@path("UPDATE of an alias moves a row to the place of an expired one", writes=True)
def _(s: Session, m: World) -> Any:
    seat = table(m.Seat).alias()
    return seats_after(s, m, update(seat).where(seat.c.id == 3).values(place=seat.c.place - 1))


@path("UPDATE of an alias with ordered values", writes=True)
def _(s: Session, m: World) -> Any:
    seat = table(m.Seat).alias()
    pairs = [(seat.c.holder, "gus"), (seat.c.number, seat.c.number + 1)]
    return seats_after(s, m, update(seat).where(seat.c.number == 3).ordered_values(*pairs))


@path("UPDATE of an alias with many sets of values", writes=True)
def _(s: Session, m: World) -> Any:
    seat = table(m.Seat).alias()
    moved = update(seat).where(seat.c.id == bindparam("seat")).values(number=bindparam("new"))
    s.connection().execute(moved, [{"seat": 1, "new": 2}, {"seat": 3, "new": 4}])
    return seats_after(s, m)


@path("UPDATE of an alias with RETURNING", without=("mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    seat = table(m.Seat).alias()
    moved = update(seat).values(number=seat.c.number * 2).where(seat.c.id == 1)
    return rows(s.connection().execute(moved.returning(seat.c.id, seat.c.number)))


@path("UPDATE of an alias FROM its own table", writes=True)
def _(s: Session, m: World) -> Any:
    seats = table(m.Seat)
    seat, other = seats.alias("seat"), seats.alias("other")
    beside = (other.c.id == 5) & (other.c.place == seat.c.place + 2)
    return seats_after(s, m, update(seat).where(beside).values({seat.c.number: other.c.number - 3}))


@path("UPDATE of an alias WHERE EXISTS", writes=True)
def _(s: Session, m: World) -> Any:
    seat, stage = table(m.Seat).alias(), table(m.Stage)
    small = exists().where(stage.c.id == seat.c.stage_id, stage.c.size == 3)
    return seats_after(s, m, update(seat).where(small, seat.c.id == 3).values(number=4))


@path("UPDATE of an alias moves the primary key", writes=True)
def _(s: Session, m: World) -> Any:
    seat = table(m.Seat).alias()
    return seats_after(s, m, update(seat).where(seat.c.id == 1).values(id=seat.c.id + 1))


@path("UPDATE of an alias of a joined subclass's table takes an expired code", writes=True)
def _(s: Session, m: World) -> Any:
    voucher = table(m.Voucher).alias()
    return vouchers_after(s, m, update(voucher).where(voucher.c.id == 1).values(code=2))


@path("UPDATE of an aliased class takes the number of an expired row", writes=True)
def _(s: Session, m: World) -> Any:
    seat = aliased(m.Seat)
    moved = update(seat).where(seat.id == 1).values(number=2)
    s.execute(moved, execution_options=UNSYNCHRONIZED)
    return seats_after(s, m)


@path("UPDATE of an aliased class, by its attributes, without synchronizing", writes=True)
def _(s: Session, m: World) -> Any:
    seat = aliased(m.Seat, name="seat")
    moved = update(seat).where(seat.id == 1).values({seat.number: seat.number + 1})
    s.execute(moved, execution_options=UNSYNCHRONIZED)
    return seats_after(s, m)


@path(
    "UPDATE of an aliased class, synchronized with objects in memory",
    without=dict.fromkeys(
        ("mariadb", "mysql"), "SQLAlchemy looks for the rows of the class, and not of its alias"
    ),
    writes=True,
)
def _(s: Session, m: World) -> Any:
    if s.get_bind().dialect.name == "mysql":
        raise NotImplementedError
    seats = s.scalars(select(m.Seat)).all()
    seat = aliased(m.Seat)
    s.execute(update(seat).where(seat.number < 4).values(holder="zoe"))
    return sorted(seat.holder for seat in seats)


@path("UPDATE of an aliased class with RETURNING", without=("mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    seat = aliased(m.Seat)
    moved = update(seat).where(seat.id == 3).values(number=4).returning(seat.id, seat.number)
    return rows(s.execute(moved, execution_options=UNSYNCHRONIZED))


@path("UPDATE of an alias prolongs lives", answer=[1, 5], writes=True)
def _(s: Session, m: World) -> Any:
    seat = table(m.Seat).alias()
    taken = update(seat).where(seat.c.id == 1).values(holder="zoe")
    return living_on(s, m, m.Seat, lambda: s.connection().execute(taken))


@path("UPDATE of an aliased class prolongs lives", answer=[1, 5], writes=True)
def _(s: Session, m: World) -> Any:
    seat = aliased(m.Seat)
    taken = update(seat).where(seat.id == 1).values(holder="zoe")
    return living_on(s, m, m.Seat, lambda: s.execute(taken, execution_options=UNSYNCHRONIZED))


@path("UPDATE of an alias FROM another table prolongs lives", answer=[1, 3, 5], writes=True)
def _(s: Session, m: World) -> Any:
    seat, stage = table(m.Seat).alias("seat"), table(m.Stage)
    taken = update(seat).where(seat.c.stage_id == stage.c.id, stage.c.size == 3)
    taken = taken.values({seat.c.holder: "zoe"})
    return living_on(s, m, m.Seat, lambda: s.connection().execute(taken))


@path("UPDATE of an alias of a joined subclass's table prolongs lives", answer=[1, 5], writes=True)
def _(s: Session, m: World) -> Any:
    voucher = table(m.Voucher).alias()
    used = update(voucher).where(voucher.c.tenant == 1).values(used=1)
    return living_on(s, m, m.Voucher, lambda: s.connection().execute(used))


@path("DELETE of an alias: rows left", without=("mariadb<11.6",), writes=True)
def _(s: Session, m: World) -> Any:
    seat = table(m.Seat).alias()
    gone = s.connection().execute(delete(seat).where(seat.c.number < 4)).rowcount
    return gone, seats_after(s, m)


@path("DELETE of an aliased class: rows matched", without=("mariadb<11.6",), writes=True)
def _(s: Session, m: World) -> Any:
    seat = aliased(m.Seat)
    # MySQL has no RETURNING: SQLAlchemy would look for the rows of the class before.
    options = UNSYNCHRONIZED if s.get_bind().dialect.name == "mysql" else {}
    gone = s.execute(delete(seat).where(seat.number < 4), execution_options=options)
    return gone.rowcount  # type: ignore[attr-defined]


@path("DELETE of an alias of a joined subclass's table", without=("mariadb<11.6",), writes=True)
def _(s: Session, m: World) -> Any:
    voucher = table(m.Voucher).alias()
    return s.connection().execute(delete(voucher).where(voucher.c.code < 5)).rowcount


@path("DELETE of an alias USING another table", without=("sqlite",), writes=True)
def _(s: Session, m: World) -> Any:
    seat, stage = table(m.Seat).alias("seat"), table(m.Stage)
    gone = delete(seat).where(seat.c.stage_id == stage.c.id, stage.c.size == 3)
    return s.connection().execute(gone).rowcount, seats_after(s, m)


# Several tables


@path("UPDATE of a join sets the first table", without=MARIADB_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    seats, stages = table(m.Seat), table(m.Stage)
    joined = seats.join(stages, (seats.c.stage_id == stages.c.id) & (seats.c.id == 1))
    return seats_after(s, m, update(joined).values({seats.c.number: seats.c.number + 1}))


@path("UPDATE of a join sets the second table", without=MARIADB_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    seats, stages = table(m.Seat), table(m.Stage)
    joined = stages.join(seats, (seats.c.stage_id == stages.c.id) & (seats.c.id == 1))
    return seats_after(s, m, update(joined).values({seats.c.number: 2}))


@path("UPDATE of a join sets both tables", without=MARIADB_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    seats, stages = table(m.Seat), table(m.Stage)
    joined = stages.join(seats, (seats.c.stage_id == stages.c.id) & (seats.c.id == 3))
    s.connection().execute(update(joined).values({seats.c.number: 4, stages.c.size: 9}))
    return seats_after(s, m), rows(s.execute(select(stages.c.id, stages.c.size)))


@path("UPDATE of a LEFT JOIN sets its left side", without=MARIADB_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    seats, stages = table(m.Seat), table(m.Stage)
    dan = (seats.c.stage_id == stages.c.id) & (seats.c.holder == "dan")
    size = func.coalesce(seats.c.number, 0) + 10
    changed = update(stages.outerjoin(seats, dan)).values({stages.c.size: size})
    s.connection().execute(changed)
    return rows(s.execute(select(stages.c.id, stages.c.size)))


@path("UPDATE of a join with an alias", without=MARIADB_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    stages, seat = table(m.Stage), table(m.Seat).alias("seat")
    joined = stages.join(seat, (seat.c.stage_id == stages.c.id) & (seat.c.id == 3))
    return seats_after(s, m, update(joined).values({seat.c.number: 2}))


@path("UPDATE sets the table that WHERE brings in", without=MARIADB_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    seats, stages = table(m.Seat), table(m.Stage)
    beside = (seats.c.stage_id == stages.c.id) & (seats.c.id == 1)
    return seats_after(s, m, update(stages).where(beside).values({seats.c.number: 2}))


@path("UPDATE sets another class's table", without=MARIADB_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    beside = (m.Seat.stage_id == m.Stage.id) & (m.Seat.id == 1)
    moved = update(m.Stage).where(beside).values({m.Seat.number: m.Seat.number + 1})
    s.execute(moved, execution_options=UNSYNCHRONIZED)
    return seats_after(s, m)


@path("UPDATE sets a joined subclass's table beside", without=MARIADB_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    vouchers, stages = table(m.Voucher), table(m.Stage)
    beside = (vouchers.c.tenant == stages.c.id) & (vouchers.c.id == 1)
    return vouchers_after(s, m, update(stages).where(beside).values({vouchers.c.code: 2}))


@path("UPDATE of a joined subclass and its base at once", without=MARIADB_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    both = update(m.Voucher).where(m.Voucher.id == m.Pass.id, m.Pass.id == 1)
    both = both.values({m.Voucher.code: 2, m.Pass.holder: "bob"})
    s.execute(both, execution_options=UNSYNCHRONIZED)
    return vouchers_after(s, m), sorted(s.scalars(select(m.Pass.holder)))


@path("UPDATE of a join prolongs lives", answer=[1, 3, 5], without=MARIADB_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    seats, stages = table(m.Seat), table(m.Stage)
    joined = stages.join(seats, (seats.c.stage_id == stages.c.id) & (stages.c.size == 3))
    taken = update(joined).values({seats.c.holder: "zoe"})
    return living_on(s, m, m.Seat, lambda: s.connection().execute(taken))


@path("UPDATE of a join that sets another table", answer=[5], without=MARIADB_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    seats, stages = table(m.Seat), table(m.Stage)
    joined = seats.join(stages, seats.c.stage_id == stages.c.id)
    changed = update(joined).values({stages.c.size: 9})
    return living_on(s, m, m.Seat, lambda: s.connection().execute(changed))


@path(
    "UPDATE beside a table prolongs no lives in it", answer=[5], without=MARIADB_ONLY, writes=True
)
def _(s: Session, m: World) -> Any:
    changed = update(m.Seat).where(m.Seat.stage_id == m.Stage.id).values({m.Stage.size: 9})
    return living_on(s, m, m.Seat, lambda: s.execute(changed, execution_options=UNSYNCHRONIZED))


@path("UPDATE of a second table prolongs lives", answer=[1, 5], without=MARIADB_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    vouchers, stages = table(m.Voucher), table(m.Stage)
    beside = (vouchers.c.tenant == stages.c.id) & (stages.c.size == 3)
    used = update(stages).where(beside).values({vouchers.c.used: 1})
    return living_on(s, m, m.Voucher, lambda: s.connection().execute(used))


# Inside a CTE


@path("UPDATE in a CTE takes the number of an expired row", without=POSTGRES_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    seats = table(m.Seat)
    moved = update(seats).where(seats.c.id == 1).values(number=2).returning(seats.c.id).cte()
    return seats_after(s, m, select(moved.c.id))


@path("UPDATE of an alias in a CTE, by an expression", without=POSTGRES_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    seat = table(m.Seat).alias()
    moved = update(seat).where(seat.c.id == 1).values(number=seat.c.number + 1)
    return seats_after(s, m, select(moved.returning(seat.c.id).cte().c.id))


@path("two UPDATEs in CTEs of one statement", without=POSTGRES_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    seats = table(m.Seat)
    moved = [
        update(seats).where(seats.c.id == key).values(values).returning(seats.c.id).cte()
        for key, values in ((1, {"number": 2}), (3, {"number": seats.c.number + 1}))
    ]
    return seats_after(s, m, union_all(*(select(cte.c.id) for cte in moved)))


@path("UPDATE of a class in a CTE of an INSERT", without=POSTGRES_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    moved = update(m.Seat).where(m.Seat.id == 1).values(number=m.Seat.number + 1)
    moved = moved.returning(m.Seat.id, m.Seat.holder).cte("moved")
    s.execute(insert(m.archive).from_select(["id", "name"], select(moved.c.id, moved.c.holder)))
    return seats_after(s, m)


@path("UPDATE of a joined subclass's table in a CTE", without=POSTGRES_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    vouchers = table(m.Voucher)
    moved = update(vouchers).where(vouchers.c.id == 1).values(code=vouchers.c.code + 1)
    return vouchers_after(s, m, select(moved.returning(vouchers.c.id).cte().c.id))


@path(
    "UPDATE of a joined subclass's table in a CTE prolongs lives",
    answer=[1, 5],
    without=POSTGRES_ONLY,
    writes=True,
)
def _(s: Session, m: World) -> Any:
    vouchers = table(m.Voucher)
    used = update(vouchers).where(vouchers.c.tenant == 1).values(used=1).returning(vouchers.c.id)
    return living_on(s, m, m.Voucher, lambda: s.connection().execute(select(used.cte().c.id)))


@path("an UPDATE that no SELECT reads, beside one", without=POSTGRES_ONLY, writes=True)
def _(s: Session, m: World) -> Any:
    seats = table(m.Seat)
    moved = update(seats).where(seats.c.id == 3).values(number=4).cte("moved")
    return seats_after(s, m, select(table(m.Stage).c.id).add_cte(moved))
