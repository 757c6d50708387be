"""SELECT from one class: entities, columns, aggregates, execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Integer,
    and_,
    case,
    cast,
    distinct,
    func,
    lambda_stmt,
    literal,
    literal_column,
    not_,
    or_,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import NoResultFound
from sqlalchemy.ext import baked
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Bundle, aliased, with_loader_criteria

from tests.leaks.registry import Sees, path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


@path("entities")
def _(s: Session, m: World) -> Any:
    return sorted(customer.name for customer in s.scalars(select(m.Customer)))


@path("a column")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Customer.name)))


@path("several columns as tuples")
def _(s: Session, m: World) -> Any:
    return rows(s.execute(select(m.Order.number, m.Order.total)))


@path("rows as mappings")
def _(s: Session, m: World) -> Any:
    return sorted(row["number"] for row in s.execute(select(m.Order.number)).mappings())


@path("an entity next to a column")
def _(s: Session, m: World) -> Any:
    rows = s.execute(select(m.Order, m.Order.total))
    return sorted((order.number, total) for order, total in rows)


@path("a labelled expression")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select((m.Order.total * 2).label("twice"))))


@path("an expression that names no column of its table's key")
def _(s: Session, m: World) -> Any:
    return s.scalars(select(literal(1)).select_from(m.Order)).all()


@path("a bundle")
def _(s: Session, m: World) -> Any:
    bundle: Any = Bundle("order", m.Order.number, m.Order.total)
    return sorted(order.number for order in s.scalars(select(bundle)))


@path("an alias")
def _(s: Session, m: World) -> Any:
    other = aliased(m.Customer)
    return sorted(customer.name for customer in s.scalars(select(other)))


@path("a named alias")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(aliased(m.Customer, name="somebody").name)))


@path("a class next to its alias")
def _(s: Session, m: World) -> Any:
    other = aliased(m.Customer)
    pairs = select(m.Customer.name, other.name).where(m.Customer.id < other.id)
    return rows(s.execute(pairs))


@path("the columns of Model.__table__")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Customer.__table__.c.name)))


@path("count(*)")
def _(s: Session, m: World) -> Any:
    return s.scalar(select(func.count()).select_from(m.Order))


@path("count of a column")
def _(s: Session, m: World) -> Any:
    return s.scalar(select(func.count(m.Order.id)))


@path("count of distinct values")
def _(s: Session, m: World) -> Any:
    return s.scalar(select(func.count(distinct(m.Order.customer_id))))


@path("sum, min, max and average")
def _(s: Session, m: World) -> Any:
    total = m.Order.total
    row = s.execute(select(func.sum(total), func.min(total), func.max(total), func.avg(total)))
    return [float(number) for number in row.one()]


@path("an aggregate with FILTER", without=("mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    return s.scalar(select(func.count(m.Order.id).filter(m.Order.total >= 20)))


@path("an aggregate of a CASE")
def _(s: Session, m: World) -> Any:
    return s.scalar(select(func.sum(case((m.Order.total >= 20, 1), else_=0))))


@path("GROUP BY")
def _(s: Session, m: World) -> Any:
    counts = select(m.Order.customer_id, func.count()).where(m.Order.customer_id.is_not(None))
    return rows(s.execute(counts.group_by(m.Order.customer_id)))


@path("HAVING")
def _(s: Session, m: World) -> Any:
    many = select(m.Order.customer_id).group_by(m.Order.customer_id).having(func.count() > 1)
    return sorted(s.scalars(many))


@path("GROUP BY an expression")
def _(s: Session, m: World) -> Any:
    big = m.Order.total >= 50
    label = case((big, "big"), else_="small").label("size")
    return rows(s.execute(select(label, func.count()).group_by(label)))


@path("DISTINCT")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Item.sku).distinct()))


@path("DISTINCT ON", without=("sqlite", "mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    order = m.Order
    best = select(order.number).order_by(order.customer_id, order.total.desc())
    if hasattr(postgresql, "distinct_on"):
        best = best.ext(postgresql.distinct_on(order.customer_id))
    else:  # SQLAlchemy 2.0
        best = best.distinct(order.customer_id)
    return s.scalars(best).all()


@path("ORDER BY with LIMIT")
def _(s: Session, m: World) -> Any:
    return s.scalars(select(m.Order.number).order_by(m.Order.total.desc()).limit(2)).all()


@path("ORDER BY with LIMIT and OFFSET")
def _(s: Session, m: World) -> Any:
    return s.scalars(select(m.Order.number).order_by(m.Order.id).limit(2).offset(1)).all()


@path("FETCH FIRST", without=("sqlite", "mysql"))
def _(s: Session, m: World) -> Any:
    return s.scalars(select(m.Order.number).order_by(m.Order.id).fetch(3)).all()


@path("WHERE by the primary key of an expired row")
def _(s: Session, m: World) -> Any:
    return s.scalars(select(m.Customer.name).where(m.Customer.id == 4)).one_or_none()


@path("WHERE with OR at its top")
def _(s: Session, m: World) -> Any:
    either = or_(m.Order.total >= 60, m.Order.number == "o2")
    return sorted(s.scalars(select(m.Order.number).where(either)))


@path("WHERE with a comparison and an OR")
def _(s: Session, m: World) -> Any:
    condition = or_(m.Order.total < 30, and_(m.Order.total > 50, m.Order.id > 5))
    return sorted(s.scalars(select(m.Order.number).where(condition, m.Order.id < 9)))


@path("WHERE NOT")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Order.number).where(not_(m.Order.total == 10))))


@path("WHERE with LIKE")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Profile.bio).where(m.Profile.bio.like("likes %"))))


@path("WHERE with IN and a list")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Order.number).where(m.Order.id.in_([1, 2, 3]))))


@path("WHERE with a row value IN a list")
def _(s: Session, m: World) -> Any:
    pairs = [(1, "ann"), (4, "dan"), (5, "eve")]
    chosen = select(m.Customer.id).where(tuple_(m.Customer.id, m.Customer.name).in_(pairs))
    return sorted(s.scalars(chosen))


@path("filter_by")
def _(s: Session, m: World) -> Any:
    return s.scalars(select(m.Customer.name).filter_by(region_id=1)).all()


@path("a text condition")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Order.number).where(text("total >= 20"))))


@path("a text condition with OR, unparenthesised")
def _(s: Session, m: World) -> Any:
    either = text("total = 20 OR total = 50 OR total = 60")
    return sorted(s.scalars(select(m.Order.number).where(either)))


@path("a literal column as condition, with OR, unparenthesised")
def _(s: Session, m: World) -> Any:
    either: Any = literal_column("total = 20 OR total = 50 OR total = 60")
    return sorted(s.scalars(select(m.Order.number).where(either)))


class Either(ColumnElement[bool]):
    """A condition of a user's own, which puts no parentheses around itself."""

    inherit_cache = True
    type = Boolean()


