"""How a statement of Django's looks up a stored default, and how a deletion locks it.

The tables are those of `ttl_odm.stored.sqlalchemy`, so a change applies to programs of both. The
look-up is a subquery that refers to nothing outside of it, so that a database runs it once; with
scopes, it goes by the primary key of the policies. Locks (`lock_row`) are described in
`ttl_odm.stored.sqlalchemy.lookup`.

This module must not know what a predicate is, nor how a default is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from django.apps import apps
from django.db import DatabaseError, models
from django.db.models import Count
from django.db.models.expressions import Expression, F

from ttl_odm.core.policy import TTL
from ttl_odm.core.values import FOREVER, NEVER, OFF, lenient_ttl
from ttl_odm.dialects.errors import is_forbidden
from ttl_odm.dialects.family import as_value
from ttl_odm.django.policy.indexes import target_of
from ttl_odm.django.policy.sources import is_locking
from ttl_odm.django.time.clock import family_of, is_mariadb
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.stored.rows import LONGEST_SCOPE, MAY_SHARE, POLICIES, WHOLE_TABLE
from ttl_odm.stored.scope_columns import ScopeColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql.compiler import SQLCompiler

    from ttl_odm.django.policy.bindings import Binding
    from ttl_odm.django.policy.options import AnyQuerySet
    from ttl_odm.django.time.fields import SQL, AnyField

APP: Final = "ttl_odm.django.policies"
"""The app whose tables store the defaults; Django finds its modules by this name."""

LABEL: Final = "ttl_odm_policies"

_TEXTS: Final = (models.CharField, models.TextField)
_EXACT: Final = "utf8mb4_bin"
"""The collation by which MariaDB and MySQL distinguish upper and lower case, as others do."""


def _shared_lock(connection: BaseDatabaseWrapper) -> str:
    """The end of a SELECT that locks its rows, shared; empty where rows can't be locked."""
    return {"postgresql": " FOR SHARE", "mysql": " LOCK IN SHARE MODE"}.get(connection.vendor, "")


def check_app(binding: Binding) -> None:
    """Raise TTLConfigurationError if the app with the tables of defaults isn't installed."""
    if not apps.is_installed(APP):
        raise TTLConfigurationError(
            f"{binding.model._meta.label}.__ttl__ = {binding.policy!r}: the app that stores it is "
            f"not installed; add {APP!r} to INSTALLED_APPS, and migrate."
        )


def check_scope(field: AnyField, where: str) -> None:
    """Raise TTLConfigurationError for a field whose values can't have stored defaults."""
    if not isinstance(target_of(field), (*_TEXTS, models.IntegerField, models.UUIDField)):
        raise TTLConfigurationError(
            f"{where}: by={field.name!r} is a {type(field).__name__}: values can have stored "
            "defaults of their own only in a field of text, whole numbers or UUIDs."
        )


def is_identity(connection: BaseDatabaseWrapper, binding: Binding) -> bool:
    """Return whether values of the scopes' field that compare equal have the same text."""
    assert binding.scope is not None  # noqa: S101 (the callers have asked)
    field = target_of(binding.scope)
    if isinstance(field, models.UUIDField):
        return connection.features.has_native_uuid_field
    return isinstance(field, models.IntegerField)


def name_of(binding: Binding) -> str:
    """Return the name of a table in the table of the policies."""
    # Django's way to name a table of another schema: '"schema"."table"', or 'schema"."table'.
    return str(binding.model._meta.db_table).strip('"').replace('"."', ".")


def age_of(
    connection: BaseDatabaseWrapper,
    binding: Binding,
    scope: str | None,
    collation: str | None = None,
    fixed: Sequence[str] = (),
) -> str:
    """Return the age at which rows that inherit expire: that of their scope, or else the table's.

    It is `OFF` if no default is stored, or a value that isn't a ttl.

    Args:
        connection: The connection.
        binding: The policy of the rows.
        scope: The column of their scope; None for the table's age.
        collation: By which several stored scopes are equal, such as Acme and acme: then the age is
            the shortest of theirs.
        fixed: SQL for each of the few scopes that the rows can have: these are looked up once for
            all rows.
    """
    quote = connection.ops.quote_name
    name, ttl = quote("scope"), quote("ttl")
    seconds = f"CASE WHEN {ttl} > 0 THEN {ttl} WHEN {ttl} = -1 THEN {FOREVER} ELSE {OFF} END"
    rows = _rows(connection, binding)
    lock = _shared_lock(connection) if is_locking() else ""

    def row(condition: str) -> str:
        return f"(SELECT {seconds} FROM {rows} AND {condition}{lock})"  # noqa: S608 (names that Django quotes)

    ages = [row(f"{name} = {as_value(WHOLE_TABLE)}"), str(OFF)]
    if scope is not None and collation is None:
        ages.insert(0, _own_age(connection, binding, scope, fixed, row))
    age = f"COALESCE({', '.join(ages)})"
    if scope is None or collation is None:
        return age
    collated = f"{name} COLLATE {quote(collation)}"
    own = f"SELECT {collated} AS scope, MIN({seconds}) AS age FROM {rows} GROUP BY {collated}"  # noqa: S608 (as above)
    shortest = f"COALESCE((SELECT own.age FROM ({own}) own WHERE own.scope = {scope}), {OFF})"  # noqa: S608 (as above)
    return family_of(connection).least(shortest, age)


