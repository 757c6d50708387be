"""`TTLMixin`: what a Beanie document gets, and what one does with its lifetime."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta, timezone
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Optional

from pydantic import (
    BaseModel,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core.core_schema import CoreSchema, no_info_plain_validator_function

from ttl_odm.beanie.declare import checks
from ttl_odm.beanie.gate.database import gated
from ttl_odm.beanie.objects import lifetime
from ttl_odm.beanie.objects.cache import TTLFindMany, TTLFindOne
from ttl_odm.beanie.policy.binding import registry_of
from ttl_odm.beanie.purge.modes import mode_of
from ttl_odm.beanie.time import durations
from ttl_odm.core import expiry
from ttl_odm.core.policy import Policy  # noqa: TC001 - pydantic reads the annotations
from ttl_odm.core.values import NEVER, row_ttl
from ttl_odm.errors import InvalidTTL

if TYPE_CHECKING:
    from beanie import Document as _Base

    from ttl_odm.core.lifetime import OnlyIf
else:
    # Not a Document: Beanie wants one parent of each class to be one, and that is the user's.
    _Base = BaseModel


_AWARE, _NAIVE = datetime(1970, 1, 1, tzinfo=timezone.utc), datetime(1970, 1, 1)  # noqa: DTZ001
_any_instant = TypeAdapter(datetime)


def _as_date(value: Any) -> datetime | None:
    """Read a stored ``_ts``: what is no date is none, as it is for the predicate.

    Instants as JSON has them are read as well, for documents that are sent about as JSON.
    """
    if isinstance(value, str) and "T" in value:
        with suppress(ValidationError):
            value = _any_instant.validate_python(value)
    if not isinstance(value, datetime):
        return None
    # Runs for each document that is read: replace(tzinfo=...) takes four times as long.
    return _AWARE + (value - _NAIVE) if value.tzinfo is None else value


class _AsDate:
    """Has pydantic call `_as_date`, and nothing around it, which would cost as much again."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: Any) -> CoreSchema:
        return no_info_plain_validator_function(_as_date)


# Inside Optional, so that lazy parsing, which knows a field's type only, has it too.
_LastModified = Annotated[
    datetime, _AsDate, WithJsonSchema({"type": "string", "format": "date-time"})
]
_Lenient = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "null"}]})]


