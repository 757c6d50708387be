"""Writes that go by unusual ways: RETURNING, keys and attributes of a kind of their own, upserts.

What a write returns or matches is the answer, or the live rows that are left, or what the database
says of a key that only an expired row holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Integer,
    bindparam,
    column,
    delete,
    insert,
    lambda_stmt,
    literal,
    select,
    text,
    true,
    update,
    values,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import (
    selectinload,
    with_loader_criteria,
)
from sqlalchemy.orm.exc import StaleDataError

from tests.leaks.paths_writes import table
from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World

NEW = [{"id": 2, "number": "n2", "total": 1}, {"id": 6, "number": "n6", "total": 2}]
"""New orders with the keys of expired ones."""


def dialect_insert(s: Session, target: Any) -> Any:
    """The INSERT of a session's database, with its upsert."""
    modules: dict[str, Any] = {"sqlite": sqlite, "postgresql": postgresql, "mysql": mysql}
    return modules[s.get_bind().dialect.name].insert(target)


def on_conflict(s: Session, target: Any) -> Any:
    """The same, where it has ON CONFLICT."""
    added = dialect_insert(s, target)
    if not hasattr(added, "on_conflict_do_update"):
        raise NotImplementedError
    return added


# RETURNING


@path("UPDATE with RETURNING of entities that load more", without=("mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    changed = update(m.Order).values(total=0).returning(m.Order)
    orders = s.scalars(
        changed.options(selectinload(m.Order.items)),
        execution_options={"populate_existing": True},
    )
    return sorted((o.number, [i.sku for i in o.items]) for o in orders)


@path("DELETE with RETURNING of entities", without=("mysql",), writes=True)
def _(s: Session, m: World) -> Any:
    held = s.scalars(select(m.Order)).all()
    gone = s.scalars(delete(m.Order).where(m.Order.total >= 20).returning(m.Order)).all()
    return sorted(order.number for order in gone), len([o for o in held if o in s])


@path("from_statement() with an UPDATE", without=("mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    changed = update(m.Order).values(total=m.Order.total + 1).returning(m.Order)
    orders = s.scalars(select(m.Order).from_statement(changed))
    return sorted((order.number, order.total) for order in orders)


@path("from_statement() with an INSERT", without=("mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    added = insert(m.Order).values(NEW).returning(m.Order)
    return sorted(o.number for o in s.scalars(select(m.Order).from_statement(added)))


@path("INSERT of many rows that returns entities in order", without=("mysql",), writes=True)
def _(s: Session, m: World) -> Any:
    added = insert(m.Order).returning(m.Order, sort_by_parameter_order=True)
    return [order.number for order in s.scalars(added, NEW)]


@path("Core: INSERT of many rows that returns them in order", without=("mysql",), writes=True)
def _(s: Session, m: World) -> Any:
    orders = table(m.Order)
    added = insert(orders).returning(orders.c.number, sort_by_parameter_order=True)
    return list(s.connection().scalars(added, NEW))


@path(
    "INSERT FROM SELECT with RETURNING of the keys of expired rows", without=("mysql",), writes=True
)
def _(s: Session, m: World) -> Any:
    s.execute(delete(m.archive))
    s.execute(insert(m.archive), [{"id": 2, "name": "n2"}, {"id": 6, "name": "n6"}])
    source = select(m.archive.c.id, m.archive.c.name, literal(1))
    added = insert(m.Order).from_select(["id", "number", "total"], source)
    return sorted(o.number for o in s.scalars(added.returning(m.Order)))


@path("INSERT FROM SELECT of VALUES", without=("mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    v = values(column("id", Integer), column("n", m.Order.number.type), name="v")
    v = v.data([(2, "n2"), (6, "n6")]).cte()
    s.execute(delete(m.archive))  # Python's sqlite3 begins no transaction for WITH
    source = select(v.c.id, v.c.n, literal(1))
    added = insert(m.Order).from_select(["id", "number", "total"], source)
    s.execute(added)
    return sorted(s.scalars(select(m.Order.number)))


@path("INSERT FROM SELECT of constants", writes=True)
def _(s: Session, m: World) -> Any:
    source = select(literal(2), literal("n2"), literal(1))
    return s.execute(insert(m.Order).from_select(["id", "number", "total"], source)).rowcount


@path(
    "add_cte() with an UPDATE that nothing reads",
    without=("sqlite", "mariadb", "mysql"),
    writes=True,
)
def _(s: Session, m: World) -> Any:
    changed = update(table(m.Order)).values(total=0).returning(table(m.Order).c.id).cte("changed")
    s.execute(select(literal(1)).add_cte(changed))
    return rows(s.execute(text("SELECT id FROM orders WHERE total = 0")))


@path("UPDATE FROM a DELETE", without=("sqlite", "mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    regions, customers = table(m.Region), table(m.Customer)
    gone = delete(customers).returning(customers.c.region_id).cte("gone")
    s.connection().execute(update(regions).where(regions.c.id == gone.c.region_id).values(name="x"))
    return rows(s.execute(select(regions.c.id, regions.c.name)))


@path("UPDATE FROM VALUES", without=("mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    v = values(column("id", Integer), column("n", m.Order.number.type), name="v")
    v = v.data([(1, "n1"), (2, "n2"), (3, "n3")]).cte("w")
    s.execute(delete(m.archive))
    changed = update(m.Order).where(m.Order.id == v.c.id).values(number=v.c.n)
    s.execute(changed, execution_options={"synchronize_session": False})
    return sorted(s.scalars(select(m.Order.number)))


# Upserts


@path("an upsert that meets a partial unique index", without=("mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    added = on_conflict(s, m.Room).values(id=7, floor=1, number=7, free=True)
    s.execute(
        added.on_conflict_do_update(
            index_elements=["floor"],
            index_where=text("free"),
            set_={"number": added.excluded.number + m.Room.number, "id": 70},
            where=m.Room.number < 5,
        )
    )
    return rows(s.execute(select(m.Room.id, m.Room.number)))


@path("an upsert that does nothing where there is a row", writes=True)
def _(s: Session, m: World) -> Any:
    if s.get_bind().dialect.name == "mysql":
        added: Any = insert(m.Order).prefix_with("IGNORE")
    else:
        added = dialect_insert(s, m.Order).on_conflict_do_nothing()
    s.execute(added, [*NEW, {"id": 1, "number": "n1", "total": 1}])
    return sorted(s.scalars(select(m.Order.number)))


@path("an upsert that returns entities", without=("mariadb", "mysql"), writes=True)
def _(s: Session, m: World) -> Any:
    added = on_conflict(s, m.Order).values([*NEW, {"id": 1, "number": "n1", "total": 1}])
    upsert = added.on_conflict_do_update(
        index_elements=[m.Order.id], set_={"total": m.Order.total + added.excluded.total}
    )
    orders = s.scalars(upsert.returning(m.Order), execution_options={"populate_existing": True})
    return sorted((order.number, order.total) for order in orders)


@path("an upsert of what a SELECT finds", writes=True)
def _(s: Session, m: World) -> Any:
    source = select(m.Customer.id, m.Customer.name, literal(1)).where(true())
    added = dialect_insert(s, m.Order).from_select(["id", "number", "total"], source)
    if s.get_bind().dialect.name == "mysql":
        upsert = added.on_duplicate_key_update(number="met")
    else:
        upsert = added.on_conflict_do_update(index_elements=["id"], set_={"number": "met"})
    s.execute(upsert)
    return rows(s.execute(select(m.Order.id, m.Order.number)))


# Ways to execute


@path("UPDATE synchronized by evaluation", writes=True)
def _(s: Session, m: World) -> Any:
    orders = s.scalars(select(m.Order)).all()
    m.pass_time(s, orders[0])
    s.execute(
        update(m.Order).where(m.Order.total >= 10).values(number="x"),
        execution_options={"synchronize_session": "evaluate"},
    )
    return sorted(s.scalars(select(m.Order.number)))


@path("bulk INSERT with each strategy of the ORM's", writes=True)
def _(s: Session, m: World) -> Any:
    for number, strategy in enumerate(("orm", "bulk", "raw")):
        s.execute(
            insert(m.Order),
            [{"id": (2, 6, 9)[number], "number": strategy, "total": 1}],
            execution_options={"dml_strategy": strategy},
        )
    return sorted(s.scalars(select(m.Order.number)))


@path("bulk UPDATE with Core's strategy", writes=True)
def _(s: Session, m: World) -> Any:
    changed = update(m.Order).where(m.Order.id == bindparam("key")).values(number="x")
    s.execute(
        changed,
        [{"key": 1}, {"key": 2}, {"key": 3}],
        execution_options={"dml_strategy": "core_only", "synchronize_session": False},
    )
    return sorted(s.scalars(select(m.Order.number)))


@path("bulk_update_mappings() of a joined subclass", writes=True)
def _(s: Session, m: World) -> Any:
    try:
        s.bulk_update_mappings(m.Invoice, [{"id": 3, "amount": 1}, {"id": 4, "amount": 2}])
    except StaleDataError:
        return "stale"
    return "changed"


@path("bulk_save_objects() of new and of loaded objects", writes=True)
def _(s: Session, m: World) -> Any:
    s.bulk_save_objects([m.Order(**new) for new in NEW], return_defaults=True)
    order = s.get_one(m.Order, 5)
    order.number = "changed"
    m.pass_time(s, s.get_one(m.Order, 8))
    s.bulk_save_objects([order])
    return sorted(s.scalars(select(m.Order.number)))


@path("lambda_stmt() of an UPDATE", writes=True)
def _(s: Session, m: World) -> Any:
    least = 20
    order = m.Order
    changed = lambda_stmt(lambda: update(order).where(order.total >= least).values(number="x"))
    return s.execute(changed, execution_options={"synchronize_session": False}).rowcount


@path("UPDATE with with_loader_criteria", writes=True)
def _(s: Session, m: World) -> Any:
    only = with_loader_criteria(m.Order, m.Order.total >= 20)
    return s.execute(update(m.Order).values(number="x").options(only)).rowcount


@path("DELETE with with_loader_criteria", writes=True)
def _(s: Session, m: World) -> Any:
    only = with_loader_criteria(m.Order, m.Order.total >= 20)
    return s.execute(delete(m.Order).options(only)).rowcount


@path("INSERT of the key of an expired row under a schema translation map", writes=True)
def _(s: Session, m: World) -> Any:
    dialect = s.get_bind().dialect
    schema = {"sqlite": "main", "postgresql": "public", "mysql": m.engine.url.database}
    s.connection(execution_options={"schema_translate_map": {None: schema[dialect.name]}})
    s.add(m.Order(**NEW[0]))
    s.flush()
    return sorted(s.scalars(select(m.Order.number)))


@path("UPDATE of a unique value that only an expired row has, by primary key", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(update(m.Room), [{"id": 1, "number": 2}])
    return rows(s.execute(select(m.Room.id, m.Room.number)))


@path("UPDATE of values in an order of one's own", writes=True)
def _(s: Session, m: World) -> Any:
    changed = update(m.Order).ordered_values((m.Order.number, "x"), (m.Order.total, 0))
    return s.execute(changed, execution_options={"synchronize_session": False}).rowcount
