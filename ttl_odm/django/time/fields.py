"""The contract's two fields, and the expressions of the database's clock that may stand in them.

`LastModifiedField` is the column ``_ts``, `TTLField` the row's own ttl.

The columns are those of `ttl_odm.sqlalchemy`, so that both can use one table. The gate puts a
`Stamp` into every INSERT and UPDATE of a table whose policy is a `TTL`; a datetime that somebody
assigned is replaced, since it is the host's. `DatabaseNow` and its like are for queries of our own.
"""

from __future__ import annotations

import functools
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.expressions import Combinable, Expression
from django.db.models.query_utils import DeferredAttribute

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

    from ttl_odm.django.time.clock import Form

    # What may be assigned, and what is read. At run time Django's fields aren't generic.
    _Instant: TypeAlias = models.Field[datetime | Combinable | None, datetime]
    _Seconds: TypeAlias = models.IntegerField[float | timedelta | Combinable | None, int | None]

    AnyField: TypeAlias = models.Field[Any, Any]
    SQL: TypeAlias = tuple[str, tuple[()]]
    """A text to which no values are bound."""
else:
    _Instant, _Seconds = models.Field, models.IntegerField


_EARLIER = PostgreSQL()
"""Has the CHECK that SQLite had in earlier releases."""


class Stamp(Expression):
    """The database's instant, at the moment of the write."""

    allowed_default = True
    conditional = False  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def __init__(self, form: Form = "instant") -> None:
        """Say in which form; see `ttl_odm.django.time.clock`."""
        super().__init__()
        self.form: Form = form

    @staticmethod
    @functools.cache
    def of(form: Form) -> Stamp:
        """The one of a form, made once: each write has it."""
        return Stamp(form)

    def resolve_expression(self, *_args: Any, **_kwargs: Any) -> Self:
        """Itself: there is nothing of a query in it."""
        return self

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:  # noqa: ARG002
        """Render it."""
        return clock.now(connection, self.form, writing=True), ()


class Unknown(Stamp):
    """Stands for what the database has stored and nobody has read since."""

    allowed_default = False


UNREAD: Final = Unknown()
"""What an instance has in a field that it was loaded without: Django keeps no value there."""


class StampAgo(Stamp):
    """An instant so many seconds before the database's now."""

    allowed_default = False

    def __init__(self, seconds: int, form: Form = "instant") -> None:
        """Say how many (of negative ones, after it), and in which form."""
        super().__init__(form)
        self.seconds = seconds

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:  # noqa: ARG002
        """Render it."""
        return clock.ago(connection, self.form, str(self.seconds), writing=True), ()


class StampUntil(Stamp):
    """An instant from which a row's own ttl leads exactly to another instant.

    ``_ts`` is the end less the seconds that are left, rounded up; `SecondsUntil` is that ttl. Both
    read the database's clock at the same statement.
    """

    allowed_default = False

    def __init__(self, end: datetime) -> None:
        """Say when; an aware datetime in UTC."""
        super().__init__()
        self.end = end

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:  # noqa: ARG002
        """Render it."""
        end, seconds = self._end_and_seconds(connection)
        return f"({end} - {seconds} * {clock.family_of(connection).second})", ()

    def _end_and_seconds(self, connection: BaseDatabaseWrapper) -> tuple[str, str]:
        family = clock.family_of(connection)
        instant = family.instant_literal(self.end)
        # Not clock_timestamp(): two columns have to agree on it.
        return instant, family.seconds_until(instant, clock.now(connection, "instant"))


class SecondsUntil(StampUntil):
    """The whole seconds from the database's now to an instant, rounded up, from 1 to `MAX_TTL`."""

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:  # noqa: ARG002
        """Render it."""
        return self._end_and_seconds(connection)[1], ()


class Kept(Stamp):
    """The value that is there: the one way to write a row without resetting it."""

    allowed_default = False

    def __init__(self, column: str) -> None:
        """Name the column."""
        super().__init__()
        self.column = column

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:  # noqa: ARG002
        """Render it."""
        return connection.ops.quote_name(self.column), ()


class _Attribute(DeferredAttribute):
    """An attribute whose value after a write is only known to the database: asked for when read."""

    def __get__(self, instance: models.Model | None, cls: type[models.Model] | None = None) -> Any:
        if instance is None:
            return self
        name = self.field.attname
        if isinstance(instance.__dict__.get(name), Unknown):
            instance.refresh_from_db(fields=[name])
        return super().__get__(instance, cls)

    def __set__(self, instance: models.Model, value: object) -> None:
        # With a __set__, Python asks __get__ although the instance has a value.
        attributes: Any = instance.__dict__
        attributes[self.field.attname] = value


