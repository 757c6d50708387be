"""Rows that only expired rows refer to: they can be deleted, and their keys changed.

The databases enforce the foreign keys here. The answers are what is left, or what could be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, exists, func, insert, literal, select, update
from sqlalchemy.orm import aliased

from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


def firms_left(s: Session, m: World) -> Any:
    """What there is of firms and of all that refers to them, as plain SQLAlchemy reads it."""
    s.expire_all()
    models = (m.Visit, m.Badge, m.Caller, m.Meal, m.Branch, m.Desk, m.Ticket, m.Reply, m.Permit)
    firms = rows(s.execute(select(m.Firm.id, m.Firm.code)))
    return firms, [sorted(s.scalars(select(model.id))) for model in models]


def folders_left(s: Session, m: World) -> Any:
    """The like of folders."""
    return [sorted(s.scalars(select(model.id))) for model in (m.Folder, m.Paper)]


def halls_left(s: Session, m: World) -> Any:
    """The like of halls."""
    return [
        rows(s.execute(select(model.house, model.number).order_by(model.house)))
        for model in (m.Hall, m.Booking)
    ]


def albums_left(s: Session, m: World) -> Any:
    """The like of albums."""
    s.expire_all()
    return [
        rows(s.execute(select(m.Album.id))),
        rows(s.execute(select(m.Photo.id, m.Photo.album_id))),
    ]


REFERRED = {
    "a foreign key": 1,
    "a foreign key to a unique column": 2,
    "a foreign key of a joined subclass": 3,
    "a cascade to rows without a ttl, held by expired rows": 4,
    "a cascade to rows with a ttl, held by expired rows": 5,
    "a foreign key that is declared on another MetaData": 6,
}
"""By what expired rows hang on a firm, and which."""


def _session_delete(s: Session, m: World, firm: int) -> Any:
    s.delete(s.get_one(m.Firm, firm))
    s.flush()
    return firms_left(s, m)


def _core_delete(s: Session, m: World, firm: int) -> Any:
    firms = m.Firm.__table__
    deleted = s.connection().execute(delete(firms).where(firms.c.id == firm)).rowcount
    return deleted, firms_left(s, m)


def _orm_delete(s: Session, m: World, firm: int) -> Any:
    s.execute(delete(m.Firm).where(m.Firm.id == firm))
    return firms_left(s, m)


for _hangs_by, _firm in REFERRED.items():
    for _way, _delete in (
        ("session.delete()", _session_delete),
        ("DELETE of a table", _core_delete),
        ("DELETE of a class", _orm_delete),
    ):

        def _run(s: Session, m: World, delete: Any = _delete, firm: int = _firm) -> Any:
            return delete(s, m, firm)

        path(f"{_way}: only expired rows hang on it, by {_hangs_by}", writes=True)(_run)


@path("DELETE by many sets of parameters, of rows that expired rows refer to", writes=True)
def _(s: Session, m: World) -> Any:
    firms = m.Firm.__table__
    statement = delete(firms).where(firms.c.id == bindparam("key"))
    s.connection().execute(statement, [{"key": firm} for firm in (*REFERRED.values(), 7)])
    return firms_left(s, m)


@path("DELETE of rows that expired rows refer to, with RETURNING", without=("mysql",), writes=True)
def _(s: Session, m: World) -> Any:
    gone = s.scalars(delete(m.Firm).where(m.Firm.id < 7).returning(m.Firm.code)).all()
    return sorted(gone), firms_left(s, m)


@path("DELETE of rows to which no rows refer, by NOT EXISTS", writes=True)
def _(s: Session, m: World) -> Any:
    visited = exists().where(m.Visit.firm_id == m.Firm.id)
    s.execute(
        delete(m.Firm).where(~visited, m.Firm.id < 7),
        execution_options={"synchronize_session": False},
    )
    return firms_left(s, m)


@path("DELETE of rows to which no rows of a subclass refer, by NOT IN", writes=True)
def _(s: Session, m: World) -> Any:
    callers = m.Caller.__table__
    hosts = select(callers.c.host_id).where(callers.c.host_id.is_not(None))
    firms = m.Firm.__table__
    gone = delete(firms).where(firms.c.id.not_in(hosts), firms.c.id == 3)
    return s.connection().execute(gone).rowcount, firms_left(s, m)


@path("DELETE of rows to which no rows refer, by a count", writes=True)
def _(s: Session, m: World) -> Any:
    badges = select(func.count()).where(m.Badge.firm_code == m.Firm.code).scalar_subquery()
    s.execute(
        delete(m.Firm).where(badges == 0, m.Firm.id == 2),
        execution_options={"synchronize_session": False},
    )
    return firms_left(s, m)


@path(
    "DELETE USING another table, of rows that expired rows refer to",
    without=("sqlite",),
    writes=True,
)
def _(s: Session, m: World) -> Any:
    firms, branches = m.Firm.__table__, m.Branch.__table__
    joined = delete(firms).where(firms.c.id == branches.c.firm_id, branches.c.id == 1)
    s.connection().execute(joined)
    return firms_left(s, m)


@path("session.delete() of rows of several classes that expired rows refer to", writes=True)
def _(s: Session, m: World) -> Any:
    for entity in (m.Firm, 1), (m.Firm, 3), (m.Branch, 1), (m.Ticket, 1):
        s.delete(s.get_one(*entity))
    s.flush()
    return firms_left(s, m)


@path("session.delete() of the root of a tree on which only expired rows hang", writes=True)
def _(s: Session, m: World) -> Any:
    s.delete(s.get_one(m.Folder, 1))
    s.flush()
    return folders_left(s, m)


@path("DELETE of the root of a tree on which only expired rows hang", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(delete(m.Folder).where(m.Folder.parent_id.is_(None), m.Folder.id < 4))
    return folders_left(s, m)


@path("DELETE of a row with a composite key that only an expired row refers to", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(delete(m.Hall).where(m.Hall.house == 1))
    return halls_left(s, m)


@path(
    "session.delete() of a row with a composite key that only an expired row refers to", writes=True
)
def _(s: Session, m: World) -> Any:
    s.delete(s.get_one(m.Hall, (1, 2)))
    s.flush()
    return halls_left(s, m)


@path("a flush that changes a primary key to which only expired rows refer", writes=True)
def _(s: Session, m: World) -> Any:
    s.get_one(m.Firm, 1).id = 9
    s.flush()
    return firms_left(s, m)


@path("a flush that changes a primary key to which expired rows of a subclass refer", writes=True)
def _(s: Session, m: World) -> Any:
    s.get_one(m.Firm, 3).id = 9
    s.flush()
    return firms_left(s, m)


@path("a flush that changes a unique value to which only expired rows refer", writes=True)
def _(s: Session, m: World) -> Any:
    s.get_one(m.Firm, 2).code = "changed"
    s.flush()
    return firms_left(s, m)


@path("UPDATE of a class: a unique value to which only expired rows refer", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(update(m.Firm).where(m.Firm.id == 2).values(code=func.upper(m.Firm.code) + "!"))
    return firms_left(s, m)


@path("UPDATE of a table: a primary key to which only expired rows refer", writes=True)
def _(s: Session, m: World) -> Any:
    firms = m.Firm.__table__
    moved = update(firms).where(firms.c.id.in_([1, 3, 6])).values(id=firms.c.id + 10)
    return s.connection().execute(moved).rowcount, firms_left(s, m)


@path("UPDATE by many sets of parameters: unique values to which expired rows refer", writes=True)
def _(s: Session, m: World) -> Any:
    firms = m.Firm.__table__
    statement = update(firms).where(firms.c.id == bindparam("key"))
    s.connection().execute(
        statement.values(code=bindparam("new")), [{"key": 2, "new": "x"}, {"key": 7, "new": "y"}]
    )
    return firms_left(s, m)


@path("bulk UPDATE by primary key: unique values to which expired rows refer", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(update(m.Firm), [{"id": 2, "code": "x"}, {"id": 7, "code": "y"}])
    return firms_left(s, m)


@path("UPDATE of a part of a composite key to which only an expired row refers", writes=True)
def _(s: Session, m: World) -> Any:
    s.execute(update(m.Hall).where(m.Hall.house == 1).values(house=3))
    return halls_left(s, m)


@path("UPDATE of a key for rows to which no rows refer, by NOT EXISTS", writes=True)
def _(s: Session, m: World) -> Any:
    worn = exists().where(m.Badge.firm_code == m.Firm.code)
    s.execute(
        update(m.Firm).where(~worn, m.Firm.id == 2).values(code="free"),
        execution_options={"synchronize_session": False},
    )
    return firms_left(s, m)


@path(
    "an object with the key of an expired one, to which expired rows of others refer", writes=True
)
def _(s: Session, m: World) -> Any:
    s.add(m.Ticket(id=2, firm_id=7))
    s.flush()
    return firms_left(s, m)


@path(
    "an object of a subclass with the key of one to whose own table expired rows refer", writes=True
)
def _(s: Session, m: World) -> Any:
    s.add(m.Caller(id=4, host_id=7, name="new"))
    s.flush()
    return firms_left(s, m)


@path(
    "INSERT of a subclass's unique value, whose expired holder expired rows refer to", writes=True
)
def _(s: Session, m: World) -> Any:
    s.execute(insert(m.Party.__table__).values(id=9, kind="caller"))
    s.execute(insert(m.Caller.__table__).values(id=9, name="ann"))
    return firms_left(s, m)


@path("INSERT FROM SELECT of the key of a row to whose own table expired rows refer", writes=True)
def _(s: Session, m: World) -> Any:
    source = select(literal(1), literal("party"))
    s.execute(insert(m.Party.__table__).from_select(["id", "kind"], source))
    return firms_left(s, m), sorted(s.scalars(select(m.Party.id)))


@path("UPDATE that takes a unique value, whose expired holder expired rows refer to", writes=True)
def _(s: Session, m: World) -> Any:
    s.get_one(m.Caller, 3).name = "dan"
    s.flush()
    return firms_left(s, m), s.get_one(m.Caller, 3).name


@path(
    "DELETE of an alias, of rows that expired rows refer to",
    without=("mariadb", "mysql"),
    writes=True,
)
def _(s: Session, m: World) -> Any:
    firms = m.Firm.__table__.alias("f")
    return s.connection().execute(delete(firms).where(firms.c.id == 1)).rowcount, firms_left(s, m)


@path(
    "DELETE of an aliased class, of rows that expired rows refer to",
    without=("mariadb", "mysql"),
    writes=True,
)
def _(s: Session, m: World) -> Any:
    firm = aliased(m.Firm)
    s.execute(delete(firm).where(firm.id == 4), execution_options={"synchronize_session": False})
    return firms_left(s, m)


@path(
    "a flush that gives a row an expired one's key, which ON UPDATE CASCADE hands on", writes=True
)
def _(s: Session, m: World) -> Any:
    s.get_one(m.Album, 1).id = 2
    s.flush()
    return albums_left(s, m)


@path("UPDATE of a class to an expired row's key, which ON UPDATE CASCADE hands on", writes=True)
def _(s: Session, m: World) -> Any:
    moved = update(m.Album).where(m.Album.id == 1).values(id=2)
    s.execute(moved, execution_options={"synchronize_session": False})
    return albums_left(s, m)


@path("UPDATE of a table to expired rows' keys, which ON UPDATE CASCADE hands on", writes=True)
def _(s: Session, m: World) -> Any:
    albums = m.Album.__table__
    moved = update(albums).where(albums.c.id == 3).values(id=albums.c.id - 1)
    s.connection().execute(moved)
    return albums_left(s, m)
