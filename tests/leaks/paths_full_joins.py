"""FULL JOINs over joins: subclasses, polymorphic entities, and joins inside joins.

MariaDB has no FULL JOIN. SQLite reads a join on the right side of another in parentheses only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import exists, func, outerjoin, select, union_all, update
from sqlalchemy.orm import aliased, contains_eager, joinedload, with_polymorphic
from sqlalchemy.orm import join as orm_join
from sqlalchemy.orm import outerjoin as orm_outerjoin

from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy import Join
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


def with_lines(m: World, document: Any, *columns: Any) -> Any:
    """Lines, fully joined to what they belong to."""
    joined = select(m.Line.text, *columns)
    return joined.join(document, m.Line.invoice_id == document.id, full=True)


def core_invoices(m: World) -> Join:
    """The tables of a joined subclass, joined without the ORM."""
    documents, invoices = m.Document.__table__, m.Invoice.__table__
    joined: Join = documents.join(invoices, invoices.c.id == documents.c.id)
    return joined


@path("full: a relationship to a subclass", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    joined = select(m.Line.text, m.Invoice.title).join(m.Line.invoice, full=True)
    return rows(s.execute(joined))


@path("full: a subclass on the left", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    joined = select(m.Invoice.title, m.Line.text).select_from(m.Invoice)
    return rows(s.execute(joined.join(m.Invoice.lines, full=True)))


@path("full: entities of a subclass", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    joined = select(m.Line, m.Invoice).join(m.Line.invoice, full=True)
    return rows((line and line.text, bill and bill.title) for line, bill in s.execute(joined))


@path("full: a subclass that is loaded with its collection", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    joined = select(m.Invoice).join(m.Invoice.lines, full=True)
    joined = joined.options(contains_eager(m.Invoice.lines))
    bills = [bill for bill in s.scalars(joined).unique() if bill is not None]
    return sorted((bill.title, [line.text for line in bill.lines]) for bill in bills)


@path("full: a subclass beside an eagerly loaded collection", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    joined = select(m.Customer, m.Invoice.title)
    joined = joined.join(m.Invoice, m.Invoice.customer_id == m.Customer.id, full=True)
    pairs = s.execute(joined.options(joinedload(m.Customer.orders))).unique()
    return rows(
        (title, customer and [order.number for order in customer.orders])
        for customer, title in pairs
    )


@path("full: a subclass of a subclass", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    columns = (m.CreditNote.title, m.CreditNote.amount, m.CreditNote.reason)
    return rows(s.execute(with_lines(m, m.CreditNote, *columns)))


@path("full: a flat alias of a subclass", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    bill = aliased(m.Invoice, flat=True)
    return rows(s.execute(with_lines(m, bill, bill.title, bill.amount)))


@path("full: an alias of a subclass that is a subquery", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    bill = aliased(m.Invoice)
    return rows(s.execute(with_lines(m, bill, bill.title, bill.amount)))


@path("full: aliases of two subclasses", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    bill, letter = aliased(m.Invoice, flat=True), aliased(m.Letter, flat=True)
    joined = select(bill.title, letter.body).select_from(bill)
    return rows(s.execute(joined.join(letter, letter.customer_id == bill.customer_id, full=True)))


@path("full: with_polymorphic()", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    document = with_polymorphic(m.Document, [m.Invoice, m.Letter])
    columns = (document.title, document.Invoice.amount, document.Letter.body)
    return rows(s.execute(with_lines(m, document, *columns)))


@path("full: with_polymorphic(flat=True)", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    document = with_polymorphic(m.Document, "*", flat=True)
    columns = (document.title, document.Invoice.amount, document.Letter.body)
    return rows(s.execute(with_lines(m, document, *columns)))


@path("full: with_polymorphic(aliased=True)", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    document = with_polymorphic(m.Document, [m.Invoice], aliased=True)
    return rows(s.execute(with_lines(m, document, document.title, document.Invoice.amount)))


@path("full: Query.outerjoin() of a subclass", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    query = s.query(m.Line.text, m.Invoice.title)
    return rows(query.outerjoin(m.Invoice, m.Line.invoice_id == m.Invoice.id, full=True))


@path("full: in a subquery", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    pairs = with_lines(m, m.Invoice, m.Invoice.title).subquery()
    return rows(s.execute(select(pairs).where(pairs.c.title.is_not(None))))


@path("full: in a CTE", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    pairs = with_lines(m, m.Invoice, m.Invoice.title).cte("pairs")
    return rows(s.execute(select(pairs.c.title, func.count(pairs.c.text)).group_by(pairs.c.title)))


@path("full: in an EXISTS", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    bill = aliased(m.Invoice, flat=True)
    paired = select(m.Line.id).join(bill, m.Line.invoice_id == bill.id, full=True)
    billed = exists(paired.where(bill.customer_id == m.Region.id, bill.amount == 200))
    return rows(s.execute(select(m.Region.name, billed)))


@path("full: in a UNION", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    pairs = with_lines(m, m.Invoice, m.Invoice.title)
    return rows(s.execute(union_all(pairs, with_lines(m, m.CreditNote, m.CreditNote.title))))


@path("full: counted", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    joined = orm_outerjoin(m.Line, m.Invoice, m.Line.invoice_id == m.Invoice.id, full=True)
    counts = select(func.count(), func.count(m.Invoice.id), func.sum(m.Invoice.amount))
    return rows(s.execute(counts.select_from(joined)))


@path("full: in the WHERE clause of an UPDATE", without=("mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    joined = with_lines(m, m.Invoice, m.Invoice.customer_id, m.Invoice.amount).subquery()
    billed = m.Region.id.in_(select(joined.c.customer_id).where(joined.c.amount.in_((200, 300))))
    s.execute(
        update(m.Region).where(billed).values(name="billed"),
        execution_options={"synchronize_session": False},
    )
    return rows(s.execute(select(m.Region.id, m.Region.name)))


@path("full: a join on the right, of tables", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    lines, invoices = m.Line.__table__, m.Invoice.__table__
    joined = outerjoin(lines, core_invoices(m), lines.c.invoice_id == invoices.c.id, full=True)
    columns = (lines.c.text, m.Document.__table__.c.title)
    return rows(s.connection().execute(select(*columns).select_from(joined)))


@path("full: joins on both sides, of tables", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    regions, customers = m.Region.__table__, m.Customer.__table__
    documents = m.Document.__table__
    left = regions.join(customers, customers.c.region_id == regions.c.id)
    here = documents.c.customer_id == customers.c.id
    joined = outerjoin(left, core_invoices(m), here, full=True)
    columns = (regions.c.name, customers.c.name, documents.c.title)
    return rows(s.connection().execute(select(*columns).select_from(joined)))


@path("full: a full join on the right", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    inner = orm_outerjoin(m.Order, m.Item, m.Item.order_id == m.Order.id, full=True)
    joined = orm_outerjoin(m.Customer, inner, m.Order.customer_id == m.Customer.id, full=True)
    return rows(s.execute(select(m.Customer.name, m.Order.number, m.Item.sku).select_from(joined)))


@path("full: a full join of subclasses on the right of a left join", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    line = m.Line
    inner = orm_outerjoin(m.Invoice, line, line.invoice_id == m.Invoice.id, full=True)
    joined = orm_outerjoin(m.Customer, inner, m.Invoice.customer_id == m.Customer.id)
    return rows(s.execute(select(m.Customer.name, m.Invoice.title, line.text).select_from(joined)))


@path("full: a left join over a join on the right", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    inner = orm_outerjoin(m.Invoice, m.Line, m.Line.invoice_id == m.Invoice.id)
    joined = orm_outerjoin(m.Customer, inner, m.Invoice.customer_id == m.Customer.id, full=True)
    columns = (m.Customer.name, m.Invoice.title, m.Line.text)
    return rows(s.execute(select(*columns).select_from(joined)))


@path("full: a join without a ttl on the right", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    inner = orm_join(m.Region, m.Club, m.Region.id == m.Club.id)
    joined = orm_outerjoin(m.Customer, inner, m.Customer.region_id == m.Region.id, full=True)
    return rows(s.execute(select(m.Customer.name, m.Club.name).select_from(joined)))


@path("left: a join of a subclass on the right, of tables")
def _(s: Session, m: World) -> Any:
    customers, documents = m.Customer.__table__, m.Document.__table__
    joined = outerjoin(customers, core_invoices(m), documents.c.customer_id == customers.c.id)
    columns = (customers.c.name, documents.c.title)
    return rows(s.connection().execute(select(*columns).select_from(joined)))


@path("left: a flat polymorphic alias on the right")
def _(s: Session, m: World) -> Any:
    document = with_polymorphic(m.Document, [m.Invoice, m.CreditNote], flat=True)
    joined = select(m.Customer.name, document.title, document.CreditNote.reason)
    return rows(s.execute(joined.outerjoin(document, document.customer_id == m.Customer.id)))


@path("left: a left join of a subclass on the right")
def _(s: Session, m: World) -> Any:
    inner = orm_outerjoin(m.Order, m.Invoice, m.Invoice.customer_id == m.Order.customer_id)
    joined = orm_outerjoin(m.Customer, inner, m.Order.customer_id == m.Customer.id)
    columns = (m.Customer.name, m.Order.number, m.Invoice.title)
    return rows(s.execute(select(*columns).select_from(joined)))