def _own_age(
    connection: BaseDatabaseWrapper,
    binding: Binding,
    column: str,
    fixed: Sequence[str],
    row: Callable[[str], str],
) -> str:
    """The age of the scope of a row; NULL if that has no default of its own.

    `row` returns the look-up for a condition on the stored scopes. Where the database may find
    another spelling of a `fixed` scope equal, the column decides which scope a row has.
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
    """Return the least age at which any row that inherits expires, the first entry of an index."""
    ttl = connection.ops.quote_name("ttl")
    shortest = f"SELECT MIN({ttl}) FROM {_rows(connection, binding)} AND {ttl} > 0"  # noqa: S608 (as above)
    return f"COALESCE(({shortest}), {FOREVER})"


def has_default(
    connection: BaseDatabaseWrapper, binding: Binding, source: str, scope: str | None
) -> str | None:
    """Return the condition for the rows that have a scope's default; None if all rows have it.

    For a `scope` of None these are the rows whose scope has no default of its own.
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
    """Return the scope of a row, as stored, where it has a default of its own; else NULL."""
    scope = connection.ops.quote_name("scope")
    own = f"{_is_scope(connection, binding, column)} AND {scope} <> ''"
    return f"(SELECT {scope} FROM {_rows(connection, binding)} AND {own})"  # noqa: S608 (as above)


def canonical_scope(connection: BaseDatabaseWrapper, binding: Binding, value: object) -> str:
    """Return the text under which the scope of a value, as the caller names it, is stored.

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


def scope_text(connection: BaseDatabaseWrapper, binding: Binding, value: object) -> str:
    """Return a value of the scopes' field as text, as scopes are stored."""
    assert binding.scope is not None  # noqa: S101 (the callers have asked)
    field = target_of(binding.scope)
    if isinstance(field, models.UUIDField):
        value = field.get_db_prep_value(value, connection)
    return str(value)


def read(
    connection: BaseDatabaseWrapper, binding: Binding, scope: str | None = None
) -> dict[str | None, int | None]:
    """Read the stored defaults of a scope and of the table, whose key is None.

    A default that isn't stored is missing in the result. A stored value that isn't a ttl is read as
    None: TTL is off.
    """
    check_app(binding)
    quote = connection.ops.quote_name
    statement = f"SELECT {quote('scope')}, {quote('ttl')} FROM {quote(POLICIES)} "  # noqa: S608 (as above)
    statement += f"WHERE {quote('name')} = %s AND {quote('scope')} IN (%s, %s)"
    with connection.cursor() as cursor:
        cursor.execute(statement, [name_of(binding), WHOLE_TABLE, scope or WHOLE_TABLE])
        return {stored or None: lenient_ttl(ttl) for stored, ttl in cursor.fetchall()}


def read_all(connection: BaseDatabaseWrapper, binding: Binding) -> list[int | None]:
    """Read every default that rows of a table may inherit."""
    check_app(binding)
    ttl = connection.ops.quote_name("ttl")
    with connection.cursor() as cursor:
        rows = _rows(connection, binding).replace("%%", "%")
        cursor.execute(f"SELECT DISTINCT {ttl} FROM {rows}")  # noqa: S608 (as above)
        return [lenient_ttl(seconds) for (seconds,) in cursor.fetchall()]


def has_scopes(connection: BaseDatabaseWrapper, binding: Binding) -> bool:
    """Return whether any scope of a table has a default of its own."""
    if binding.scope is None:
        return False
    scope, rows = connection.ops.quote_name("scope"), _rows(connection, binding)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT 1 FROM {rows} AND {scope} <> '' LIMIT 1".replace("%%", "%"))  # noqa: S608 (as above)
        return cursor.fetchone() is not None


def lock_row(connection: BaseDatabaseWrapper, binding: Binding) -> None:
    """Lock the row that stands for all stored defaults of a table, shared.

    Raises:
        DatabaseError: The database's; it says what its user lacks, if it does.
    """
    quote = connection.ops.quote_name
    row = f"SELECT {quote('ttl')} FROM {quote(POLICIES)} "  # noqa: S608 (as above)
    row += f"WHERE {quote('name')} = %s AND {quote('scope')} = %s{_shared_lock(connection)}"
    with connection.cursor() as cursor:
        try:
            cursor.execute(row, [name_of(binding), WHOLE_TABLE])
        except DatabaseError as error:
            if not is_forbidden(error.__cause__):
                raise
            raise type(error)(f"{error}: {MAY_SHARE}") from error.__cause__


