"""Forms of INSERT: the ORM's bulk INSERT of joined subclasses, and what FROM SELECT may select.

The keys that are inserted are those of expired rows. The answers are the rows that there are then,
by raw SQL where an expired one may be left beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Integer,
    String,
    column,
    delete,
    except_,
    func,
    insert,
    literal,
    literal_column,
    select,
    text,
    union,
    union_all,
    values,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite

from tests.leaks.paths_writes import table
from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World

BILL = {"id": 4, "title": "new bill", "amount": 1}
NOTE = {"id": 7, "note_id": 7, "title": "new refund", "amount": 2, "reason": "new"}
LETTER = {"id": 11, "title": "new letter", "body": "new"}


def invoices(s: Session, m: World) -> list[tuple[Any, ...]]:
    """All live invoices, and what they are."""
    s.expire_all()
    found = s.execute(select(m.Invoice.id, m.Invoice.kind, m.Invoice.title, m.Invoice.amount))
    return rows(found)


def tags(s: Session) -> list[tuple[Any, ...]]:
    """All rows of a table, live or not."""
    return rows(s.execute(text("SELECT id, label FROM tags")))


def begin(s: Session, m: World) -> None:
    """Begin a transaction, which Python's sqlite3 doesn't before WITH."""
    s.execute(delete(m.archive))


@path("ORM bulk INSERT of a joined subclass", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(insert(m.Invoice), [BILL, {**BILL, "id": 40}])
    return invoices(s, m)


@path("ORM bulk INSERT of a joined subclass, one dict", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(insert(m.Invoice), BILL)
    return invoices(s, m)


@path(
    "ORM bulk INSERT of a joined subclass, with RETURNING of objects",
    without=("mysql",),
    writes=True,
)
def _(s: Session, m: World) -> Any:
    added = s.scalars(insert(m.Invoice).returning(m.Invoice), [BILL, {**BILL, "id": 40}])
    return sorted((bill.id, bill.title, bill.amount) for bill in added), invoices(s, m)


@path(
    "ORM bulk INSERT of a joined subclass, with RETURNING of columns in order",
    without=("mysql",),
    writes=True,
)
def _(s: Session, m: World) -> Any:
    adding = insert(m.Invoice).returning(
        m.Invoice.id, m.Invoice.amount, sort_by_parameter_order=True
    )
    return [tuple(row) for row in s.execute(adding, [{**BILL, "id": 40}, BILL])]


@path("ORM bulk INSERT of a joined subclass, some values in the statement", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(insert(m.Invoice).values(title="by values"), [{"id": 4, "amount": 1}])
    return invoices(s, m)


@path("ORM bulk INSERT of a joined subclass, render_nulls", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(
        insert(m.Invoice),
        [{**BILL, "customer_id": None}, {**BILL, "id": 40, "customer_id": 1}],
        execution_options={"render_nulls": True},
    )
    return invoices(s, m)


@path("ORM bulk INSERT of a subclass of a joined subclass", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(insert(m.CreditNote), [NOTE])
    return rows(s.execute(select(m.CreditNote.id, m.CreditNote.title, m.CreditNote.reason)))


@path("ORM bulk INSERT of a single-table subclass under a joined one", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(insert(m.Estimate), [{**BILL, "id": 9}, {**BILL, "id": 90}])
    return invoices(s, m)


@path("ORM bulk INSERT over an expired row of another joined subclass", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(insert(m.Letter), [{**LETTER, "id": 7}])
    return rows(s.execute(text("SELECT note_id, reason FROM credit_notes"))), invoices(s, m)


@path("bulk_insert_mappings() of a joined subclass", writes=True)
def _(s: Session, m: World) -> Any:
    s.bulk_insert_mappings(m.Letter, [LETTER])
    return rows(s.execute(select(m.Letter.id, m.Letter.body)))


@path("bulk_save_objects() of a joined subclass", writes=True)
def _(s: Session, m: World) -> Any:
    s.bulk_save_objects([m.Letter(**LETTER), m.CreditNote(**NOTE)])
    return rows(s.execute(select(m.Document.id, m.Document.title)))


@path("INSERT of expired keys FROM SELECT of a UNION", writes=True)
def _(s: Session, m: World) -> Any:
    new = union(select(literal(2), literal("new")), select(literal(9), literal("nine")))
    s.connection().execute(insert(table(m.Tag)).from_select(["id", "label"], new))
    return tags(s)


@path("ORM INSERT of expired keys FROM SELECT of a UNION ALL", writes=True)
def _(s: Session, m: World) -> Any:
    new = union_all(
        select(m.Region.id + 1, m.Region.name).where(m.Region.id == 1),
        select(m.Region.id + 7, m.Region.name).where(m.Region.id > 1),
    )
    s.execute(insert(m.Tag).from_select([m.Tag.id, m.Tag.label], new))
    return tags(s)


@path("INSERT of expired keys FROM SELECT of a UNION in a UNION", without=("sqlite",), writes=True)
def _(s: Session, m: World) -> Any:
    inner = union(select(literal(2), literal("two")), select(literal(8), literal("eight")))
    new = union_all(inner, select(literal(9), literal("nine")))
    s.connection().execute(insert(table(m.Tag)).from_select(["id", "label"], new))
    return tags(s)


@path("INSERT of expired keys FROM SELECT of a UNION with ORDER BY and LIMIT", writes=True)
def _(s: Session, m: World) -> Any:
    one = select(literal(2).label("id"), literal("new").label("label"))
    new = union(one, select(literal(9), literal("nine"))).order_by("id").limit(1)
    s.connection().execute(insert(table(m.Tag)).from_select(["id", "label"], new))
    return tags(s)


@path("INSERT of expired keys FROM SELECT of an EXCEPT", writes=True)
def _(s: Session, m: World) -> Any:
    new = except_(
        select(m.Region.id, m.Region.name),
        select(m.Customer.id, literal("north")),
        select(literal(3), literal("west")),
    )
    s.connection().execute(insert(table(m.Tag)).from_select(["id", "label"], new))
    return tags(s)


@path("INSERT of expired keys FROM SELECT of a UNION without defaults", writes=True)
def _(s: Session, m: World) -> Any:
    new = union(select(literal(2), literal("new")), select(literal(9), literal("nine")))
    adding = insert(m.Tag).from_select(["id", "label"], new, include_defaults=False)
    s.execute(adding)
    return rows(s.execute(select(m.Tag.id, m.Tag.label)))


@path("INSERT of expired keys FROM SELECT of a UNION of live rows", writes=True)
def _(s: Session, m: World) -> Any:
    new = union(
        select(m.Customer.id + 20, m.Customer.name), select(m.Order.id + 40, m.Order.number)
    )
    s.connection().execute(insert(table(m.Tag)).from_select(["id", "label"], new))
    return rows(s.execute(text("SELECT id, label FROM tags WHERE id > 9")))


@path(
    "INSERT of expired keys FROM SELECT of a UNION with RETURNING",
    without=("mariadb", "mysql"),
    writes=True,
)
def _(s: Session, m: World) -> Any:
    new = union(select(literal(2), literal("new")), select(literal(9), literal("nine")))
    adding = insert(m.Tag).from_select(["id", "label"], new).returning(m.Tag)
    return sorted((tag.id, tag.label) for tag in s.scalars(adding))


@path("INSERT of expired keys FROM SELECT of a UNION, with ON CONFLICT", writes=True)
def _(s: Session, m: World) -> Any:
    new = union(select(literal(2), literal("new")), select(literal(3), literal("three")))
    names = ["id", "label"]
    dialect: Any = s.get_bind().dialect
    if dialect.name == "mysql":
        added: Any = mysql.insert(m.Tag).from_select(names, new)
        s.execute(added.on_duplicate_key_update(label="conflict"))
    else:
        insert_into = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[dialect.name]
        added = insert_into(m.Tag).from_select(names, select(new.subquery()).where(literal(1) == 1))
        s.execute(added.on_conflict_do_update(index_elements=["id"], set_={"label": "conflict"}))
    return tags(s)


@path("INSERT of expired keys FROM SELECT of a CTE", writes=True)
def _(s: Session, m: World) -> Any:
    begin(s, m)
    new = select(literal(2).label("id"), literal("new").label("label")).cte("new")
    s.connection().execute(insert(table(m.Tag)).from_select(["id", "label"], select(new)))
    return tags(s)


@path("INSERT of expired keys FROM SELECT of a CTE of a UNION", writes=True)
def _(s: Session, m: World) -> Any:
    begin(s, m)
    one = select(literal(2).label("id"), literal("new").label("label"))
    new = union(one, select(literal(9), literal("nine"))).cte("new")
    s.execute(insert(m.Tag).from_select(["id", "label"], select(new.c.id, new.c.label)))
    return tags(s)


@path("INSERT of expired keys FROM SELECT of a recursive CTE", writes=True)
def _(s: Session, m: World) -> Any:
    begin(s, m)
    numbers = select(literal(2).label("id")).cte("numbers", recursive=True)
    numbers = numbers.union_all(select(numbers.c.id + 7).where(numbers.c.id < 9))
    new = select(numbers.c.id, literal("new"))
    s.connection().execute(insert(table(m.Tag)).from_select(["id", "label"], new))
    return tags(s)


@path("INSERT of expired keys FROM SELECT of literal columns", writes=True)
def _(s: Session, m: World) -> Any:
    new = select(literal_column("2", Integer), literal_column("'new'", String))
    s.connection().execute(insert(table(m.Tag)).from_select(["id", "label"], new))
    return tags(s)


@path("INSERT of expired keys FROM SELECT of a UNION of literal columns", writes=True)
def _(s: Session, m: World) -> Any:
    new = union(
        select(literal_column("2", Integer), literal_column("'new'", String)),
        select(literal_column("9", Integer), literal_column("'nine'", String)),
    )
    s.execute(insert(m.Tag).from_select(["id", "label"], new))
    return tags(s)


@path("INSERT of expired keys FROM SELECT of text with columns", writes=True)
def _(s: Session, m: World) -> Any:
    new = text("SELECT 2 AS id, 'new' AS label").columns(column("id"), column("label"))
    s.connection().execute(insert(table(m.Tag)).from_select(["id", "label"], new))
    return tags(s)


@path(
    "INSERT of expired keys FROM SELECT of VALUES",
    without=("sqlite", "mariadb", "mysql"),
    writes=True,
)
def _(s: Session, m: World) -> Any:
    new = values(column("id", Integer), column("label", String), name="new")
    new = new.data([(2, "new"), (9, "nine")])
    s.connection().execute(insert(table(m.Tag)).from_select(["id", "label"], select(new)))
    return tags(s)


@path(
    "INSERT of expired keys FROM SELECT of VALUES in a CTE",
    without=("mariadb", "mysql"),
    writes=True,
)
def _(s: Session, m: World) -> Any:
    begin(s, m)
    new = values(column("id", Integer), column("label", String), name="new")
    rows_of = new.data([(2, "new"), (9, "nine")]).cte("rows_of")
    s.connection().execute(insert(table(m.Tag)).from_select(["id", "label"], select(rows_of)))
    return tags(s)


@path("INSERT of an expired key FROM SELECT of an aggregate of live rows", writes=True)
def _(s: Session, m: World) -> Any:
    orders = table(m.Order)
    # The last live one is 8, and 9 has expired.
    free = select(func.max(orders.c.id) + 1, literal("new"), literal(1))
    s.connection().execute(insert(orders).from_select(["id", "number", "total"], free))
    return rows(s.execute(select(orders.c.id, orders.c.number)))


@path("INSERT of an expired key FROM SELECT of the first live rows", writes=True)
def _(s: Session, m: World) -> Any:
    documents = table(m.Document)
    first = select(documents.c.id - 1, literal("document"), documents.c.title)
    first = first.order_by(documents.c.id.desc()).where(documents.c.id.in_([5, 7])).limit(1)
    adding = insert(documents).from_select(["id", "kind", "title"], first)
    s.connection().execute(adding)
    return rows(s.execute(select(documents.c.id, documents.c.title)))
