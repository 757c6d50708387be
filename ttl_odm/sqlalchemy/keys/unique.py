"""The keys of a table: what no two of its rows may have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, ColumnElement, Label, Table, UnaryExpression, UniqueConstraint, and_
from sqlalchemy.sql import visitors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Key:
    """A primary key, a unique constraint or a unique index.

    Attributes:
        parts: its columns, or expressions of columns.
        columns: the columns that are in them.
    """

    parts: tuple[ColumnElement[Any], ...]
    columns: tuple[Column[Any], ...]

    @property
    def is_plain(self) -> bool:
        """Whether it is a key of columns, and not of what is made of them."""
        return self.parts is self.columns

    def made_of(self, values: Mapping[Column[Any], Any]) -> list[Any]:
        """The parts, with values or SQL in the place of the columns."""
        if self.is_plain:
            return [values[column] for column in self.columns]

        def replaced(element: Any, **_: Any) -> Any:
            return values.get(element) if isinstance(element, Column) else None

        return [visitors.replacement_traverse(part, {}, replaced) for part in self.parts]

    def equals(self, values: Mapping[Column[Any], Any]) -> ColumnElement[bool]:
        """The condition for rows that have this key of such values."""
        made = self.made_of(values)
        return and_(*(part == value for part, value in zip(self.parts, made, strict=True)))


def keys_of(table: Table) -> tuple[Key, ...]:
    """The keys of a table, as far as its metadata tells."""
    unique: list[Sequence[Any]] = [tuple(table.primary_key.columns)]
    unique += [tuple(c.columns) for c in table.constraints if isinstance(c, UniqueConstraint)]
    unique += [tuple(index.expressions) for index in table.indexes if index.unique]
    keys = [_key(parts) for parts in dict.fromkeys(unique) if parts]
    return tuple(key for key in keys if key is not None)


def _key(given: Sequence[Any]) -> Key | None:
    parts = tuple(map(_bare, given))
    if all(isinstance(part, Column) for part in parts):
        return Key(parts, parts)
    columns = [
        [inner for inner in visitors.iterate(part) if isinstance(inner, Column)] for part in parts
    ]
    if not all(columns):  # text, in which nobody can find the columns
        return None
    return Key(parts, tuple(dict.fromkeys(column for each in columns for column in each)))


def _bare(part: Any) -> Any:
    """A part of an index without its name, and without the order in which it is indexed."""
    while isinstance(part, Label) or (isinstance(part, UnaryExpression) and part.modifier):
        part = part.element
    return part
