"""Joins of every kind, by relationship, by condition, and through what is not a mapped class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Integer,
    String,
    and_,
    column,
    func,
    join,
    or_,
    orm,
    outerjoin,
    select,
    text,
    true,
    values,
)
from sqlalchemy.orm import aliased

from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


@path("an inner join along a relationship")
def _(s: Session, m: World) -> Any:
    return rows(s.execute(select(m.Order.number, m.Customer.name).join(m.Order.customer)))


@path("an inner join on a condition")
def _(s: Session, m: World) -> Any:
    joined = select(m.Order.number).join(m.Customer, m.Order.customer_id == m.Customer.id)
    return sorted(s.scalars(joined))


@path("an inner join that selects from one side only")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Item.sku).join(m.Item.order)))


@path("an inner join of two entities")
def _(s: Session, m: World) -> Any:
    both = s.execute(select(m.Order, m.Customer).join(m.Order.customer))
    return sorted((order.number, customer.name) for order, customer in both)


@path("a join over two hops")
def _(s: Session, m: World) -> Any:
    joined = select(m.Item.sku, m.Customer.name).join(m.Item.order).join(m.Order.customer)
    return rows(s.execute(joined))


@path("a join through a table without a ttl")
def _(s: Session, m: World) -> Any:
    joined = select(m.Region.name, m.Order.number).join(m.Region.customers)
    return rows(s.execute(joined.join(m.Customer.orders)))


@path("join_from")
def _(s: Session, m: World) -> Any:
    joined = select(m.Customer.name, m.Order.number).join_from(m.Customer, m.Order)
    return rows(s.execute(joined))


@path("select_from a join")
def _(s: Session, m: World) -> Any:
    joined = orm.join(m.Customer, m.Order, m.Customer.orders)
    return rows(s.execute(select(m.Customer.name, m.Order.number).select_from(joined)))


@path("select_from an outer join")
def _(s: Session, m: World) -> Any:
    joined = orm.outerjoin(m.Customer, m.Order, m.Customer.orders)
    return rows(s.execute(select(m.Customer.name, m.Order.number).select_from(joined)))


@path("an implicit join by WHERE")
def _(s: Session, m: World) -> Any:
    joined = select(m.Order.number, m.Customer.name).where(m.Order.customer_id == m.Customer.id)
    return rows(s.execute(joined))


@path("a cross join")
def _(s: Session, m: World) -> Any:
    joined = select(m.Tag.label, m.Profile.bio).join(m.Profile, true())
    return rows(s.execute(joined))


@path("a join to Model.__table__")
def _(s: Session, m: World) -> Any:
    table = m.Customer.__table__
    return rows(
        s.execute(
            select(m.Order.number, table.c.name).join(table, m.Order.customer_id == table.c.id)
        )
    )


@path("an outer join to Model.__table__")
def _(s: Session, m: World) -> Any:
    table = m.Order.__table__
    joined = select(m.Customer.name, table.c.number)
    return rows(s.execute(joined.outerjoin(table, table.c.customer_id == m.Customer.id)))


@path("a join to an alias of Model.__table__")
def _(s: Session, m: World) -> Any:
    other = m.Customer.__table__.alias("c")
    joined = select(m.Order.number, other.c.name).join(other, other.c.id == m.Order.customer_id)
    return rows(s.execute(joined))


@path("an outer join along a relationship")
def _(s: Session, m: World) -> Any:
    return rows(s.execute(select(m.Customer.name, m.Order.number).outerjoin(m.Customer.orders)))


@path("an outer join of two entities")
def _(s: Session, m: World) -> Any:
    both = s.execute(select(m.Order, m.Customer).outerjoin(m.Order.customer))
    return rows((order.number, customer and customer.name) for order, customer in both)


@path("an outer join with a further condition in ON")
def _(s: Session, m: World) -> Any:
    big = and_(m.Order.customer_id == m.Customer.id, m.Order.total >= 20)
    return rows(s.execute(select(m.Customer.name, m.Order.number).outerjoin(m.Order, big)))


@path("an outer join on a text with OR")
def _(s: Session, m: World) -> Any:
    either = text("orders.customer_id = customers.id OR orders.total = 60")
    return rows(s.execute(select(m.Customer.name, m.Order.number).outerjoin(m.Order, either)))


@path("an inner join on a text with OR")
def _(s: Session, m: World) -> Any:
    either = text("orders.customer_id = customers.id OR orders.total = 60")
    return rows(s.execute(select(m.Customer.name, m.Order.number).join(m.Order, either)))


@path("rows without a partner, by outer join and IS NULL")
def _(s: Session, m: World) -> Any:
    lonely = select(m.Customer.name).outerjoin(m.Customer.orders).where(m.Order.id.is_(None))
    return sorted(s.scalars(lonely))


@path("outer joins over two hops")
def _(s: Session, m: World) -> Any:
    joined = select(m.Customer.name, m.Order.number, m.Item.sku)
    return rows(s.execute(joined.outerjoin(m.Customer.orders).outerjoin(m.Order.items)))


@path("an outer join followed by an inner join")
def _(s: Session, m: World) -> Any:
    joined = select(m.Customer.name, m.Order.number, m.Profile.bio)
    return rows(s.execute(joined.outerjoin(m.Customer.orders).join(m.Customer.profile)))


@path("an outer join to a nested inner join")
def _(s: Session, m: World) -> Any:
    inner = orm.join(m.Order, m.Item, m.Order.items)
    joined = orm.outerjoin(m.Customer, inner, m.Order.customer_id == m.Customer.id)
    return rows(s.execute(select(m.Customer.name, m.Item.sku).select_from(joined)))


@path("an outer join to a nested outer join")
def _(s: Session, m: World) -> Any:
    inner = orm.outerjoin(m.Order, m.Item, m.Order.items)
    joined = orm.outerjoin(m.Customer, inner, m.Order.customer_id == m.Customer.id)
    return rows(s.execute(select(m.Customer.name, m.Order.number, m.Item.sku).select_from(joined)))


@path("an outer join from a table without a ttl")
def _(s: Session, m: World) -> Any:
    return rows(s.execute(select(m.Region.name, m.Customer.name).outerjoin(m.Region.customers)))


@path("an outer join to a table without a ttl")
def _(s: Session, m: World) -> Any:
    return rows(s.execute(select(m.Customer.name, m.Region.name).outerjoin(m.Customer.region)))


@path("a full join", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    joined = select(m.Customer.name, m.Order.number)
    return rows(s.execute(joined.outerjoin(m.Order, m.Customer.orders, full=True)))


@path("a full join of aliases", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    buyer, bought = aliased(m.Customer), aliased(m.Order)
    joined = select(buyer.name, bought.number)
    joined = joined.join(bought, bought.customer_id == buyer.id, full=True)
    return rows(s.execute(joined))


@path("a full join of entities", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    both = s.execute(select(m.Customer, m.Order).outerjoin(m.Order, m.Customer.orders, full=True))
    return rows((c and c.name, o and o.number) for c, o in both)


@path("a full join inside an outer join", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    both = orm.outerjoin(m.Customer, m.Order, m.Customer.orders, full=True)
    joined = orm.outerjoin(both, m.Item, m.Item.order_id == m.Order.id)
    return rows(s.execute(select(m.Customer.name, m.Order.number, m.Item.sku).select_from(joined)))


@path("a full join of three tables", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    both = orm.outerjoin(m.Customer, m.Order, m.Customer.orders, full=True)
    joined = orm.outerjoin(both, m.Item, m.Item.order_id == m.Order.id, full=True)
    return rows(s.execute(select(m.Customer.name, m.Order.number, m.Item.sku).select_from(joined)))


@path("a full join whose right side is an outer join", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    right = orm.outerjoin(m.Order, m.Item, m.Item.order_id == m.Order.id)
    joined = orm.outerjoin(m.Customer, right, m.Order.customer_id == m.Customer.id, full=True)
    return rows(s.execute(select(m.Customer.name, m.Order.number, m.Item.sku).select_from(joined)))


@path("a full join whose left side is an inner join", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    left = orm.join(m.Customer, m.Order, m.Customer.orders)
    joined = orm.outerjoin(left, m.Item, m.Item.order_id == m.Order.id, full=True)
    return rows(s.execute(select(m.Customer.name, m.Order.number, m.Item.sku).select_from(joined)))


@path("a full join with a subquery", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    big = select(m.Order).where(m.Order.total >= 20).subquery()
    joined = orm.outerjoin(m.Customer, big, big.c.customer_id == m.Customer.id, full=True)
    return rows(s.execute(select(m.Customer.name, big.c.number).select_from(joined)))


@path("a full join with WHERE", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    joined = select(m.Customer.name, m.Order.number)
    joined = joined.outerjoin(m.Order, m.Customer.orders, full=True)
    return rows(s.execute(joined.where(or_(m.Customer.id.is_(None), m.Order.id.is_(None)))))


@path("a full join with a table without a ttl", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    joined = select(m.Region.name, m.Customer.name)
    return rows(s.execute(joined.join(m.Customer, m.Region.customers, full=True)))


@path("a self-join of aliases")
def _(s: Session, m: World) -> Any:
    child, parent = aliased(m.Category), aliased(m.Category)
    return rows(s.execute(select(child.name, parent.name).join(child.parent.of_type(parent))))


@path("an outer self-join")
def _(s: Session, m: World) -> Any:
    parent = aliased(m.Category)
    joined = select(m.Category.name, parent.name)
    return rows(s.execute(joined.outerjoin(m.Category.parent.of_type(parent))))


@path("a self-join over three generations")
def _(s: Session, m: World) -> Any:
    parent, grandparent = aliased(m.Category), aliased(m.Category)
    joined = select(m.Category.name, grandparent.name).join(m.Category.parent.of_type(parent))
    return rows(s.execute(joined.join(parent.parent.of_type(grandparent))))


@path("a join to a subquery")
def _(s: Session, m: World) -> Any:
    counted = select(m.Order.customer_id, func.count().label("n")).group_by(m.Order.customer_id)
    counted = counted.subquery()
    joined = select(m.Customer.name, counted.c.n).join(
        counted, counted.c.customer_id == m.Customer.id
    )
    return rows(s.execute(joined))


@path("an outer join to a subquery")
def _(s: Session, m: World) -> Any:
    big = select(m.Order).where(m.Order.total >= 20).subquery()
    joined = select(m.Customer.name, big.c.number)
    return rows(s.execute(joined.outerjoin(big, big.c.customer_id == m.Customer.id)))


@path("a join to an entity of a subquery")
def _(s: Session, m: World) -> Any:
    big = aliased(m.Order, select(m.Order).where(m.Order.total >= 20).subquery())
    joined = select(m.Customer.name, big).join(m.Customer.orders.of_type(big))
    return sorted((name, order.number) for name, order in s.execute(joined))


@path("a join to a CTE")
def _(s: Session, m: World) -> Any:
    big = select(m.Order.customer_id, m.Order.number).where(m.Order.total >= 20).cte("big")
    joined = select(m.Customer.name, big.c.number).join(big, big.c.customer_id == m.Customer.id)
    return rows(s.execute(joined))


@path("a join to a lateral subquery", without=("sqlite", "mariadb"))
def _(s: Session, m: World) -> Any:
    best = select(m.Order.number).where(m.Order.customer_id == m.Customer.id)
    best = best.order_by(m.Order.total.desc()).limit(1).lateral()
    return rows(s.execute(select(m.Customer.name, best.c.number).join(best, true())))


@path("an outer join to a lateral subquery", without=("sqlite", "mariadb"))
def _(s: Session, m: World) -> Any:
    best = select(m.Order.number).where(m.Order.customer_id == m.Customer.id)
    best = best.order_by(m.Order.total.desc()).limit(1).lateral()
    return rows(s.execute(select(m.Customer.name, best.c.number).outerjoin(best, true())))


@path("an entity of a lateral subquery", without=("sqlite", "mariadb"))
def _(s: Session, m: World) -> Any:
    mine = select(m.Order).where(m.Order.customer_id == m.Customer.id).lateral()
    order = aliased(m.Order, mine)
    found = s.execute(select(m.Customer.name, order).join(order, true()))
    return sorted((name, each.number) for name, each in found)


@path("a join to VALUES", without=("sqlite", "mariadb<11.7", "mysql"))
def _(s: Session, m: World) -> Any:
    wanted = values(column("id", Integer), column("note", String), name="wanted")
    wanted = wanted.data([(1, "first"), (4, "second"), (6, "third")])
    joined = select(m.Customer.name, wanted.c.note).join(wanted, wanted.c.id == m.Customer.id)
    return rows(s.execute(joined))


@path("an outer join from VALUES", without=("sqlite", "mariadb<11.7", "mysql"))
def _(s: Session, m: World) -> Any:
    wanted = values(column("id", Integer), name="wanted").data([(1,), (4,), (6,)])
    joined = outerjoin(wanted, m.Customer, m.Customer.id == wanted.c.id)
    return rows(s.execute(select(wanted.c.id, m.Customer.name).select_from(joined)))


@path("an outer join from VALUES in a CTE", without=("mysql",))
def _(s: Session, m: World) -> Any:
    wanted = values(column("id", Integer), name="w").data([(1,), (4,), (6,)]).cte("wanted")
    joined = outerjoin(wanted, m.Customer, m.Customer.id == wanted.c.id)
    return rows(s.execute(select(wanted.c.id, m.Customer.name).select_from(joined)))


@path("a join over a plain secondary table")
def _(s: Session, m: World) -> Any:
    return rows(s.execute(select(m.Customer.name, m.Tag.label).join(m.Customer.tags)))


@path("an outer join over a plain secondary table")
def _(s: Session, m: World) -> Any:
    return rows(s.execute(select(m.Customer.name, m.Tag.label).outerjoin(m.Customer.tags)))


@path("a join over a secondary table with a ttl")
def _(s: Session, m: World) -> Any:
    return rows(s.execute(select(m.Customer.name, m.Club.name).join(m.Customer.clubs)))


@path("an outer join over a secondary table with a ttl")
def _(s: Session, m: World) -> Any:
    return rows(s.execute(select(m.Club.name, m.Customer.name).outerjoin(m.Club.customers)))


@path("a join of Core tables in an ORM statement")
def _(s: Session, m: World) -> Any:
    customers, orders = m.Customer.__table__, m.Order.__table__
    joined = join(customers, orders, customers.c.id == orders.c.customer_id)
    return rows(s.execute(select(customers.c.name, orders.c.number).select_from(joined)))


@path("an aggregate over an outer join")
def _(s: Session, m: World) -> Any:
    counted = select(m.Customer.name, func.count(m.Order.id)).outerjoin(m.Customer.orders)
    return rows(s.execute(counted.group_by(m.Customer.name)))


@path("an aggregate over an inner join")
def _(s: Session, m: World) -> Any:
    spent = select(m.Customer.name, func.sum(m.Item.quantity)).join(m.Customer.orders)
    spent = spent.join(m.Order.items).group_by(m.Customer.name)
    return sorted((name, int(number)) for name, number in s.execute(spent))


@path("a join with the partner's columns in WHERE only")
def _(s: Session, m: World) -> Any:
    joined = (
        select(m.Order.number).join(m.Order.customer).where(m.Customer.name.in_(["dan", "eve"]))
    )
    return s.scalars(joined).all()


@path("a join to a relationship of an alias")
def _(s: Session, m: World) -> Any:
    buyer = aliased(m.Customer)
    return rows(s.execute(select(buyer.name, m.Order.number).join(buyer.orders)))


@path("a join along a relationship with criteria of its own")
def _(s: Session, m: World) -> Any:
    big = m.Customer.orders.and_(m.Order.total >= 20)
    return rows(s.execute(select(m.Customer.name, m.Order.number).join(big)))


@path("a join along a relationship with a primaryjoin of its own")
def _(s: Session, m: World) -> Any:
    return rows(s.execute(select(m.Customer.name, m.Order.number).join(m.Customer.big_orders)))


@path("a join of two aliases of one class to its other")
def _(s: Session, m: World) -> Any:
    one, two = aliased(m.Order), aliased(m.Order)
    joined = select(m.Customer.name, one.number, two.number)
    joined = joined.join(one, m.Customer.id == one.customer_id)
    joined = joined.join(two, and_(two.customer_id == m.Customer.id, one.id < two.id))
    return rows(s.execute(joined))
