"""Second Table objects of the same tables: reflected, copied, automapped, declared once more."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Column,
    MetaData,
    Table,
    exists,
    func,
    insert,
    select,
    text,
    union_all,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.ext.automap import automap_base
from sqlalchemy.orm import aliased, registry
from sqlalchemy.orm.exc import StaleDataError

from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


class Tables:
    """The tables of a world as other Table objects, made once for each world."""

    def __init__(self, m: World) -> None:
        self.reflected = MetaData()
        with warnings.catch_warnings():  # of the indexes over expressions, on SQLite
            warnings.simplefilter("ignore")
            self.reflected.reflect(m.engine)
        self.copied = MetaData()
        for table in m.Base.metadata.tables.values():
            table.to_metadata(self.copied)
        base: Any = automap_base(metadata=self.reflected)
        base.prepare()
        self.automapped = base.classes
        self.Customer, self.Order = (_declared(model) for model in (m.Customer, m.Order))


def _declared(model: Any) -> Any:
    """A class of another registry with the columns of a model."""
    columns = (
        Column(column.name, column.type, primary_key=column.primary_key, autoincrement=False)
        for column in model.__table__.c
    )
    other = registry()
    cls: Any = type(model.__name__, (), {})
    other.map_imperatively(cls, Table(model.__table__.name, other.metadata, *columns))
    return cls


def second(m: World) -> Tables:
    """The second Table objects of a world."""
    made: Tables | None = vars(m).get("second_tables")
    if made is None:
        made = vars(m)["second_tables"] = Tables(m)
    return made


def reflected(m: World, name: str) -> Table:
    """A reflected table."""
    return second(m).reflected.tables[name]


def copied(m: World, name: str) -> Table:
    """A table that was copied by ``to_metadata()``."""
    return second(m).copied.tables[name]


READERS: list[tuple[str, Callable[[World, str], Table]]] = [
    ("reflected", reflected),
    ("copied", copied),
]

for how, table_of in READERS:

    @path(f"{how}: all columns of a table but those of its lifetime")
    def _(s: Session, m: World, of: Any = table_of) -> Any:
        orders = of(m, "orders")
        return rows(s.execute(select(orders.c.id, orders.c.number, orders.c.total)))

    @path(f"{how}: an aggregate over groups")
    def _(s: Session, m: World, of: Any = table_of) -> Any:
        orders = of(m, "orders")
        sums = select(orders.c.customer_id, func.sum(orders.c.total)).group_by(orders.c.customer_id)
        return rows(s.connection().execute(sums))

    @path(f"{how}: an outer join of two tables")
    def _(s: Session, m: World, of: Any = table_of) -> Any:
        customers, orders = of(m, "customers"), of(m, "orders")
        joined = customers.outerjoin(orders, orders.c.customer_id == customers.c.id)
        return rows(
            s.execute(select(customers.c.name, orders.c.number).select_from(joined)),
        )

    @path(f"{how}: an alias")
    def _(s: Session, m: World, of: Any = table_of) -> Any:
        customers = of(m, "customers").alias("c")
        return rows(s.execute(select(customers.c.name).where(customers.c.id > 1)))

    @path(f"{how}: beside the model's own table")
    def _(s: Session, m: World, of: Any = table_of) -> Any:
        orders = of(m, "orders").alias()
        joined = select(m.Order.number, orders.c.number).join(orders, orders.c.id == m.Order.id + 1)
        return rows(s.execute(joined))

    @path(f"{how}: a joined subclass's table alone")
    def _(s: Session, m: World, of: Any = table_of) -> Any:
        invoices = of(m, "invoices")
        return rows(s.execute(select(invoices.c.id, invoices.c.amount)))

    @path(f"{how}: a joined subclass's table with its base's")
    def _(s: Session, m: World, of: Any = table_of) -> Any:
        base, sub = of(m, "documents"), of(m, "credit_notes")
        joined = base.join(sub, sub.c.note_id == base.c.id)
        return rows(s.execute(select(base.c.title, sub.c.reason).select_from(joined)))

    @path(f"{how}: kinds with a default of their own")
    def _(s: Session, m: World, of: Any = table_of) -> Any:
        events = of(m, "events")
        return rows(s.execute(select(events.c.kind, events.c.name)))

    @path(f"{how}: UPDATE, rows matched", writes=True)
    def _(s: Session, m: World, of: Any = table_of) -> Any:
        return s.connection().execute(update(of(m, "orders")).values(number="x")).rowcount

    @path(f"{how}: UPDATE of a joined subclass's table, rows matched", writes=True)
    def _(s: Session, m: World, of: Any = table_of) -> Any:
        return s.connection().execute(update(of(m, "invoices")).values(amount=0)).rowcount

    @path(f"{how}: DELETE, rows matched", writes=True)
    def _(s: Session, m: World, of: Any = table_of) -> Any:
        return s.connection().execute(of(m, "orders").delete()).rowcount

    @path(f"{how}: an INSERT that takes an expired row's key", writes=True)
    def _(s: Session, m: World, of: Any = table_of) -> Any:
        s.connection().execute(of(m, "orders").insert().values(id=2, number="new", total=1))
        return rows(s.execute(text("SELECT number, total FROM orders WHERE id = 2")))

    @path(f"{how}: an executemany that takes expired rows' keys", writes=True)
    def _(s: Session, m: World, of: Any = table_of) -> Any:
        new = [{"id": key, "number": "new", "total": key} for key in (2, 3, 20)]
        s.connection().execute(of(m, "orders").insert(), new)
        return rows(s.execute(text("SELECT id, number, total FROM orders WHERE id IN (2, 3, 20)")))

    @path(f"{how}: an upsert that meets an expired row", writes=True)
    def _(s: Session, m: World, of: Any = table_of) -> Any:
        orders, dialect = of(m, "orders"), s.connection().dialect.name
        new = {"id": 3, "number": "new", "total": 1}
        if dialect == "mysql":
            upsert: Any = mysql.insert(orders).values(new).on_duplicate_key_update(total=2)
        else:
            insert_into = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[dialect]
            upsert = insert_into(orders).values(new)
            upsert = upsert.on_conflict_do_update(index_elements=["id"], set_={"total": 2})
        s.connection().execute(upsert)
        return rows(s.execute(text("SELECT number, total, customer_id FROM orders WHERE id = 3")))


@path("reflected: a FULL JOIN", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    customers, orders = reflected(m, "customers"), reflected(m, "orders")
    joined = customers.outerjoin(orders, orders.c.customer_id == customers.c.id, full=True)
    return rows(s.execute(select(customers.c.name, orders.c.number).select_from(joined)))


@path("reflected: an EXISTS in a query of models")
def _(s: Session, m: World) -> Any:
    customers = reflected(m, "customers")
    home = exists().where(customers.c.region_id == m.Region.id)
    return rows(s.execute(select(m.Region.name, home)))


@path("reflected: a CTE and a UNION with a model")
def _(s: Session, m: World) -> Any:
    orders = reflected(m, "orders")
    dear = select(orders.c.number).where(orders.c.total >= 20).cte("dear")
    return rows(s.execute(union_all(select(dear.c.number), select(m.Item.sku))))


@path("reflected: a scalar subquery")
def _(s: Session, m: World) -> Any:
    orders = reflected(m, "orders")
    count = select(func.count(orders.c.id)).where(orders.c.customer_id == m.Customer.id)
    return rows(s.execute(select(m.Customer.name, count.scalar_subquery())))


@path("reflected: an INSERT FROM SELECT into another table", writes=True)
def _(s: Session, m: World) -> Any:
    customers = reflected(m, "customers")
    source = select(customers.c.id, customers.c.name)
    s.execute(insert(reflected(m, "archive")).from_select(["id", "name"], source))
    return rows(s.execute(select(m.archive.c.name)))


@path("reflected: an INSERT FROM SELECT that takes expired rows' keys", writes=True)
def _(s: Session, m: World) -> Any:
    customers, orders = reflected(m, "customers"), reflected(m, "orders")
    source = select(customers.c.id + 1, customers.c.name, customers.c.id)
    source = source.where(customers.c.id.in_((1, 2, 8)))
    s.execute(insert(orders).from_select(["id", "number", "total"], source))
    return rows(s.execute(text("SELECT id, number, total FROM orders WHERE id IN (2, 3)")))


@path("reflected: an UPDATE that takes an expired row's key", writes=True)
def _(s: Session, m: World) -> Any:
    orders = reflected(m, "orders")
    s.connection().execute(update(orders).where(orders.c.id == 1).values(id=2))
    return rows(s.execute(text("SELECT id, number FROM orders WHERE id IN (1, 2)")))


@path("reflected: an UPDATE of another table by it", writes=True)
def _(s: Session, m: World) -> Any:
    regions, customers = m.Region.__table__, reflected(m, "customers")
    changed = update(regions).where(regions.c.id == customers.c.region_id)
    s.connection().execute(changed.values({regions.c.name: "home"}))
    return rows(s.execute(text("SELECT id, name FROM regions")))


@path("automapped: entities")
def _(s: Session, m: World) -> Any:
    order = second(m).automapped.orders
    return sorted(found.number for found in s.scalars(select(order)))


@path("automapped: an alias, joined to a model")
def _(s: Session, m: World) -> Any:
    order = aliased(second(m).automapped.orders)
    joined = select(m.Customer.name, order.number)
    return rows(s.execute(joined.outerjoin(order, order.customer_id == m.Customer.id)))


@path("automapped: get()")
def _(s: Session, m: World) -> Any:
    order = second(m).automapped.orders
    return [getattr(s.get(order, key), "number", None) for key in (1, 2, 3, 4, 9)]


@path("automapped: get() of an object in memory that has expired meanwhile")
def _(s: Session, m: World) -> Any:
    cls = second(m).automapped.orders
    order = s.get_one(cls, 1)
    m.pass_time(s, order)
    return s.get(cls, 1) is None


@path("automapped: a joined subclass's table as a class of its own")
def _(s: Session, m: World) -> Any:
    invoice = second(m).automapped.invoices
    return [getattr(s.get(invoice, key), "amount", None) for key in (3, 4, 3)]


@path("automapped: Query.count()")
def _(s: Session, m: World) -> Any:
    return s.query(second(m).automapped.customers).count()


@path("automapped: a flush that takes an expired row's key", writes=True)
def _(s: Session, m: World) -> Any:
    s.add(second(m).automapped.orders(id=2, number="new", total=1))
    s.flush()
    return rows(s.execute(text("SELECT number, total FROM orders WHERE id = 2")))


@path("automapped: a flush of an object that has expired meanwhile", answer="stale", writes=True)
def _(s: Session, m: World) -> Any:
    order = s.get_one(second(m).automapped.orders, 1)
    m.pass_time(s, order)
    order.number = "changed"
    try:
        s.flush()
    except StaleDataError:
        return "stale"
    return "changed"


@path("automapped: UPDATE of a class, rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    return s.execute(update(second(m).automapped.orders).values(total=0)).rowcount  # type: ignore[attr-defined]


@path("another registry: entities, and an object in memory that has expired meanwhile")
def _(s: Session, m: World) -> Any:
    cls = second(m).Customer
    names = sorted(customer.name for customer in s.scalars(select(cls)))
    ann = s.get_one(cls, 1)
    m.pass_time(s, ann)
    return names, s.get(cls, 1) is None


@path("another registry: bulk_insert_mappings() that takes expired rows' keys", writes=True)
def _(s: Session, m: World) -> Any:
    new = [{"id": key, "number": "new", "total": key} for key in (2, 3)]
    s.bulk_insert_mappings(second(m).Order, new)
    return rows(s.execute(text("SELECT id, number FROM orders WHERE id IN (2, 3)")))


@path("another registry: merge() of an expired row's key", writes=True)
def _(s: Session, m: World) -> Any:
    cls = second(m).Order
    order = cls()
    order.id, order.number, order.total = 2, "new", 1
    s.merge(order)
    s.flush()
    return rows(s.execute(text("SELECT number, total, customer_id FROM orders WHERE id = 2")))
