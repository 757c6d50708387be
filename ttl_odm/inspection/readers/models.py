"""Evidence from SQLAlchemy's models, without a database: their tables and classes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table as SQLTable
from sqlalchemy import inspect
from sqlalchemy.orm import Mapper
from sqlalchemy.types import TypeDecorator

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.inspection.evidence import Field, Table, module_of
from ttl_odm.inspection.readers.sql import kind_of, note_of
from ttl_odm.sqlalchemy.policy.bindings import binding_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def tables_of(target: object) -> Iterator[Table]:
    """Describe the tables of models, without a database."""
    models = models_of(target)
    references: dict[str, list[str]] = {}
    for table in models:
        for key in table.foreign_key_constraints:
            columns = ", ".join(key.column_keys)
            references.setdefault(key.referred_table.fullname, []).append(f"{table.name}.{columns}")
    for table, model in sorted(models.items(), key=lambda item: item[0].fullname):
        indexed = {next(iter(index.columns)).name for index in table.indexes if index.columns}
        indexed |= {column.name for column in list(table.primary_key)[:1]}
        fields = []
        for column in table.columns:
            type_ = column.type
            type_ = type_.impl_instance if isinstance(type_, TypeDecorator) else type_
            field = Field(
                column.name,
                kind_of(type_),
                is_nullable=bool(column.nullable),
                is_indexed=column.name in indexed or bool(column.index) or bool(column.unique),
                note=note_of(column.name, type_),
            )
            fields.append(field)
        binding = binding_of(table)
        module, variable = (module_of(model), None) if model else _place_of(table)
        yield Table(
            table.fullname,
            fields,
            model=None if model is None else model.__name__,
            module=module,
            variable=variable,
            has_policy=binding is not None,
            policy=None if binding is None else binding.policy,
            references=references.get(table.fullname, ()),
        )


def _place_of(table: SQLTable) -> tuple[str, str] | tuple[None, None]:
    """Return the module with a Table, and its name there; nothing if no module has it."""
    for module, holder in list(sys.modules.items()):
        for name, value in list(getattr(holder, "__dict__", {}).items()):
            if value is table:
                return module, name
    return None, None


def models_of(target: object) -> dict[SQLTable, type | None]:
    """Return the tables of models, each with its class if it has one.

    Args:
        target: A declarative base, a MetaData, a model, a Table, or a list of these.

    Raises:
        TTLConfigurationError: There is no model.
    """
    models: dict[SQLTable, type | None] = {}
    for part in target if isinstance(target, (list, tuple, set)) else [target]:
        mapper: Any = inspect(part, raiseerr=False) if isinstance(part, type) else None
        if isinstance(part, SQLTable):
            models.setdefault(part, None)
            continue
        if isinstance(mapper, Mapper):
            mappers = [mapper]
        else:
            mappers = list(getattr(getattr(part, "registry", part), "mappers", ()))
            tables = getattr(getattr(part, "metadata", part), "tables", {})
            models |= dict.fromkeys(tables.values())
        for mapper in sorted(mappers, key=lambda mapper: mapper.class_.__name__):
            has_table = isinstance(mapper.local_table, SQLTable)
            if has_table and (mapper.inherits is None or not mapper.single):
                models[mapper.local_table] = mapper.class_
    if not models:
        name = getattr(target, "__qualname__", repr(target))
        raise TTLConfigurationError(
            f"{name} has no SQLAlchemy models: give a declarative base, a MetaData, a model, a "
            "Table, or a list of these."
        )
    return models
