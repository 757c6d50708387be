"""How a statement of Django's looks up a default that the database stores.

The rows are those of `ttl_odm.sqlalchemy`: programs of both follow one change. The look-up is a
subquery that refers to nothing else, so that a database runs it once; where rows have defaults by
the value of a field, it is by the primary key of the policies.

This module must not know what a predicate is, nor how a default is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from django.apps import apps
from django.db import models
from django.db.models import Count
from django.db.models.expressions import Expression, F

from ttl_odm.core.policy import TTL
from ttl_odm.core.values import FOREVER, NEVER, OFF, lenient_ttl
from ttl_odm.dialects.family import as_value
from ttl_odm.django.policy.indexes import target_of
from ttl_odm.django.policy.sources import is_locking
from ttl_odm.django.time.clock import family_of
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.stored.rows import LONGEST_SCOPE, POLICIES, WHOLE_TABLE
from ttl_odm.stored.scope_columns import ScopeColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql.compiler import SQLCompiler

    from ttl_odm.django.policy.bindings import Binding
    from ttl_odm.django.time.fields import SQL, AnyField

APP: Final = "ttl_odm.django.policies"
"""The app whose tables have the defaults, by which Django finds its modules."""

LABEL: Final = "ttl_odm_policies"

_TEXTS: Final = (models.CharField, models.TextField)
_EXACT: Final = "utf8mb4_bin"
"""By which MariaDB and MySQL tell upper from lower case, as the others do."""


def sharing(connection: BaseDatabaseWrapper) -> str:
    """What a SELECT ends with that locks its rows, shared; nothing where rows can't be locked."""
    return {"postgresql": " FOR SHARE", "mysql": " LOCK IN SHARE MODE"}.get(connection.vendor, "")


def check_app(binding: Binding) -> None:
    """Raise TTLConfigurationError where a default has no table that it could be read from."""
    if not apps.is_installed(APP):
        raise TTLConfigurationError(
            f"{binding.model._meta.label}.__ttl__ = {binding.policy!r}: the app that stores it is "
            f"not installed; add {APP!r} to INSTALLED_APPS, and migrate."
        )


def check_scope(field: AnyField, where: str) -> None:
    """Raise it for a field whose values policies can't be for."""
    if not isinstance(target_of(field), (*_TEXTS, models.IntegerField, models.UUIDField)):
        raise TTLConfigurationError(
            f"{where}: by={field.name!r} is a {type(field).__name__}: values can have stored "
            "defaults of their own only in a field of text, whole numbers or UUIDs."
        )


def is_identity(connection: BaseDatabaseWrapper, binding: Binding) -> bool:
    """Whether values of the scopes' field that the database finds equal have the same text."""
    assert binding.scope is not None  # noqa: S101 (the callers have asked)
    field = target_of(binding.scope)
    if isinstance(field, models.UUIDField):
        return connection.features.has_native_uuid_field
    return isinstance(field, models.IntegerField)


def name_of(binding: Binding) -> str:
    """What a table is called in the table of the policies."""
    # How one names a table of another schema in Django: '"schema"."table"', or from its middle on.
    return str(binding.model._meta.db_table).strip('"').replace('"."', ".")


def age_of(
    connection: BaseDatabaseWrapper,
    binding: Binding,
    scope: str | None,
    collation: str | None = None,
    fixed: Sequence[str] = (),
) -> str:
    """The age at which rows expire that inherit: that of their scope, or else the table's.

    Where no row is stored, or one that is not a ttl, it is `OFF`; `scope` is the column that says.
    Under a collation it is that of several defaults, by which Acme is acme; then it is the shortest
    of these. The `fixed` scopes, SQL for each, are those that the rows can have: they are looked up
    once for all rows.
    """
    quote = connection.ops.quote_name
    name, ttl = quote("scope"), quote("ttl")
    seconds = f"CASE WHEN {ttl} > 0 THEN {ttl} WHEN {ttl} = -1 THEN {FOREVER} ELSE {OFF} END"
    rows = _rows(connection, binding)

    share = sharing(connection) if is_locking() else ""

    def row(condition: str) -> str:
        return f"(SELECT {seconds} FROM {rows} AND {condition}{share})"  # noqa: S608 (names that Django quotes)

    ages = [row(f"{name} = {as_value(WHOLE_TABLE)}"), str(OFF)]
    if scope is not None and collation is None:
        ages.insert(0, _own_age(connection, binding, scope, fixed, row))
    found = f"COALESCE({', '.join(ages)})"
    if scope is None or collation is None:
        return found
    alike = f"{name} COLLATE {quote(collation)}"
    own = f"SELECT {alike} AS scope, MIN({seconds}) AS age FROM {rows} GROUP BY {alike}"  # noqa: S608 (as above)
    shortest = f"COALESCE((SELECT own.age FROM ({own}) own WHERE own.scope = {scope}), {OFF})"  # noqa: S608 (as above)
    return family_of(connection).least(shortest, found)