class InstantField(_Instant):
    """An instant of the database's clock: an aware datetime in UTC, also with USE_TZ = False.

    ``timestamptz`` on PostgreSQL, integer microseconds on MariaDB and MySQL, where TIMESTAMP ends
    in 2038 and depends on the session's time zone, and integer milliseconds on SQLite.
    """

    __module__ = "ttl_odm.django"  # what migrations name, and may rely on

    description = "An instant"

    def get_internal_type(self) -> str:
        """None of Django's own types."""
        return "InstantField"

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        """The column's type."""
        return clock.family_of(connection).instant_type

    def get_db_converters(self, connection: BaseDatabaseWrapper) -> list[Callable[..., Any]]:
        """What makes that of what the driver has read: `from_db_value`, or what takes less time."""
        if type(self).from_db_value is not InstantField.from_db_value:  # a subclass's own
            own: list[Callable[..., Any]] = super().get_db_converters(connection)  # type: ignore[misc] # django-stubs has none
            return own
        return clock.converters(connection)

    def from_db_value(
        self,
        value: datetime | int | None,
        expression: Expression,  # noqa: ARG002 (Django's signature)
        connection: BaseDatabaseWrapper,
    ) -> datetime | None:
        """An aware datetime in UTC."""
        return clock.from_storage(connection, value)

    def to_python(self, value: object) -> Any:
        """What a serializer or a form gives."""
        if value is None or isinstance(value, datetime) or hasattr(value, "resolve_expression"):
            return value
        try:
            return datetime.fromisoformat(str(value).replace("Z", "+00:00"))
        except ValueError as error:
            raise ValidationError(f"{value!r} is not an instant.", code="invalid") from error

    def get_prep_value(self, value: object) -> Any:
        """An aware datetime."""
        value = self.to_python(super().get_prep_value(value))
        if isinstance(value, datetime) and value.tzinfo is None:
            raise ValueError(f"{self.name} = {value!r}: a naive datetime is ambiguous; add tzinfo.")
        return value

    def get_db_prep_value(
        self,
        value: object,
        connection: BaseDatabaseWrapper,
        prepared: bool = False,  # noqa: FBT001, FBT002 (Django's signature)
    ) -> Any:
        """What the driver stores."""
        value = super().get_db_prep_value(value, connection, prepared)
        return clock.to_storage(connection, value) if isinstance(value, datetime) else value

    def value_to_string(self, obj: models.Model) -> str:
        """For serializers."""
        value: object = self.value_from_object(obj)
        return value.isoformat() if isinstance(value, datetime) else ""

    def formfield(self, *args: Any, **kwargs: Any) -> Any:
        """For forms and the admin."""
        from django import forms  # noqa: PLC0415 (only forms need it)

        kwargs.setdefault("form_class", forms.DateTimeField)
        return super().formfield(*args, **kwargs)


def _has_none(cls: type[models.Model], name: str) -> bool:
    """Whether a model has none of the two fields, since its ``__ttl__`` is an extension."""
    if cls._meta.abstract or not isinstance(getattr(cls, "__ttl__", None), Extension):
        return False
    setattr(cls, name, None)
    return True


