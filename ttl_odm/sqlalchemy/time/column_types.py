"""The column types of the two contract columns.

`LastModified` keeps ``_ts`` as each database tells time best and shows it as an aware UTC
datetime; `Seconds` keeps ``ttl`` and refuses what the contract refuses, in every statement
that writes it: flush, bulk and Core alike.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import DateTime, Integer, TypeDecorator
from sqlalchemy.exc import DontWrapMixin

from ttl_odm.core.values import row_ttl
from ttl_odm.errors import InvalidTTL, TTLConfigurationError
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.operators import OperatorType
    from sqlalchemy.types import TypeEngine


class UnwrappedInvalidTTL(InvalidTTL, DontWrapMixin):
    """`InvalidTTL` that SQLAlchemy does not dress up as a StatementError."""


class UnwrappedConfigurationError(TTLConfigurationError, DontWrapMixin):
    """`TTLConfigurationError` that SQLAlchemy does not dress up as a StatementError."""


class LastModified(TypeDecorator[datetime]):
    """An instant; always an aware UTC ``datetime`` in Python.

    ``timestamptz`` on PostgreSQL, epoch microseconds on MariaDB and MySQL, epoch milliseconds
    on SQLite.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The storage type of the dialect's clock."""
        return dialect.type_descriptor(clock_of(dialect).storage)

    def bind_processor(self, dialect: Dialect) -> Any:
        """Store an aware datetime; a naive one is refused, for it names no instant."""
        to_storage = clock_of(dialect).to_storage

        def process(value: Any) -> Any:
            if value is None:
                return None
            if not isinstance(value, datetime) or value.tzinfo is None:
                raise UnwrappedConfigurationError(
                    f"last_modified takes an aware datetime, not {value!r}; "
                    "add tzinfo=datetime.timezone.utc if it is UTC."
                )
            return to_storage(value)

        return process

    def result_processor(
        self,
        dialect: Dialect,
        coltype: object,  # noqa: ARG002 - SQLAlchemy's signature
    ) -> Any:
        """Read an aware datetime in UTC, without `TypeDecorator`'s detours: it is done per row."""
        from_storage = clock_of(dialect).from_storage

        def process(value: Any) -> datetime | None:
            return None if value is None else from_storage(value)

        return process


class Seconds(TypeDecorator[int]):
    """A row's own ttl under the strict rule; takes ``timedelta`` too."""

    impl = Integer
    cache_ok = True

    def __init__(self, where: str = "ttl") -> None:
        """Remember the name of the attribute, for error messages."""
        super().__init__()
        self.where = where

    def process_bind_param(
        self,
        value: float | timedelta | None,
        dialect: Dialect,  # noqa: ARG002 - SQLAlchemy's signature
    ) -> int | None:
        """Whole seconds, -1 or None.

        Raises:
            InvalidTTL: anything else; nothing is sent to the database.
        """
        try:
            return row_ttl(value, where=self.where)
        except InvalidTTL as error:
            raise UnwrappedInvalidTTL(str(error)) from None

    def coerce_compared_value(
        self,
        op: OperatorType | None,
        value: object,
    ) -> TypeEngine[Any]:
        """Compare with any integer: ``where(Model.ttl > 0)`` asks, it stores nothing."""
        return Integer().coerce_compared_value(op, value)
