"""Emptying the tables of Django's models. See `ttl_odm.testing.cleanup`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections, router, transaction
from django.db.models import OneToOneRel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.models import Model


def empty(models: tuple[Any, ...]) -> None:
    """Empty the tables of some models."""
    tables: dict[str, dict[type[Model], None]] = {}
    for model in models:
        for relative in _relatives(model):
            tables.setdefault(router.db_for_write(relative), {})[relative] = None
    for using, members in tables.items():
        connection = connections[using]
        quote = connection.ops.quote_name
        order = _in_order(list(members))
        with transaction.atomic(using=using), connection.cursor() as cursor:
            for rank, model in enumerate(order):
                for field in _references(model):
                    # For references to the model itself or in a ring: InnoDB checks row by row.
                    if field.null and _referred(field) in order[: rank + 1]:
                        table, column = quote(model._meta.db_table), quote(field.column)
                        cursor.execute(f"UPDATE {table} SET {column} = NULL")  # noqa: S608
            for model in order:
                cursor.execute(f"DELETE FROM {quote(model._meta.db_table)}")  # noqa: S608


def _relatives(model: Any) -> Iterator[type[Model]]:
    """Yield a model, the others of its multi-table inheritance, and their many-to-many tables."""
    model = model._meta.concrete_model
    roots = [parent for parent in model._meta.get_parent_list() if not parent._meta.parents]
    pending = roots or [model]
    seen: dict[type[Model], None] = {}
    while pending:
        relative = pending.pop()
        if relative in seen:
            continue
        seen[relative] = None
        for relation in relative._meta.get_fields(include_hidden=True):
            if isinstance(relation, OneToOneRel) and relation.parent_link:
                pending.append(relation.related_model)
            if relation.many_to_many:
                field = getattr(relation, "remote_field", None)
                through = getattr(relation, "through", None) or getattr(field, "through", None)
                if through is not None and through._meta.auto_created:
                    seen[through] = None
    yield from seen


def _in_order(models: list[type[Model]]) -> list[type[Model]]:
    """Sort models so that referring ones come first, unless they refer to each other in a ring."""
    order: list[type[Model]] = []
    while models:
        referred = {
            _referred(field)
            for model in models
            for field in _references(model)
            if _referred(field) is not model
        }
        free = [model for model in models if model not in referred] or models[:1]
        order += free
        models = [model for model in models if model not in free]
    return order


def _references(model: type[Model]) -> Iterator[Any]:
    return (field for field in model._meta.local_concrete_fields if field.is_relation)


def _referred(field: Any) -> type[Model]:
    model: type[Model] = field.related_model._meta.concrete_model
    return model
