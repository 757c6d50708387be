"""The contract's two fields, and expressions of the database's clock that may be assigned to them.

`LastModifiedField` is the column ``_ts``, `TTLField` the row's own ttl.

The columns are the same as in `ttl_odm.sqlalchemy`, so both adapters can use one table. The gate
puts a `Stamp` into every INSERT and UPDATE of a table whose policy is a `TTL`, in place of a
datetime that the application has assigned: that comes from the host's clock. `DatabaseNow` and
similar expressions are for this library's own queries.
"""

from __future__ import annotations

import functools
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.core.exceptions import FieldError, ValidationError
from django.db import models
from django.db.models import lookups
from django.db.models.expressions import BaseExpression, Combinable, Expression, ExpressionList
from django.db.models.query_utils import DeferredAttribute
from django.db.models.sql import Query

from ttl_odm.core.extension import Extension
from ttl_odm.core.values import MAX_TTL, row_ttl
from ttl_odm.dialects import index_name
from ttl_odm.dialects.mysql import MySQL
from ttl_odm.dialects.postgresql import PostgreSQL
from ttl_odm.django.time import clock
from ttl_odm.errors import InvalidTTL

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql.compiler import SQLCompiler
    from typing_extensions import Self

    from ttl_odm.django.time.clock import Converter, Form

    # The types that may be assigned, and that are read. At run time Django's fields aren't generic.
    _Instant: TypeAlias = models.Field[datetime | Combinable | None, datetime]
    _Seconds: TypeAlias = models.IntegerField[float | timedelta | Combinable | None, int | None]
    _Lookup: TypeAlias = lookups.In[Any]

    AnyField: TypeAlias = models.Field[Any, Any]
    AnyLookup: TypeAlias = lookups.Lookup[Any]
    SQL: TypeAlias = tuple[str, tuple[()]]
    """SQL without bound values."""
    BoundSQL: TypeAlias = tuple[str, list[Any] | tuple[Any, ...]]
    """SQL and its bound values."""
else:
    _Instant, _Seconds, _Lookup = models.Field, models.IntegerField, object


_EARLIER = PostgreSQL()
"""The family whose CHECK SQLite's tables had in earlier releases."""


class Stamp(Expression):
    """The database's present instant, at the moment of the write."""

    allowed_default = True
    conditional = False  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def __init__(self, form: Form = "instant") -> None:
        """Take the form of the column; see `ttl_odm.django.time.clock`."""
        super().__init__()
        self.form: Form = form

    @staticmethod
    @functools.cache
    def of(form: Form) -> Stamp:
        """Return the cached stamp of a form, since each write needs one."""
        return Stamp(form)

    def resolve_expression(self, *_args: object, **_kwargs: object) -> Self:
        """Return the stamp itself: it refers to nothing in a query."""
        return self

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:  # noqa: ARG002
        """Return the SQL."""
        return clock.now(connection, self.form, writing=True), ()


class Unknown(Stamp):
    """Stands for a value that the database has stored, and that has not been read since."""

    allowed_default = False


UNREAD: Final = Unknown()
"""The value of a field that is to be read on first access, like a deferred field, for which Django
keeps no value."""


class StampAgo(Stamp):
    """An instant so many seconds before the database's now."""

    allowed_default = False

    def __init__(self, seconds: int, form: Form = "instant") -> None:
        """Take the seconds (negative: after now), and the form of the column."""
        super().__init__(form)
        self.seconds = seconds

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:  # noqa: ARG002
        """Return the SQL."""
        return clock.ago(connection, self.form, str(self.seconds), writing=True), ()


class StampUntil(Stamp):
    """The ``_ts`` from which a row's own ttl, `SecondsUntil`, leads exactly to a given end.

    It is the end minus the seconds that are left, rounded up, which are that ttl. Both read the
    database's clock in the same statement.
    """

    allowed_default = False

    def __init__(self, end: datetime) -> None:
        """Take the end, an aware datetime in UTC."""
        super().__init__()
        self.end = end

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:  # noqa: ARG002
        """Return the SQL."""
        end, seconds = self._end_and_seconds(connection)
        return f"({end} - {seconds} * {clock.family_of(connection).second})", ()

    def _end_and_seconds(self, connection: BaseDatabaseWrapper) -> tuple[str, str]:
        family = clock.family_of(connection)
        instant = family.instant_literal(self.end)
        # Not clock_timestamp(): two columns need the same instant.
        return instant, family.seconds_until(instant, clock.now(connection, "instant"))