def _own_age(
    connection: BaseDatabaseWrapper,
    binding: Binding,
    column: str,
    fixed: Sequence[str],
    row: Callable[[str], str],
) -> str:
    """The age of the scope of a row, by `row` for a condition of the stored ones; NULL for none.

    Rows can have a `fixed` scope's value in another spelling, where that may be equal; then it is
    the column that says.
    """
    if not fixed:
        return row(_is_scope(connection, binding, column))
    scope, is_certain = connection.ops.quote_name("scope"), is_identity(connection, binding)
    ages = [row(f"{scope} = {value}") for value in fixed]
    if is_certain and len(ages) == 1:
        return ages[0]
    cases = [
        f"WHEN {_is_spelled(connection, binding, column, value)} THEN {age}"
        for value, age in zip(fixed, ages, strict=True)
    ]
    others = "NULL" if is_certain else row(_is_scope(connection, binding, column))
    return f"CASE {' '.join(cases)} ELSE {others} END"


def shortest_age(connection: BaseDatabaseWrapper, binding: Binding) -> str:
    """The least age at which any row that inherits expires, whatever its scope: an index has it."""
    ttl = connection.ops.quote_name("ttl")
    shortest = f"SELECT MIN({ttl}) FROM {_rows(connection, binding)} AND {ttl} > 0"  # noqa: S608 (as above)
    return f"COALESCE(({shortest}), {FOREVER})"


def has_default(
    connection: BaseDatabaseWrapper, binding: Binding, source: str, scope: str | None
) -> str | None:
    """The condition for the rows that have a certain default; None where all have.

    `scope` is whose it is; None for that of the rows that have none of their own.
    """
    if binding.scope is None:
        return None
    column = f"{source}.{connection.ops.quote_name(str(binding.scope.column))}"
    if scope is not None:
        value = as_value(scope).replace("%", "%%")
        if connection.vendor == "mysql":  # where Acme would be acme, and \ is special
            value = f"_utf8mb4 X'{scope.encode().hex()}' COLLATE {_EXACT}"
        unpadded = _unpadded(connection, binding.scope, column)
        return f"{_as_text(connection, binding.scope, column)} = {value}{unpadded}"
    return f"NOT EXISTS {own_scope(connection, binding, column)}"


def own_scope(connection: BaseDatabaseWrapper, binding: Binding, column: str) -> str:
    """The scope of a row, where that has a default of its own; else NULL."""
    scope = connection.ops.quote_name("scope")
    own = f"{_is_scope(connection, binding, column)} AND {scope} <> ''"
    return f"(SELECT {scope} FROM {_rows(connection, binding)} AND {own})"  # noqa: S608 (as above)


def canonical_scope(connection: BaseDatabaseWrapper, binding: Binding, value: Any) -> str:
    """A value that somebody names, as the scopes of policies have it.

    Raises:
        TTLConfigurationError: The field holds no such value.
    """
    assert binding.scope is not None  # noqa: S101 (the callers have asked)
    field = target_of(binding.scope)
    if isinstance(value, models.Model):
        value = getattr(value, field.attname)
    where = f"{binding.model._meta.label}.{binding.scope.name}"
    if isinstance(field, models.UUIDField):
        column = ScopeColumn(where, "uuid")
    elif isinstance(field, _TEXTS):
        # MariaDB and MySQL compare stored scopes as if they were padded with blanks.
        column = ScopeColumn(
            where, "text", field.max_length, keeps_blanks=connection.vendor != "mysql"
        )
    else:
        range_of: Any = connection.ops.integer_field_range
        least, most = range_of(field.get_internal_type())
        bounds: dict[str, Any] = {} if least is None else {"least": least, "most": most}
        column = ScopeColumn(where, "number", **bounds)
    return scope_text(connection, binding, column.canonical(value))