class TTLMixin(_Base):
    """Gives documents a lifetime: ``class Event(TTLMixin, Document): __ttl__ = 3600``.

    ``__ttl__`` (or ``Settings.ttl``) is the collection's default ttl: seconds after the last
    modification, -1 (documents live for ever unless they have a ttl of their own), None (TTL is
    off), or a policy. It may be changed while the application runs. ``__ttl_purge__`` (or
    ``Settings.ttl_purge``) says who deletes what has expired: "native" or "sweeper".

    Attributes:
        last_modified: field ``_ts``; an aware UTC datetime that the server's clock sets on every
            write, None before the first.
        ttl: the document's own ttl in seconds, -1 for never, None to inherit.
    """

    __ttl__: ClassVar[int | float | timedelta | Policy | None]
    __ttl_purge__: ClassVar[str]

    last_modified: Optional[_LastModified] = Field(default=None, alias="_ts")  # noqa: UP045
    ttl: _Lenient = None

    _find_one_query_class: ClassVar[type] = TTLFindOne
    _find_many_query_class: ClassVar[type] = TTLFindMany

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        checks.check(cls)
        checks.drop_unused_fields(cls, TTLMixin)

    @classmethod
    def set_database(cls, database: Any) -> None:
        """Take the database that Beanie gives, in which it makes the collection next."""
        checks.check_collection(cls)
        super().set_database(database)  # type: ignore[no-untyped-call]

    @classmethod
    def set_collection(cls, collection: Any) -> None:
        """Take the collection that Beanie gives, gated, and put the policy on it."""
        ours = gated(collection)
        database = ours.database
        registry = registry_of(database.client)
        binding = registry.bind(cls, database.name, ours.name, database.ttl_backend)
        mode_of(binding, ours.name)  # a slip is found now, not by the first write that meets it
        durations.mark(cls)
        super().set_collection(ours)  # type: ignore[no-untyped-call]

    # What its lifetime is

    @property
    def expires_at(self) -> datetime | None:
        """The instant at which the document expires (aware, UTC); None for never."""
        return lifetime.end_of(self)

    @property
    def is_expired(self) -> bool:
        """Whether the document has expired, by the server's clock.

        The clock is known from above: shortly before the instant of expiry (one round trip at
        most) the answer may already be True. The server decides on every read and write.
        """
        end = self.expires_at
        return end is not None and expiry.is_expired(end, lifetime.latest_now(self))

    @property
    def time_left(self) -> timedelta | None:
        """How long the document still lives; None for ever, never negative."""
        end = self.expires_at
        return None if end is None else expiry.remaining(end, lifetime.latest_now(self))

    async def touch(
        self,
        *,
        at_most_every: float | timedelta | None = None,
        only_if: OnlyIf | None = None,
        session: Any = None,
    ) -> bool:
        """Start the document's lifetime again, without another change; see `ttl_odm.beanie.touch`.

        Args:
            at_most_every: Seconds, or a timedelta: nothing is written if its last modification is
                younger than that.
            only_if: Nothing is written unless the instant at which it expires would be "longer" or
                "shorter" away, it "has_ttl" (expires at all), or has none ("no_ttl").
            session: That of a transaction.

        Returns:
            Whether it was written.

        Raises:
            ExpiredError: It has expired.
            TTLConfigurationError: An argument is none of these.
        """
        return await lifetime.touch(
            self, at_most_every=at_most_every, only_if=only_if, session=session
        )

    async def persist(self, *, session: Any = None) -> None:
        """Let the document live for ever (ttl -1), whatever the default.

        Raises:
            ExpiredError: It has expired.
        """
        await self._set_ttl(NEVER, session)

    async def inherit_ttl(self, *, session: Any = None) -> None:
        """Give up the document's own ttl: the default applies again.

        Raises:
            ExpiredError: It has expired.
        """
        await lifetime.change_lifetime(
            self, {"$unset": {lifetime.ttl_field(self): ""}}, session=session
        )

    async def expire_in(self, life: float | timedelta, *, session: Any = None) -> None:
        """Let the document live for so long from now on.

        Args:
            life: Whole seconds. Zero or less lets it expire now.
            session: That of a transaction.

        Raises:
            InvalidTTL: The number isn't whole, or over 2147483647.
            ExpiredError: It has expired.
        """
        seconds = life.total_seconds() if isinstance(life, timedelta) else life
        if not isinstance(seconds, bool) and seconds <= 0:
            await lifetime.expire_now(self, session=session)
            return
        await self._set_ttl(row_ttl(life, where=f"{type(self).__name__}.ttl"), session)

    async def expire_at(self, instant: datetime, *, session: Any = None) -> None:
        """Let the document expire at exactly this instant, to the millisecond.

        What is stored is the whole seconds that are left, rounded up, and a ``_ts`` so much before
        the instant. A later write starts that ttl again, as any write does.

        Args:
            instant: An aware datetime; one in the past lets the document expire now.
            session: That of a transaction.

        Raises:
            InvalidTTL: The datetime is naive, or over 68 years from now.
            ExpiredError: It has expired.
        """
        name = type(self).__name__
        if instant.tzinfo is None:
            message = (
                f"{name}.expire_at({instant!r}): a naive datetime names no instant; add "
                "tzinfo=datetime.timezone.utc if it is UTC."
            )
            raise InvalidTTL(message)
        left = (instant - await lifetime.now(self)).total_seconds()
        seconds = row_ttl(max(1, ceil(left)), where=f"{name}.ttl")
        await lifetime.expire_at(self, instant, seconds, session=session)

    async def _set_ttl(self, seconds: int | None, session: Any) -> None:
        await lifetime.change_lifetime(
            self, {"$set": {lifetime.ttl_field(self): seconds}}, session=session
        )

    # Beanie's writes of one document

    async def insert(self, *args: Any, **kwargs: Any) -> Any:
        """Insert the document; see Beanie's own."""
        return await lifetime.insert(self, super().insert, args, kwargs)

    async def update(self, *args: Any, **kwargs: Any) -> Any:
        """Update the document; see Beanie's own.

        Raises:
            ExpiredError: It has expired.
        """
        return await lifetime.write(self, super().update, args, kwargs)

    async def replace(self, *args: Any, **kwargs: Any) -> Any:
        """Replace the stored document by this one; see Beanie's own.

        Raises:
            ExpiredError: It has expired.
        """
        return await lifetime.replace(self, super().replace, args, kwargs)

    async def delete(self, *args: Any, **kwargs: Any) -> Any:
        """Delete the document; see Beanie's own.

        Raises:
            ExpiredError: It has expired.
        """
        return await lifetime.write(self, super().delete, args, kwargs)

    async def sync(self, *args: Any, **kwargs: Any) -> Any:
        """Read the document again; see Beanie's own.

        Raises:
            ExpiredError: It has expired.
        """
        return await lifetime.write(self, super().sync, args, kwargs)