@compiles(Either)
def _render(element: Either, compiler: Any, **_: Any) -> str:
    return "total = 20 OR total = 50 OR total = 60"


@path("a condition that renders itself, with OR, unparenthesised")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Order.number).where(Either())))


@path("a condition in ON that renders itself, with OR, unparenthesised")
def _(s: Session, m: World) -> Any:
    joined = select(m.Customer.name, m.Order.number).outerjoin(m.Order, Either())
    return rows(s.execute(joined))


@path("a text column of a table that is named in select_from")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(text("name")).select_from(m.Customer)))


@path("a literal column of a class that is named in select_from")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(literal_column("customers.name")).select_from(m.Customer)))


@path("a text column next to a mapped one")
def _(s: Session, m: World) -> Any:
    return rows(s.execute(select(m.Order.number, text("total"))))


@path("ORDER BY a text")
def _(s: Session, m: World) -> Any:
    return s.scalars(select(m.Order.number).order_by(text("total DESC"))).all()


@path("CAST and arithmetic")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(cast(m.Order.total, Integer) + 1)))


@path("with_only_columns")
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(m.Customer).with_only_columns(m.Customer.name)))


@path("with_only_columns that keep their FROM")
def _(s: Session, m: World) -> Any:
    counted = select(m.Customer).with_only_columns(func.count(), maintain_column_froms=True)
    return s.scalar(counted)


@path("add_columns")
def _(s: Session, m: World) -> Any:
    return rows(s.execute(select(m.Order.id).add_columns(m.Order.number)))


@path("scalars().one_or_none() of an expired row")
def _(s: Session, m: World) -> Any:
    return s.scalars(select(m.Customer).filter_by(name="eve")).one_or_none() is None


@path("scalars().one() of an expired row")
def _(s: Session, m: World) -> Any:
    try:
        return s.scalars(select(m.Customer).filter_by(name="dan")).one().name
    except NoResultFound:
        return "none"


@path("scalar() of an expired row")
def _(s: Session, m: World) -> Any:
    return s.scalar(select(m.Customer.name).filter_by(name="dan"))


@path("first() of several rows, the first of which has expired")
def _(s: Session, m: World) -> Any:
    return s.scalars(select(m.Order.number).where(m.Order.id > 1).order_by(m.Order.id)).first()


@path("fetchmany()")
def _(s: Session, m: World) -> Any:
    result = s.execute(select(m.Order.number).order_by(m.Order.id))
    return [tuple(row) for row in result.fetchmany(2)] + [tuple(row) for row in result.fetchall()]


@path("from_statement() with a select")
def _(s: Session, m: World) -> Any:
    inner = select(m.Customer).where(m.Customer.id > 1)
    return sorted(c.name for c in s.scalars(select(m.Customer).from_statement(inner)))