def scope_text(connection: BaseDatabaseWrapper, binding: Binding, value: Any) -> str:
    """A value of the field, as the scopes of policies have it."""
    assert binding.scope is not None  # noqa: S101 (the callers have asked)
    field = target_of(binding.scope)
    if isinstance(field, models.UUIDField):
        value = field.get_db_prep_value(value, connection)
    return str(value)


def read(
    connection: BaseDatabaseWrapper, binding: Binding, scope: str | None = None
) -> dict[str | None, int | None]:
    """What is stored for a scope, and for the table (None): those that there are.

    What is stored and is not a ttl is None: TTL is off.
    """
    check_app(binding)
    quote = connection.ops.quote_name
    statement = f"SELECT {quote('scope')}, {quote('ttl')} FROM {quote(POLICIES)} "  # noqa: S608 (as above)
    statement += f"WHERE {quote('name')} = %s AND {quote('scope')} IN (%s, %s)"
    with connection.cursor() as cursor:
        cursor.execute(statement, [name_of(binding), WHOLE_TABLE, scope or WHOLE_TABLE])
        return {found or None: lenient_ttl(ttl) for found, ttl in cursor.fetchall()}


def read_all(connection: BaseDatabaseWrapper, binding: Binding) -> list[int | None]:
    """Every default that rows of a table may inherit."""
    check_app(binding)
    ttl = connection.ops.quote_name("ttl")
    with connection.cursor() as cursor:
        rows = _rows(connection, binding).replace("%%", "%")
        cursor.execute(f"SELECT DISTINCT {ttl} FROM {rows}")  # noqa: S608 (as above)
        return [lenient_ttl(seconds) for (seconds,) in cursor.fetchall()]


def has_scopes(connection: BaseDatabaseWrapper, binding: Binding) -> bool:
    """Whether any scope of a table has a default of its own."""
    if binding.scope is None:
        return False
    scope, rows = connection.ops.quote_name("scope"), _rows(connection, binding)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT 1 FROM {rows} AND {scope} <> '' LIMIT 1".replace("%%", "%"))  # noqa: S608 (as above)
        return cursor.fetchone() is not None


def policy_of(connection: BaseDatabaseWrapper, binding: Binding, obj: models.Model) -> TTL:
    """The policy of an instance's row, with the default that the database has for it now."""
    field, scope = binding.scope, None
    value = None if field is None else getattr(obj, field.attname)
    if value is not None:
        scope = scope_text(connection, binding, value)
    found = read(connection, binding, scope)
    return _with_default(binding, found.get(scope, found.get(None)))


def policy_by_age(binding: Binding, age: int) -> TTL:
    """The policy of a row for which `StoredAge` has found this."""
    default = None if age >= OFF else NEVER if age >= FOREVER else age
    return _with_default(binding, default)


def _with_default(binding: Binding, default: int | None) -> TTL:
    policy = binding.policy
    assert isinstance(policy, TTL)  # noqa: S101 (no other has a stored default)
    return policy.with_default(default)


class _LookUp(Expression):
    """What is stored for a row, in a query, by the field that tells the rows apart."""

    def __init__(self, binding: Binding, output_field: AnyField, *, by_rows: bool = True) -> None:
        super().__init__(output_field=output_field)
        self._binding = binding
        by_rows = binding.scope is not None and by_rows
        self.sources: list[Any] = [F(binding.scope.name)] if by_rows and binding.scope else []

    def get_source_expressions(self) -> list[Any]:
        """The field that tells the rows apart."""
        return self.sources

    def set_source_expressions(self, exprs: Sequence[Any]) -> None:
        """Set it, once it is resolved."""
        self.sources = list(exprs)


