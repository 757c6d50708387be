"""``__ttl_archive__`` in terms of Django's models: where expired rows are kept.

An `Archive` becomes a sink like any other: it receives the values of the rows in the transaction
that deletes them, and inserts them into its own table. The table must be in the same database, to
share the transaction. This module must not know how rows are deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.apps import apps
from django.conf import settings
from django.db import router
from django.utils.timezone import make_naive

from ttl_odm.django.policy.bindings import binding_of, has_subclass_tables
from ttl_odm.django.time.fields import InstantField
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.hooks import Archive, archive_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.django.time.fields import AnyField
    from ttl_odm.sweeper import ArchiveSink, Purged


def sink_of(model: Model, using: str) -> ArchiveSink | None:
    """Return the sink for a model's rows before their deletion from a database; None if none.

    Raises:
        TTLConfigurationError: ``__ttl_archive__`` isn't an archive, or doesn't fit the model.
    """
    archive = archive_of(model)
    if not isinstance(archive, Archive):
        return archive
    where = f"{model._meta.label}.__ttl_archive__"
    into = _model_of(archive, where)
    meta = into._meta
    names = {field.attname for field in meta.local_concrete_fields if not field.generated}
    binding = binding_of(into)
    if binding is not None and binding.stamps:  # rows begin a new life in the archive
        names -= {field.attname for field in (binding.stamp, binding.own) if field is not None}
    missing = [key.name for key in model._meta.pk_fields if key.attname not in names]
    if archive.archived_at not in (None, *(field.name for field in meta.local_concrete_fields)):
        missing.append(str(archive.archived_at))
    problem = None
    if meta.concrete_model is model:
        problem = "is the model itself"
    elif meta.parents:
        problem = "has rows in several tables; give a model with one"
    elif missing:
        problem = f"has no field {missing[0]!r}"
    elif not router.allow_migrate_model(using, into):
        problem = f"isn't in the database {using!r}, in whose transaction the rows are deleted"
    elif has_subclass_tables(model):
        problem = (
            f"receives the rows of one table, but models that inherit from {model._meta.label} "
            "have tables of their own; give an object with a method write()"
        )
    if problem is not None:
        raise TTLConfigurationError(f"{where}: the archive {meta.label} {problem}.")
    fields = model._meta.local_concrete_fields
    copies = {str(field.column): field.attname for field in fields if field.attname in names}
    return _Copy(into, copies, archive.archived_at)


def _model_of(archive: Archive, where: str) -> Model:
    into = archive.into
    try:
        model: Model = apps.get_model(into) if isinstance(into, str) else into
        if not model._meta.abstract:
            return model
    except (AttributeError, LookupError, ValueError):
        pass
    raise TTLConfigurationError(f"{where} = {archive!r}: give a model, or its label 'app.Model'.")


@dataclass(frozen=True)
class _Copy:
    """A sink that inserts into a model's table.

    Attributes:
        into: The archive's model.
        copies: The archive's attributes, by the columns from which they get their values.
        archived_at: The archive's field for the instant of archiving, if it has one.
    """

    into: Model
    copies: Mapping[str, str]
    archived_at: str | None

    def write(self, purged: Purged) -> None:
        """Insert the rows unchanged: the archive's defaults and clocks don't apply to them."""
        connection: BaseDatabaseWrapper = purged.transaction
        meta = self.into._meta
        as_of: dict[str, object] = {}
        if self.archived_at is not None:
            aware = settings.USE_TZ or isinstance(meta.get_field(self.archived_at), InstantField)
            as_of[self.archived_at] = purged.as_of if aware else make_naive(purged.as_of)
        objs = []
        for row in purged.rows or ():
            values = {attname: row[column] for column, attname in self.copies.items()}
            obj = self.into(**values, **as_of)
            for field in meta.local_concrete_fields:
                if field.attname not in values and field.name not in as_of:
                    # Fields that only the archive has (auto_now) are set as in any other INSERT.
                    setattr(obj, field.attname, field.pre_save(obj, add=True))
            objs.append(obj)
        fields: list[AnyField] = [
            field
            for field in meta.local_concrete_fields
            if not field.generated and (field is not meta.auto_field or objs[0].pk is not None)
        ]
        rows: Any = self.into._base_manager.using(connection.alias)
        size = max(1, connection.ops.bulk_batch_size(fields, objs))
        for start in range(0, len(objs), size):
            batch = objs[start : start + size]
            rows._insert(batch, fields=fields, using=connection.alias, raw=True)
