"""`TTLModel`: the two contract fields, and methods for a row's lifetime."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from django.db import connections, models, router

from ttl_odm.core import expiry, lifetime
from ttl_odm.core.extension import DefaultExtension, Extension
from ttl_odm.core.values import NEVER
from ttl_odm.django.objects import (
    AllObjectsManager,
    TTLManager,
    check_extended,
    own_binding,
    touch,
)
from ttl_odm.django.policy.bindings import TablePolicy, policy_of
from ttl_odm.django.purge.errors import error_of
from ttl_odm.django.time.clock import database_now
from ttl_odm.django.time.fields import (
    UNREAD,
    LastModifiedField,
    SecondsUntil,
    Stamp,
    StampAgo,
    StampUntil,
    TTLField,
)
from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from ttl_odm.core.lifetime import OnlyIf
    from ttl_odm.core.policy import Policy


class TTLModel(models.Model):
    """Gives a model a lifetime: ``class WebSession(TTLModel): __ttl__ = 3600``.

    ``__ttl__`` is the default ttl of the table: seconds after the last modification (``int``,
    ``timedelta``), -1 (rows live forever unless they have their own ttl), None (TTL is off, and
    rows' own ttls are ignored), or a `Stored`, which operators change. You can change it while the
    application runs; the change applies at once to every row that inherits it. The rules are those
    of Azure Cosmos DB's time to live.

    Further attributes control what happens to expired rows. ``__ttl_archive__`` is where they are
    kept: an `Archive` or an object with ``write()``. ``__ttl_on_purged__`` is the hook to call.
    ``__ttl_sweep__`` is how sweeps find them: by an ``"index"`` or a ``"scan"``.

    If ``__ttl__`` names a parent, the model has neither of the two fields: a row lives as long as
    its parent.

    Every save renews the row. `touch` writes at once; the other helpers change the instance, and
    ``save()`` stores it.

    Attributes:
        last_modified: Column ``_ts``; an aware UTC datetime that the database's clock sets on
            every write.
        ttl: The row's own ttl in seconds, -1 for never, None to inherit.
    """

    __ttl__: ClassVar[int | float | timedelta | Policy | DefaultExtension | Extension | None] = None
    __ttl_sweep__: ClassVar[str] = "index"
    __ttl_purge__: ClassVar[str] = "delete"
    __ttl_archive__: ClassVar[Any] = None
    __ttl_on_purged__: ClassVar[Any] = None

    last_modified: LastModifiedField = LastModifiedField(db_column="_ts")
    ttl: TTLField = TTLField(null=True, blank=True)

    objects: ClassVar[TTLManager[Any]] = TTLManager()  # pyright: ignore[reportIncompatibleVariableOverride]
    all_objects: ClassVar[AllObjectsManager[Any]] = AllObjectsManager()

    class Meta:
        """No table: subclasses have theirs."""

        abstract = True

    @property
    def expires_at(self) -> datetime | None:
        """The instant at which the row expires (aware, UTC); None for never."""
        policy = self._policy
        if self._state.adding:
            error = policy.rejected("unread", type(self).__name__)
            if error is not None:
                raise error
        return policy.expires_at(self)

    @property
    def is_expired(self) -> bool:
        """Whether the row has expired. Queries the database's clock."""
        expired = self._policy.expired_without_end(self)
        if expired is not None:
            return expired
        end = self.expires_at
        return end is not None and expiry.is_expired(end, self._database_now())

    @property
    def time_left(self) -> timedelta | None:
        """How long the row still lives; None means forever. Queries the database's clock."""
        end = self.expires_at
        return None if end is None else expiry.remaining(end, self._database_now())

    def touch(
        self, *, at_most_every: float | timedelta | None = None, only_if: OnlyIf | None = None
    ) -> bool:
        """Restart the row's lifetime at once, without changing anything else.

        Without a condition this is a ``save()``, with its signals. With one, it is a single UPDATE
        whose WHERE clause checks the condition; it sends no signals.

        Args:
            at_most_every: Seconds, or a timedelta; a row written more recently is left alone.
            only_if: With "longer" or "has_ttl", rows that never expire are left alone; with
                "no_ttl", all others. With "shorter", every row is left alone, since a touch never
                shortens a life.

        Returns:
            Whether the lifetime was restarted.

        Raises:
            ExpiredError: The row has expired.
            TTLConfigurationError: An argument is invalid.
            TTLError: No write extends a life under this policy.
        """
        binding = own_binding(type(self), "touch()")
        check_extended(binding, type(self))
        if (at_most_every is None and only_if is None) or self._state.adding:
            self.save(update_fields=["last_modified"])
            return True
        using = router.db_for_write(type(self), instance=self)
        rows = binding.model._base_manager.using(using).filter(pk=self.pk)
        if touch(rows, at_most_every=at_most_every, only_if=only_if):
            setattr(self, binding.stamp.attname, UNREAD)
            self._state.db = using  # which has the new value; a replica may not have it yet
            return True
        if not rows.exists():
            raise error_of(type(self))(model=self._meta.label, key=self.pk)
        return False

    def persist(self) -> None:
        """Let the row live forever (ttl -1), regardless of the default.

        Raises:
            TTLError: Under this policy a row has no lifetime of its own. So for the next three
                methods.
        """
        self._check_own("persist()")
        self.ttl = NEVER

    def inherit_ttl(self) -> None:
        """Remove the row's own ttl, so that the default applies again."""
        self._check_own("inherit_ttl()")
        self.ttl = None

    def expire_in(self, life: float | timedelta, *, only_if: OnlyIf | None = None) -> bool:
        """Let the row live for this long, counted from the next save.

        Args:
            life: Whole seconds. With zero or less the row expires at the save.
            only_if: A condition; the row is left alone unless it is met. The new life is "longer"
                or "shorter" than the current one, or the row has a lifetime ("has_ttl") or none
                ("no_ttl"). It is checked on the instance, by the database's clock.

        Returns:
            Whether the row will get this life.

        Raises:
            InvalidTTL: The number isn't whole, or is over 2147483647.
        """
        self._check_own("expire_in()")
        seconds = lifetime.life_seconds(life, where=f"{type(self).__name__}.ttl")
        if only_if is not None:
            end = self._database_now() + timedelta(seconds=seconds)
            if not lifetime.grants(only_if, self.expires_at, end):
                return False
        self.ttl = seconds or 1
        self.last_modified = Stamp() if seconds else StampAgo(1)
        return True

    def expire_at(self, instant: datetime, *, only_if: OnlyIf | None = None) -> bool:
        """Let the row expire at exactly this instant.

        The next save stores as ttl the whole seconds that are left, rounded up, and as ``_ts`` the
        instant minus that ttl. A later save starts the ttl again, as any write does.

        Args:
            instant: An aware datetime; one in the past lets the row expire with the save.
            only_if: As in `expire_in`.

        Returns:
            Whether the row will get this end.

        Raises:
            InvalidTTL: The datetime is naive, or over 68 years from now. (`persist` lets a row live
                forever.)
        """
        self._check_own("expire_at()")
        where = f"{type(self).__name__}.ttl"
        instant = lifetime.end_instant(instant, where=where, now=self._database_now)
        if only_if is not None and not lifetime.grants(only_if, self.expires_at, instant):
            return False
        self.ttl = SecondsUntil(instant)
        self.last_modified = StampUntil(instant)
        return True

    def save_base(self, *args: Any, **kwargs: Any) -> None:
        """Save; the stamp that the database's clock has set is read on first access."""
        before = self.__dict__.get("last_modified")
        fields = kwargs.get("update_fields")
        if fields is not None and isinstance(before, Stamp):
            kwargs["update_fields"] = frozenset({*fields, "last_modified"})
        super().save_base(*args, **kwargs)
        if isinstance(type(self).__ttl__, Extension):
            return
        if self.__dict__.get("last_modified") is before:
            self.last_modified = UNREAD
        if isinstance(self.__dict__.get("ttl"), Stamp):
            self.ttl = UNREAD

    save_base.alters_data = True  # type: ignore[attr-defined]

    def _check_own(self, call: str) -> None:
        """Reject a change of a ttl that the policy doesn't read."""
        binding = own_binding(type(self), call)
        if binding.own is None:
            raise TTLError(
                f"{type(self).__name__}.{call}: with {binding.policy!r}, a row has no lifetime of "
                f"its own; set {binding.stamp.name!r}, or declare TTL(seconds)."
            )

    @property
    def _policy(self) -> TablePolicy:
        policy = policy_of(type(self))
        assert policy is not None  # noqa: S101 (declaring a subclass binds it)
        return policy

    def _database_now(self) -> datetime:
        using = self._state.db or router.db_for_read(type(self), instance=self)
        return database_now(connections[using])
