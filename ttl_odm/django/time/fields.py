"""The two fields of the contract: `LastModifiedField` (column ``_ts``) and `TTLField`.

The columns are those of `ttl_odm.sqlalchemy`, so that both can use one table.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models

from ttl_odm.core.values import MAX_TTL, row_ttl
from ttl_odm.dialects import ttl_check
from ttl_odm.django.time import clock
from ttl_odm.django.time.stamps import Stamp, Unknown
from ttl_odm.errors import InvalidTTL


class _Attribute(models.query_utils.DeferredAttribute):
    """An attribute whose value after a write is only known to the database: asked for when read."""

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        if instance is None:
            return self
        name = self.field.attname
        if isinstance(instance.__dict__.get(name), Unknown):
            instance.refresh_from_db(fields=[name])
        return super().__get__(instance, cls)

    def __set__(self, instance: Any, value: Any) -> None:
        # With a __set__, Python asks __get__ although the instance has a value.
        instance.__dict__[self.field.attname] = value


class InstantField(models.Field):
    """An instant of the database's clock: an aware datetime in UTC, also with USE_TZ = False.

    ``timestamptz`` on PostgreSQL, integer microseconds on MariaDB and MySQL, where TIMESTAMP ends
    in 2038 and hangs on the session's time zone, and integer milliseconds on SQLite.
    """

    __module__ = "ttl_odm.django"  # what migrations name, and may rely on

    holds_instants = True
    description = "An instant"

    def get_internal_type(self) -> str:
        """None of Django's own types."""
        return "InstantField"

    def db_type(self, connection: Any) -> str:
        """The column's type."""
        return clock.family_of(connection).instant_type

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:  # noqa: ARG002
        """An aware datetime in UTC."""
        return clock.from_storage(connection, value)

    def to_python(self, value: Any) -> Any:
        """What a serializer or a form gives."""
        if value is None or isinstance(value, datetime) or hasattr(value, "resolve_expression"):
            return value
        try:
            parsed = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
        except ValueError as error:
            raise ValidationError(f"{value!r} is no instant.", code="invalid") from error
        return parsed

    def get_prep_value(self, value: Any) -> Any:
        """An aware datetime."""
        value = self.to_python(super().get_prep_value(value))
        if isinstance(value, datetime) and value.tzinfo is None:
            raise ValueError(
                f"{self.name} = {value!r}: a naive datetime names no instant; add tzinfo."
            )
        return value

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:  # noqa: FBT001, FBT002
        """What the driver stores."""
        value = super().get_db_prep_value(value, connection, prepared)
        return clock.to_storage(connection, value) if isinstance(value, datetime) else value

    def value_to_string(self, obj: Any) -> str:
        """For serializers."""
        value = self.value_from_object(obj)
        return value.isoformat() if isinstance(value, datetime) else ""

    def formfield(self, **kwargs: Any) -> Any:
        """For forms and the admin."""
        from django import forms  # noqa: PLC0415 (only forms need it)

        return super().formfield(**{"form_class": forms.DateTimeField, **kwargs})


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

    def deconstruct(self) -> Any:
        """What a migration says of it: not what is always so."""
        name, path, args, kwargs = super().deconstruct()
        for always in ("db_default", "editable"):
            kwargs.pop(always, None)
        return name, path, args, kwargs

    def pre_save(self, model_instance: Any, add: bool) -> Any:  # noqa: ARG002, FBT001
        """What is there, without asking the database for it."""
        return model_instance.__dict__.get(self.attname)


class TTLField(models.IntegerField):
    """A row's own ttl: whole seconds, -1 (never) or None (inherit the default).

    Anything else raises `InvalidTTL` where it is assigned to a statement, and a CHECK keeps it out
    of the column whoever writes.
    """

    __module__ = "ttl_odm.django"

    description = "Seconds to live, -1 for ever"
    descriptor_class = _Attribute

    def db_check(self, connection: Any) -> str:
        """The CHECK, inline with the column: as a table constraint MariaDB would copy the table."""
        column = connection.ops.quote_name(self.column)
        return ttl_check(column)

    def get_prep_value(self, value: Any) -> Any:
        """Seconds, also of a timedelta; anything may be compared with."""
        if isinstance(value, timedelta):
            value = value.total_seconds()
        return super().get_prep_value(value)

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:
        """Seconds; also of a timedelta or an integral float.

        Raises:
            InvalidTTL: It is no ttl.
        """
        if hasattr(value, "as_sql"):
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

    def formfield(self, **kwargs: Any) -> Any:
        """For forms and the admin."""
        text = "Seconds; -1 for ever; nothing for the default."
        return super().formfield(**{"help_text": text, **kwargs})

    @property
    def validators(self) -> list[Any]:
        """None of IntegerField's: `to_python` is stricter."""
        return []
