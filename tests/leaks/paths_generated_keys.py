"""Keys of which the database, or SQLAlchemy, makes a part: expired rows don't hold them.

The answers are the rows that there are then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    bindparam,
    func,
    insert,
    literal,
    literal_column,
    select,
    text,
    union,
    update,
)

from tests.leaks.paths_unusual import dialect_insert
from tests.leaks.paths_writes import table
from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


def now(s: Session, model: Any, *names: str) -> list[tuple[Any, ...]]:
    """The rows of a class, and their ids."""
    columns = table(model).c
    return rows(s.execute(select(columns.id, *(columns[name] for name in names))))


def settings(s: Session, m: World) -> Any:
    """All settings."""
    return now(s, m.Setting, "space", "name", "level", "code", "area", "item")


def arrivals(s: Session, m: World) -> Any:
    """All arrivals."""
    return now(s, m.Arrival, "hall", "seat", "gate", "day", "pass")


def mailboxes(s: Session, m: World) -> Any:
    """All mailboxes."""
    return now(s, m.Mailbox, "lowered", "host", "nick", "mark", "sign")


@path("a key with a server default: flush", writes=True)
def _(s: Session, m: World) -> Any:
    s.add(m.Setting(id=11, name="old"))
    s.flush()
    return settings(s, m)


@path("a key with a server default: flush of several", writes=True)
def _(s: Session, m: World) -> Any:
    s.add_all([m.Setting(id=11, name="old"), m.Setting(id=12, name="short")])
    s.add_all([m.Setting(id=13, name="unheard of"), m.Setting(id=14)])
    s.flush()
    return settings(s, m)


@path("a key with a server default: merge()", writes=True)
def _(s: Session, m: World) -> Any:
    s.merge(m.Setting(id=11, name="old"))
    s.flush()
    return settings(s, m)


@path(
    "a key with a server default: ORM bulk INSERT with RETURNING", without=("mysql",), writes=True
)
def _(s: Session, m: World) -> Any:
    new = [{"id": 11, "name": "old"}, {"id": 12, "name": "new"}]
    added = s.scalars(insert(m.Setting).returning(m.Setting), new)
    return sorted((setting.id, setting.space) for setting in added), settings(s, m)


@path("a key with a server default: bulk_insert_mappings()", writes=True)
def _(s: Session, m: World) -> Any:
    s.bulk_insert_mappings(m.Setting, [{"id": 11, "name": "old"}, {"id": 12, "name": "short"}])
    return settings(s, m)


@path("a key with a server default: Core executemany", writes=True)
def _(s: Session, m: World) -> Any:
    new = [{"id": 11, "name": "short"}, {"id": 12, "name": "old"}]
    s.connection().execute(insert(table(m.Setting)), new)
    return settings(s, m)


@path("a key with a server default: INSERT of several VALUES", writes=True)
def _(s: Session, m: World) -> Any:
    new = [{"id": 11, "name": "short"}, {"id": 12, "name": "old"}]
    s.connection().execute(insert(table(m.Setting)).values(new))
    return settings(s, m)


@path("a key with a server default: the other part is SQL", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(insert(m.Setting).values(id=11, name=func.lower("OLD")))
    return settings(s, m)


@path("a key with a server default: the other part is text", writes=True)
def _(s: Session, m: World) -> Any:
    s.connection().execute(insert(table(m.Setting)).values(id=11, name=text("'old'")))
    return settings(s, m)


@path("a key with a server default: told to be its DEFAULT", without=("sqlite",), writes=True)
def _(s: Session, m: World) -> Any:
    new = insert(m.Setting).values(id=11, name="old", space=literal_column("DEFAULT"))
    s.execute(new)
    return settings(s, m)


@path("a key with a server default: the same, given", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(insert(m.Setting).values(id=11, name="old", space="ma'in %"))
    return settings(s, m)


@path("a key with a server default: INSERT FROM SELECT", writes=True)
def _(s: Session, m: World) -> Any:
    new = select(literal(11), literal("old"))
    s.connection().execute(insert(table(m.Setting)).from_select(["id", "name"], new))
    return settings(s, m)


@path("a key with a server default: an upsert", writes=True)
def _(s: Session, m: World) -> Any:
    dialect = s.get_bind().dialect.name
    added: Any = dialect_insert(s, m.Setting).values(id=11, name="old")
    if dialect == "mysql":
        s.execute(added.on_duplicate_key_update(code="conflict"))
    else:
        names = ["space", "name"]
        s.execute(added.on_conflict_do_update(index_elements=names, set_={"code": "conflict"}))
    return settings(s, m)


@path(
    "a key with a server default: INSERT in a CTE",
    without=("sqlite", "mariadb", "mysql"),
    writes=True,
)
def _(s: Session, m: World) -> Any:
    settings_ = table(m.Setting)
    added = insert(settings_).values(id=11, name="old").returning(settings_.c.id).cte("added")
    return s.connection().scalars(select(added.c.id)).all(), settings(s, m)


@path("a key with a server default that is a number: flush", writes=True)
def _(s: Session, m: World) -> Any:
    s.add_all([m.Setting(id=11, code="old"), m.Setting(id=12, code="new")])
    s.flush()
    return settings(s, m)


@path("a key with a server default that is a number: INSERT FROM SELECT of a UNION", writes=True)
def _(s: Session, m: World) -> Any:
    new = union(select(literal(11), literal("old")), select(literal(12), literal("new")))
    s.execute(insert(m.Setting).from_select(["id", "code"], new))
    return settings(s, m)


@path("a key with a server default that is SQL: flush", writes=True)
def _(s: Session, m: World) -> Any:
    s.add(m.Setting(id=11, item="old"))
    s.flush()
    return settings(s, m)


@path("a key with a server default that is SQL: Core executemany", writes=True)
def _(s: Session, m: World) -> Any:
    new = [{"id": 11, "item": "short"}, {"id": 12, "item": "old"}]
    s.connection().execute(insert(table(m.Setting)), new)
    return settings(s, m)


@path("a key with a default that is SQL: flush", writes=True)
def _(s: Session, m: World) -> Any:
    s.add_all([m.Arrival(id=11, seat="old", gate="a"), m.Arrival(id=12, seat="new", gate="b")])
    s.flush()
    return arrivals(s, m)


@path("a key with a default that is SQL: INSERT of several VALUES", writes=True)
def _(s: Session, m: World) -> Any:
    new = [{"id": 11, "seat": "new"}, {"id": 12, "seat": "old"}]
    s.execute(insert(m.Arrival).values(new))
    return arrivals(s, m)


@path("a key with a default that is SQL: INSERT FROM SELECT", writes=True)
def _(s: Session, m: World) -> Any:
    new = select(literal(11), literal("old"))
    s.connection().execute(insert(table(m.Arrival)).from_select(["id", "seat"], new))
    return arrivals(s, m)


@path("a key with defaults of Python's: flush", writes=True)
def _(s: Session, m: World) -> Any:
    s.add(m.Arrival(id=11, number="old"))
    s.flush()
    return arrivals(s, m)


@path("a key with defaults of Python's: INSERT of several VALUES", writes=True)
def _(s: Session, m: World) -> Any:
    new = [{"id": 11, "pass": "new"}, {"id": 12, "pass": "old"}, {"id": 13, "pass": "short"}]
    s.connection().execute(insert(table(m.Arrival)).values(new))
    return arrivals(s, m)


@path("a key with defaults of Python's: INSERT FROM SELECT", writes=True)
def _(s: Session, m: World) -> Any:
    new = select(literal(11), literal("old"))
    s.execute(insert(m.Arrival).from_select(["id", "pass"], new))
    return arrivals(s, m)


@path("a generated key: flush", writes=True)
def _(s: Session, m: World) -> Any:
    s.add(m.Mailbox(id=11, email="OLD"))
    s.flush()
    return mailboxes(s, m)


@path("a generated key: flush of several", writes=True)
def _(s: Session, m: World) -> Any:
    s.add_all([m.Mailbox(id=11, email="OLD"), m.Mailbox(id=12, email="sHORT"), m.Mailbox(id=13)])
    s.flush()
    return mailboxes(s, m)


@path("a generated key: ORM bulk INSERT", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(insert(m.Mailbox), [{"id": 11, "email": "OlD"}, {"id": 12, "email": None}])
    return mailboxes(s, m)


@path("a generated key: its source is SQL", writes=True)
def _(s: Session, m: World) -> Any:
    s.connection().execute(insert(table(m.Mailbox)).values(id=11, email=func.upper("old")))
    return mailboxes(s, m)


@path("a generated key: INSERT FROM SELECT", writes=True)
def _(s: Session, m: World) -> Any:
    new = select(literal(11), func.upper("old"))
    s.execute(insert(m.Mailbox).from_select(["id", "email"], new))
    return mailboxes(s, m)


@path("a generated key of a server default: flush", writes=True)
def _(s: Session, m: World) -> Any:
    s.add(m.Mailbox(id=11, nick="old"))
    s.flush()
    return mailboxes(s, m)


@path("a generated key of a server default: its source is given", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(insert(m.Mailbox), [{"id": 11, "nick": "old", "domain": "hOmE"}])
    return mailboxes(s, m)


@path("a generated key: UPDATE by a flush", writes=True)
def _(s: Session, m: World) -> Any:
    s.get_one(m.Mailbox, 1).email = "OLD"
    s.flush()
    return mailboxes(s, m)


@path("a generated key: UPDATE of a class", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(update(m.Mailbox).where(m.Mailbox.nick == "live").values(email="Old"))
    return mailboxes(s, m)


@path("a generated key: UPDATE of a table by SQL", writes=True)
def _(s: Session, m: World) -> Any:
    boxes = table(m.Mailbox)
    changed = (
        update(boxes).where(boxes.c.id == 1).values(email=func.replace(boxes.c.nick, "live", "OLD"))
    )
    s.connection().execute(changed)
    return mailboxes(s, m)


@path("a generated key: bulk UPDATE by primary key", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(update(m.Mailbox), [{"id": 1, "email": "oLD"}])
    return mailboxes(s, m)


@path("a generated key and a part that stays: Core executemany of UPDATE", writes=True)
def _(s: Session, m: World) -> Any:
    boxes = table(m.Mailbox)
    changed = update(boxes).where(boxes.c.id == bindparam("which")).values(nick=bindparam("new"))
    s.connection().execute(changed, [{"which": 1, "new": "old"}])
    return mailboxes(s, m)


@path("a unique column that every UPDATE sets: flush", writes=True)
def _(s: Session, m: World) -> Any:
    s.get_one(m.Mailbox, 1).nick = "changed"
    s.flush()
    return mailboxes(s, m)


@path("a unique column that every UPDATE sets: UPDATE of a table", writes=True)
def _(s: Session, m: World) -> Any:
    boxes = table(m.Mailbox)
    s.connection().execute(update(boxes).where(boxes.c.id == 1).values(nick="changed"))
    return mailboxes(s, m)
