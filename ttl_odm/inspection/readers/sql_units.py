"""Columns of a SQL table whose numbers are in another unit than its policy reads; see `units`.

It reads the first and the last rows by key, however big the table is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import Float, Integer, Numeric

from ttl_odm.inspection.readers.sql import numbers_of
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sqlalchemy.time.instants import kept_type
from ttl_odm.sweeper.units import UNITS, misread_instants, misread_lifetimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Column, Connection

    from ttl_odm.core.policy import Unit
    from ttl_odm.sqlalchemy.policy.binding import Binding
    from ttl_odm.sweeper.units import Misread

_BY_SECOND: Final[Mapping[int, Unit]] = {factor: unit for unit, factor, _ in UNITS}
"""Units by how many there are in a second."""


def misread(connection: Connection, binding: Binding) -> Iterator[Misread]:
    """Find columns of a policy whose values are in another unit."""
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


def _unit(connection: Connection, binding: Binding, column: Column[object]) -> Unit | None:
    if column is binding.last_modified and binding.instants.native:
        return _BY_SECOND.get(clock_of(connection.dialect).per_second or 0)
    return binding.policy.unit
