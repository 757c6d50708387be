"""The indexes of a table in a database's catalogue, and which of them lead to expired rows.

The catalogue is decisive, not the declarations: a table that we didn't create may have an index
that no model declares, and a declared one may be missing, or half built. Each kind of rows that can
expire needs an index ordered by the end of their lives, `IndexNeed`. Whether a planner uses it is
the planner's decision.

Callers run `Family.indexes_query`, and pass each row to `stored_index`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ttl_odm.dialects.mysql import INHERITED_END, OWN_END
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Mapping


class StoredIndex(NamedTuple):
    """An index as the database has it.

    Attributes:
        name: Its name.
        first: The column that it begins with; None for an expression, or for a column's first few
            characters.
        rows: The condition of the rows in it; empty for all rows.
        is_valid: Whether it is complete, and planners see it.
        is_ordered: Whether it can be read in ascending order, NULLs where the database has them:
            no hash, no BRIN, no other collation.
        definition: The statement that creates it; empty where the database has none.
        second: The next column, like `first`; None where there is none.
        collation: The collation by which some values of its first column are equal, such as Acme
            and acme; None if no two are.
    """

    name: str
    first: str | None
    rows: str
    is_valid: bool
    is_ordered: bool
    definition: str
    second: str | None = None
    collation: str | None = None

    def leads_to(self, need: IndexNeed) -> bool:
        """Return whether a sweep can find its rows by it."""
        return self.is_valid and self.is_ordered and self.is_over(need)

    def narrows(self, need: IndexNeed) -> bool:
        """Return whether it is a BRIN, which tells where in the table expired rows may be."""
        is_summary = self.is_valid and " USING brin (" in self.definition
        return is_summary and need.ttl is None and self.is_over(need)

    def is_over(self, need: IndexNeed) -> bool:
        """Return whether it has the right rows in the right order."""
        rows, stamp = _bare(self.rows), _bare(need.column)
        if need.scope is not None:
            is_led = (self.first, self.second) == (need.scope, need.column)
            return is_led and rows in ("", "" if need.ttl is None else f"{_bare(need.ttl)}isnull")
        if need.ttl is None:
            # No NULL meets a comparison with the column, so the index needs none of them.
            return self.first == need.column and rows in (
                "",
                f"{stamp}isnotnull",
                f"{stamp}notnull",
            )
        ttl, order = _bare(need.ttl), _bare(self.definition).partition("where")[0]
        if need.part is Part.OWN:
            return rows == f"{ttl}>0" and self.first is None and stamp in order and ttl in order
        return rows in (f"{ttl}isnull", "") and self.first == need.column


class IndexNeed(NamedTuple):
    """The index that a sweep needs for a part of a table's rows.

    If `ttl` is None, it is over the column itself. Otherwise it is one of the contract's two
    partial indexes, over the rows that inherit the default, or over the rows with a ttl of their
    own. If the values of a column, `scope`, have stored defaults, that column leads it.
    """

    part: Part
    column: str
    ttl: str | None = None
    scope: str | None = None

    @property
    def least(self) -> IndexNeed:
        """The index that is enough for a sweep by the shortest default of all scopes."""
        return self._replace(scope=None)

    @property
    def is_partial(self) -> bool:
        """Whether it is one of the contract's two partial indexes."""
        return self.ttl is not None or self.column in (INHERITED_END, OWN_END)


def stored_index(row: Mapping[str, Any]) -> StoredIndex:
    """Return the index of a row of `Family.indexes_query`, whose names are in lower case."""
    if "sub_part" in row:
        return _of_mysql(row)
    rows, definition = row["rows_held"], row["definition"]
    if row.get("is_partial"):  # SQLite, which has the statement only
        rows = definition[definition.lower().rfind("where") + 5 :]
    return StoredIndex(
        row["name"],
        row["first"],
        rows,
        is_valid=bool(row["is_valid"]),
        is_ordered=bool(row["is_ordered"]),
        definition=definition,
        second=row["second"],
        collation=row.get("first_collation"),
    )


def _of_mysql(row: Mapping[str, Any]) -> StoredIndex:
    collation = row["first_collation"]
    is_exact = collation is None or collation.endswith("_bin")
    return StoredIndex(
        row["index_name"],
        row["column_name"] if row["sub_part"] is None else None,
        rows="",
        # An index can be ignored on MariaDB, and invisible on MySQL.
        is_valid=row.get("ignored") != "YES" and row.get("is_visible") != "NO",
        is_ordered=row["index_type"] == "BTREE",
        definition="",
        second=row["second"],
        collation=None if is_exact else collation,
    )


def _bare(sql: str) -> str:
    """Return a condition or a definition without marks that databases write differently."""
    return sql.lower().translate(_MARKS)


_MARKS: Final = dict.fromkeys(map(ord, '() "`\n\t'))
