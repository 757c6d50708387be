"""`AddTTL`: adds the contract's fields and indexes to a large table in use.

The operations that ``makemigrations`` writes (two ``AddField``, two ``AddIndex``) are right for any
table, and fast for a small one. On a large table of PostgreSQL, a column whose default is a clock
rewrites the table under an exclusive lock, and each index blocks writers. `AddTTL` reaches the same
schema in steps that do neither; put it in place of those four operations, in a migration with
``atomic = False``.

Existing rows begin their life when the migration runs.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from django.db import migrations
from django.db.migrations.operations.base import Operation

from ttl_odm.dialects import index_name
from ttl_odm.dialects.mysql import MySQL
from ttl_odm.dialects.postgresql import PostgreSQL
from ttl_odm.django.policy.indexes import TTLIndex, sweeper_indexes
from ttl_odm.django.purge.references import keeping_rows
from ttl_odm.django.time import clock
from ttl_odm.django.time.fields import LastModifiedField, TTLField
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.migrations.state import ProjectState

    from ttl_odm.django.policy.bindings import Model


class AddTTL(Operation):
    """Give a model the fields ``last_modified`` and ``ttl``, and the sweeper's indexes."""

    __module__ = "ttl_odm.django"  # the path in squashed migrations, which must stay valid

    atomic = False
    reduces_to_sql = True
    reversible = True

    def __init__(
        self,
        model_name: str,
        *,
        sweep: str = "index",
        copy_table: bool = False,
        by: str | None = None,
    ) -> None:
        """Name the model.

        Args:
            model_name: As in Django's own operations.
            sweep: ``"index"``, or ``"scan"`` for no indexes, as in ``__ttl_sweep__``.
            copy_table: Let MySQL enforce the CHECK on ``ttl``, for which it copies the table and
                blocks writers meanwhile. Otherwise the CHECK is added instantly, as NOT ENFORCED.
                The other databases always enforce it.
            by: The field whose values have stored defaults of their own, as in ``Stored(by=...)``.
        """
        if sweep not in ("index", "scan"):
            raise TTLConfigurationError(f"sweep = {sweep!r}: give 'index' or 'scan'.")
        self.model_name = model_name
        self.sweep = sweep
        self.copy_table = copy_table
        self.by = by

    def deconstruct(self) -> tuple[str, list[object], dict[str, object]]:
        """Return what a written migration contains."""
        kwargs: dict[str, object] = {"model_name": self.model_name}
        if self.sweep != "index":
            kwargs["sweep"] = self.sweep
        if self.copy_table:
            kwargs["copy_table"] = True
        if self.by is not None:
            kwargs["by"] = self.by
        return type(self).__name__, [], kwargs

    def describe(self) -> str:
        """Return the description for people."""
        return f"Add a time to live to {self.model_name}"

    @property
    def migration_name_fragment(self) -> str:
        """The part of the migration's file name."""
        return f"{self.model_name.lower()}_ttl"

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change the state as the operations of ``makemigrations`` would."""
        for operation in self._plain(app_label, state):
            operation.state_forwards(app_label, state)

    def _plain(self, app_label: str, state: ProjectState) -> Iterator[Operation]:
        name = self.model_name.lower()
        yield migrations.AddField(name, "last_modified", LastModifiedField(db_column="_ts"))
        yield migrations.AddField(name, "ttl", TTLField(null=True, blank=True, checks_type=True))
        if self.sweep == "index":
            model_state = state.models[app_label, name]
            table = model_state.options.get("db_table") or f"{app_label}_{name}"
            for index in sweeper_indexes(table, scope=self.by):
                yield migrations.AddIndex(name, index)

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        """Create the fields and indexes, step by step."""
        model = to_state.apps.get_model(app_label, self.model_name)
        connection = schema_editor.connection
        if not self.allow_migrate_model(connection.alias, model):
            return
        _warn_of_references(model)
        vendor = clock.family_of(connection).family
        if vendor == "sqlite":  # which copies the table for any column that isn't NULL
            state = from_state.clone()
            for operation in self._plain(app_label, from_state):
                before = state.clone()
                operation.state_forwards(app_label, state)
                operation.database_forwards(app_label, schema_editor, before, state)
            return
        if vendor == "postgresql" and connection.in_atomic_block:
            raise TTLConfigurationError(
                f"AddTTL({self.model_name!r}) needs atomic = False on its migration: an index "
                "can't be built CONCURRENTLY inside a transaction."
            )
        quote = connection.ops.quote_name
        table = quote(model._meta.db_table)
        for step in _steps(connection, model, copy_table=self.copy_table):
            schema_editor.execute(f"ALTER TABLE {table} {step}", params=None)
        for index in self._indexes(model):
            if vendor == "mysql":
                for step in _index_steps(connection, model, index):
                    schema_editor.execute(f"ALTER TABLE {table} {step}", params=None)
                continue
            if vendor == "postgresql":
                # An index that a failed attempt has left behind is INVALID, and useless.
                drop = PostgreSQL().drop_index(quote(index.name), in_transaction=False)
                schema_editor.execute(drop)
            schema_editor.execute(index.create_sql(model, schema_editor), params=None)

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,  # noqa: ARG002 (Django's signature)
    ) -> None:
        """Remove the fields and indexes."""
        model = from_state.apps.get_model(app_label, self.model_name)
        if not self.allow_migrate_model(schema_editor.connection.alias, model):
            return
        for index in self._indexes(model):
            schema_editor.remove_index(model, index)
        state = from_state.clone()
        for name in ("ttl", "last_modified"):
            before = state.clone()
            operation = migrations.RemoveField(self.model_name.lower(), name)
            if self.sweep == "index":
                state.models[app_label, self.model_name.lower()].options["indexes"] = []
            operation.state_forwards(app_label, state)
            operation.database_forwards(app_label, schema_editor, before, state)

    def _indexes(self, model: Model) -> list[TTLIndex]:
        if self.sweep != "index":
            return []
        return sweeper_indexes(model._meta.db_table, scope=self.by)


def _warn_of_references(model: Model) -> None:
    """Warn of foreign keys that will keep expired rows."""
    relations: Any = model._meta.related_objects
    for message in filter(None, map(keeping_rows, relations)):
        warnings.warn(" ".join(message), stacklevel=3)


def _columns(connection: BaseDatabaseWrapper, model: Model) -> tuple[str, str]:
    quote = connection.ops.quote_name
    columns = {field.name: quote(str(field.column)) for field in model._meta.local_concrete_fields}
    return columns["last_modified"], columns["ttl"]


def _steps(connection: BaseDatabaseWrapper, model: Model, *, copy_table: bool) -> list[str]:
    """Return the steps that add the columns without writing a row, and without a long lock.

    On MariaDB and MySQL a change that isn't instant fails instead of blocking, unless MySQL is
    allowed to copy the table.
    """
    quote = connection.ops.quote_name
    stamp, ttl = _columns(connection, model)
    if connection.vendor == "postgresql":
        family, check = PostgreSQL(), quote(f"{model._meta.db_table}_ttl_check")
        return [
            # now() is one value for all rows, so no row is written; a clock would rewrite all.
            f"ADD COLUMN {stamp} {family.instant_type} NOT NULL DEFAULT now()",
            f"ALTER COLUMN {stamp} SET DEFAULT {family.stamp}",
            f"ADD COLUMN {ttl} integer",
            family.add_check(f"CONSTRAINT {check} CHECK ({family.ttl_check(ttl)})"),
            family.validate_check(check),
        ]
    name = quote(index_name(model._meta.db_table, "ttl").replace("ix_", "ck_", 1))
    mysql, start = MySQL(), clock.to_storage(connection, clock.database_now(connection))
    is_mariadb = clock.is_mariadb(connection)
    named = mysql.check_name(model._meta.db_table, name, is_mariadb=is_mariadb)
    how = enforced = f", {mysql.INSTANT}"
    if not is_mariadb:
        enforced = f" {mysql.COPY}" if copy_table else f" {mysql.NOT_ENFORCED}{how}"
    return [
        f"ADD COLUMN {stamp} {mysql.instant_type} NOT NULL DEFAULT {start}{how}",
        f"ALTER COLUMN {stamp} SET DEFAULT ({mysql.stamp}){how}",
        f"ADD COLUMN {ttl} integer NULL {named}CHECK ({mysql.ttl_check(ttl)}){enforced}",
    ]


def _index_steps(connection: BaseDatabaseWrapper, model: Model, index: TTLIndex) -> list[str]:
    """Return the steps for an index of MariaDB or MySQL: one step for both would block writers."""
    mysql, virtual = MySQL(), index.parts_of(model).virtual_column
    is_mariadb = clock.is_mariadb(connection)
    added = index.addition(model, connection.ops.quote_name)
    return [
        f"{mysql.virtual_columns(*_columns(connection, model))[virtual]}, {mysql.INSTANT}",
        f"{added}, {mysql.without_copy(is_mariadb=is_mariadb)}",
    ]