class LastModifiedField(InstantField):
    """When the row was last written, by the database's clock; the gate sets it on every write.

    The column has the clock as its default too, for programs that write past the gate.
    """

    __module__ = "ttl_odm.django"

    description = "When the row was last written"
    descriptor_class = _Attribute

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take Django's options; the value is nobody's to edit."""
        kwargs.setdefault("db_default", Stamp())
        kwargs.setdefault("editable", False)
        super().__init__(*args, **kwargs)

    def contribute_to_class(
        self,
        cls: type[models.Model],
        name: str,
        private_only: bool = False,  # noqa: FBT001, FBT002 (Django's signature)
    ) -> None:
        """Stay out of a model whose ``__ttl__`` is an extension."""
        if not _has_none(cls, name):
            super().contribute_to_class(cls, name, private_only)

    def deconstruct(self) -> Any:
        """What a migration says of it: not what is always so."""
        name, path, args, kwargs = super().deconstruct()
        for option in ("db_default", "editable"):
            kwargs.pop(option, None)
        return name, path, args, kwargs

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:  # noqa: ARG002, FBT001
        """What is there, without asking the database for it."""
        return model_instance.__dict__.get(self.attname)


class TTLField(_Seconds):
    """A row's own ttl: whole seconds, -1 (never) or None (inherit the default).

    Anything else raises `InvalidTTL` where it is assigned to a statement, and a CHECK keeps it out
    of the column whoever writes.
    """

    __module__ = "ttl_odm.django"

    description = "Seconds to live, -1 for ever"
    descriptor_class = _Attribute

    def __init__(self, *args: Any, checks_type: bool = False, **kwargs: Any) -> None:
        """Take Django's options.

        What a migration says of ``checks_type`` is whether SQLite's CHECK is for whole numbers
        only; without it, it is that of earlier releases. Models needn't say it, and so have
        ``makemigrations`` replace that.
        """
        super().__init__(*args, **kwargs)
        self.checks_type = checks_type

    def contribute_to_class(
        self,
        cls: type[models.Model],
        name: str,
        private_only: bool = False,  # noqa: FBT001, FBT002 (Django's signature)
    ) -> None:
        """An application's own model has the CHECK of this release; a migration's has its own."""
        if _has_none(cls, name):
            return
        super().contribute_to_class(cls, name, private_only)
        if cls._meta.apps is apps:
            self.checks_type = True

    def deconstruct(self) -> Any:
        """What a migration says of it."""
        name, path, args, kwargs = super().deconstruct()
        if self.checks_type:
            kwargs["checks_type"] = True
        return name, path, args, kwargs

    def db_check(self, connection: BaseDatabaseWrapper) -> str | None:
        """The CHECK, inline with the column: as a table constraint MariaDB would copy the table."""
        return None if self._check_name(connection) else self._condition(connection)

    def db_type_suffix(self, connection: BaseDatabaseWrapper) -> str | None:
        """The CHECK where it needs a name, which Django gives to none of a column's."""
        name = self._check_name(connection)
        if name:
            return f"{name}CHECK ({self._condition(connection)})"
        return None  # as Django has none for a whole number

    def _condition(self, connection: BaseDatabaseWrapper) -> str:
        family = clock.family_of(connection) if self.checks_type else _EARLIER
        return family.ttl_check(connection.ops.quote_name(str(self.column)))

    def _check_name(self, connection: BaseDatabaseWrapper) -> str:
        """See `MySQL.check_name`; empty on other databases."""
        family = clock.family_of(connection)
        model = getattr(self, "model", None)
        if model is None or not isinstance(family, MySQL):
            return ""
        table = model._meta.db_table
        quoted = connection.ops.quote_name(index_name(table, "ttl").replace("ix_", "ck_", 1))
        is_mariadb = bool(getattr(connection, "mysql_is_mariadb", False))
        return family.check_name(table, quoted, is_mariadb=is_mariadb)

    def get_prep_value(self, value: object) -> Any:
        """Seconds, also of a timedelta; anything may be compared with."""
        if isinstance(value, timedelta):
            value = value.total_seconds()
        return super().get_prep_value(value)

    def get_db_prep_save(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        """Seconds, also of a timedelta or integral float. What is not a ttl raises `InvalidTTL`."""
        if value is None or hasattr(value, "as_sql"):
            return value
        checked = row_ttl(value, where=f"{self.model.__name__}.{self.name}")
        return super().get_db_prep_save(checked, connection)

    def to_python(self, value: Any) -> Any:
        """Seconds, of what a form or a serializer gives."""
        try:
            if isinstance(value, str):
                value = int(value) if value.strip() else None
            return row_ttl(value, where=f"{self.model.__name__}.{self.name}")
        except (InvalidTTL, ValueError) as error:
            raise ValidationError(
                f"Give whole seconds from 1 to {MAX_TTL}, -1 for ever, or nothing for the default.",
                code="ttl",  # a form would say something of its own for "invalid"
            ) from error

    def formfield(self, *args: Any, **kwargs: Any) -> Any:
        """For forms and the admin."""
        kwargs.setdefault("help_text", "Seconds; -1 for ever; nothing for the default.")
        return super().formfield(*args, **kwargs)

    @property
    def validators(self) -> list[Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """None of IntegerField's: `to_python` is stricter."""
        return []


class DatabaseNow(Expression):
    """The database's present instant, as an aware datetime."""

    def __init__(self) -> None:
        """Read it as `InstantField` is read."""
        super().__init__(output_field=InstantField())

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:  # noqa: ARG002
        """Render it."""
        return clock.now(connection, "instant", writing=True), ()


class Ahead(DatabaseNow):
    """An instant so many seconds after the database's now."""

    def __init__(self, seconds: float) -> None:
        """Say how many; fractions count."""
        super().__init__()
        self.seconds = seconds

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:  # noqa: ARG002
        """Render it."""
        now = clock.now(connection, "instant", writing=True)
        family = clock.family_of(connection)
        if family.per_second is None:
            return f"({now} + {self.seconds!r} * {family.second})", ()
        return f"({now} + {round(self.seconds * family.per_second)})", ()


class Cutoff(Expression):
    """The instant so many seconds before the database's now, in the form of a column.

    By the start of the statement: PostgreSQL searches no index for ``clock_timestamp()``.
    """

    def __init__(self, seconds: float | Expression, form: Form, output_field: AnyField) -> None:
        """Say how many, or what looks that up once for all rows."""
        super().__init__(output_field=output_field)
        self.seconds = seconds
        self.form: Form = form

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:
        """Render it."""
        if isinstance(self.seconds, Expression):
            looked_up = clock.within_dates(connection, self.form, compiler.compile(self.seconds)[0])
            return f"(SELECT {clock.ago(connection, self.form, looked_up)})", ()
        return clock.ago(connection, self.form, str(self.seconds)), ()
