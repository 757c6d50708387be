"""Which tables a piece of raw SQL reads, where it names them, and which columns conditions use.

sqlglot parses the text, but only positions are taken from its tree. When a table is replaced,
everything around its name stays unchanged, to the byte: hints, comments, parameters, and words that
the parser would spell differently.

This module must not know what a policy is. It needs the extra ``guard``, and is imported only when
raw SQL has to be parsed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from ttl_odm.dialects import MYSQL_FAMILY

# First: without sqlglot, its error says what to install.
from ttl_odm.guard.words import Marks, Words  # isort: split

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ttl_odm.guard.statements import NotUnderstoodError, check_words, chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Kind = Literal["statement", "from", "piece"]
"""A whole statement, an element of FROM, or another part of a statement."""

_PARSERS: Final = {
    "postgresql": "postgres",
    **dict.fromkeys(MYSQL_FAMILY, "mysql"),
    "sqlite": "sqlite",
}

_AROUND: Final = {"from": ("SELECT * FROM ",), "piece": ("SELECT ", "SELECT 1 ORDER BY ")}
"""Prefixes that make a statement of a piece."""

_QUERIES: Final = (exp.Select, exp.Update, exp.Delete, exp.Merge)
_STATEMENTS: Final = (*_QUERIES, exp.Query, exp.Values, exp.Insert, exp.Create, exp.Copy)
_WRITTEN: Final = (exp.Schema, exp.Create, exp.Into, exp.Lock, exp.Reference, exp.LikeProperty)
"""Parents that name a table without reading its rows; so does INSERT, except for its query."""

_TARGETS: Final = ((exp.Update, {"this"}), (exp.Delete, {"this", "using"}))
_MERGED: Final = {"this", "using"}
_CONDITIONS: Final = {"where", "having", "qualify", "on"}
_REPLACEABLE: Final = {"this", "db", "catalog", "alias", "joins", "laterals"}
"""The arguments of a table in FROM that a subquery can have too."""

_PSEUDO: Final = {
    "sqlite": frozenset({"rowid", "oid", "_rowid_"}),
    "postgres": frozenset({"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"}),
    "mysql": frozenset({"_rowid"}),
}
"""Columns that the database adds to each table; SQLite returns NULL for those of a subquery."""

_APART: Final = " \t\r\n(),;"

_NO_SELECT: Final = "it is not a plain SELECT"
_OBSTACLES: Final = {
    exp.Lock: "FOR UPDATE and similar clauses don't lock the rows of a subquery",
    exp.Into: _NO_SELECT,
    exp.Update: _NO_SELECT,
    exp.Delete: _NO_SELECT,
    exp.Insert: _NO_SELECT,
    exp.Merge: _NO_SELECT,
    exp.Create: _NO_SELECT,
    exp.Copy: _NO_SELECT,
}


@dataclass(frozen=True, slots=True)
class Source:
    """A table that raw SQL reads, updates or deletes from, at one position.

    Attributes:
        name: Its name with qualifiers, in lower case.
        span: The position of the name in the SQL: the first character, and the one after the last.
        alias: The alias to put behind a subquery in its place; empty if the SQL has one already.
        condition_columns: The columns in conditions of its own query, in lower case.
        obstacle: Why a subquery can't replace it; None if it can.
        pseudo: Names of columns that a database may have added to the table, such as ``rowid``, in
            lower case: a subquery lacks them.
    """

    name: tuple[str, ...]
    span: tuple[int, int]
    alias: str
    condition_columns: frozenset[str]
    obstacle: str | None
    pseudo: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RawSQL:
    """The tables and names in a piece of SQL.

    Attributes:
        sources: The tables that it reads, updates or deletes from, not those it inserts into.
        names: All names in it, quoted or not, in lower case, except in literals, comments and
            parameters.
        problem: Why its tables are unknown; None if they are known.
    """

    sources: tuple[Source, ...] = ()
    names: frozenset[str] = frozenset()
    problem: str | None = None


def parse(sql: str, dialect: str, kind: Kind = "statement", marks: Marks = Marks.NAMED) -> RawSQL:
    """Parse a piece of SQL.

    Args:
        sql: The text.
        dialect: The name of SQLAlchemy's dialect.
        kind: Whether it is a statement, or a part of one.
        marks: How its parameters are written.
    """
    parser = _PARSERS.get(dialect, "")
    try:
        words = Words.of(marks.plain(sql), parser)
    except SqlglotError as error:
        return RawSQL(problem=_first_line(error))
    if kind == "piece" and words.begin_a_statement:
        kind = "statement"
    try:
        check_words(words, dialect)
        if kind == "statement":
            parts = [
                part
                for chunk in chunks(words, dialect)
                for part in _parsed(chunk.text, parser, chunk.start)
            ]
        else:
            parts = _piece(words, parser, kind)
    except NotUnderstoodError as error:
        return RawSQL(names=words.names, problem=str(error))
    except (SqlglotError, RecursionError) as error:
        return RawSQL(names=words.names, problem=_first_line(error))
    return RawSQL(tuple(_sources(sql, parts, _PSEUDO.get(parser, frozenset()))), words.names)


def replaced(sql: str, sources: list[Source], rows: Callable[[Source], str]) -> str:
    """Return the SQL with subqueries in place of tables.

    Args:
        sql: The text that was parsed.
        sources: The tables; none has an obstacle.
        rows: Returns the subquery for a table, in parentheses.
    """
    for source in sorted(sources, key=lambda source: source.span, reverse=True):
        start, end = source.span
        before, after = sql[:start], sql[end:]
        space_before = " " if before and before[-1] not in _APART else ""  # FROM"orders"
        space_after = " " if after and after[0] not in _APART else ""
        sql = f"{before}{space_before}{rows(source)}{source.alias}{space_after}{after}"
    return sql


_Part = tuple[Any, int]  # sqlglot 30 has renamed the class of its trees
"""A parsed tree, and the position of its text in the whole."""


def _parsed(text: str, parser: str, start: int) -> list[_Part]:
    trees = [tree for tree in sqlglot.parse(text, read=parser or None) if tree is not None]
    if not all(isinstance(tree, _STATEMENTS) for tree in trees):
        raise SqlglotError(
            f"the parser doesn't know this form of {text.split(maxsplit=1)[0].upper()}"
        )
    return [(tree, start) for tree in trees]


def _piece(words: Words, parser: str, kind: Kind) -> list[_Part]:
    if kind == "piece" and not words.may_name_tables:
        return []
    *others, last = _AROUND[kind]
    for before in others:
        try:
            return _parsed(before + words.text, parser, -len(before))
        except SqlglotError:
            continue
    return _parsed(last + words.text, parser, -len(last))


def _first_line(error: BaseException) -> str:
    message = str(error).partition("\n")[0].strip(" .")
    return f"sqlglot can't read it: {message}" if message else f"{type(error).__name__} in sqlglot"


def _sources(sql: str, parts: list[_Part], pseudo: frozenset[str]) -> Iterator[Source]:
    for tree, start in parts:
        tables = [table for table in tree.find_all(exp.Table) if _is_read(table)]
        obstacle = next((_OBSTACLES[kind] for kind in _OBSTACLES if tree.find(kind)), None)
        in_conditions = _ConditionColumns(tables, tree)
        qualified = {
            column.table.lower() for column in tree.find_all(exp.Column) if column.args.get("db")
        }
        hidden = [column for column in tree.find_all(exp.Column) if column.name.lower() in pseudo]
        for table in tables:
            first, last = (_span(part, start) for part in (table.parts[0], table.parts[-1]))
            has_alias = bool(table.args.get("alias"))
            alias = "" if has_alias else f" AS {sql[slice(*last)]}"
            name = tuple(part.name.lower() for part in table.parts)
            problem = obstacle or _problem(table, sql, first, last)
            if not has_alias and name[-1] in qualified:
                problem = problem or "columns are named with its schema: give it an alias"
            names = {"", table.alias_or_name.lower()}
            used = {column.name.lower() for column in hidden if column.table.lower() in names}
            span = (first[0], last[1])
            columns = in_conditions.of(table)
            yield Source(name, span, alias, columns, problem, frozenset(used))


def _span(part: Any, start: int) -> tuple[int, int]:
    """Return the position of an identifier; (-1, -1) if the parser doesn't know it."""
    first, last = part.meta.get("start"), part.meta.get("end")
    return (-1, -1) if first is None or last is None else (first + start, last + 1 + start)


