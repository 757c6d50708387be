"""Mapped attributes that read other rows: expressions, hybrids, proxies, odd relationships."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select
from sqlalchemy.orm import undefer, with_expression

from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


@path("a column_property of a class without a ttl")
def _(s: Session, m: World) -> Any:
    return sorted((region.name, region.customer_count) for region in s.scalars(select(m.Region)))


@path("a column_property in WHERE")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Region.name).where(m.Region.customer_count >= 1)))


@path("a column_property in ORDER BY")
def _(s: Session, m: World) -> Any:
    by_count = select(m.Region.name).order_by(m.Region.customer_count, m.Region.name)
    return s.scalars(by_count).all()


@path("a deferred column_property, undeferred")
def _(s: Session, m: World) -> Any:
    customers = s.scalars(select(m.Customer).options(undefer(m.Customer.order_count)))
    return sorted((customer.name, customer.order_count) for customer in customers)


@path("a deferred column_property, loaded on access")
def _(s: Session, m: World) -> Any:
    return sorted(
        (customer.name, customer.order_count) for customer in s.scalars(select(m.Customer))
    )


@path("a hybrid in a SELECT")
def _(s: Session, m: World) -> Any:
    return sorted(
        (name, int(spent)) for name, spent in s.execute(select(m.Customer.name, m.Customer.spent))
    )


@path("a hybrid in WHERE")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Customer.name).where(m.Customer.spent >= 20)))


@path("a hybrid on an object")
def _(s: Session, m: World) -> Any:
    return sorted((customer.name, customer.spent) for customer in s.scalars(select(m.Customer)))


@path("with_expression")
def _(s: Session, m: World) -> Any:
    count = select(func.count(m.Order.id)).where(m.Order.customer_id == m.Customer.id)
    extra = with_expression(m.Customer.extra, count.scalar_subquery())
    return sorted((c.name, c.extra) for c in s.scalars(select(m.Customer).options(extra)))


@path("an association proxy over many-to-many")
def _(s: Session, m: World) -> Any:
    return sorted((c.name, sorted(c.tag_labels)) for c in s.scalars(select(m.Customer)))


@path("an association proxy over one-to-many")
def _(s: Session, m: World) -> Any:
    return sorted((c.name, sorted(c.totals)) for c in s.scalars(select(m.Customer)))


@path("an association proxy over one-to-one")
def _(s: Session, m: World) -> Any:
    return sorted((c.name, c.bio or "") for c in s.scalars(select(m.Customer)))


@path("an association proxy over an association object")
def _(s: Session, m: World) -> Any:
    return sorted((c.name, sorted(c.club_names)) for c in s.scalars(select(m.Customer)))


@path("an association proxy over an association proxy")
def _(s: Session, m: World) -> Any:
    regions = s.scalars(select(m.Region))
    return sorted((r.name, sorted(map(sorted, r.tag_labels))) for r in regions)


@path("an association proxy compared in WHERE")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Customer.name).where(m.Customer.tag_labels == "blue")))


@path("an association proxy with a condition of its own")
def _(s: Session, m: World) -> Any:
    high = m.Customer.totals.any(m.Order.total == 30)
    return sorted(s.scalars(select(m.Customer.name).where(high)))


@path("an association proxy over one-to-one in WHERE")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Customer.name).where(m.Customer.bio == "likes rain")))


@path("an association proxy over two tables in WHERE")
def _(s: Session, m: World) -> Any:
    rowers = m.Customer.club_names.contains("rowing")
    return sorted(s.scalars(select(m.Customer.name).where(rowers)))


@path("a relationship to an aliased class over a window")
def _(s: Session, m: World) -> Any:
    customers = s.scalars(select(m.Customer))
    return sorted((c.name, [order.number for order in c.best_orders]) for c in customers)


@path("a join along a relationship to an aliased class")
def _(s: Session, m: World) -> Any:
    best = m.Customer.best_orders
    joined = select(m.Customer.name, best.entity.entity.number).join(best)
    return rows(s.execute(joined))


@path("a relationship with a primaryjoin of its own")
def _(s: Session, m: World) -> Any:
    customers = s.scalars(select(m.Customer))
    return sorted((c.name, sorted(order.number for order in c.big_orders)) for c in customers)
