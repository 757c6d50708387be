"""Subqueries, CTEs, set operations, EXISTS and IN, windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    all_,
    any_,
    case,
    except_,
    exists,
    func,
    intersect,
    literal,
    select,
    tuple_,
    union,
    union_all,
)
from sqlalchemy.orm import aliased

from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


@path("a subquery in FROM")
def _(s: Session, m: World) -> Any:
    inner = select(m.Order.number, m.Order.total).subquery()
    return sorted(s.scalars(select(inner.c.number).where(inner.c.total >= 20)))


@path("an entity of a subquery")
def _(s: Session, m: World) -> Any:
    big = aliased(m.Order, select(m.Order).where(m.Order.total >= 20).subquery())
    return sorted(order.number for order in s.scalars(select(big)))


@path("a subquery of a subquery")
def _(s: Session, m: World) -> Any:
    inner = select(m.Order).where(m.Order.total >= 20).subquery()
    outer = select(inner.c.number, inner.c.total).where(inner.c.total <= 60).subquery()
    return rows(s.execute(select(outer)))


@path("count over a subquery")
def _(s: Session, m: World) -> Any:
    return s.scalar(select(func.count()).select_from(select(m.Order).subquery()))


@path("a subquery of a join")
def _(s: Session, m: World) -> Any:
    joined = select(m.Customer.name, m.Order.number).join(m.Customer.orders).subquery()
    return rows(s.execute(select(joined.c.name, joined.c.number)))


@path("a limited subquery")
def _(s: Session, m: World) -> Any:
    best = select(m.Order).order_by(m.Order.total.desc()).limit(3).subquery()
    return sorted(s.scalars(select(best.c.number)))


@path("a scalar subquery as a column")
def _(s: Session, m: World) -> Any:
    count = select(func.count(m.Order.id)).where(m.Order.customer_id == m.Customer.id)
    return rows(s.execute(select(m.Customer.name, count.scalar_subquery())))


@path("a scalar subquery as a column of a class without a ttl")
def _(s: Session, m: World) -> Any:
    count = select(func.count(m.Customer.id)).where(m.Customer.region_id == m.Region.id)
    return rows(s.execute(select(m.Region.name, count.scalar_subquery())))


@path("a scalar subquery in WHERE")
def _(s: Session, m: World) -> Any:
    highest = select(func.max(m.Order.total)).scalar_subquery()
    return s.scalars(select(m.Order.number).where(m.Order.total == highest)).all()


@path("a correlated scalar subquery of an alias in WHERE")
def _(s: Session, m: World) -> Any:
    other = aliased(m.Order)
    highest = select(func.max(other.total)).where(other.customer_id == m.Order.customer_id)
    best = select(m.Order.number).where(m.Order.total == highest.scalar_subquery())
    return sorted(s.scalars(best))


@path("a scalar subquery in ORDER BY")
def _(s: Session, m: World) -> Any:
    spent = select(func.coalesce(func.sum(m.Order.total), 0))
    spent = spent.where(m.Order.customer_id == m.Customer.id)
    return s.scalars(
        select(m.Customer.name).order_by(spent.scalar_subquery().desc(), m.Customer.id)
    ).all()


@path("a scalar subquery in HAVING")
def _(s: Session, m: World) -> Any:
    average = select(func.avg(m.Order.total)).scalar_subquery()
    best = select(m.Order.customer_id).where(m.Order.customer_id.is_not(None))
    best = best.group_by(m.Order.customer_id).having(func.max(m.Order.total) > average)
    return sorted(s.scalars(best))


@path("a scalar subquery in CASE")
def _(s: Session, m: World) -> Any:
    highest = select(func.max(m.Order.total)).scalar_subquery()
    label = case((m.Order.total == highest, "highest"), else_="other")
    return rows(s.execute(select(m.Order.number, label)))


@path("a scalar subquery without a FROM around it")
def _(s: Session, m: World) -> Any:
    return s.scalar(select(select(func.count(m.Order.id)).scalar_subquery()))


@path("explicit correlation")
def _(s: Session, m: World) -> Any:
    count = select(func.count(m.Order.id)).where(m.Order.customer_id == m.Customer.id)
    return rows(s.execute(select(m.Customer.name, count.correlate(m.Customer).scalar_subquery())))


@path("correlate_except")
def _(s: Session, m: World) -> Any:
    count = select(func.count(m.Order.id)).where(m.Order.customer_id == m.Customer.id)
    count = count.correlate_except(m.Order).scalar_subquery()
    return rows(s.execute(select(m.Customer.name, count)))


@path("IN a subquery")
def _(s: Session, m: World) -> Any:
    buyers = select(m.Order.customer_id).where(m.Order.total >= 20)
    return sorted(s.scalars(select(m.Customer.name).where(m.Customer.id.in_(buyers))))


@path("IN a subquery of a class without a ttl around it")
def _(s: Session, m: World) -> Any:
    inhabited = select(m.Customer.region_id)
    return sorted(s.scalars(select(m.Region.name).where(m.Region.id.in_(inhabited))))


@path("NOT IN a subquery")
def _(s: Session, m: World) -> Any:
    buyers = select(m.Order.customer_id).where(m.Order.customer_id.is_not(None))
    return sorted(s.scalars(select(m.Customer.name).where(m.Customer.id.not_in(buyers))))


@path("a row value IN a subquery")
def _(s: Session, m: World) -> Any:
    best = select(m.Order.customer_id, func.max(m.Order.total)).group_by(m.Order.customer_id)
    key = tuple_(m.Order.customer_id, m.Order.total)
    return sorted(s.scalars(select(m.Order.number).where(key.in_(best))))


@path("= ANY of a subquery", without=("sqlite",))
def _(s: Session, m: World) -> Any:
    buyers = select(m.Order.customer_id).scalar_subquery()
    return sorted(s.scalars(select(m.Customer.name).where(m.Customer.id == any_(buyers))))


@path(">= ALL of a subquery", without=("sqlite",))
def _(s: Session, m: World) -> Any:
    totals = select(m.Order.total).scalar_subquery()
    return sorted(s.scalars(select(m.Order.number).where(m.Order.total >= all_(totals))))


@path("EXISTS")
def _(s: Session, m: World) -> Any:
    bought = exists().where(m.Order.customer_id == m.Customer.id)
    return sorted(s.scalars(select(m.Customer.name).where(bought)))


@path("EXISTS of a select")
def _(s: Session, m: World) -> Any:
    bought = select(m.Order.id).where(m.Order.customer_id == m.Customer.id).exists()
    return sorted(s.scalars(select(m.Customer.name).where(bought)))


@path("EXISTS with select_from")
def _(s: Session, m: World) -> Any:
    bought = exists(1).select_from(m.Order).where(m.Order.customer_id == m.Customer.id)
    return sorted(s.scalars(select(m.Customer.name).where(bought)))


@path("NOT EXISTS")
def _(s: Session, m: World) -> Any:
    bought = exists().where(m.Order.customer_id == m.Customer.id)
    return sorted(s.scalars(select(m.Customer.name).where(~bought)))


@path("SELECT EXISTS")
def _(s: Session, m: World) -> Any:
    return bool(s.scalar(select(select(m.Customer.id).where(m.Customer.name == "dan").exists())))


@path("SELECT exists().where()")
def _(s: Session, m: World) -> Any:
    return bool(s.scalar(select(exists().where(m.Customer.name == "eve"))))


@path("EXISTS inside EXISTS")
def _(s: Session, m: World) -> Any:
    item = exists().where(m.Item.order_id == m.Order.id)
    order = exists().where(m.Order.customer_id == m.Customer.id, item)
    return sorted(s.scalars(select(m.Customer.name).where(order)))


@path("any()")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Customer.name).where(m.Customer.orders.any())))


@path("any() with a condition")
def _(s: Session, m: World) -> Any:
    big = m.Customer.orders.any(m.Order.total >= 20)
    return sorted(s.scalars(select(m.Customer.name).where(big)))


@path("not any()")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Customer.name).where(~m.Customer.orders.any())))


@path("any() of a class without a ttl")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Region.name).where(m.Region.customers.any())))


@path("any() over a plain secondary table")
def _(s: Session, m: World) -> Any:
    blue = m.Customer.tags.any(m.Tag.label == "blue")
    return sorted(s.scalars(select(m.Customer.name).where(blue)))


@path("any() over a secondary table with a ttl")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Club.name).where(m.Club.customers.any())))


@path("any() inside any()")
def _(s: Session, m: World) -> Any:
    items = m.Customer.orders.any(m.Order.items.any(m.Item.quantity > 1))
    return sorted(s.scalars(select(m.Customer.name).where(items)))


@path("any() of a self-referential relationship")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Category.name).where(m.Category.children.any())))


@path("has()")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Order.number).where(m.Order.customer.has())))


@path("has() with a condition")
def _(s: Session, m: World) -> Any:
    early = m.Order.customer.has(m.Customer.name < "e")
    return sorted(s.scalars(select(m.Order.number).where(early)))


@path("not has()")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Order.number).where(~m.Order.customer.has())))


@path("has() of a one-to-one relationship")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Customer.name).where(m.Customer.profile.has())))


@path("has() inside has()")
def _(s: Session, m: World) -> Any:
    deep = m.Item.order.has(m.Order.customer.has(m.Customer.id > 0))
    return sorted(s.scalars(select(m.Item.sku).where(deep)))


@path("contains()")
def _(s: Session, m: World) -> Any:
    tag = s.get_one(m.Tag, 1)
    return sorted(s.scalars(select(m.Customer.name).where(m.Customer.tags.contains(tag))))


@path("a comparison of a relationship with an object")
def _(s: Session, m: World) -> Any:
    cid = s.get_one(m.Customer, 3)
    return sorted(s.scalars(select(m.Order.number).where(m.Order.customer == cid)))


@path("a CTE")
def _(s: Session, m: World) -> Any:
    big = select(m.Order.number, m.Order.total).where(m.Order.total >= 20).cte("big")
    return sorted(s.scalars(select(big.c.number)))


@path("an entity of a CTE")
def _(s: Session, m: World) -> Any:
    big = aliased(m.Order, select(m.Order).where(m.Order.total >= 20).cte("big"))
    return sorted(order.number for order in s.scalars(select(big)))


@path("a CTE that is used twice")
def _(s: Session, m: World) -> Any:
    big = select(m.Order.id, m.Order.total).where(m.Order.total >= 20).cte("big")
    other = big.alias("other")
    pairs = select(big.c.id, other.c.id).where(big.c.id < other.c.id)
    return rows(s.execute(pairs))


@path("a CTE inside a CTE")
def _(s: Session, m: World) -> Any:
    big = select(m.Order.customer_id).where(m.Order.total >= 20).cte("big")
    buyers = select(m.Customer.name).where(m.Customer.id.in_(select(big.c.customer_id)))
    buyers = buyers.cte("buyers")
    return sorted(s.scalars(select(buyers.c.name)))


@path("a nesting CTE")
def _(s: Session, m: World) -> Any:
    big = select(m.Order.number).where(m.Order.total >= 20).cte("big", nesting=True)
    return sorted(s.scalars(select(select(big.c.number).subquery().c.number)))


@path("a recursive CTE down a tree")
def _(s: Session, m: World) -> Any:
    tree = select(m.Category.id, m.Category.name).where(m.Category.parent_id.is_(None))
    tree = tree.cte("tree", recursive=True)
    child = aliased(m.Category)
    tree = tree.union_all(select(child.id, child.name).join(tree, child.parent_id == tree.c.id))
    return sorted(s.scalars(select(tree.c.name)))


@path("a recursive CTE up a tree")
def _(s: Session, m: World) -> Any:
    line = select(m.Category.id, m.Category.name, m.Category.parent_id)
    line = line.where(m.Category.name == "hammers").cte("line", recursive=True)
    above = aliased(m.Category)
    further = select(above.id, above.name, above.parent_id).where(above.id == line.c.parent_id)
    return sorted(s.scalars(select(line.union(further).c.name)))


@path("entities found by a recursive CTE")
def _(s: Session, m: World) -> Any:
    tree = select(m.Category.id).where(m.Category.id == 1).cte("tree", recursive=True)
    child = aliased(m.Category)
    tree = tree.union_all(select(child.id).where(child.parent_id == tree.c.id))
    found = select(m.Category).join(tree, tree.c.id == m.Category.id)
    return sorted(category.name for category in s.scalars(found).unique())


@path("UNION")
def _(s: Session, m: World) -> Any:
    names = union(select(m.Customer.name), select(m.Order.number))
    return sorted(s.scalars(names))


@path("UNION ALL")
def _(s: Session, m: World) -> Any:
    names = union_all(select(m.Tag.label), select(m.Profile.bio), select(m.Tag.label))
    return sorted(s.scalars(names))


@path("EXCEPT")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(except_(select(m.Customer.id), select(m.Order.customer_id))))


@path("INTERSECT")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(intersect(select(m.Customer.id), select(m.Order.customer_id))))


@path("a UNION as a method, ordered and limited")
def _(s: Session, m: World) -> Any:
    names = select(m.Order.number.label("n")).union(select(m.Customer.name))
    return s.scalars(names.order_by("n").limit(5)).all()


@path("entities of a UNION")
def _(s: Session, m: World) -> Any:
    both = union(
        select(m.Order).where(m.Order.total < 30), select(m.Order).where(m.Order.total > 70)
    )
    order = aliased(m.Order, both.subquery())
    return sorted(each.number for each in s.scalars(select(order)))


@path("count over a UNION")
def _(s: Session, m: World) -> Any:
    names = union_all(select(m.Tag.id), select(m.Profile.id)).subquery()
    return s.scalar(select(func.count()).select_from(names))


@path("a UNION inside a UNION")
def _(s: Session, m: World) -> Any:
    inner = union(select(m.Tag.label), select(m.Profile.bio)).subquery()
    return sorted(s.scalars(union_all(select(inner.c.label), select(m.Customer.name))))


@path("IN a UNION")
def _(s: Session, m: World) -> Any:
    ids = union(select(m.Order.customer_id), select(m.Profile.customer_id)).subquery()
    found = select(m.Customer.name).where(m.Customer.id.in_(select(ids.c.customer_id)))
    return sorted(s.scalars(found))


@path("row_number()")
def _(s: Session, m: World) -> Any:
    place = func.row_number().over(order_by=m.Order.total.desc())
    return rows(s.execute(select(m.Order.number, place)))


@path("rank() in partitions")
def _(s: Session, m: World) -> Any:
    place = func.rank().over(partition_by=m.Order.customer_id, order_by=m.Order.total.desc())
    return rows(s.execute(select(m.Order.number, place)))


@path("the best of each group by row_number() in a subquery")
def _(s: Session, m: World) -> Any:
    place = func.row_number().over(partition_by=m.Order.customer_id, order_by=m.Order.total.desc())
    ranked = select(m.Order, place.label("place")).subquery()
    best = aliased(m.Order, ranked)
    return sorted(o.number for o in s.scalars(select(best).where(ranked.c.place == 1)))


@path("lag()")
def _(s: Session, m: World) -> Any:
    before = func.lag(m.Order.total).over(order_by=m.Order.id)
    return rows(s.execute(select(m.Order.number, before)))


@path("a running sum")
def _(s: Session, m: World) -> Any:
    total = func.sum(m.Order.total).over(order_by=m.Order.id, rows=(None, 0))
    return sorted(
        (number, int(so_far)) for number, so_far in s.execute(select(m.Order.number, total))
    )


@path("count() over everything")
def _(s: Session, m: World) -> Any:
    return rows(s.execute(select(m.Order.number, func.count().over())))


@path("a window over an outer join")
def _(s: Session, m: World) -> Any:
    count = func.count(m.Order.id).over(partition_by=m.Customer.id)
    return rows(s.execute(select(m.Customer.name, count).outerjoin(m.Customer.orders)))


@path("a constant from a subquery of an expired row")
def _(s: Session, m: World) -> Any:
    inner = select(literal(1).label("one")).where(m.Customer.id == 4).subquery()
    return s.scalars(select(inner.c.one)).all()
