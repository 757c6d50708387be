"""Writes to a base class's table that read a subclass's, whose rows end with those of the base.

MySQL changes no table that a subquery of the statement reads, so the condition on the base's row
has to come another way there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import aliased

from tests.leaks.paths_unusual import dialect_insert
from tests.leaks.paths_upserts import upsert
from tests.leaks.paths_writes import table
from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World

UNSYNCHRONIZED = {"synchronize_session": False}


def documents_after(s: Session, m: World, statement: Any) -> list[tuple[Any, ...]]:
    """The documents that there are after a statement of the Core."""
    s.connection().execute(statement)
    documents = table(m.Document)
    return rows(s.connection().execute(select(documents.c.id, documents.c.title)))


@path("UPDATE of a base's table to what a subclass's table has", writes=True)
def _(s: Session, m: World) -> Any:
    documents, letters = table(m.Document), table(m.Letter)
    last = select(func.max(letters.c.body)).scalar_subquery()
    return documents_after(s, m, update(documents).where(documents.c.id < 3).values(title=last))


@path("UPDATE of a base's table by a subclass of a subclass", writes=True)
def _(s: Session, m: World) -> Any:
    documents, notes = table(m.Document), table(m.CreditNote)
    credited = documents.c.id.in_(select(notes.c.note_id - 1))
    return documents_after(s, m, update(documents).where(credited).values(title="x"))


@path("UPDATE of an alias of a base's table by a subclass's table", writes=True)
def _(s: Session, m: World) -> Any:
    documents, invoices = table(m.Document).alias(), table(m.Invoice)
    before = documents.c.id.in_(select(invoices.c.id - 1))
    return documents_after(s, m, update(documents).where(before).values(title="x"))


@path("UPDATE of a base's table beside other rows of a subclass's table", writes=True)
def _(s: Session, m: World) -> Any:
    documents, invoices = table(m.Document), table(m.Invoice)
    before = documents.c.id == invoices.c.id - 1
    changed = update(documents).where(before).values({documents.c.title: "x"})
    return documents_after(s, m, changed)


@path("UPDATE of a base class by a subclass's table in a CTE", without=("mariadb",), writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(delete(m.archive))  # Python's sqlite3 begins no transaction for WITH
    invoices = table(m.Invoice)
    before = select((invoices.c.id - 1).label("id")).cte("before")
    changed = update(m.Document).where(m.Document.id.in_(select(before.c.id))).values(title="x")
    s.execute(changed, execution_options=UNSYNCHRONIZED)
    return sorted(s.scalars(select(m.Document.title)))


@path("UPDATE of a base class by aliases of its subclasses", writes=True)
def _(s: Session, m: World) -> Any:
    invoice, letter = aliased(table(m.Invoice)), aliased(table(m.Letter))
    before = select(invoice.c.id - 1).where(invoice.c.id.not_in(select(letter.c.id - 6)))
    changed = update(m.Document).where(m.Document.id.in_(before)).values(title="x")
    s.execute(changed, execution_options=UNSYNCHRONIZED)
    return sorted(s.scalars(select(m.Document.title)))


@path(
    "DELETE of a base's table beside other rows of a subclass's", without=("sqlite",), writes=True
)
def _(s: Session, m: World) -> Any:
    documents, invoices = table(m.Document), table(m.Invoice)
    gone = delete(documents).where(documents.c.id == invoices.c.amount / 100 - 1)
    return s.connection().execute(gone.where(documents.c.kind == "document")).rowcount


@path("an upsert of a base's table to what a subclass's table has", writes=True)
def _(s: Session, m: World) -> Any:
    documents, letters = table(m.Document), table(m.Letter)
    last = select(func.max(letters.c.body)).scalar_subquery()
    added = dialect_insert(s, documents).values(id=1, kind="document", title="new")
    return documents_after(s, m, upsert(s, added, lambda _: {"title": last}))
