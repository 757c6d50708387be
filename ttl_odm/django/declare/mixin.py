"""`TTLModel`: the two contract fields, and what one does with a row's lifetime."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.db import connections, models, router

from ttl_odm.core import expiry
from ttl_odm.core.values import NEVER, row_ttl
from ttl_odm.django.objects.querysets import AllObjectsManager, TTLManager
from ttl_odm.django.policy.binding import binding_of
from ttl_odm.django.time.clock import database_now
from ttl_odm.django.time.fields import LastModifiedField, TTLField
from ttl_odm.django.time.stamps import SecondsUntil, Stamp, StampAgo, StampUntil, Unknown
from ttl_odm.errors import InvalidTTL


class TTLModel(models.Model):
    """Gives a model a lifetime: ``class WebSession(TTLModel): __ttl__ = 3600``.

    ``__ttl__`` is the default ttl of the table: seconds after the last modification (``int``,
    ``timedelta``), -1 (rows live for ever unless they have a ttl of their own), or None (TTL is
    off, and rows' own ttls are not interpreted). It may be changed while the application runs;
    every inheriting row follows at once. The rules are those of Azure Cosmos DB's time to live.

    What becomes of expired rows: ``__ttl_purge__`` is ``"delete"`` or an object with ``write()``;
    ``__ttl_on_purged__`` names whom to tell; ``__ttl_sweep__`` is how they are found, by an
    ``"index"`` or a ``"scan"``.

    Every save renews the row. The helpers below change the instance; ``save()`` it afterwards.

    Attributes:
        last_modified: column ``_ts``; an aware UTC datetime that the database's clock sets on
            every write.
        ttl: the row's own ttl in seconds, -1 for never, None to inherit.
    """

    __ttl__: ClassVar[Any] = None
    __ttl_sweep__: ClassVar[str] = "index"
    __ttl_purge__: ClassVar[Any] = "delete"
    __ttl_on_purged__: ClassVar[Any] = None

    last_modified: Any = LastModifiedField(db_column="_ts")
    ttl: Any = TTLField(null=True, blank=True)

    objects = TTLManager()
    all_objects = AllObjectsManager()

    class Meta:
        """It has no table of its own."""

        abstract = True

    @property
    def expires_at(self) -> datetime | None:
        """The instant at which the row expires (aware, UTC); None for never."""
        binding: Any = binding_of(type(self))
        end: datetime | None = binding.expires_at(self)
        return end

    @property
    def is_expired(self) -> bool:
        """Whether the row has expired, by the database's clock: asks it, with one statement."""
        end = self.expires_at
        return end is not None and expiry.is_expired(end, self._database_now())

    @property
    def time_left(self) -> timedelta | None:
        """How long the row still lives; None for ever. Asks the database's clock."""
        end = self.expires_at
        return None if end is None else expiry.remaining(end, self._database_now())

    def touch(self) -> None:
        """Start the row's lifetime again, at once, without another change.

        Raises:
            ExpiredError: It has expired.
        """
        self.save(update_fields=["last_modified"])

    def persist(self) -> None:
        """Let the row live for ever (ttl -1), whatever the default."""
        self.ttl = NEVER

    def inherit_ttl(self) -> None:
        """Give up the row's own ttl: the default applies again."""
        self.ttl = None

    def expire_in(self, life: float | timedelta) -> None:
        """Let the row live for so long from the next save on.

        Args:
            life: Whole seconds. Zero or less lets the row expire with the save.

        Raises:
            InvalidTTL: The number isn't whole, or over 2147483647.
        """
        seconds = life.total_seconds() if isinstance(life, timedelta) else life
        if not isinstance(seconds, bool) and seconds <= 0:
            self.ttl = 1
            self.last_modified = StampAgo(1)
            return
        self.ttl = row_ttl(life, where=f"{type(self).__name__}.ttl")
        self.last_modified = Stamp()

    def expire_at(self, instant: datetime) -> None:
        """Let the row expire at exactly this instant.

        The next save stores the whole seconds that are left, rounded up, and a ``_ts`` so much
        before the instant. A later save starts that ttl again, as any write does.

        Args:
            instant: An aware datetime; one in the past lets the row expire with the save.

        Raises:
            InvalidTTL: The datetime is naive.
        """
        if instant.tzinfo is None:
            raise InvalidTTL(
                f"{type(self).__name__}.expire_at({instant!r}): a naive datetime names no "
                "instant; add tzinfo=datetime.timezone.utc if it is UTC."
            )
        self.ttl = SecondsUntil(instant)
        self.last_modified = StampUntil(instant)

    def save_base(self, *args: Any, **kwargs: Any) -> None:
        """Save; what the database's clock has made of the row is read when it is asked for."""
        before = self.__dict__.get("last_modified")
        fields = kwargs.get("update_fields")
        if fields is not None and isinstance(before, Stamp):
            kwargs["update_fields"] = frozenset({*fields, "last_modified"})
        super().save_base(*args, **kwargs)
        if self.__dict__.get("last_modified") is before:
            self.__dict__["last_modified"] = Unknown()
        if isinstance(self.__dict__.get("ttl"), Stamp):
            self.__dict__["ttl"] = Unknown()

    save_base.alters_data = True  # type: ignore[attr-defined]

    def _database_now(self) -> datetime:
        using = self._state.db or router.db_for_read(type(self), instance=self)
        return database_now(connections[using])
