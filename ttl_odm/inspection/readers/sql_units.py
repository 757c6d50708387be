"""Columns of a SQL table whose values its policy reads in another way; see `sweeper.units`.

It reads the first and the last rows by key, however big the table is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import Float, Integer, Numeric

from ttl_odm.inspection.readers.sql import numbers_of, texts_of
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sqlalchemy.time.instants import kept_type
from ttl_odm.sweeper.units import UNITS, misread_dates, misread_instants, misread_lifetimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Column, Connection

    from ttl_odm.core.policy import Unit
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sweeper.units import Misread

_BY_SECOND: Final[Mapping[int, Unit]] = {factor: unit for unit, factor, _ in UNITS}
"""Units by how many there are in a second."""


def misread(connection: Connection, binding: Binding) -> Iterator[Misread]:
    """Find columns of a policy whose values are in another unit, or that aren't read as dates."""
    yield from misread_texts(connection, binding)
    family = clock_of(connection.dialect).family
    created = None if binding.max_lifetime is None else binding.max_lifetime.created
    instants = [column for column in (binding.last_modified, created) if column is not None]
    units: dict[str, Unit | None] = {
        str(column.name): _unit(connection, binding, column)
        for column in instants
        if isinstance(kept_type(column.type, family), (Integer, Numeric, Float))
    }
    own = binding.override
    names = [*units, *([] if own is None else [str(own.name)])]
    if not names:
        return
    values = numbers_of(connection, binding.table, names)
    for name, unit in units.items():
        if (found := misread_instants(name, unit, values[name])) is not None:
            yield found
    if own is not None:
        lifetimes = [value for value in values[str(own.name)] if value not in binding.nevers]
        if (found := misread_lifetimes(str(own.name), lifetimes)) is not None:
            yield found


def misread_texts(connection: Connection, binding: Binding) -> Iterator[Misread]:
    """Find values of a column of dates that is kept as text, from which no date is read.

    SQLite stores any text in such a column. A row with one that isn't read never expires.
    """
    column = binding.last_modified
    instants = binding.instants.on(clock_of(connection.dialect))
    if instants.form is None:
        return
    texts = texts_of(connection, binding.table, str(column.name), instants.is_read)
    if (found := misread_dates(str(column.name), instants.form, texts)) is not None:
        yield found


def _unit(connection: Connection, binding: Binding, column: Column[object]) -> Unit | None:
    if column is binding.last_modified and binding.instants.native:
        return _BY_SECOND.get(clock_of(connection.dialect).per_second or 0)
    return binding.policy.unit