class StoredAge(_LookUp):
    """The age of `age`, in a query; that of the table, or the shortest, where that will do."""

    def __init__(self, binding: Binding, of: Literal["row", "table", "shortest"] = "row") -> None:
        """Say of which table's rows."""
        super().__init__(binding, models.BigIntegerField(), by_rows=of == "row")
        self._shortest = of == "shortest"

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:
        """Render it."""
        check_app(self._binding)
        if self._shortest:
            return shortest_age(connection, self._binding), ()
        scopes = [compiler.compile(source)[0] for source in self.sources]
        return age_of(connection, self._binding, scopes[0] if scopes else None), ()


class OwnScope(_LookUp):
    """The scope of `own_scope`, in a query."""

    def __init__(self, binding: Binding) -> None:
        """Say of which table's rows, which have scopes."""
        super().__init__(binding, models.CharField())

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:
        """Render it."""
        (source,) = self.sources
        return own_scope(connection, self._binding, compiler.compile(source)[0]), ()


def by_scope(binding: Binding, rows: models.QuerySet[Any, Any]) -> models.QuerySet[Any, Any]:
    """How many rows are of which scope with a default of its own; None stands for all others."""
    scopes = rows.order_by().annotate(ttl_scope=OwnScope(binding)).values("ttl_scope")
    return scopes.annotate(ttl_rows=Count("*")).values_list("ttl_scope", "ttl_rows")


def _rows(connection: BaseDatabaseWrapper, binding: Binding) -> str:
    """FROM what, and WHERE: the rows of one table's policies."""
    quote = connection.ops.quote_name
    name = family_of(connection).literal_text(name_of(binding)).replace("%", "%%")
    return f"{quote(POLICIES)} WHERE {quote('name')} = {name}"


def _as_text(connection: BaseDatabaseWrapper, field: AnyField, column: str) -> str:
    if isinstance(target_of(field), _TEXTS):
        return column
    kind = "char" if connection.vendor == "mysql" else "varchar"
    return f"CAST({column} AS {kind}({LONGEST_SCOPE}))"


def _is_scope(connection: BaseDatabaseWrapper, binding: Binding, column: str) -> str:
    """Whether a stored scope is that of a row of the statement around a subquery."""
    assert binding.scope is not None  # noqa: S101 (the callers have asked)
    scope = connection.ops.quote_name("scope")
    outer = _of_outer(connection, binding, column)
    if connection.vendor == "mysql" and isinstance(target_of(binding.scope), _TEXTS):
        # Two columns of binary collations, as utf8mb4_0900_bin, can't be compared as they are.
        outer = f"CONVERT({outer} USING utf8mb4) COLLATE {_EXACT}"
    return f"{scope} = {outer}{_unpadded(connection, binding.scope, column)}"


def _is_spelled(connection: BaseDatabaseWrapper, binding: Binding, column: str, scope: str) -> str:
    """Whether a row has exactly this scope, whatever the collation of its column."""
    assert binding.scope is not None  # noqa: S101 (the callers have asked)
    text = _as_text(connection, binding.scope, column)
    if connection.vendor == "mysql":
        text = f"CONVERT({text} USING utf8mb4) COLLATE {_EXACT}"
    elif connection.vendor == "postgresql":
        text = f'CAST({column} AS text) COLLATE "C"'
    else:
        text = f"{text} COLLATE BINARY"
    return f"{text} = {scope}{_unpadded(connection, binding.scope, column)}"


def _unpadded(connection: BaseDatabaseWrapper, field: AnyField, column: str) -> str:
    """That a text is, by its own collation, the same without blanks at its end.

    See `_SameText` of `ttl_odm.stored.sqlalchemy.lookup`.
    """
    if connection.vendor != "mysql" or not isinstance(target_of(field), _TEXTS):
        return ""
    return f" AND {column} = TRIM(TRAILING ' ' FROM {column})"


def _of_outer(connection: BaseDatabaseWrapper, binding: Binding, column: str) -> str:
    """A column of the statement around a subquery, for a condition in that."""
    assert binding.scope is not None  # noqa: S101 (the callers have asked)
    text = _as_text(connection, binding.scope, column)
    if getattr(connection, "mysql_is_mariadb", False):
        # It remembers what a subquery has returned, by the column's own collation: for Acme that of
        # acme. Not of one with a function that may have effects; this one does nothing.
        return f"IF(BENCHMARK(0, 0) = 0, {text}, NULL)"
    return text
