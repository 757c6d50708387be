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


def classes_of(given: Any) -> dict[str, str | None]:
    """Return the tables of models by name, each with the name of its class if it has one.

    Raises:
        TTLConfigurationError: There are no models in it.
    """
    return {table.fullname: name for table, name in models_of(given).items()}


def tables_of(given: Any) -> Iterator[Table]:
    """Describe the tables of models, without a database.

    Raises:
        TTLConfigurationError: There are no models in it.
    """
    for table, model in sorted(models_of(given).items(), key=lambda each: each[0].fullname):
        indexed = {next(iter(each.columns)).name for each in table.indexes if each.columns}
        indexed |= {each.name for each in list(table.primary_key)[:1]}
        fields = []
        for each in table.columns:
            kind = each.type
            kind = kind.impl_instance if isinstance(kind, TypeDecorator) else kind
            field = Field(
                each.name,
                kind_of(kind),
                is_nullable=bool(each.nullable),
                is_indexed=each.name in indexed or bool(each.index) or bool(each.unique),
                note=note_of(each.name, kind),
            )
            fields.append(field)
        yield Table(table.fullname, fields, model=model)


def models_of(given: Any) -> dict[SQLTable, str | None]:
    """Return the tables of models, each with the name of its class if it has one.

    Raises:
        TTLConfigurationError: There are no models in it.
    """
    found: dict[SQLTable, str | None] = {}
    for each in given if isinstance(given, (list, tuple, set)) else [given]:
        registry = getattr(each, "registry", each)
        mapper: Any = inspect(each, raiseerr=False) if isinstance(each, type) else None
        if isinstance(mapper, Mapper):
            mappers = [mapper]
        elif isinstance(each, SQLTable):
            found.setdefault(each, None)
            continue
        else:
            mappers = list(getattr(registry, "mappers", ()))
            metadata = getattr(each, "metadata", each)
            found |= dict.fromkeys(getattr(metadata, "tables", {}).values())
        for one in sorted(mappers, key=lambda mapper: mapper.class_.__name__):
            if isinstance(one.local_table, SQLTable) and (one.inherits is None or not one.single):
                found[one.local_table] = one.class_.__name__
    if not found:
        raise TTLConfigurationError(
            f"{given!r} holds no SQLAlchemy models: give a declarative base, a MetaData, a model, "
            "a Table, or a list of these."
        )
    return found
