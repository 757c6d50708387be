"""Evidence from Django's models: their tables and labels, and the columns that refer to them.

Only models know relations without a constraint in the database (``db_constraint=False``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import django
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import models

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.inspection.evidence import Field, Kind, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS: Final = (
    (models.DateTimeField, Kind.AWARE),
    (models.DateField, Kind.DATE),
    (models.IntegerField, Kind.INTEGER),
    ((models.FloatField, models.DecimalField), Kind.FLOAT),
    ((models.CharField, models.TextField), Kind.TEXT),
)


def tables_of() -> Iterator[Table]:
    """Describe the tables of all models of the project that DJANGO_SETTINGS_MODULE names."""
    try:
        django.setup()
    except ImproperlyConfigured as error:
        raise TTLConfigurationError(
            f"--models django.apps:apps needs the project's settings: set DJANGO_SETTINGS_MODULE "
            f"({error})"
        ) from error
    from ttl_odm.django.policy.bindings import binding_of  # noqa: PLC0415 (needs django.setup())

    for model in apps.get_models(include_auto_created=True):
        meta = model._meta
        if meta.proxy:
            continue
        binding = binding_of(model)
        columns: Any = meta.local_concrete_fields
        fields = [
            Field(
                str(field.column),
                next(
                    (kind for type_, kind in _KINDS if issubclass(type(field), type_)), Kind.OTHER
                ),
                is_nullable=field.null,
                is_indexed=field.db_index or field.unique,
            )
            for field in columns
        ]
        references = [
            f"{relation.field.model._meta.db_table}.{relation.field.column}"
            for relation in meta.related_objects
            if relation.field.concrete
            and not relation.field.many_to_many
            and not getattr(relation, "parent_link", False)  # a subclass's, which is the same row
        ]
        yield Table(
            meta.db_table,
            fields,
            references=references,
            django=meta.label,
            has_policy=binding is not None,
            policy=None if binding is None else binding.policy,
        )