def policy_of(connection: BaseDatabaseWrapper, binding: Binding, obj: models.Model) -> TTL:
    """Return the policy of an instance's row, with the default that is stored for it now."""
    field, scope = binding.scope, None
    value = None if field is None else getattr(obj, field.attname)
    if value is not None:
        scope = scope_text(connection, binding, value)
    defaults = read(connection, binding, scope)
    return _with_default(binding, defaults.get(scope, defaults.get(None)))


def policy_by_age(binding: Binding, age: int) -> TTL:
    """Return the policy of a row whose `StoredAge` was read."""
    default = None if age >= OFF else NEVER if age >= FOREVER else age
    return _with_default(binding, default)


def _with_default(binding: Binding, default: int | None) -> TTL:
    policy = binding.policy
    assert isinstance(policy, TTL)  # noqa: S101 (no other has a stored default)
    return policy.with_default(default)


class _LookUp(Expression):
    """The base of expressions that look up what is stored for a row, by its scope."""

    def __init__(self, binding: Binding, output_field: AnyField, *, by_rows: bool = True) -> None:
        super().__init__(output_field=output_field)
        self._binding = binding
        by_rows = binding.scope is not None and by_rows
        self.sources: list[Any] = [F(binding.scope.name)] if by_rows and binding.scope else []

    def get_source_expressions(self) -> list[object]:
        """Return the scopes' field."""
        return self.sources

    def set_source_expressions(self, exprs: Sequence[object]) -> None:
        """Set the scopes' field, once it is resolved."""
        self.sources = list(exprs)


class StoredAge(_LookUp):
    """The age at which rows that inherit expire: of a row, of its table, or the shortest of all."""

    def __init__(self, binding: Binding, of: Literal["row", "table", "shortest"] = "row") -> None:
        """Choose the table and the age."""
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
    """The scope of a row where it has a default of its own; else NULL: see `own_scope`."""

    def __init__(self, binding: Binding) -> None:
        """Choose the table, which has scopes."""
        super().__init__(binding, models.CharField())

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:
        """Render it."""
        (source,) = self.sources
        return own_scope(connection, self._binding, compiler.compile(source)[0]), ()


def by_scope(binding: Binding, rows: AnyQuerySet) -> AnyQuerySet:
    """Count rows by their scope, if that has a default of its own; None stands for all others."""
    scopes = rows.order_by().annotate(ttl_scope=OwnScope(binding)).values("ttl_scope")
    return scopes.annotate(ttl_rows=Count("*")).values_list("ttl_scope", "ttl_rows")


def _rows(connection: BaseDatabaseWrapper, binding: Binding) -> str:
    """The FROM and WHERE clauses for the stored defaults of a table."""
    quote = connection.ops.quote_name
    name = family_of(connection).literal_text(name_of(binding)).replace("%", "%%")
    return f"{quote(POLICIES)} WHERE {quote('name')} = {name}"


def _as_text(connection: BaseDatabaseWrapper, field: AnyField, column: str) -> str:
    if isinstance(target_of(field), _TEXTS):
        return column
    kind = "char" if connection.vendor == "mysql" else "varchar"
    return f"CAST({column} AS {kind}({LONGEST_SCOPE}))"


def _is_scope(connection: BaseDatabaseWrapper, binding: Binding, column: str) -> str:
    """The condition that a stored scope is that of a row of the enclosing statement."""
    assert binding.scope is not None  # noqa: S101 (the callers have asked)
    scope = connection.ops.quote_name("scope")
    outer = _as_text(connection, binding.scope, column)
    if is_mariadb(connection):
        # MariaDB caches what a subquery returns, by the column's own collation: Acme gets acme's.
        # It caches nothing for a function that may have side effects; this one has none.
        outer = f"IF(BENCHMARK(0, 0) = 0, {outer}, NULL)"
    if connection.vendor == "mysql" and isinstance(target_of(binding.scope), _TEXTS):
        # Columns with two binary collations, such as utf8mb4_0900_bin, can't be compared directly.
        outer = f"CONVERT({outer} USING utf8mb4) COLLATE {_EXACT}"
    return f"{scope} = {outer}{_unpadded(connection, binding.scope, column)}"


def _is_spelled(connection: BaseDatabaseWrapper, binding: Binding, column: str, scope: str) -> str:
    """The condition that a row has exactly this scope, whatever the collation of its column."""
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
    """The condition that a text equals, by its own collation, itself without trailing blanks.

    `_SameText` in `ttl_odm.stored.sqlalchemy.lookup` says why.
    """
    if connection.vendor != "mysql" or not isinstance(target_of(field), _TEXTS):
        return ""
    return f" AND {column} = TRIM(TRAILING ' ' FROM {column})"