def _problem(
    table: exp.Table, sql: str, first: tuple[int, int], last: tuple[int, int]
) -> str | None:
    written = sql[slice(*last)]
    if first[0] < 0 or table.name not in (written, written[1:-1]):
        return "the position of the table's name is unknown"
    others = sorted(table.args.keys() - _REPLACEABLE)
    if any(table.args[name] not in (None, []) for name in others):
        return (
            "what is next to the table's name (a hint, a partition, ONLY) can't be applied to "
            "a subquery"
        )
    if sql[: first[0]].rstrip().upper().endswith("TABLE"):
        return "TABLE doesn't accept a subquery: write SELECT * FROM"
    return None


def _is_read(table: exp.Table) -> bool:
    """Whether a name belongs to a table whose rows are read or changed."""
    parent, key = table.parent, table.arg_key
    if not isinstance(table.this, exp.Identifier) or _is_cte(table):
        return False
    if isinstance(parent, exp.Merge):
        return key in _MERGED
    if isinstance(parent, exp.Insert):
        return key != "this"
    if isinstance(parent, exp.Copy):
        return not parent.args.get("kind")  # TO, not FROM
    for kind, keys in _TARGETS:
        if isinstance(parent, kind):
            return key in keys
    return not isinstance(parent, _WRITTEN)


