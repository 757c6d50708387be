"""The test clock on Django: the one text that stands for the database's clock is another one.

Every statement that Django compiles asks `ttl_odm.dialects.Family.present` for it, so nothing is
kept on a connection, and a transaction that is rolled back takes nothing back. What is written into
a schema stays the database's own clock, for a column's default outlives the test.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from datetime import timedelta, timezone
from functools import partialmethod
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from django.db.backends.base.schema import BaseDatabaseSchemaEditor as SchemaEditor
from django.db.models import Model

from ttl_odm.core import expiry
from ttl_odm.core.policy import TTL
from ttl_odm.dialects import Family
from ttl_odm.django.policy.binding import binding_of
from ttl_odm.django.sweep.leases import DjangoLeases
from ttl_odm.testing.clock.lifetimes import life, not_counted_from_writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from ttl_odm.testing.clock import TTLClock

_PRESENT: Final = Family.present
_MICROSECOND: Final = timedelta(microseconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)

_as_it_is: ContextVar[int] = ContextVar("ttl_odm_django_as_it_is", default=0)
"""How many blocks are open whose statements hear the real time, one in the other."""


def install(clock: TTLClock) -> Callable[[], None]:
    """Let the clock decide; returns what undoes it. See `ttl_odm.testing.clock`."""
    with ExitStack() as undoing:
        undoing.enter_context(patch.object(Family, "present", partialmethod(_present, clock)))
        undoing.enter_context(_schemas_as_they_are())
        undoing.enter_context(_leases_as_they_are())
        return undoing.pop_all().close


def real_now() -> datetime | None:
    """Nobody asks Django's databases for their clock without need."""
    return None


def lifetime(target: Any) -> timedelta | None:
    """How long a row lives that is written now."""
    model = target if isinstance(target, type) else type(target)
    binding = binding_of(model) if issubclass(model, Model) and hasattr(model, "_meta") else None
    if binding is None:
        return None
    policy = binding.policy
    if not isinstance(policy, TTL):
        raise not_counted_from_writing(model.__name__, policy.field)
    own = None
    if isinstance(target, Model):
        own = expiry.own_ttl(policy, binding.own_of(target))
    return life(model.__name__, policy.default, own)


def _present(family: Family, clock: TTLClock, *, writing: bool) -> str:
    real = _PRESENT(family, writing=writing)
    if _as_it_is.get():
        return real
    if clock.frozen_at is not None:
        return _frozen(family.family, clock.frozen_at)
    return _moved(family.family, real, clock.offset) if clock.offset else real


def _frozen(vendor: str, instant: datetime) -> str:
    utc = instant.astimezone(timezone.utc).replace(tzinfo=None)
    if vendor == "postgresql":
        return f"timestamptz '{utc.isoformat(sep=' ')}+00:00'"
    if vendor == "mysql":
        return f"TIMESTAMP'{utc.isoformat(sep=' ', timespec='microseconds')}'"
    return f"'{utc.isoformat(sep=' ', timespec='milliseconds')}'"


def _moved(vendor: str, real: str, offset: timedelta) -> str:
    microseconds = offset // _MICROSECOND
    if vendor == "postgresql":
        return f"({real} + interval '{microseconds} microseconds')"
    if vendor == "mysql":
        return f"({real} + INTERVAL {microseconds} MICROSECOND)"
    return f"{real}, '{offset // _MILLISECOND / 1000:+.3f} seconds'"


@contextmanager
def _schemas_as_they_are() -> Iterator[None]:
    """Let DDL, and what migrations do around it, hear the real time."""
    enter, leave = SchemaEditor.__enter__, SchemaEditor.__exit__

    def entering(editor: Any) -> Any:
        entered = enter(editor)
        _as_it_is.set(_as_it_is.get() + 1)
        return entered

    def leaving(editor: Any, *error: Any) -> Any:
        _as_it_is.set(_as_it_is.get() - 1)
        return leave(editor, *error)

    with (
        patch.object(SchemaEditor, "__enter__", entering),
        patch.object(SchemaEditor, "__exit__", leaving),
    ):
        yield


@contextmanager
def _leases_as_they_are() -> Iterator[None]:
    """Let leases hear the real time: one from the future would keep real sweepers out."""
    changing = DjangoLeases._changing

    @contextmanager
    def as_it_is(leases: DjangoLeases) -> Iterator[None]:
        _as_it_is.set(_as_it_is.get() + 1)
        try:
            with changing(leases):
                yield
        finally:
            _as_it_is.set(_as_it_is.get() - 1)

    with patch.object(DjangoLeases, "_changing", as_it_is):
        yield