class SecondsUntil(StampUntil):
    """The whole seconds from the database's now to an instant, rounded up, from 1 to `MAX_TTL`."""

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:  # noqa: ARG002
        """Return the SQL."""
        return self._end_and_seconds(connection)[1], ()


class Kept(Stamp):
    """The column's present value: the one way to write a row without resetting its stamp."""

    allowed_default = False

    def __init__(self, column: str) -> None:
        """Take the column."""
        super().__init__()
        self.column = column

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:  # noqa: ARG002
        """Return the SQL."""
        return connection.ops.quote_name(self.column), ()


class _Attribute(DeferredAttribute):
    """An attribute whose value is known only to the database after a write: read on access."""

    def __get__(self, instance: models.Model | None, cls: type[models.Model] | None = None) -> Any:
        if instance is None:
            return self
        name = self.field.attname
        if isinstance(instance.__dict__.get(name), Unknown):
            instance.refresh_from_db(fields=[name])
        return super().__get__(instance, cls)

    def __set__(self, instance: models.Model, value: object) -> None:
        # Because of __set__, Python calls __get__ even if the instance has a value.
        attributes: Any = instance.__dict__
        attributes[self.field.attname] = value


class InstantField(_Instant):
    """An instant of the database's clock: an aware datetime in UTC, also with USE_TZ = False.

    ``timestamptz`` on PostgreSQL, integer microseconds on MariaDB and MySQL, where TIMESTAMP ends
    in 2038 and depends on the session's time zone, and integer milliseconds on SQLite.
    """

    __module__ = "ttl_odm.django"  # the path in migrations, which must stay valid

    description = "An instant"

    def get_internal_type(self) -> str:
        """Return a name that none of Django's own types has."""
        return "InstantField"

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        """Return the column's type."""
        return clock.family_of(connection).instant_type

    def get_db_converters(self, connection: BaseDatabaseWrapper) -> list[Converter]:
        """Return the converters of a driver's value: `from_db_value`, or faster equivalents."""
        if type(self).from_db_value is not InstantField.from_db_value:  # a subclass's own
            own: list[Converter] = super().get_db_converters(connection)  # type: ignore[misc] # django-stubs has none
            return own
        return clock.converters(connection)

    def from_db_value(
        self,
        value: datetime | int | None,
        expression: Expression,  # noqa: ARG002 (Django's signature)
        connection: BaseDatabaseWrapper,
    ) -> datetime | None:
        """Return an aware datetime in UTC."""
        return clock.from_storage(connection, value)

    def to_python(self, value: object) -> Any:
        """Return a datetime for the input of a serializer or form."""
        if value is None or isinstance(value, datetime) or hasattr(value, "resolve_expression"):
            return value
        try:
            return datetime.fromisoformat(str(value).replace("Z", "+00:00"))
        except ValueError as error:
            raise ValidationError(f"{value!r} is not an instant.", code="invalid") from error

    def get_prep_value(self, value: object) -> Any:
        """Return an aware datetime; reject a naive one."""
        value = self.to_python(super().get_prep_value(value))
        if isinstance(value, datetime) and value.tzinfo is None:
            raise ValueError(f"{self.name} = {value!r}: a naive datetime is ambiguous; add tzinfo.")
        return value

    def get_db_prep_value(
        self,
        value: object,
        connection: BaseDatabaseWrapper,
        prepared: bool = False,  # noqa: FBT001, FBT002 (Django's signature)
    ) -> object:
        """Return the driver's value."""
        value = super().get_db_prep_value(value, connection, prepared)
        return clock.to_storage(connection, value) if isinstance(value, datetime) else value

    def value_to_string(self, obj: models.Model) -> str:
        """Return the text for serializers."""
        value: object = self.value_from_object(obj)
        return value.isoformat() if isinstance(value, datetime) else ""

    def formfield(self, *args: Any, **kwargs: Any) -> Any:
        """Return the field for forms and the admin."""
        from django import forms  # noqa: PLC0415 (only forms need it)

        kwargs.setdefault("form_class", forms.DateTimeField)
        return super().formfield(*args, **kwargs)