@path("from_statement() with a UNION")
def _(s: Session, m: World) -> Any:
    both = select(m.Order).filter_by(id=1).union(select(m.Order).filter_by(id=2))
    return sorted(o.number for o in s.scalars(select(m.Order).from_statement(both)))


@path("lambda_stmt()")
def _(s: Session, m: World) -> Any:
    order, least = m.Order, 20
    statement = lambda_stmt(lambda: select(order.number))
    statement += lambda q: q.where(order.total >= least)
    return sorted(s.scalars(statement))


@path("a lambda as WHERE condition")
def _(s: Session, m: World) -> Any:
    order = m.Order
    return sorted(s.scalars(select(order.number).where(lambda: order.total >= 20)))


@path("yield_per")
def _(s: Session, m: World) -> Any:
    orders = s.scalars(select(m.Order), execution_options={"yield_per": 2})
    return sorted(order.number for order in orders)


@path("partitions of a streamed result")
def _(s: Session, m: World) -> Any:
    statement = select(m.Order).order_by(m.Order.id).execution_options(stream_results=True)
    return [[o.number for o in part] for part in s.scalars(statement).partitions(2)]


@path("a streamed result with a growing buffer")
def _(s: Session, m: World) -> Any:
    options = {"stream_results": True, "max_row_buffer": 2}
    return sorted(s.scalars(select(m.Order.number), execution_options=options))


@path("with_for_update()")
def _(s: Session, m: World) -> Any:
    return sorted(o.number for o in s.scalars(select(m.Order).with_for_update()))


@path("with_for_update(read=True, of=...)")
def _(s: Session, m: World) -> Any:
    statement = select(m.Order).join(m.Order.customer).with_for_update(read=True, of=m.Order)
    return sorted(order.number for order in s.scalars(statement))


@path("with_for_update(skip_locked=True)")
def _(s: Session, m: World) -> Any:
    return sorted(o.number for o in s.scalars(select(m.Order).with_for_update(skip_locked=True)))


@path("populate_existing")
def _(s: Session, m: World) -> Any:
    statement = select(m.Order).execution_options(populate_existing=True)
    return sorted(order.number for order in s.scalars(statement))


@path("execution without a statement cache")
def _(s: Session, m: World) -> Any:
    options = {"compiled_cache": None}
    return sorted(s.scalars(select(m.Order.number), execution_options=options))


@path("execution with a statement cache of one's own")
def _(s: Session, m: World) -> Any:
    options: dict[str, Any] = {"compiled_cache": {}}
    first = sorted(s.scalars(select(m.Order.number), execution_options=options))
    again = sorted(s.scalars(select(m.Order.number), execution_options=options))
    return first if first == again else [first, again]


@path("a statement with a prefix and a hint")
def _(s: Session, m: World) -> Any:
    statement = select(m.Order.number).prefix_with("ALL").with_hint(m.Order, "hint", "oracle")
    return sorted(s.scalars(statement))


@path("a cloned and further filtered statement")
def _(s: Session, m: World) -> Any:
    everyone = select(m.Customer.name)
    s.scalars(everyone).all()
    return sorted(s.scalars(everyone.where(m.Customer.region_id == 1)))


@path("a baked query")
def _(s: Session, m: World) -> Any:
    bakery = baked.bakery()
    query = bakery(lambda session: session.query(m.Order))
    query += lambda q: q.filter(m.Order.total >= 20)
    return sorted(order.number for order in query(s).all())


@path("with_loader_criteria of the user's own")
def _(s: Session, m: World) -> Any:
    cheap = with_loader_criteria(m.Order, m.Order.total < 60)
    statement = select(m.Customer.name, m.Order.number).outerjoin(m.Customer.orders)
    return rows(s.execute(statement.options(cheap)))


@path("with_loader_criteria with OR at its top")
def _(s: Session, m: World) -> Any:
    some = with_loader_criteria(m.Order, or_(m.Order.total < 30, m.Order.total >= 60))
    return sorted(order.number for order in s.scalars(select(m.Order).options(some)))


@path("TABLESAMPLE", without=("sqlite", "mariadb", "mysql"))
def _(s: Session, m: World) -> Any:
    sample = aliased(m.Customer, m.Customer.__table__.tablesample(func.bernoulli(100)))
    return sorted(s.scalars(select(sample.name)))


@path("raw text, which no compiler filters", answer=Sees.EVERYTHING)
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(text("SELECT name FROM customers")))


@path("from_statement() with raw text, which no compiler filters", answer=Sees.EVERYTHING)
def _(s: Session, m: World) -> Any:
    raw = text("SELECT id, name FROM customers").columns(m.Customer.id, m.Customer.name)
    return sorted(c.name for c in s.scalars(select(m.Customer).from_statement(raw)))


@path("text in FROM, which no compiler filters", answer=Sees.EVERYTHING)
def _(s: Session, m: World) -> Any:
    return sorted(s.scalars(select(text("name")).select_from(text("customers"))))
