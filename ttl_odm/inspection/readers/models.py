"""Evidence from declared models: which classes are mapped to which tables, and their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Table as SQLTable
from sqlalchemy import inspect
from sqlalchemy.orm import Mapper
from sqlalchemy.types import TypeDecorator

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.inspection.evidence import Field, Table
from ttl_odm.inspection.readers.sql import kind_of, note_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def classes_of(target: Any) -> dict[str, str | None]:
    """Return the tables of models by name, each with the name of its class if it has one."""
    return {table.fullname: name for table, name in models_of(target).items()}


def tables_of(target: Any) -> Iterator[Table]:
    """Describe the tables of models, without a database."""
    for table, model in sorted(models_of(target).items(), key=lambda item: item[0].fullname):
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
        yield Table(table.fullname, fields, model=model)


def models_of(target: Any) -> dict[SQLTable, str | None]:
    """Return the tables of models, each with the name of its class if it has one."""
    models: dict[SQLTable, str | None] = {}
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
                models[mapper.local_table] = mapper.class_.__name__
    if not models:
        raise TTLConfigurationError(
            f"{target!r} holds no SQLAlchemy models: give a declarative base, a MetaData, a model, "
            "a Table, or a list of these."
        )
    return models
