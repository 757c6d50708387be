"""The legacy Query."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from sqlalchemy import func
from sqlalchemy.exc import NoResultFound
from sqlalchemy.orm import aliased, joinedload

from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


def numbers(orders: Any) -> list[str]:
    return sorted(order.number for order in orders)


@path("Query.all()")
def _(s: Session, m: World) -> Any:
    return numbers(s.query(m.Order).all())


@path("Query of columns")
def _(s: Session, m: World) -> Any:
    return rows(s.query(m.Order.number, m.Order.total))


@path("Query.get()")
def _(s: Session, m: World) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [getattr(s.query(m.Customer).get(key), "name", None) for key in (1, 4, 5)]


@path("Query.filter()")
def _(s: Session, m: World) -> Any:
    return numbers(s.query(m.Order).filter(m.Order.total >= 20))


@path("Query.filter_by().one()")
def _(s: Session, m: World) -> Any:
    try:
        return s.query(m.Customer).filter_by(name="dan").one().name
    except NoResultFound:
        return "none"


@path("Query.one_or_none()")
def _(s: Session, m: World) -> Any:
    return s.query(m.Customer).filter_by(name="eve").one_or_none() is None


@path("Query.first()")
def _(s: Session, m: World) -> Any:
    return s.query(m.Order).filter(m.Order.id > 1).order_by(m.Order.id).first().number


@path("Query.scalar()")
def _(s: Session, m: World) -> Any:
    return s.query(func.sum(m.Order.total)).scalar()


@path("Query.count()")
def _(s: Session, m: World) -> Any:
    return s.query(m.Order).count()


@path("Query.join()")
def _(s: Session, m: World) -> Any:
    return rows(s.query(m.Customer.name, m.Order.number).join(m.Customer.orders))


@path("Query.outerjoin()")
def _(s: Session, m: World) -> Any:
    return rows(s.query(m.Customer.name, m.Order.number).outerjoin(m.Customer.orders))


@path("Query.select_from()")
def _(s: Session, m: World) -> Any:
    query = s.query(m.Order.number).select_from(m.Customer).join(m.Customer.orders)
    return rows(query)


@path("Query.exists()")
def _(s: Session, m: World) -> Any:
    return bool(s.query(s.query(m.Customer).filter_by(name="dan").exists()).scalar())


@path("Query.subquery()")
def _(s: Session, m: World) -> Any:
    inner = s.query(m.Order.number, m.Order.total).subquery()
    return rows(s.query(inner.c.number).filter(inner.c.total >= 20))


@path("an entity from Query.subquery()")
def _(s: Session, m: World) -> Any:
    inner = s.query(m.Order).filter(m.Order.total >= 20).subquery()
    return numbers(s.query(aliased(m.Order, inner)))


@path("Query.cte()")
def _(s: Session, m: World) -> Any:
    inner = s.query(m.Order.number).filter(m.Order.total >= 20).cte("big")
    return rows(s.query(inner.c.number))


@path("Query.union()")
def _(s: Session, m: World) -> Any:
    low = s.query(m.Order).filter(m.Order.total < 30)
    return numbers(low.union(s.query(m.Order).filter(m.Order.total > 70)))


@path("Query.union_all()")
def _(s: Session, m: World) -> Any:
    return rows(s.query(m.Customer.name).union_all(s.query(m.Order.number)))


@path("Query.except_()")
def _(s: Session, m: World) -> Any:
    return rows(s.query(m.Customer.id).except_(s.query(m.Order.customer_id)))


@path("Query.intersect()")
def _(s: Session, m: World) -> Any:
    return rows(s.query(m.Customer.id).intersect(s.query(m.Order.customer_id)))


@path("Query.with_entities()")
def _(s: Session, m: World) -> Any:
    return s.query(m.Order).with_entities(func.count(m.Order.id)).scalar()


@path("Query.distinct()")
def _(s: Session, m: World) -> Any:
    return rows(s.query(m.Item.sku).distinct())


@path("Query.group_by() and having()")
def _(s: Session, m: World) -> Any:
    query = s.query(m.Order.customer_id, func.count(m.Order.id)).group_by(m.Order.customer_id)
    return rows(query.having(func.count(m.Order.id) > 1))


@path("a slice of a Query")
def _(s: Session, m: World) -> Any:
    return [order.number for order in s.query(m.Order).order_by(m.Order.id)[1:3]]


@path("Query.limit() and offset() with joinedload")
def _(s: Session, m: World) -> Any:
    query = s.query(m.Customer).options(joinedload(m.Customer.orders)).order_by(m.Customer.id)
    return [(c.name, numbers(c.orders)) for c in query.limit(2).offset(1)]


@path("Query.yield_per()")
def _(s: Session, m: World) -> Any:
    return numbers(s.query(m.Order).yield_per(2))


@path("Query.populate_existing()")
def _(s: Session, m: World) -> Any:
    return numbers(s.query(m.Order).populate_existing())


@path("Query.with_for_update()")
def _(s: Session, m: World) -> Any:
    return numbers(s.query(m.Order).with_for_update())


@path("Query.from_statement()")
def _(s: Session, m: World) -> Any:
    statement = m.Order.__table__.select().where(m.Order.__table__.c.total >= 20)
    return numbers(s.query(m.Order).from_statement(statement))


@path("Query.update()", writes=True)
def _(s: Session, m: World) -> Any:
    return s.query(m.Order).filter(m.Order.total >= 20).update({"number": "x"})


@path("Query.delete()", writes=True)
def _(s: Session, m: World) -> Any:
    return s.query(m.Order).filter(m.Order.total >= 20).delete()


@path("Query of a relationship's object")
def _(s: Session, m: World) -> Any:
    return [
        order.customer and order.customer.name for order in s.query(m.Order).order_by(m.Order.id)
    ]
