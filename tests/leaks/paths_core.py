"""Core: tables and their aliases, through sessions and bare connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    MetaData,
    column,
    delete,
    exists,
    func,
    insert,
    literal_column,
    select,
    table,
    text,
    union,
)
from sqlalchemy.ext.serializer import dumps, loads

from tests.leaks.registry import Sees, path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


@path("Core: a table through a session")
def _(s: Session, m: World) -> Any:
    return sorted(row.name for row in s.execute(select(m.Customer.__table__)))


@path("Core: a table through a connection")
def _(s: Session, m: World) -> Any:
    return sorted(row.name for row in s.connection().execute(select(m.Customer.__table__)))


@path("Core: a table through a connection of its own")
def _(s: Session, m: World) -> Any:
    engine: Any = s.get_bind()
    with engine.connect() as connection:
        return sorted(row.name for row in connection.execute(m.Customer.__table__.select()))


@path("Core: a table in autocommit mode")
def _(s: Session, m: World) -> Any:
    engine: Any = s.get_bind()
    engine = engine.execution_options(isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        return sorted(row.name for row in connection.execute(select(m.Customer.__table__)))


@path("Core: a copy of an engine with other execution options")
def _(s: Session, m: World) -> Any:
    engine: Any = s.get_bind()
    with engine.execution_options(logging_token="copy").connect() as connection:
        return sorted(row.name for row in connection.execute(select(m.Customer.__table__)))


@path("Core: a connection without a statement cache")
def _(s: Session, m: World) -> Any:
    connection = s.connection().execution_options(compiled_cache=None)
    return sorted(connection.scalars(select(m.Customer.__table__.c.name)))


@path("Core: a statement that was rendered with its values")
def _(s: Session, m: World) -> Any:
    statement = select(m.Customer.__table__.c.name)
    rendered = statement.compile(s.get_bind(), compile_kwargs={"literal_binds": True})
    return sorted(s.connection().exec_driver_sql(str(rendered)).scalars())


@path("Core: a table under a schema translation map")
def _(s: Session, m: World) -> Any:
    connection = s.connection().execution_options(schema_translate_map={"elsewhere": None})
    return sorted(connection.scalars(select(m.Customer.__table__.c.name)))


@path("Core: an alias")
def _(s: Session, m: World) -> Any:
    return sorted(s.connection().scalars(select(m.Customer.__table__.alias().c.name)))


@path("Core: an alias of an alias")
def _(s: Session, m: World) -> Any:
    return sorted(s.connection().scalars(select(m.Customer.__table__.alias("a").alias("b").c.name)))


@path("Core: a sample", without=("sqlite", "mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    sample = m.Customer.__table__.tablesample(100, name="sample")
    return sorted(s.connection().scalars(select(sample.c.name)))


@path("Core: a lateral subquery", without=("sqlite", "mariadb"))
def _(s: Session, m: World) -> Any:
    customers, orders = m.Customer.__table__, m.Order.__table__
    best = select(func.max(orders.c.total).label("best"))
    best = best.where(orders.c.customer_id == customers.c.id).lateral()
    return rows(s.connection().execute(select(customers.c.name, best.c.best)))


@path("Core: count")
def _(s: Session, m: World) -> Any:
    return s.connection().scalar(select(func.count()).select_from(m.Order.__table__))


@path("Core: WHERE by key")
def _(s: Session, m: World) -> Any:
    customers = m.Customer.__table__
    return s.connection().scalars(select(customers.c.name).where(customers.c.id == 4)).all()


@path("Core: Table.join()")
def _(s: Session, m: World) -> Any:
    customers, orders = m.Customer.__table__, m.Order.__table__
    joined = customers.join(orders, orders.c.customer_id == customers.c.id)
    statement = select(customers.c.name, orders.c.number).select_from(joined)
    return rows(s.connection().execute(statement))


@path("Core: Table.outerjoin()")
def _(s: Session, m: World) -> Any:
    customers, orders = m.Customer.__table__, m.Order.__table__
    joined = customers.outerjoin(orders, orders.c.customer_id == customers.c.id)
    statement = select(customers.c.name, orders.c.number).select_from(joined)
    return rows(s.connection().execute(statement))


@path("Core: Table.outerjoin() with full=True", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    customers, orders = m.Customer.__table__, m.Order.__table__
    joined = customers.outerjoin(orders, orders.c.customer_id == customers.c.id, full=True)
    statement = select(customers.c.name, orders.c.number).select_from(joined)
    return rows(s.connection().execute(statement))


@path("Core: a select from a join as a whole")
def _(s: Session, m: World) -> Any:
    customers, orders = m.Customer.__table__, m.Order.__table__
    joined = customers.join(orders, orders.c.customer_id == customers.c.id)
    found = s.connection().execute(joined.select()).mappings()
    return sorted((row["name"], row["number"]) for row in found)


@path("Core: a subquery")
def _(s: Session, m: World) -> Any:
    inner = select(m.Order.__table__).subquery()
    return sorted(s.connection().scalars(select(inner.c.number)))


@path("Core: a CTE")
def _(s: Session, m: World) -> Any:
    inner = select(m.Order.__table__).cte("inner_orders")
    return sorted(s.connection().scalars(select(inner.c.number)))


@path("Core: a UNION")
def _(s: Session, m: World) -> Any:
    names = union(select(m.Customer.__table__.c.name), select(m.Order.__table__.c.number))
    return sorted(s.connection().scalars(names))


@path("Core: EXISTS")
def _(s: Session, m: World) -> Any:
    customers, orders = m.Customer.__table__, m.Order.__table__
    bought = exists().where(orders.c.customer_id == customers.c.id)
    return sorted(s.connection().scalars(select(customers.c.name).where(bought)))


@path("Core: a scalar subquery")
def _(s: Session, m: World) -> Any:
    customers, orders = m.Customer.__table__, m.Order.__table__
    count = select(func.count()).where(orders.c.customer_id == customers.c.id).scalar_subquery()
    return rows(s.connection().execute(select(customers.c.name, count)))


@path("Core: a scalar function of a subquery without FROM")
def _(s: Session, m: World) -> Any:
    total = select(func.sum(m.Order.__table__.c.total)).scalar_subquery()
    return int(s.connection().scalar(select(func.coalesce(total, 0))))


@path("Core: text columns of a table")
def _(s: Session, m: World) -> Any:
    statement = select(text("name")).select_from(m.Customer.__table__)
    return sorted(s.connection().scalars(statement))


@path("Core: a literal column of a join")
def _(s: Session, m: World) -> Any:
    customers, orders = m.Customer.__table__, m.Order.__table__
    joined = customers.join(orders, orders.c.customer_id == customers.c.id)
    statement = select(literal_column("number")).select_from(joined)
    return sorted(s.connection().scalars(statement))


@path("Core: the secondary table of a many-to-many relationship")
def _(s: Session, m: World) -> Any:
    members = m.Membership.__table__
    return rows(s.connection().execute(select(members.c.customer_id, members.c.club_id)))


@path("Core: streaming")
def _(s: Session, m: World) -> Any:
    connection = s.connection().execution_options(stream_results=True, max_row_buffer=1)
    return sorted(connection.scalars(select(m.Customer.__table__.c.name)))


@path("Core: yield_per and partitions")
def _(s: Session, m: World) -> Any:
    connection = s.connection().execution_options(yield_per=2)
    orders = m.Order.__table__
    found = connection.execute(select(orders.c.number).order_by(orders.c.id))
    return [[row.number for row in part] for part in found.partitions()]


@path("Core: a result that is frozen")
def _(s: Session, m: World) -> Any:
    return rows(s.connection().execute(select(m.Customer.__table__.c.name)).freeze()())


@path("Core: with_for_update")
def _(s: Session, m: World) -> Any:
    statement = select(m.Customer.__table__.c.name).with_for_update()
    return sorted(s.connection().scalars(statement))


@path("Core: a statement that was serialized")
def _(s: Session, m: World) -> Any:
    statement = select(m.Customer.__table__.c.name)
    restored = loads(dumps(statement), m.Base.metadata)
    return sorted(s.connection().scalars(restored))


@path("an ORM statement that was serialized")
def _(s: Session, m: World) -> Any:
    tables = m.Base.metadata
    statement = select(m.Order.__table__).where(m.Order.__table__.c.total >= 20)
    restored = loads(dumps(statement), tables)
    return sorted(order.number for order in s.scalars(select(m.Order).from_statement(restored)))


@path("Core: a copy of a table by to_metadata()")
def _(s: Session, m: World) -> Any:
    copied = m.Customer.__table__.to_metadata(MetaData())
    return sorted(s.connection().scalars(select(copied.c.name)))


@path("INSERT FROM SELECT of a table", writes=True)
def _(s: Session, m: World) -> Any:
    customers = m.Customer.__table__
    source = select(customers.c.id, customers.c.name)
    s.connection().execute(insert(m.archive).from_select(["id", "name"], source))
    return sorted(s.scalars(select(m.archive.c.name)))


@path("INSERT FROM SELECT of a class", writes=True)
def _(s: Session, m: World) -> Any:
    source = select(m.Customer.id, m.Customer.name).where(m.Customer.region_id == 1)
    s.execute(insert(m.archive).from_select(["id", "name"], source))
    return sorted(s.scalars(select(m.archive.c.name)))


@path("INSERT FROM SELECT of an outer join", writes=True)
def _(s: Session, m: World) -> Any:
    source = select(m.Customer.id, func.max(m.Order.number)).outerjoin(m.Customer.orders)
    source = source.group_by(m.Customer.id)
    s.execute(insert(m.archive).from_select(["id", "name"], source))
    return rows(s.execute(select(m.archive)))


@path("INSERT FROM SELECT of a CTE", writes=True)
def _(s: Session, m: World) -> Any:
    # Python's sqlite3 begins no transaction for an INSERT that starts with WITH.
    s.execute(delete(m.archive))
    big = select(m.Order.id, m.Order.number).where(m.Order.total >= 20).cte("big")
    s.execute(insert(m.archive).from_select(["id", "name"], select(big)))
    return sorted(s.scalars(select(m.archive.c.name)))


@path("INSERT FROM SELECT of a UNION", writes=True)
def _(s: Session, m: World) -> Any:
    both = union(select(m.Tag.id, m.Tag.label), select(m.Order.id + 10, m.Order.number))
    s.execute(insert(m.archive).from_select(["id", "name"], both))
    return sorted(s.scalars(select(m.archive.c.name)))


@path("INSERT with a scalar subquery as a value", writes=True)
def _(s: Session, m: World) -> Any:
    name = select(func.max(m.Customer.name)).where(m.Customer.name < "f").scalar_subquery()
    s.execute(insert(m.archive).values(id=1, name=name))
    return s.scalars(select(m.archive.c.name)).all()


@path("INSERT FROM SELECT into a class with a ttl", writes=True)
def _(s: Session, m: World) -> Any:
    source = select(m.Order.id + 100, m.Order.number, m.Order.total)
    s.execute(insert(m.Order).from_select(["id", "number", "total"], source))
    return sorted(s.scalars(select(m.Order.number).where(m.Order.id > 100)))


@path("a lightweight table(), which names no Table", answer=Sees.EVERYTHING)
def _(s: Session, m: World) -> Any:
    customers = table("customers", column("name"))
    return sorted(s.connection().scalars(select(customers.c.name)))