def _is_cte(table: exp.Table) -> bool:
    """Whether a name belongs to a CTE that is visible at its position."""
    name = table.name.lower()
    below: Any = table
    node = table.parent if not table.args.get("db") else None
    own: exp.CTE | None = None  # the CTE around the table, in the WITH just passed
    while node is not None:
        if isinstance(node, exp.CTE):
            own = node
        elif not isinstance(node, exp.With):
            clause = next((arg for arg in node.args.values() if isinstance(arg, exp.With)), None)
            if clause is not None and any(
                cte.alias.lower() == name
                for cte in _visible(clause, own if clause is below else None)
            ):
                return True
            own = None
        below, node = node, node.parent
    return False


def _visible(clause: exp.With, own: exp.CTE | None) -> list[exp.CTE]:
    """Return the CTEs of a WITH that its statement can name, or that its CTE `own` can name."""
    ctes: list[exp.CTE] = clause.expressions
    if own is None or clause.args.get("recursive"):
        return ctes
    return ctes[: next(number for number, cte in enumerate(ctes) if cte is own)]


class _ConditionColumns:
    """The columns in the conditions of each query in a tree, by table."""

    def __init__(self, tables: list[exp.Table], tree: Any) -> None:
        self._tables: dict[int, list[exp.Table]] = {}
        self._columns: dict[int, set[str]] = {id(table): set() for table in tables}
        for table in tables:
            self._tables.setdefault(id(table.find_ancestor(*_QUERIES)), []).append(table)
        for column in tree.find_all(exp.Column):
            self._note(column)

    def of(self, table: exp.Table) -> frozenset[str]:
        """Return the names of a table's columns in conditions, in lower case."""
        return frozenset(self._columns[id(table)])

    def _note(self, column: exp.Column) -> None:
        """Assign a column to the tables that may have it: those of the innermost query."""
        qualifier, in_condition = column.table.lower(), False
        node: Any | None = column
        while node is not None:
            in_condition = in_condition or node.arg_key in _CONDITIONS
            node = node.parent
            if isinstance(node, _QUERIES):
                tables = [
                    table
                    for table in self._tables.get(id(node), ())
                    if qualifier in {"", table.alias_or_name.lower()}
                ]
                if tables:
                    for table in tables if in_condition else ():
                        self._columns[id(table)].add(column.name.lower())
                    return
                in_condition = False