class _Comparison(_Lookup):
    """A comparison of an `InstantField`, for which expressions of dates get the column's form."""

    def process_rhs(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> BoundSQL:
        """Return the SQL and the values of the right side."""
        side = super().process_rhs(compiler, connection)
        is_list = isinstance(self.rhs, ExpressionList)  # each is converted alone
        if is_list or (self.lookup_name == "in" and isinstance(self.rhs, Query)):
            return side
        return _as_instant(connection, self.rhs, side)

    def resolve_expression_parameter(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, sql: str, param: object
    ) -> BoundSQL:
        """Return the SQL and the values of one of several right sides."""
        side = super().resolve_expression_parameter(compiler, connection, sql, param)
        return _as_instant(connection, param, side)


def _as_instant(connection: BaseDatabaseWrapper, value: object, side: BoundSQL) -> BoundSQL:
    if not isinstance(value, BaseExpression) or not isinstance(_kind_of(value), models.DateField):
        return side
    if connection.vendor == "postgresql":  # whose column is a date, too
        return side
    clock.now(connection, "datetime")  # raises if dates are not in UTC
    form = clock.family_of(connection).instant_of_column("{0}", zoned=False).replace("%", "%%")
    sql, params = side
    return form.format(sql), (*params,) * form.count("{0}")


def _kind_of(expression: BaseExpression) -> AnyField | None:
    try:
        kind: AnyField | None = getattr(expression, "_output_field_or_none", None)
    except FieldError:  # Django can't tell
        return None
    return kind


for _lookup in (
    lookups.Exact,
    lookups.GreaterThan,
    lookups.GreaterThanOrEqual,
    lookups.LessThan,
    lookups.LessThanOrEqual,
    lookups.Range,
    lookups.In,
):
    InstantField.register_lookup(type(_lookup.__name__, (_Comparison, _lookup), {}))


def _has_none(cls: type[models.Model], name: str) -> bool:
    """Set a contract field to None if a model's ``__ttl__`` is an extension; return whether it is.

    Such a model has neither of the two fields.
    """
    if cls._meta.abstract or not isinstance(getattr(cls, "__ttl__", None), Extension):
        return False
    setattr(cls, name, None)
    return True


class LastModifiedField(InstantField):
    """When the row was last written, by the database's clock; the gate sets it on every write.

    The clock is also the column's default, for programs that write without the gate.
    """

    __module__ = "ttl_odm.django"

    description = "When the row was last written"
    descriptor_class = _Attribute

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take Django's options; forms can't edit the field."""
        kwargs.setdefault("db_default", Stamp())
        kwargs.setdefault("editable", False)
        super().__init__(*args, **kwargs)

    def contribute_to_class(
        self,
        cls: type[models.Model],
        name: str,
        private_only: bool = False,  # noqa: FBT001, FBT002 (Django's signature)
    ) -> None:
        """Add the field to a model, unless its ``__ttl__`` is an extension."""
        if not _has_none(cls, name):
            super().contribute_to_class(cls, name, private_only)

    def deconstruct(self) -> Any:
        """Return the arguments for a migration, without those that are always the same."""
        name, path, args, kwargs = super().deconstruct()
        for option in ("db_default", "editable"):
            kwargs.pop(option, None)
        return name, path, args, kwargs

    def pre_save(self, model_instance: models.Model, add: bool) -> object:  # noqa: ARG002, FBT001
        """Return the instance's value without reading it from the database."""
        return model_instance.__dict__.get(self.attname)


class TTLField(_Seconds):
    """A row's own ttl: whole seconds, -1 (never) or None (inherit the default).

    Any other value raises `InvalidTTL` in a statement, and a CHECK keeps it out of the column for
    every program that writes.
    """

    __module__ = "ttl_odm.django"

    description = "Seconds to live, -1 for ever"
    descriptor_class = _Attribute

    def __init__(self, *args: Any, checks_type: bool = False, **kwargs: Any) -> None:
        """Take Django's options.

        In a migration, ``checks_type`` means that SQLite's CHECK accepts whole numbers only;
        without it, the CHECK is that of earlier releases. In models it is always on, so
        ``makemigrations`` replaces an earlier CHECK.
        """
        super().__init__(*args, **kwargs)
        self.checks_type = checks_type

    def contribute_to_class(
        self,
        cls: type[models.Model],
        name: str,
        private_only: bool = False,  # noqa: FBT001, FBT002 (Django's signature)
    ) -> None:
        """Add the field to a model; outside of migrations it has the CHECK of this release."""
        if _has_none(cls, name):
            return
        super().contribute_to_class(cls, name, private_only)
        if cls._meta.apps is apps:
            self.checks_type = True

    def deconstruct(self) -> Any:
        """Return the arguments for a migration."""
        name, path, args, kwargs = super().deconstruct()
        if self.checks_type:
            kwargs["checks_type"] = True
        return name, path, args, kwargs

    def db_check(self, connection: BaseDatabaseWrapper) -> str | None:
        """Return the column's CHECK; for a table constraint, MariaDB would copy the table."""
        return None if self._check_name(connection) else self._condition(connection)

    def db_type_suffix(self, connection: BaseDatabaseWrapper) -> str | None:
        """Return the CHECK if it needs a name: Django gives none to a column's CHECK."""
        name = self._check_name(connection)
        if name:
            return f"{name}CHECK ({self._condition(connection)})"
        return None  # like Django's integers

    def _condition(self, connection: BaseDatabaseWrapper) -> str:
        family = clock.family_of(connection) if self.checks_type else _EARLIER
        return family.ttl_check(connection.ops.quote_name(str(self.column)))

    def _check_name(self, connection: BaseDatabaseWrapper) -> str:
        """Return the name of the CHECK: see `MySQL.check_name`; empty on other databases."""
        family = clock.family_of(connection)
        model = getattr(self, "model", None)
        if model is None or not isinstance(family, MySQL):
            return ""
        table = model._meta.db_table
        quoted = connection.ops.quote_name(index_name(table, "ttl").replace("ix_", "ck_", 1))
        return family.check_name(table, quoted, is_mariadb=clock.is_mariadb(connection))

    def get_prep_value(self, value: object) -> object:
        """Return seconds for a comparison, also from a timedelta; any value is allowed."""
        if isinstance(value, timedelta):
            value = value.total_seconds()
        return super().get_prep_value(value)

    def get_db_prep_save(self, value: object, connection: BaseDatabaseWrapper) -> object:
        """Return seconds to store, also from a timedelta or whole float; or raise `InvalidTTL`."""
        if value is None or hasattr(value, "as_sql"):
            return value
        checked = row_ttl(value, where=f"{self.model.__name__}.{self.name}")
        return super().get_db_prep_save(checked, connection)

    def to_python(self, value: object) -> int | None:
        """Return seconds for the input of a form or serializer."""
        try:
            if isinstance(value, str):
                value = int(value) if value.strip() else None
            return row_ttl(value, where=f"{self.model.__name__}.{self.name}")
        except (InvalidTTL, ValueError) as error:
            raise ValidationError(
                f"Give whole seconds from 1 to {MAX_TTL}, -1 for ever, or nothing for the default.",
                code="ttl",  # for "invalid", a form would show its own text
            ) from error

    def formfield(self, *args: Any, **kwargs: Any) -> Any:
        """Return the field for forms and the admin."""
        kwargs.setdefault("help_text", "Seconds; -1 for ever; nothing for the default.")
        return super().formfield(*args, **kwargs)

    @property
    def validators(self) -> list[Callable[[object], None]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """No validators: `to_python` is stricter than those of IntegerField."""
        return []


class DatabaseNow(Expression):
    """The database's present instant, as an aware datetime."""

    def __init__(self) -> None:
        """Read the value as that of an `InstantField`."""
        super().__init__(output_field=InstantField())

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:  # noqa: ARG002
        """Return the SQL."""
        return clock.now(connection, "instant", writing=True), ()


class Ahead(DatabaseNow):
    """An instant so many seconds after the database's now."""

    def __init__(self, seconds: float) -> None:
        """Take the seconds, which may be a fraction."""
        super().__init__()
        self.seconds = seconds

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:  # noqa: ARG002
        """Return the SQL."""
        now = clock.now(connection, "instant", writing=True)
        family = clock.family_of(connection)
        if family.per_second is None:
            return f"({now} + {self.seconds!r} * {family.second})", ()
        return f"({now} + {round(self.seconds * family.per_second)})", ()


class Cutoff(Expression):
    """The instant so many seconds before the start of the statement, in the form of a column.

    Not before the moment of the comparison: PostgreSQL uses no index for ``clock_timestamp()``.
    """

    def __init__(self, seconds: float | Expression, form: Form, output_field: AnyField) -> None:
        """Take the seconds, or an expression that looks them up once for all rows."""
        super().__init__(output_field=output_field)
        self.seconds = seconds
        self.form: Form = form

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:
        """Return the SQL."""
        if isinstance(self.seconds, Expression):
            looked_up = clock.within_dates(connection, self.form, compiler.compile(self.seconds)[0])
            return f"(SELECT {clock.ago(connection, self.form, looked_up)})", ()
        return clock.ago(connection, self.form, str(self.seconds)), ()
