"""The findings of ``ttl_check`` in a database of Django's: tables, columns, indexes, and checks.

It queries the catalogue, and only reads. Findings for any store are in `ttl_odm.sweeper.findings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.core import checks
from django.db import connections

from ttl_odm.django.checks import of_database, of_model
from ttl_odm.django.extensions import database_checks
from ttl_odm.django.management.units import misread
from ttl_odm.django.policy.bindings import binding_of
from ttl_odm.django.policy.indexes import TTLIndex, creation
from ttl_odm.django.policy.rules import dependents
from ttl_odm.django.purge.errors import store_errors
from ttl_odm.sweeper.findings import UNSEARCHABLE, WRONG_UNIT, Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.django.policy.bindings import Binding
    from ttl_odm.django.sweep.store import DjangoStore

_MIGRATE: Final = "python manage.py makemigrations, and migrate"

_UNQUERIED: Final = ("ttl_odm.E001", "ttl_odm.E004", "ttl_odm.E005")
"""The codes of messages on a model about which every query of its rows raises the same."""

_IS_INVALID: Final = (
    "SELECT 1 FROM pg_catalog.pg_index WHERE indexrelid = to_regclass(%s) AND NOT indisvalid"
)


def findings_of(store: DjangoStore, alias: str, *, deep: bool) -> list[Finding]:
    """Check the models of a store; with `deep`, read whole tables.

    Raises:
        StoreError: The database doesn't answer.
    """
    findings: list[Finding] = []
    models = store.models()
    for model in models:
        binding: Any = binding_of(model)
        with store_errors():
            found = list(_of_model(binding, alias))
            if not any(finding.code in _UNQUERIED for finding in found):
                found += _of_schema(binding, connections[alias])
            findings += found
            if unsearchable(found):
                continue
            findings += _of_units(binding, alias)
        if deep:
            findings += store.out_of_reach(model._meta.db_table)
    for look in database_checks:
        with store_errors():
            findings += look(models, alias)
    return findings


def unsearchable(findings: Iterable[Finding]) -> set[str]:
    """Return the tables whose rows can't be queried."""
    codes = (*UNSEARCHABLE, *_UNQUERIED)
    return {str(finding.target) for finding in findings if finding.code in codes}


def _of_model(binding: Binding, alias: str) -> Iterator[Finding]:
    """Yield the messages of ``manage.py check --database`` on a model."""
    table = binding.model._meta.db_table
    for message in (*of_model(binding), *of_database(binding, alias)):
        severity = Severity.ERROR if message.level >= checks.ERROR else Severity.WARNING
        yield Finding(severity, str(message.id), table, message.msg, message.hint)


def _of_schema(binding: Binding, connection: BaseDatabaseWrapper) -> Iterator[Finding]:
    model, table = binding.model, binding.model._meta.db_table
    with connection.cursor() as cursor:
        if table not in connection.introspection.table_names(cursor):
            message = "the table is not in the database"
            yield Finding(Severity.ERROR, "missing-table", table, message, _MIGRATE)
            return
        description = connection.introspection.get_table_description(cursor, table)
        columns = {column.name for column in description}
        fields = (field for field in (binding.stamp, binding.own) if field is not None)
        missing = [str(field.column) for field in fields if field.column not in columns]
        if missing:
            message = f"column {' and '.join(missing)} is not in the database"
            yield Finding(Severity.ERROR, "missing-column", table, message, _MIGRATE)
            return
        for dependent in dependents:
            yield from dependent.check(model, connection)
        yield from binding.source.findings(connection)
        if binding.sweep != "index":
            return
        existing = connection.introspection.get_constraints(cursor, table)
        for index in model._meta.indexes:
            if not isinstance(index, TTLIndex):
                continue
            if index.name not in existing:
                message = f"index {index.name} is missing, and the sweeper needs it"
                fix = creation(model, index, connection)
                yield Finding(Severity.ERROR, "missing-index", table, message, fix)
            elif connection.vendor == "postgresql":
                cursor.execute(_IS_INVALID, [connection.ops.quote_name(index.name)])
                if cursor.fetchone():
                    message = f"index {index.name} is INVALID: a CREATE INDEX CONCURRENTLY failed"
                    removal = f"DROP INDEX CONCURRENTLY {connection.ops.quote_name(index.name)}"
                    fix = f"{removal}; {creation(model, index, connection)}"
                    yield Finding(Severity.ERROR, "invalid-index", table, message, fix)


def _of_units(binding: Binding, alias: str) -> Iterator[Finding]:
    """Check that numbers are in the units in which the policy reads them."""
    table = binding.model._meta.db_table
    for wrong in misread(binding, alias):
        severity = Severity.ERROR if wrong.is_most else Severity.WARNING
        if wrong.form is not None:
            fix = f"write {wrong.field} as {wrong.form} in these rows, and in the program"
            yield Finding(severity, "undated", table, wrong.message, fix)
            continue
        fix = f"change the values of {wrong.field}, and the program that writes them"
        if wrong.is_most and not wrong.is_lifetime:
            fix = f"declare unit={wrong.unit!r} in the policy"
        yield Finding(severity, WRONG_UNIT, table, wrong.message, fix)
