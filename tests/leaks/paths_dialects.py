"""What only some databases have, or have each in their own way; and rows found behind objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    case,
    delete,
    exists,
    func,
    insert,
    inspect,
    literal,
    schema,
    select,
    text,
    update,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.orm import aliased, make_transient_to_detached, selectinload
from sqlalchemy.orm.exc import ObjectDeletedError

from tests.leaks.paths_unusual import NEW, on_conflict
from tests.leaks.paths_writes import table
from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World

NOT_IN_ITSELF = {"mysql": "it changes no table that a subquery of the statement reads"}


def only_on(s: Session, *dialects: str) -> None:
    """Refuse where SQLAlchemy would leave out what this is about."""
    if s.get_bind().dialect.name not in dialects:
        raise NotImplementedError


# Reads


@path("GROUPING SETS", without=("sqlite", "mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    sets = func.grouping_sets(m.Order.customer_id, m.Order.total > 30)
    return rows(s.execute(select(m.Order.customer_id, func.count()).group_by(sets)))


@path("CUBE over a join", without=("sqlite", "mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    joined = select(m.Customer.name, func.sum(m.Order.total)).join(m.Customer.orders)
    return rows(s.execute(joined.group_by(func.cube(m.Customer.name, m.Customer.region_id))))


@path("a table as one value", without=("sqlite", "mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    regions = table(m.Customer).alias("c")
    return sorted(
        row["name"] for row in s.scalars(select(func.row_to_json(regions.table_valued())))
    )


@path("an array of a subquery", without=("sqlite", "mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    numbers = select(m.Order.number).where(m.Order.customer_id == m.Customer.id)
    arrays = select(m.Customer.name, func.array(numbers.order_by(m.Order.id).scalar_subquery()))
    return rows(s.execute(arrays))


@path("texts of many rows as one")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalar(select(func.aggregate_strings(m.Order.number, ","))).split(","))


@path("an ordered-set aggregate", without=("sqlite", "mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    middle = func.percentile_disc(0.9).within_group(m.Order.total)
    return s.scalar(select(middle))


@path("a MATERIALIZED CTE", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    big = select(m.Order).where(m.Order.total >= 20).cte("big").prefix_with("MATERIALIZED")
    return sorted(s.scalars(select(aliased(m.Order, big).number)))


@path("a window with a frame")
def _(s: Session, m: World) -> Any:
    around = func.sum(m.Order.total).over(order_by=m.Order.id, rows=(-1, 1))
    return rows(s.execute(select(m.Order.number, around)))


@path("a table function of each row", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    orders = table(m.Order)
    if s.get_bind().dialect.name == "sqlite":
        value = func.json_each(func.json_array(orders.c.number))
        value = value.table_valued("value", joins_implicitly=True)
    else:
        value = func.unnest(postgresql.array([orders.c.number]))
        value = value.table_valued("value", joins_implicitly=True).render_derived()
    return sorted(s.scalars(select(value.c.value).select_from(orders, value)))


@path("an index hint")
def _(s: Session, m: World) -> Any:
    hinted = select(m.Order.number).with_hint(m.Order, "NOT INDEXED", "sqlite")
    return sorted(s.scalars(hinted.with_hint(m.Order, "USE INDEX ()", "mysql")))


@path("a LIMIT that is a subquery", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    count = select(func.count(m.Profile.id)).scalar_subquery()
    return len(s.scalars(select(m.Region.name).join(m.Customer).limit(count)).all())


@path("FOR UPDATE of some of the tables", without=("sqlite",))
def _(s: Session, m: World) -> Any:
    order = aliased(m.Order)
    both = select(m.Customer.name, order.number).join(order, order.customer_id == m.Customer.id)
    of = None if s.get_bind().dialect.name == "mysql" else order
    only_on(s, "postgresql", "mysql")
    return rows(s.execute(both.with_for_update(of=of, nowait=True)))


# Objects and what is behind them


@path("relationships of an object that is in no session's rows")
def _(s: Session, m: World) -> Any:
    order = m.Order(customer_id=4)
    s.enable_relationship_loading(order)
    return getattr(order.customer, "name", None)


@path("the history of a collection")
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    return [order.number for order in inspect(ann).attrs.orders.load_history().sum()]


@path("an object made up with the key of an expired row")
def _(s: Session, m: World) -> Any:
    dan = m.Customer(id=4)
    make_transient_to_detached(dan)
    s.add(dan)
    try:
        return dan.name
    except ObjectDeletedError:
        return "deleted"


@path("an object that leaves a session and comes back")
def _(s: Session, m: World) -> Any:
    bob, order = s.get_one(m.Customer, 2), s.get_one(m.Order, 1)
    s.expunge(bob)
    m.pass_time(s, order)
    s.add(bob)
    return [order.number for order in bob.referrer.orders]


@path("a collection loaded as an alias of its class")
def _(s: Session, m: World) -> Any:
    order = aliased(m.Order, flat=True)
    loaded = select(m.Customer).options(selectinload(m.Customer.orders.of_type(order)))
    return rows((c.name, *(o.number for o in c.orders)) for c in s.scalars(loaded))


# Writes


@path("CREATE TABLE AS", writes=True)
def _(s: Session, m: World) -> Any:
    numbers = select(m.Order.id, m.Order.number).where(m.Order.total > 10)
    if hasattr(schema, "CreateTableAs"):
        s.execute(schema.CreateTableAs(numbers, "copies", temporary=True))
    else:  # SQLAlchemy 2.0
        rendered = numbers.compile(s.get_bind(), compile_kwargs={"literal_binds": True})
        s.connection().exec_driver_sql(f"CREATE TEMPORARY TABLE copies AS {rendered}")
    copied = rows(s.execute(text("SELECT id, number FROM copies")))
    s.execute(text("DROP TABLE copies"))
    return copied


@path("taking jobs from a queue", without=("sqlite", "mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    only_on(s, "postgresql")
    next_ = select(m.Order.id).order_by(m.Order.id).limit(3).with_for_update(skip_locked=True)
    taken = update(m.Order).where(m.Order.id.in_(next_.scalar_subquery())).values(total=0)
    return sorted(o.number for o in s.scalars(taken.returning(m.Order)))


@path("rows that are moved to another table", without=("sqlite", "mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    orders = table(m.Order)
    gone = delete(orders).where(orders.c.total >= 20).returning(orders.c.id, orders.c.number)
    moved = insert(m.archive).from_select(["id", "name"], select(gone.cte("gone")))
    s.execute(moved)
    return rows(s.execute(select(m.archive.c.id, m.archive.c.name)))


@path("an upsert inside a CTE", without=("sqlite", "mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    only_on(s, "postgresql")
    added = on_conflict(s, table(m.Order)).values([*NEW, {"id": 1, "number": "n1", "total": 1}])
    upsert = added.on_conflict_do_update(
        index_elements=["id"], set_={"total": table(m.Order).c.total + added.excluded.total}
    )
    done = upsert.returning(added.table.c.number, added.table.c.total).cte("done")
    return rows(s.execute(select(done)))


@path(
    "an INSERT inside a CTE, joined to a table", without=("sqlite", "mariadb", "mysql"), writes=True
)
def _(s: Session, m: World) -> Any:
    added = insert(m.archive).from_select(["id", "name"], select(m.Order.id, m.Order.number))
    added = added.returning(m.archive.c.id).cte("added")
    joined = select(m.Customer.name, added.c.id).join(added, added.c.id == m.Customer.id)
    return rows(s.execute(joined))


@path("UPDATE to what another row of the table has", without=NOT_IN_ITSELF, writes=True)
def _(s: Session, m: World) -> Any:
    orders, other = table(m.Order), table(m.Order).alias("other")
    most = select(func.max(other.c.total)).scalar_subquery()
    s.connection().execute(update(orders).where(orders.c.id == 1).values(total=most))
    return s.scalar(select(m.Order.total).where(m.Order.id == 1))


@path("DELETE where another row of the table is", without=NOT_IN_ITSELF, writes=True)
def _(s: Session, m: World) -> Any:
    orders, other = table(m.Order), table(m.Order).alias("other")
    same = exists().where(other.c.customer_id == orders.c.customer_id, other.c.id != orders.c.id)
    return s.connection().execute(delete(orders).where(same)).rowcount


@path("UPDATE to a CASE of EXISTS", writes=True)
def _(s: Session, m: World) -> Any:
    home = exists().where(m.Customer.region_id == m.Region.id).correlate(m.Region)
    s.execute(
        update(m.Region).values(name=case((home, "home"), else_="empty")),
        execution_options={"synchronize_session": False},
    )
    return rows(s.execute(select(m.Region.id, m.Region.name)))


@path("copies of a table's rows in itself", writes=True)
def _(s: Session, m: World) -> Any:
    source = select(m.Order.id - 3, m.Order.number, literal(1)).where(m.Order.id.in_([5, 9]))
    added = insert(table(m.Order)).from_select(["id", "number", "total"], source)
    s.connection().execute(added)
    return rows(s.execute(select(m.Order.id, m.Order.number)))


@path("UPDATE OR IGNORE, UPDATE IGNORE", without=("postgres",), writes=True)
def _(s: Session, m: World) -> Any:
    rooms = table(m.Room)
    only_on(s, "sqlite", "mysql")
    changed = update(rooms).where(rooms.c.id == 1).values(number=2)
    changed = changed.prefix_with("OR IGNORE", dialect="sqlite")
    s.connection().execute(changed.prefix_with("IGNORE", dialect="mysql"))
    return s.scalar(select(m.Room.number).where(m.Room.id == 1))


@path("UPDATE with LIMIT", without=("sqlite", "postgres"), writes=True)
def _(s: Session, m: World) -> Any:
    only_on(s, "mysql")
    orders = table(m.Order)
    changed = update(orders).where(orders.c.total > 10).values(number="x")
    return s.connection().execute(changed.with_dialect_options(mysql_limit=7)).rowcount


@path("DELETE with LIMIT", without=("sqlite", "postgres"), writes=True)
def _(s: Session, m: World) -> Any:
    only_on(s, "mysql")
    orders = table(m.Order)
    gone = delete(orders).where(orders.c.total > 10)
    gone = (
        gone.ext(mysql.limit(7))
        if hasattr(mysql, "limit")
        else gone.with_dialect_options(mysql_limit=7)
    )
    return s.connection().execute(gone).rowcount
