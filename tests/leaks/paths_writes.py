"""What an UPDATE, a DELETE or an upsert reads: which rows it matches, and by which others.

The answers are the rows that were changed. They are read from a table without a ttl, or by raw
SQL from the rows that are left.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, bindparam, delete, exists, func, insert, select, text, update
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm.exc import StaleDataError

from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


def table(model: Any) -> Any:
    """The class's own table, so that neither the ORM nor its rules take part."""
    assert isinstance(model.__table__, Table)
    return model.__table__


def orders_now(s: Session) -> list[tuple[Any, ...]]:
    """All rows of orders, by raw SQL: live or not."""
    return rows(s.execute(text("SELECT number, total FROM orders WHERE id IN (1, 4, 5, 7, 8)")))


def regions_now(s: Session) -> list[tuple[Any, ...]]:
    """All rows of a table without a ttl."""
    return rows(s.execute(text("SELECT id, name FROM regions")))


@path("UPDATE of a class: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    return s.execute(update(m.Order).values(number="x")).rowcount  # type: ignore[attr-defined]


@path("UPDATE of a class by WHERE: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    return s.execute(update(m.Order).where(m.Order.total >= 20).values(number="x")).rowcount  # type: ignore[attr-defined]


@path("UPDATE of a class with a text OR in WHERE: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    either = text("total = 20 OR total = 50 OR total = 60")
    return s.execute(  # type: ignore[attr-defined]
        update(m.Order).where(either).values(number="x"),
        execution_options={"synchronize_session": False},
    ).rowcount


@path("UPDATE of a table: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    return s.connection().execute(update(table(m.Order)).values(number="x")).rowcount


@path("UPDATE of a table with many sets of values: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    orders = table(m.Order)
    statement = update(orders).where(orders.c.id == bindparam("key")).values(number="x")
    return sum(s.connection().execute(statement, {"key": key}).rowcount for key in (1, 2, 3))


@path("UPDATE with RETURNING", without=("mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(update(m.Order).values(total=0).returning(m.Order.number)))


@path("UPDATE of a class, synchronized with objects in memory", writes=True)
def _(s: Session, m: World) -> Any:
    orders = s.scalars(select(m.Order)).all()
    s.execute(update(m.Order).where(m.Order.total >= 20).values(number="x"))
    return sorted(order.number for order in orders)


@path("UPDATE of a joined subclass: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    return s.execute(update(m.Invoice).values(amount=0)).rowcount  # type: ignore[attr-defined]


@path("UPDATE of a joined subclass's table: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    return s.connection().execute(update(table(m.Invoice)).values(amount=0)).rowcount


@path("UPDATE of the table of a subclass of a subclass: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    return s.connection().execute(update(table(m.CreditNote)).values(reason="x")).rowcount


@path("UPDATE of a single-table subclass with a default of its own: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    return [
        s.execute(update(cls).values(name="x")).rowcount  # type: ignore[attr-defined]
        for cls in (m.Audit, m.Debug, m.Trace, m.SlowTrace, m.Event)
    ]


def renewal(target: Any, column: Any, **arguments: Any) -> Any:
    """`touch` of a class or a table; where there is no TTL, an UPDATE that changes nothing.

    The right answers are asked for where ttl_odm isn't imported, too.
    """
    if "ttl_odm.sqlalchemy" in sys.modules:
        from ttl_odm import TTLConfigurationError
        from ttl_odm.sqlalchemy import touch

        with suppress(TTLConfigurationError):
            return touch(target, **arguments)
    return update(target).values({column: column})


@path("touch() of a class: rows matched", own=True, writes=True)
def _(s: Session, m: World) -> Any:
    return s.execute(renewal(m.Order, m.Order.number, expire_in=60)).rowcount  # type: ignore[attr-defined]


@path("touch() of a class with a condition: rows matched", own=True, writes=True)
def _(s: Session, m: World) -> Any:
    statement = renewal(m.Order, m.Order.number, at_most_every=0.001)
    return s.execute(statement.where(m.Order.total >= 20)).rowcount  # type: ignore[attr-defined]


@path(
    "touch() with RETURNING, and a condition",
    without=("mariadb", "mysql"),
    own=True,
    writes=True,
)
def _(s: Session, m: World) -> Any:
    statement = renewal(m.Order, m.Order.number, at_most_every=10**8).returning(m.Order)
    return sorted(order.number for order in s.scalars(statement))


@path("touch() of a table: rows matched", own=True, writes=True)
def _(s: Session, m: World) -> Any:
    orders = table(m.Order)
    return s.connection().execute(renewal(orders, orders.c.number)).rowcount


@path("touch() of a joined subclass: rows matched", own=True, writes=True)
def _(s: Session, m: World) -> Any:
    return s.execute(renewal(m.Invoice, m.Invoice.amount)).rowcount  # type: ignore[attr-defined]


@path("UPDATE with a scalar subquery as a value", writes=True)
def _(s: Session, m: World) -> Any:
    count = select(func.max(m.Customer.name)).where(m.Customer.region_id == m.Region.id)
    count = count.correlate(m.Region).scalar_subquery()
    s.execute(update(m.Region).values(name=func.coalesce(count, "nobody")))
    return regions_now(s)


@path("UPDATE WHERE IN a subquery", writes=True)
def _(s: Session, m: World) -> Any:
    homes = select(m.Customer.region_id).where(m.Customer.region_id.is_not(None))
    s.execute(update(m.Region).where(m.Region.id.in_(homes)).values(name="home"))
    return regions_now(s)


@path("UPDATE WHERE EXISTS", writes=True)
def _(s: Session, m: World) -> Any:
    home = exists().where(m.Customer.region_id == m.Region.id)
    s.execute(update(m.Region).where(home).values(name="home"))
    return regions_now(s)


@path("UPDATE WHERE any()", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(update(m.Region).where(m.Region.customers.any()).values(name="home"))
    return regions_now(s)


@path("UPDATE WHERE IN a subquery of a joined subclass's table", writes=True)
def _(s: Session, m: World) -> Any:
    lines, invoices = table(m.Line), table(m.Invoice)
    billed = lines.c.invoice_id.in_(select(invoices.c.id))
    s.connection().execute(update(lines).where(billed).values(text="billed"))
    return rows(s.execute(select(lines.c.id, lines.c.text)))


@path("UPDATE FROM", writes=True)
def _(s: Session, m: World) -> Any:
    regions, customers = table(m.Region), table(m.Customer)
    statement = update(regions).where(regions.c.id == customers.c.region_id)
    s.connection().execute(
        statement.where(customers.c.name > "c").values({regions.c.name: customers.c.name})
    )
    return regions_now(s)


@path("UPDATE FROM between two classes", writes=True)
def _(s: Session, m: World) -> Any:
    statement = update(m.Order).where(m.Order.customer_id == m.Customer.id)
    s.execute(
        statement.values({m.Order.total: m.Order.total + 1000}),
        execution_options={"synchronize_session": False},
    )
    return orders_now(s)


@path("UPDATE FROM an alias", writes=True)
def _(s: Session, m: World) -> Any:
    orders, other = table(m.Order), table(m.Customer).alias("other")
    statement = update(orders).where(orders.c.customer_id == other.c.id)
    s.connection().execute(statement.values({orders.c.total: orders.c.total + 1000}))
    return orders_now(s)


@path("UPDATE FROM a subquery", writes=True)
def _(s: Session, m: World) -> Any:
    regions = table(m.Region)
    last = select(m.Customer.region_id, func.max(m.Customer.name).label("name"))
    last = last.where(m.Customer.region_id.is_not(None)).group_by(m.Customer.region_id).subquery()
    statement = update(regions).where(regions.c.id == last.c.region_id)
    s.connection().execute(statement.values({regions.c.name: last.c.name}))
    return regions_now(s)


@path("UPDATE FROM a joined subclass's table", writes=True)
def _(s: Session, m: World) -> Any:
    lines, invoices = table(m.Line), table(m.Invoice)
    statement = update(lines).where(lines.c.invoice_id == invoices.c.id)
    s.connection().execute(statement.values({lines.c.text: "billed"}))
    return rows(s.execute(select(lines.c.id, lines.c.text)))


@path("UPDATE of a base's table by a subclass's table", writes=True)
def _(s: Session, m: World) -> Any:
    documents, invoices = table(m.Document), table(m.Invoice)
    changed = update(documents).where(documents.c.id.in_(select(invoices.c.id)))
    return s.connection().execute(changed.values(title="x")).rowcount


@path("DELETE of a base's table by a subclass's table", writes=True)
def _(s: Session, m: World) -> Any:
    documents, invoices = table(m.Document), table(m.Invoice)
    gone = delete(documents).where(documents.c.id.in_(select(invoices.c.id)))
    return s.connection().execute(gone).rowcount


@path("an upsert whose new value is a subquery", writes=True)
def _(s: Session, m: World) -> Any:
    highest = select(func.max(m.Order.number)).scalar_subquery()
    dialect: Any = s.get_bind().dialect
    if dialect.name == "mysql":
        added: Any = mysql.insert(m.archive).values(id=1, name="old")
        upsert = added.on_duplicate_key_update(name=highest)
    else:
        insert_into = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[dialect.name]
        added = insert_into(m.archive).values(id=1, name="old")
        upsert = added.on_conflict_do_update(index_elements=["id"], set_={"name": highest})
    s.execute(upsert)
    s.execute(upsert)
    return s.scalars(select(m.archive.c.name)).all()


@path("UPDATE with a CTE", without=("mariadb",), writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(delete(m.archive))  # Python's sqlite3 begins no transaction for WITH
    homes = select(m.Customer.region_id).where(m.Customer.region_id.is_not(None)).cte("homes")
    wanted = m.Region.id.in_(select(homes.c.region_id))
    s.execute(
        update(m.Region).where(wanted).values(name="home"),
        execution_options={"synchronize_session": False},
    )
    return regions_now(s)


@path("DELETE of a class: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    return s.execute(delete(m.Order)).rowcount  # type: ignore[attr-defined]


@path("DELETE of a class by WHERE: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    return s.execute(delete(m.Order).where(m.Order.total >= 20)).rowcount  # type: ignore[attr-defined]


@path("DELETE of a table: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    return s.connection().execute(delete(table(m.Order))).rowcount


@path("DELETE of a table with a text OR in WHERE: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    either = text("total = 20 OR total = 50 OR total = 60")
    return s.connection().execute(delete(table(m.Order)).where(either)).rowcount


@path("DELETE with RETURNING", without=("mysql",), writes=True)
def _(s: Session, m: World) -> Any:
    orders = table(m.Order)
    return sorted(s.connection().scalars(delete(orders).returning(orders.c.number)))


@path("DELETE of a joined subclass's table: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    return s.connection().execute(delete(table(m.Letter))).rowcount


@path("DELETE of the table of a subclass of a subclass: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    return s.connection().execute(delete(table(m.CreditNote))).rowcount


@path("DELETE of a single-table subclass with a default of its own: rows matched", writes=True)
def _(s: Session, m: World) -> Any:
    return [
        s.execute(delete(cls)).rowcount  # type: ignore[attr-defined]
        for cls in (m.Audit, m.SlowTrace, m.Trace, m.Debug, m.Event)
    ]


@path("DELETE WHERE IN a subquery", writes=True)
def _(s: Session, m: World) -> Any:
    homes = select(m.Customer.region_id).where(m.Customer.region_id.is_not(None))
    s.execute(delete(m.Region).where(m.Region.id.in_(homes)))
    return regions_now(s)


@path("DELETE WHERE NOT EXISTS", writes=True)
def _(s: Session, m: World) -> Any:
    home = exists().where(m.Customer.region_id == m.Region.id)
    s.execute(delete(m.Region).where(~home))
    return regions_now(s)


@path("DELETE USING", without=("sqlite",), writes=True)
def _(s: Session, m: World) -> Any:
    regions, customers = table(m.Region), table(m.Customer)
    s.connection().execute(delete(regions).where(regions.c.id == customers.c.region_id))
    return regions_now(s)


@path("DELETE USING between two classes", without=("sqlite",), writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(
        delete(m.Order).where(m.Order.customer_id == m.Customer.id),
        execution_options={"synchronize_session": False},
    )
    return orders_now(s)


@path("DELETE USING a joined subclass's table", without=("sqlite",), writes=True)
def _(s: Session, m: World) -> Any:
    lines, invoices = table(m.Line), table(m.Invoice)
    s.connection().execute(delete(lines).where(lines.c.invoice_id == invoices.c.id))
    return rows(s.execute(select(lines.c.id, lines.c.text)))


@path("a DELETE that returns rows to a SELECT", without=("sqlite", "mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    orders = table(m.Order)
    gone = delete(orders).returning(orders.c.number).cte("gone")
    return sorted(s.connection().scalars(select(gone.c.number)))


@path(
    "an UPDATE that returns rows to a SELECT", without=("sqlite", "mariadb", "mysql"), writes=True
)
def _(s: Session, m: World) -> Any:
    orders = table(m.Order)
    changed = update(orders).values(total=0).returning(orders.c.number).cte("changed")
    return sorted(s.connection().scalars(select(changed.c.number)))


@path(
    "an INSERT that returns rows to a SELECT", without=("sqlite", "mariadb", "mysql"), writes=True
)
def _(s: Session, m: World) -> Any:
    source = select(m.Customer.id, m.Customer.name)
    added = insert(m.archive).from_select(["id", "name"], source).returning(m.archive.c.name)
    added = added.cte("added")
    return sorted(s.connection().scalars(select(added.c.name)))


@path("a flush of a loaded object that has expired meanwhile", answer="stale", writes=True)
def _(s: Session, m: World) -> Any:
    order = s.get_one(m.Order, 1)
    m.pass_time(s, order)
    order.number = "changed"
    try:
        s.flush()
    except StaleDataError:
        return "stale"
    return "changed"


@path("a flush that changes a joined subclass's column only", answer="stale", writes=True)
def _(s: Session, m: World) -> Any:
    bill = s.get_one(m.Invoice, 3)
    m.pass_time(s, bill)
    bill.amount = 1
    try:
        s.flush()
    except StaleDataError:
        return "stale"
    return "changed"


@path("a flush that changes a column of a subclass of a subclass only", answer="stale", writes=True)
def _(s: Session, m: World) -> Any:
    note = s.get_one(m.CreditNote, 6)
    m.pass_time(s, note)
    note.reason = "changed"
    try:
        s.flush()
    except StaleDataError:
        return "stale"
    return "changed"


@path("bulk UPDATE by primary key", writes=True)
def _(s: Session, m: World) -> Any:
    try:
        s.execute(update(m.Order), [{"id": 1, "number": "x"}, {"id": 2, "number": "y"}])
    except StaleDataError:
        return "stale"
    return "changed"


@path("bulk UPDATE of a joined subclass by primary key", writes=True)
def _(s: Session, m: World) -> Any:
    try:
        s.execute(update(m.Invoice), [{"id": 3, "amount": 1}, {"id": 4, "amount": 2}])
    except StaleDataError:
        return "stale"
    return "changed"


@path("a collection that is replaced, with an expired row among those let go", writes=True)
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    let_go = [order.number for order in ann.orders]
    ann.orders = []
    s.flush()
    return let_go
