"""Joined, single-table and concrete inheritance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import exists, func, join, outerjoin, select, union_all
from sqlalchemy.orm import (
    aliased,
    joinedload,
    selectin_polymorphic,
    selectinload,
    subqueryload,
    with_polymorphic,
)

from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


def titles(documents: Any) -> list[str]:
    return sorted(document.title for document in documents)


@path("joined: the base class")
def _(s: Session, m: World) -> Any:
    return titles(s.scalars(select(m.Document)))


@path("joined: a subclass")
def _(s: Session, m: World) -> Any:
    return sorted((each.title, each.amount) for each in s.scalars(select(m.Invoice)))


@path("joined: a subclass of a subclass")
def _(s: Session, m: World) -> Any:
    return sorted((each.title, each.reason) for each in s.scalars(select(m.CreditNote)))


@path("joined: a single-table subclass of a joined subclass")
def _(s: Session, m: World) -> Any:
    return titles(s.scalars(select(m.Estimate)))


@path("joined: columns of the base")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Document.title)))


@path("joined: a subclass's column of the base's table")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Invoice.title)))


@path("joined: a subclass's column of its own table")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Invoice.amount)))


@path("joined: count of a subclass")
def _(s: Session, m: World) -> Any:
    return s.scalar(select(func.count()).select_from(m.Invoice))


@path("joined: an alias of a subclass")
def _(s: Session, m: World) -> Any:
    return titles(s.scalars(select(aliased(m.Invoice))))


@path("joined: a flat alias of a subclass")
def _(s: Session, m: World) -> Any:
    return titles(s.scalars(select(aliased(m.Invoice, flat=True))))


@path("joined: a flat alias of a subclass of a subclass")
def _(s: Session, m: World) -> Any:
    note = aliased(m.CreditNote, flat=True)
    return rows(s.execute(select(note.title, note.reason)))


@path("joined: the subclass's table alone")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Invoice.__table__.c.amount)))


@path("joined: an alias of the subclass's table alone")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Invoice.__table__.alias("i").c.amount)))


@path("joined: count over the subclass's table alone")
def _(s: Session, m: World) -> Any:
    return s.scalar(select(func.count()).select_from(m.Invoice.__table__))


@path("joined: the table of a subclass of a subclass alone")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.CreditNote.__table__.c.reason)))


@path("joined: two aliases of the subclass's table")
def _(s: Session, m: World) -> Any:
    one, two = m.Invoice.__table__.alias(), m.Invoice.__table__.alias()
    return rows(s.execute(select(one.c.amount, two.c.amount).where(one.c.id < two.c.id)))


@path("joined: a sample of the subclass's table", without=("sqlite", "mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    sample = m.Invoice.__table__.tablesample(func.bernoulli(100))
    return sorted(s.scalars(select(sample.c.amount)))


@path("joined: the subclass's table in a subquery")
def _(s: Session, m: World) -> Any:
    inner = select(m.Invoice.__table__).subquery()
    return sorted(s.scalars(select(inner.c.amount)))


@path("joined: the subclass's table in a UNION")
def _(s: Session, m: World) -> Any:
    invoices, letters = m.Invoice.__table__, m.Letter.__table__
    return sorted(s.scalars(union_all(select(invoices.c.id), select(letters.c.id))))


@path("joined: the subclass's table in IN")
def _(s: Session, m: World) -> Any:
    dear = select(m.Invoice.__table__.c.id).where(m.Invoice.__table__.c.amount >= 200)
    return sorted(s.scalars(select(m.Line.text).where(m.Line.invoice_id.in_(dear))))


@path("joined: the subclass's table in EXISTS")
def _(s: Session, m: World) -> Any:
    billed = exists().where(m.Invoice.__table__.c.id == m.Line.invoice_id)
    return sorted(s.scalars(select(m.Line.text).where(billed)))


@path("joined: the subclass's table joined to another")
def _(s: Session, m: World) -> Any:
    invoices = m.Invoice.__table__
    joined = select(m.Line.text, invoices.c.amount)
    return rows(s.execute(joined.join(invoices, invoices.c.id == m.Line.invoice_id)))


@path("joined: the subclass's table outer-joined to another")
def _(s: Session, m: World) -> Any:
    invoices = m.Invoice.__table__
    joined = select(m.Line.text, invoices.c.amount)
    return rows(s.execute(joined.outerjoin(invoices, invoices.c.id == m.Line.invoice_id)))


@path("joined: the subclass's table fully joined to another", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    invoices = m.Invoice.__table__
    joined = outerjoin(m.Line, invoices, invoices.c.id == m.Line.invoice_id, full=True)
    return rows(s.execute(select(m.Line.text, invoices.c.amount).select_from(joined)))


@path("joined: a subclass fully joined to another class", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    joined = select(m.Line.text, m.Invoice.title, m.Invoice.amount)
    joined = joined.outerjoin(m.Invoice, m.Line.invoice_id == m.Invoice.id, full=True)
    return rows(s.execute(joined))


@path(
    "joined: a flat alias of a subclass fully joined to another class",
    without=("mariadb", "mysql"),
)
def _(s: Session, m: World) -> Any:
    note = aliased(m.CreditNote, flat=True)
    joined = select(m.Line.text, note.title, note.reason)
    return rows(s.execute(joined.outerjoin(note, m.Line.invoice_id == note.note_id, full=True)))


@path("joined: base and subclass tables joined by key")
def _(s: Session, m: World) -> Any:
    base, sub = m.Document.__table__, m.Invoice.__table__
    joined = join(base, sub, base.c.id == sub.c.id)
    return rows(s.execute(select(base.c.title, sub.c.amount).select_from(joined)))


@path("joined: base and subclass tables joined in WHERE")
def _(s: Session, m: World) -> Any:
    base, sub = m.Document.__table__, m.Invoice.__table__
    return rows(s.execute(select(base.c.title, sub.c.amount).where(base.c.id == sub.c.id)))


@path("joined: the base's table outer-joined to the subclass's")
def _(s: Session, m: World) -> Any:
    base, sub = m.Document.__table__, m.Invoice.__table__
    joined = outerjoin(base, sub, base.c.id == sub.c.id)
    return rows(s.execute(select(base.c.title, sub.c.amount).select_from(joined)))


@path("joined: the subclass's table outer-joined to the base's")
def _(s: Session, m: World) -> Any:
    base, sub = m.Document.__table__, m.Invoice.__table__
    joined = outerjoin(sub, base, base.c.id == sub.c.id)
    return rows(s.execute(select(base.c.title, sub.c.amount).select_from(joined)))


@path("joined: the subclass's table next to an unrelated row of the base")
def _(s: Session, m: World) -> Any:
    base, sub = m.Document.__table__, m.Invoice.__table__
    beside = select(sub.c.amount, base.c.title).where(base.c.id == 1, sub.c.id != base.c.id)
    return rows(s.execute(beside))


@path("joined: the tables of a subclass and of its subclass without the base's")
def _(s: Session, m: World) -> Any:
    sub, subsub = m.Invoice.__table__, m.CreditNote.__table__
    joined = join(sub, subsub, sub.c.id == subsub.c.note_id)
    return rows(s.execute(select(sub.c.amount, subsub.c.reason).select_from(joined)))


@path("joined: the tables of the base and of a subclass's subclass")
def _(s: Session, m: World) -> Any:
    base, subsub = m.Document.__table__, m.CreditNote.__table__
    joined = join(base, subsub, base.c.id == subsub.c.note_id)
    return rows(s.execute(select(base.c.title, subsub.c.reason).select_from(joined)))


@path("joined: with_polymorphic of everything")
def _(s: Session, m: World) -> Any:
    every = with_polymorphic(m.Document, "*")
    found = s.scalars(select(every))
    return sorted((each.title, getattr(each, "amount", None) or 0) for each in found)


@path("joined: with_polymorphic, flat")
def _(s: Session, m: World) -> Any:
    every = with_polymorphic(m.Document, [m.Invoice, m.Letter], flat=True)
    return rows(s.execute(select(every.title, every.Invoice.amount, every.Letter.body)))


@path("joined: with_polymorphic, aliased")
def _(s: Session, m: World) -> Any:
    every = with_polymorphic(m.Document, [m.Invoice], aliased=True)
    return rows(s.execute(select(every.title, every.Invoice.amount)))


@path("joined: with_polymorphic and a subclass's column in WHERE")
def _(s: Session, m: World) -> Any:
    every = with_polymorphic(m.Document, [m.Invoice, m.CreditNote])
    dear = select(every).where(every.Invoice.amount >= 200)
    return titles(s.scalars(dear))


@path("joined: selectin_polymorphic")
def _(s: Session, m: World) -> Any:
    loaded = selectin_polymorphic(m.Document, [m.Invoice, m.Letter])
    found = s.scalars(select(m.Document).options(loaded))
    return sorted((each.title, getattr(each, "body", "")) for each in found)


@path("joined: a subclass's columns, loaded on access")
def _(s: Session, m: World) -> Any:
    found = s.scalars(select(m.Document).filter_by(customer_id=3))
    return sorted((each.title, getattr(each, "reason", "")) for each in found)


@path("joined: an expired attribute of a subclass's table")
def _(s: Session, m: World) -> Any:
    bills = s.scalars(select(m.Invoice)).all()
    for bill in bills:
        s.expire(bill, ["amount"])
    return sorted(bill.amount for bill in bills)


@path("joined: of_type() in a join")
def _(s: Session, m: World) -> Any:
    bills = m.Customer.documents.of_type(m.Invoice)
    return rows(s.execute(select(m.Customer.name, m.Invoice.amount).join(bills)))


@path("joined: of_type() in an outer join")
def _(s: Session, m: World) -> Any:
    bills = m.Customer.documents.of_type(m.Invoice)
    return rows(s.execute(select(m.Customer.name, m.Invoice.amount).outerjoin(bills)))


@path("joined: of_type() with any()")
def _(s: Session, m: World) -> Any:
    dear = m.Customer.documents.of_type(m.Invoice).any(m.Invoice.amount.in_([200, 500]))
    return sorted(s.scalars(select(m.Customer.name).where(dear)))


@path("joined: of_type() with with_polymorphic in a join")
def _(s: Session, m: World) -> Any:
    every = with_polymorphic(m.Document, [m.Invoice, m.Letter], flat=True)
    joined = select(m.Customer.name, every.title, every.Invoice.amount)
    return rows(s.execute(joined.join(m.Customer.documents.of_type(every))))


@path("joined: selectinload with of_type()")
def _(s: Session, m: World) -> Any:
    loaded = selectinload(m.Customer.documents.of_type(m.Invoice))
    customers = s.scalars(select(m.Customer).options(loaded))
    return sorted((c.name, titles(c.documents)) for c in customers)


@path("joined: joinedload with of_type() of everything")
def _(s: Session, m: World) -> Any:
    every = with_polymorphic(m.Document, "*", flat=True)
    loaded = joinedload(m.Customer.documents.of_type(every))
    customers = s.scalars(select(m.Customer).options(loaded)).unique()
    return sorted((c.name, titles(c.documents)) for c in customers)


@path("joined: selectinload with of_type(), then on from the subclass")
def _(s: Session, m: World) -> Any:
    bills = m.Customer.documents.of_type(m.Invoice)
    customers = s.scalars(
        select(m.Customer).options(selectinload(bills).selectinload(m.Invoice.lines))
    )
    return sorted(
        (
            customer.name,
            [
                (each.title, [line.text for line in getattr(each, "lines", [])])
                for each in customer.documents
            ],
        )
        for customer in customers
    )


@path("joined: subqueryload from a subclass")
def _(s: Session, m: World) -> Any:
    found = s.scalars(select(m.CreditNote).options(subqueryload(m.CreditNote.lines)))
    return sorted((each.title, [line.text for line in each.lines]) for each in found)


@path("joined: an outer join from a class to a subclass")
def _(s: Session, m: World) -> Any:
    joined = select(m.Line.text, m.Invoice.title).outerjoin(m.Line.invoice)
    return rows(s.execute(joined))


@path("joined: has() of a relationship to a subclass")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Line.text).where(m.Line.invoice.has())))


@path("joined: any() from a subclass")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Invoice.title).where(m.Invoice.lines.any())))


@path("joined: get() by the base and by the subclass")
def _(s: Session, m: World) -> Any:
    keys = [(m.Document, 4), (m.Invoice, 4), (m.Document, 7), (m.CreditNote, 7), (m.Invoice, 3)]
    return [getattr(s.get(cls, key), "title", None) for cls, key in keys]


@path("joined: a subquery of a subclass")
def _(s: Session, m: World) -> Any:
    bills = select(m.Invoice.title, m.Invoice.amount).subquery()
    return rows(s.execute(select(bills)))


@path("joined: legacy Query of a subclass")
def _(s: Session, m: World) -> Any:
    return titles(s.query(m.Invoice).filter(m.Invoice.amount > 100))


@path("single-table: the base class, whose subclasses have defaults of their own")
def _(s: Session, m: World) -> Any:
    return sorted(event.name for event in s.scalars(select(m.Event)))


@path("single-table: a subclass that inherits the default")
def _(s: Session, m: World) -> Any:
    return sorted(event.name for event in s.scalars(select(m.Login)))


@path("single-table: a subclass that never expires by default")
def _(s: Session, m: World) -> Any:
    return sorted(event.name for event in s.scalars(select(m.Audit)))


@path("single-table: a subclass with a shorter default")
def _(s: Session, m: World) -> Any:
    return sorted(event.name for event in s.scalars(select(m.Debug)))


@path("single-table: a subclass that inherits a subclass's default")
def _(s: Session, m: World) -> Any:
    return sorted(event.name for event in s.scalars(select(m.Trace)))


@path("single-table: a subclass that overrides an inherited override")
def _(s: Session, m: World) -> Any:
    return sorted(event.name for event in s.scalars(select(m.SlowTrace)))


@path("single-table: count by kind")
def _(s: Session, m: World) -> Any:
    return rows(s.execute(select(m.Event.kind, func.count()).group_by(m.Event.kind)))


@path("single-table: an alias")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(aliased(m.Debug).name)))


@path("single-table: the table")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Event.__table__.c.name)))


@path("single-table: an alias of the table")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Event.__table__.alias().c.name)))


@path("single-table: get() by the base and by the subclass")
def _(s: Session, m: World) -> Any:
    keys = [(m.Event, 9), (m.Debug, 9), (m.Event, 12), (m.Trace, 12), (m.Audit, 6), (m.Event, 14)]
    return [getattr(s.get(cls, key), "name", None) for cls, key in keys]


@path("single-table: with_polymorphic")
def _(s: Session, m: World) -> Any:
    every = with_polymorphic(m.Event, "*")
    return sorted(event.name for event in s.scalars(select(every)))


@path("concrete: the base class with its subclasses")
def _(s: Session, m: World) -> Any:
    return sorted(asset.name for asset in s.scalars(select(m.Asset)))


@path("concrete: the subclasses")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Car.name))), sorted(s.scalars(select(m.Truck.name)))


@path("concrete: the base's table alone")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Asset.__table__.c.name)))


@path("concrete: an alias of the base class")
def _(s: Session, m: World) -> Any:
    return sorted(asset.name for asset in s.scalars(select(aliased(m.Asset))))


@path("concrete: count over the base class")
def _(s: Session, m: World) -> Any:
    return s.scalar(select(func.count()).select_from(m.Asset))


@path("concrete: get() of a subclass")
def _(s: Session, m: World) -> Any:
    keys = [(m.Car, 3), (m.Car, 4), (m.Truck, 5), (m.Truck, 6)]
    return [getattr(s.get(cls, key), "name", None) for cls, key in keys]


@path("concrete: get() by the base class")
def _(s: Session, m: World) -> Any:
    return [getattr(s.get(m.Asset, key), "name", None) for key in (1, 2)]
