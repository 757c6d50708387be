"""The indexes that a table has by a database's catalogue, and which of them lead to expired rows.

The database is asked, not the declarations: a table of somebody else's may have an index that no
model knows of, and one that a model declares may be missing, or half built. Each kind of rows that
can expire needs one that is ordered by the end of their lives, `IndexNeed`.

This is what a catalogue knows. Whether a planner takes the index is its own decision. Who asks runs
`Family.indexes_query`, and gives each row to `stored_index`.
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
        first: The column that it begins with; None where that is an expression, or a column's
            first few characters.
        rows: The condition of the rows that it holds; empty for all of them.
        is_valid: Whether it is complete, and planners see it.
        is_ordered: Whether it can be read in ascending order, NULLs where the database has them:
            no hash, no BRIN, no other collation.
        definition: The statement that makes it; empty where the database has none.
        second: The next column, as `first`; None where there is none.
        collation: By which it takes some values of its first column for the same, as Acme for acme;
            None where it tells all apart.
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
        """Whether a sweep can go by it."""
        return self.is_valid and self.is_ordered and self.is_over(need)

    def narrows(self, need: IndexNeed) -> bool:
        """Whether it tells which stretches of the table may hold expired rows: a BRIN does."""
        is_summary = self.is_valid and " USING brin (" in self.definition
        return is_summary and need.ttl is None and self.is_over(need)

    def is_over(self, need: IndexNeed) -> bool:
        """Whether it is over the right rows, in the right order."""
        rows, stamp = _bare(self.rows), _bare(need.column)
        if need.scope is not None:
            is_led = (self.first, self.second) == (need.scope, need.column)
            return is_led and rows in ("", "" if need.ttl is None else f"{_bare(need.ttl)}isnull")
        if need.ttl is None:
            # A comparison with the column holds for no NULL, so these need not be in it.
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
    """What an index has to be for a part of a table's rows.

    It is over the column itself where `ttl` is None; else it is one of the contract's two partial
    ones, over the rows that inherit the default, or over those with a ttl of their own. A column
    leads it whose values have stored defaults of their own: `scope`.
    """

    part: Part
    column: str
    ttl: str | None = None
    scope: str | None = None

    @property
    def least(self) -> IndexNeed:
        """What a sweep can do with: by the shortest default of all scopes."""
        return self._replace(scope=None)

    @property
    def is_partial(self) -> bool:
        """Whether it is one of the contract's two."""
        return self.ttl is not None or self.column in (INHERITED_END, OWN_END)


def stored_index(row: Mapping[str, Any]) -> StoredIndex:
    """What a row of `Family.indexes_query` says; its names in lower case."""
    if "sub_part" in row:
        return _of_mysql(row)
    rows, definition = row["rows_held"], row["definition"]
    if row.get("is_partial"):  # SQLite, which has the statement only
        rows = definition[definition.lower().rfind("where") + 5 :]
    is_valid, is_ordered = bool(row["is_valid"]), bool(row["is_ordered"])
    found = (row["name"], row["first"], rows, is_valid, is_ordered, definition)
    return StoredIndex(*found, row["second"], row.get("first_collation"))


def _of_mysql(row: Mapping[str, Any]) -> StoredIndex:
    # MariaDB ignores an index, MySQL makes it invisible.
    is_hidden = row.get("ignored") == "YES" or row.get("is_visible") == "NO"
    whole = row["column_name"] if row["sub_part"] is None else None
    is_tree = row["index_type"] == "BTREE"
    collation = row["first_collation"]
    is_exact = collation is None or collation.endswith("_bin")
    found = (row["index_name"], whole, "", not is_hidden, is_tree, "")
    return StoredIndex(*found, row["second"], None if is_exact else collation)


def _bare(sql: str) -> str:
    """A condition, or a definition, without what each database spells in its own way."""
    return sql.lower().translate(_MARKS)


_MARKS: Final = dict.fromkeys(map(ord, '() "`\n\t'))
