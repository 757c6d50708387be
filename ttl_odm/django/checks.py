"""System checks: declarations that work badly, or not at all.

A declaration that can't work raises when the model is declared. The checks here need all models, or
the databases' settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core import checks
from django.db import connections, models, router
from django.db.models import QuerySet

from ttl_odm.dialects.family import index_name
from ttl_odm.django.policy.bindings import Binding, bindings
from ttl_odm.django.policy.indexes import (
    TTLIndex,
    has_contract_fields,
    is_led_by_scope,
    scope_need,
    stored_indexes,
)
from ttl_odm.django.policy.options import include_expired
from ttl_odm.django.policy.rules import all_rules_below
from ttl_odm.django.purge.archive import sink_of
from ttl_odm.django.purge.references import is_recorded, keeping_rows
from ttl_odm.django.sweep.transactions import check_timestamps
from ttl_odm.django.time import clock
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.findings import SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django.apps import AppConfig
    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.django.policy.options import AnyQuerySet
    from ttl_odm.django.time.fields import AnyField


def register() -> None:
    """Register the checks with ``manage.py check``."""
    checks.register(check_policies, checks.Tags.models)
    checks.register(check_databases, checks.Tags.database)


def check_policies(
    app_configs: Sequence[AppConfig] | None = None, **_: object
) -> list[checks.CheckMessage]:
    """Check every model with a policy."""
    labels = None if app_configs is None else {config.label for config in app_configs}
    return [
        message
        for binding in bindings()
        if labels is None or binding.model._meta.app_label in labels
        for message in of_model(binding)
    ]


def check_databases(
    databases: Sequence[str] | None = None, **_: object
) -> list[checks.CheckMessage]:
    """Check that the databases store instants unambiguously, and hold archives with their rows."""
    return [
        message
        for alias in databases or ()
        for binding in bindings()
        if router.allow_migrate_model(alias, binding.model)
        for message in of_database(binding, alias)
    ]


def of_database(binding: Binding, alias: str) -> Iterator[checks.CheckMessage]:
    """Check one model in one database."""
    connection = connections[alias]
    try:
        clock.now(connection, binding.form)
    except TTLConfigurationError as error:
        yield checks.Error(str(error), obj=binding.model, id="ttl_odm.E001")
    if connection.vendor == "mysql":
        try:
            check_timestamps(binding, connection)
        except TTLConfigurationError as error:
            yield checks.Error(str(error), obj=binding.model, id="ttl_odm.E005")
    try:
        sink_of(binding.model, alias)
    except TTLConfigurationError as error:
        yield checks.Error(str(error), obj=binding.model, id="ttl_odm.E003")
    if binding.sweep == "index" and not hasattr(binding.model, "__ttl__"):
        yield from _missing_index(binding, connection)
    elif binding.sweep == "index" and not _is_indexed(binding):
        if _is_large(binding, connection):
            migrate = "Run makemigrations, or declare __ttl_sweep__ = 'scan'."
            add = f"Add models.Index(fields=['{binding.stamp.name}']), or db_index=True."
            yield _no_index(binding, migrate if has_contract_fields(binding) else add)
    elif is_led_by_scope(binding):
        yield from _index_without_scope(binding, connection)


def _is_large(binding: Binding, connection: BaseDatabaseWrapper) -> bool:
    """Whether a table has so many rows that reading all of it takes long."""
    if binding.model._meta.db_table not in connection.introspection.table_names():
        return False  # before the first migration
    rows: AnyQuerySet = QuerySet(model=binding.model, using=connection.alias).order_by()
    return bool(include_expired(rows).values_list("pk")[SMALL : SMALL + 1])


def _missing_index(binding: Binding, connection: BaseDatabaseWrapper) -> list[checks.CheckMessage]:
    """Look for the index of a model whose policy the setting names.

    Its class belongs to another app and can't declare the index, so the database is asked.
    """
    meta, field = binding.model._meta, binding.stamp
    if not _is_large(binding, connection):
        return []
    with connection.cursor() as cursor:
        keys = connection.introspection.get_constraints(cursor, meta.db_table).values()
    if any(key["index"] and key["columns"][:1] == [field.column] for key in keys):
        return []
    index = models.Index(fields=[field.name], name=index_name(meta.db_table, field.column))
    with connection.schema_editor(collect_sql=True) as editor:
        editor.add_index(binding.model, index)
        editor.remove_index(binding.model, index)
    create, drop = (statement.rstrip(";") for statement in editor.collected_sql)
    hint = f"Add it to a migration of one of your apps: migrations.RunSQL({create!r}, {drop!r})"
    return [_no_index(binding, hint)]


def _index_without_scope(
    binding: Binding, connection: BaseDatabaseWrapper
) -> Iterator[checks.CheckMessage]:
    """Look in the database for an index that was created before the model had scopes."""
    model, need = binding.model, scope_need(binding, connection)
    if need is None or model._meta.db_table not in connection.introspection.table_names():
        return
    existing = stored_indexes(connection, model)
    if any(index.leads_to(need) for index in existing):
        return
    for index in model._meta.indexes:
        is_old = any(old.name == index.name and old.leads_to(need.least) for old in existing)
        if isinstance(index, TTLIndex) and is_old:
            statements = index.replacement(model, connection)
            hint = f"Run makemigrations, and migrate. If that changes nothing: {statements}"
            yield _not_by_scope(binding, index.name, hint)


def _not_by_scope(binding: Binding, index: str, hint: str) -> checks.Warning:
    assert binding.scope is not None  # noqa: S101 (or there are no scopes)
    return checks.Warning(
        f"The index {index} doesn't begin with {binding.scope.name}, so each sweep reads every row "
        "that is older than the shortest default.",
        hint=hint,
        obj=binding.model,
        id="ttl_odm.W003",
    )


def _no_index(binding: Binding, hint: str) -> checks.Warning:
    return checks.Warning(
        f"No index begins with {binding.stamp.name}, so each sweep reads the whole table.",
        hint=hint,
        obj=binding.model,
        id="ttl_odm.W001",
    )


def of_model(binding: Binding) -> Iterator[checks.CheckMessage]:
    """Check one model."""
    model = binding.model
    try:
        binding.source.check()
    except TTLConfigurationError as error:
        yield checks.Error(str(error), obj=model, id="ttl_odm.E004")
    yield from _indexes_of(binding)
    yield from _of_references(model)
    yield from _of_cascades(model)
    for rule in all_rules_below(model):
        yield from _of_references(rule.model)
        yield from rule.check()
    for other in model._meta.apps.get_models(include_auto_created=True):
        meta = other._meta
        if meta.proxy or other is model or meta.db_table != model._meta.db_table:
            continue
        yield checks.Error(
            f"{meta.label} uses the same table, {meta.db_table}, as {model._meta.label}, so the "
            "policy of that model would hide its rows, too.",
            hint="Make it a proxy, or give it a table of its own.",
            obj=other,
            id="ttl_odm.E002",
        )


def _indexes_of(binding: Binding) -> Iterator[checks.CheckMessage]:
    """Check that the index of a model with scopes begins with their field."""
    scope = binding.scope
    if binding.sweep != "index" or scope is None or is_led_by_scope(binding):
        return
    for index in binding.model._meta.indexes:
        if isinstance(index, TTLIndex) and index.fields == [binding.stamp.name]:
            fields = [scope.name, binding.stamp.name]
            hint = f"Leave it out of Meta.indexes, or set its fields to {fields}; then migrate."
            yield _not_by_scope(binding, index.name, hint)


def _is_indexed(binding: Binding) -> bool:
    """Whether a model declares the indexes that a sweep searches."""
    model, stamp = binding.model, binding.stamp
    if has_contract_fields(binding):
        ours = [index for index in model._meta.indexes if isinstance(index, TTLIndex)]
        return len(ours) > 1  # one over inheriting rows, one over rows with their own ttl
    is_indexed = getattr(stamp, "db_index", False) or stamp.unique
    return is_indexed or _leads_an_index(model, stamp)


def _of_references(model: Model) -> Iterator[checks.CheckMessage]:
    """Check the foreign keys to a model whose rows expire."""
    relation: Any
    for relation in model._meta.related_objects:
        field = relation.field
        if field.many_to_many:
            continue
        message = keeping_rows(relation)
        if message is not None:
            yield checks.Warning(*message, obj=field, id="ttl_odm.W004")
        columns = field.local_related_fields  # several for a ForeignObject
        has_index = any(
            column.unique or column.db_index or _leads_an_index(relation.related_model, column)
            for column in columns
        )
        if not has_index:
            names = [column.name for column in columns]
            index = f"Add models.Index(fields={names!r}, name=...) to the indexes of class Meta."
            yield checks.Warning(
                f"{relation.related_model._meta.label}.{field.name} refers to rows that expire "
                "and has no index: each purged row costs a scan of that table.",
                hint="Remove db_index=False." if columns == (field,) else index,
                obj=field,
                id="ttl_odm.W002",
            )


def _of_cascades(model: Model) -> Iterator[checks.CheckMessage]:
    """Find foreign keys by which the database deletes rows that are archived or reported."""
    by_database = getattr(models, "DB_CASCADE", None)
    if by_database is None or not is_recorded(model):
        return
    for field in model._meta.local_fields:
        remote: Any = field.remote_field
        if remote is None or remote.on_delete is not by_database:
            continue
        label, parent = model._meta.label, remote.model._meta.label
        yield checks.Warning(
            f"{label}.{field.name} has on_delete=DB_CASCADE: a DELETE of rows of {parent} by raw "
            f"SQL or another program deletes rows of {label} too, without their archive and hooks.",
            hint=f"Delete rows of {parent} only through Django or a sweep, or give the field "
            "on_delete=models.CASCADE.",
            obj=field,
            id="ttl_odm.W007",
        )


def _leads_an_index(model: Model, field: AnyField) -> bool:
    meta = model._meta
    indexes = [index for index in meta.indexes if not isinstance(index, TTLIndex)]
    firsts = [index.fields_orders[0][0] for index in indexes if index.fields_orders]
    firsts += [names[0] for names in meta.unique_together]
    firsts.append(meta.pk_fields[0].name)
    firsts += [
        constraint.fields[0]
        for constraint in meta.constraints
        if isinstance(constraint, models.UniqueConstraint) and constraint.fields
    ]
    return field.name in firsts or field.attname in firsts
