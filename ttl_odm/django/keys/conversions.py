"""What a column stores for a value of a key, where that differs from the value.

A column rounds, pads and truncates values; a comparison does none of that. So a value that may be
converted is compared in its stored form, by SQL that depends on the column's type
(`ttl_odm.dialects.Family.stored_form`). The type comes from the database, because the model of an
existing table may be less exact. Most values are stored unchanged, and need none of this.
"""

from __future__ import annotations

import uuid
from contextlib import closing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import FieldError
from django.db import models
from django.db.models import Func, Value
from django.db.models.fields.related import RelatedField

from ttl_odm.django.policy.bindings import schema_and_name
from ttl_odm.django.time.clock import family_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql.compiler import SQLCompiler

    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.django.time.fields import AnyField, BoundSQL

    Storing: TypeAlias = Callable[[object, AnyField], Any]
    """Turns a value, or an expression, into its stored form in a field's column."""

_MAX_AGE: Final = 300.0
"""Seconds after which a table's types are read from the database again."""

_INTEGERS: Final = frozenset(
    {
        *("AutoField", "BigAutoField", "SmallAutoField", "IntegerField", "BigIntegerField"),
        *("SmallIntegerField", "PositiveIntegerField", "PositiveBigIntegerField"),
        "PositiveSmallIntegerField",
    }
)
_TEXTS: Final = frozenset({"CharField", "TextField", "SlugField", "FileField", "FilePathField"})
_KEPT: Final[dict[str, frozenset[type[object]]]] = {
    **dict.fromkeys(_INTEGERS, frozenset({int, bool})),
    "BooleanField": frozenset({int, bool}),
    "DateField": frozenset({date}),
    "UUIDField": frozenset({uuid.UUID}),
    "BinaryField": frozenset({bytes}),
}
"""Classes of values that columns store exactly, by the kind of field."""

_EXACT: Final = _INTEGERS | _TEXTS | {"BooleanField", "DateField", "UUIDField"}
"""Kinds of fields whose columns store exactly what SQL of the same kind computes."""

_forms: dict[tuple[str, str, str], tuple[dict[str, str], float]] = {}
"""By `name_of` a table: templates of its columns' stored forms, and when these become invalid."""


class AsStored(Func):
    """The stored form of a value, or of an expression."""

    def __init__(self, value: object, form: str, field: AnyField) -> None:
        super().__init__(value, output_field=field)
        self._form = form

    def as_sql(self, compiler: SQLCompiler, *_: object, **__: object) -> BoundSQL:
        """Return the template with the value, whose parameters it may need several times."""
        sql, params = compiler.compile(self.get_source_expressions()[0])
        form = self._form.replace("%", "%%")
        return form.format(sql), (*params,) * self._form.count("{0}")


class _Sent(Value):
    """A value as an INSERT sends it."""

    def resolve_expression(self, *arguments: Any, **options: Any) -> Any:
        """Resolve for a save, rather than for a lookup."""
        resolved: Any = super().resolve_expression(*arguments, **options)
        resolved.for_save = True
        return resolved


def storing(connection: BaseDatabaseWrapper, model: Model) -> Storing:
    """Return the function that turns values into their stored form in a model's table."""
    return partial(_as_stored, connection, str(model._meta.db_table))


def _as_stored(
    connection: BaseDatabaseWrapper, table: str, value: object, field: AnyField
) -> object:
    if is_kept(value, field):
        return value
    form = _forms_of(connection, table).get(str(field.column))
    if form is None:
        return value
    is_sql = hasattr(value, "resolve_expression")
    return AsStored(value if is_sql else _Sent(value, output_field=field), form, field)


def forget() -> None:
    """Read all types from the database again, for tests that change tables."""
    _forms.clear()


def _forms_of(connection: BaseDatabaseWrapper, table: str) -> dict[str, str]:
    name = name_of(connection, table)
    forms, end = _forms.get(name, ({}, 0.0))
    if monotonic() <= end:
        return forms
    family = family_of(connection)
    query = family.column_types_query(*schema_and_name(table))
    types = [] if query is None else read(connection, query)
    by_column = {str(column): family.stored_form(str(type_)) for column, type_ in types}
    forms = {column: form for column, form in by_column.items() if form is not None}
    _forms[name] = forms, monotonic() + _MAX_AGE
    return forms


def name_of(connection: BaseDatabaseWrapper, table: str) -> tuple[str, str, str]:
    """Return what distinguishes a table from tables of that name in other databases."""
    return connection.alias, str(connection.settings_dict["NAME"]), table


def read(connection: BaseDatabaseWrapper, query: str) -> list[Sequence[object]]:
    """Return the rows of a query to the database's catalogue."""
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    # Not connection.cursor(): tests that count an application's queries would count this one.
    with connection.wrap_database_errors, closing(connection.create_cursor()) as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def is_kept(value: object, field: AnyField) -> bool:
    """Whether a column stores a value, or an expression's, unchanged on every database."""
    field = _own(field)
    kind = field.get_internal_type()
    if value is None:
        return True
    if type(field).db_type is not models.Field.db_type:
        return False  # the application's own type
    if hasattr(value, "resolve_expression"):
        return kind in _EXACT and _kind_of(value) in {kind, None}
    if type(value) in _KEPT.get(kind, ()):
        return True
    for classes, check in _CHECKS:
        if isinstance(value, classes):
            return check(value, field, kind)
    return False


def _kind_of(expression: object) -> str | None:
    """Return the kind of an expression's output field; None if Django can't tell."""
    try:
        field: AnyField | None = getattr(expression, "_output_field_or_none", None)
    except FieldError:
        return None
    return None if field is None else str(_own(field).get_internal_type())


def _own(field: AnyField) -> AnyField:
    """Return the field that determines a column's type; for a foreign key, its target's."""
    while isinstance(field, RelatedField):
        field = field.target_field
    own = field.output_field if isinstance(field, models.GeneratedField) else None
    return own or field


def _is_kept_text(value: str, field: AnyField, kind: str) -> bool:
    if kind in _INTEGERS:
        return value.removeprefix("-").isdecimal()
    length = field.max_length
    return kind in _TEXTS and not value.endswith(" ") and (length is None or len(value) <= length)


def _is_kept_number(value: int | Decimal, field: AnyField, kind: str) -> bool:
    exponent = value.as_tuple().exponent if isinstance(value, Decimal) else 0
    places = getattr(field, "decimal_places", None) if kind == "DecimalField" else None
    return places is not None and isinstance(exponent, int) and -exponent <= places


def _is_kept_time(value: datetime | time, _: object, kind: str) -> bool:
    return kind in {"DateTimeField", "TimeField"} and not value.microsecond


_CHECKS: Final[tuple[tuple[type | tuple[type, ...], Callable[[Any, AnyField, str], bool]], ...]] = (
    (str, _is_kept_text),
    ((int, Decimal), _is_kept_number),
    ((datetime, time), _is_kept_time),
    (timedelta, lambda value, _, __: not value.microseconds),
)
"""Whether a column stores a value unchanged, by the classes of the value."""
