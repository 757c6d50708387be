"""What to sweep: the TTL tables of a declarative base, a registry, a MetaData, models or Tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sqlalchemy import MetaData, Table, inspect
from sqlalchemy.orm import Mapper
from sqlalchemy.schema import sort_tables_and_constraints

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.policy.binding import Binding, binding_of
from ttl_odm.sqlalchemy.policy.foreign_keys import referred_table

if TYPE_CHECKING:
    from collections.abc import Iterator


def bindings_of(targets: Any) -> list[Binding]:
    """The policies of what a sweeper was given, tables that refer to others before these.

    Raises:
        TTLConfigurationError: Something in it is no model, or has no TTL.
    """
    found = list(dict.fromkeys(_tables(targets)))
    every = {table for each in found for table in each.metadata.tables.values()}
    # Unlike MetaData.sorted_tables this takes circles of foreign keys without a warning.
    sort: Any = sort_tables_and_constraints
    order = sort(
        sorted(every, key=lambda table: table.fullname),
        # True: don't go by this one.
        filter_fn=lambda key: True if referred_table(key) is None else None,
    )
    ranks = {table: rank for rank, (table, _) in enumerate(order) if table is not None}
    found.sort(key=lambda table: ranks[table], reverse=True)
    return [binding for binding in map(binding_of, found) if binding is not None]


def _tables(target: Any) -> Iterator[Table]:
    mapper = _mapper(target)
    if mapper is not None:
        yield _bound(target, mapper.tables)
    elif isinstance(target, Table):
        yield _bound(target, [target])
    elif isinstance(metadata := getattr(target, "metadata", target), MetaData):
        yield from (table for table in metadata.tables.values() if binding_of(table) is not None)
    elif isinstance(target, Iterable) and not isinstance(target, str):
        for each in target:
            yield from _tables(each)
    else:
        raise TTLConfigurationError(
            f"{target!r} is nothing to sweep: give a declarative base, a registry, a MetaData, a "
            "model, a Table, or a list of these."
        )


def _mapper(target: Any) -> Mapper[Any] | None:
    found: Any = inspect(target, raiseerr=False) if isinstance(target, type) else None
    return found if isinstance(found, Mapper) else None


def _bound(target: Any, tables: Iterable[Any]) -> Table:
    for table in tables:
        if isinstance(table, Table) and binding_of(table) is not None:
            return table
    name = target.__name__ if isinstance(target, type) else f"Table {target.fullname!r}"
    raise TTLConfigurationError(
        f"{name} has no TTL, so there is nothing to sweep: declare __ttl__ on the model, or leave "
        "it out."
    )
