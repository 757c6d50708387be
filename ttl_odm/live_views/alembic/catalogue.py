"""The views and RLS policies by which a database hides expired rows, read from its catalogue.

A note identifies them, whatever their names, and says which default ttl they hold: a comment, or,
on databases that store no comment on a view, a text in its condition. This module only reads.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ttl_odm.alembic.target_schema import TargetSchema

NOTE: Final = "ttl_odm: live rows by default ttl "
"""The note on PostgreSQL's view and policies; the default ttl follows it."""

_OF_TABLE: Final = (
    "JOIN pg_depend d ON d.refobjid = t.oid AND d.refclassid = CAST('pg_class' AS regclass) "
    "AND d.classid = CAST('pg_rewrite' AS regclass) JOIN pg_rewrite r ON r.oid = d.objid "
    "JOIN pg_class v ON v.oid = r.ev_class AND v.relkind = 'v' "
    "AND CASE WHEN :has_schema THEN v.relnamespace = t.relnamespace "
    "ELSE pg_table_is_visible(v.oid) END"
)
"""Joins a table of PostgreSQL, ``t``, with the views that read it, ``v``.

A view that was created without a schema may be in an earlier one of the search path.
"""


def read_names(connection: Connection, target: TargetSchema) -> tuple[str, bool]:
    """Return the name of our view of a table (or ""), and whether RLS policies of ours exist."""
    if connection.dialect.name != "postgresql":
        return min(_noted_views(connection, target), default=""), False
    names = {
        "table": target.plain(connection.dialect),
        "policy": target.name_of("rls_", "ttl_live"),
        "has_schema": target.table.schema is not None,
    }
    view, has_policies = connection.execute(_NAMES, names).one()
    return view, has_policies


def read_notes(connection: Connection, target: TargetSchema) -> set[str]:
    """Return the default ttls that the view and the policies of a table hold, as text."""
    if connection.dialect.name != "postgresql":
        return set(_noted_views(connection, target).values())
    names = {
        "table": target.plain(connection.dialect),
        "has_schema": target.table.schema is not None,
    }
    return set(connection.execute(_NOTES, names).scalars())


def note(target: TargetSchema) -> str:
    """Return the note for a view of MariaDB, MySQL or SQLite, with the default ttl in it."""
    return f"{_note(target.table.name)}{target.noted}"


def _noted_views(connection: Connection, target: TargetSchema) -> dict[str, str]:
    """Return our views of a table of MariaDB, MySQL or SQLite, each with the default it holds."""
    schema, query = target.table.schema, _MYSQL_VIEWS
    names = {"schema": schema}
    if connection.dialect.name == "sqlite":
        prefix = f"{connection.dialect.identifier_preparer.quote(schema)}." if schema else ""
        names, query = {}, text(f"SELECT name, sql FROM {prefix}sqlite_master WHERE type = 'view'")
    noted = re.compile(rf"{re.escape(_note(target.table.name))}(-?\w+)", re.IGNORECASE)
    matches = ((name, noted.search(sql or "")) for name, sql in connection.execute(query, names))
    return {name: match[1] for name, match in matches if match}


def _note(table: str) -> str:
    """Return the note's text, without characters that could end a literal or a comment.

    It differs for any two tables.
    """
    word = re.sub(r"\W", lambda match: f"({ord(match[0]):x})", table)
    return f"ttl_odm: live rows of {word} by default ttl "


_NAMES: Final = text(
    f"SELECT COALESCE((SELECT min(v.relname) FROM pg_class t {_OF_TABLE} "
    "WHERE t.oid = CAST(:table AS regclass) "
    f"AND obj_description(v.oid, 'pg_class') LIKE '{NOTE}%'), ''), "
    "EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = CAST(:table AS regclass) "
    "AND polname = :policy)"
)
_NOTES: Final = text(
    "SELECT DISTINCT substr(d.description, length(:note) + 1) FROM pg_description d "
    "WHERE d.description LIKE :note || '%' AND d.objoid IN ("
    f"SELECT v.oid FROM pg_class t {_OF_TABLE} WHERE t.oid = CAST(:table AS regclass) UNION ALL "
    "SELECT p.oid FROM pg_policy p WHERE p.polrelid = CAST(:table AS regclass))"
).bindparams(note=NOTE)
_MYSQL_VIEWS: Final = text(
    "SELECT table_name, view_definition FROM information_schema.views "
    "WHERE table_schema = COALESCE(:schema, DATABASE())"
)
