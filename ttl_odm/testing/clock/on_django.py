"""The test clock on Django: replaces the one SQL text for the database's clock.

Every statement that Django compiles gets it from `ttl_odm.dialects.Family.present`, so no state is
on a connection, and a rollback doesn't undo a move. DDL keeps the database's own clock, because a
column's default outlives the test.
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
from ttl_odm.django.policy.bindings import binding_of
from ttl_odm.django.sweep.leases import DjangoLeases
from ttl_odm.testing.clock import life, not_counted_from_writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from ttl_odm.testing.clock import TTLClock

_PRESENT: Final = Family.present

_in_real_time: ContextVar[int] = ContextVar("ttl_odm_django_in_real_time", default=0)
"""The number of open (nested) blocks whose statements use the real time."""


def install(clock: TTLClock) -> Callable[[], None]:
    """Let the clock move the adapter's time; return the undo. See `ttl_odm.testing.clock`."""
    enter, leave, changing = SchemaEditor.__enter__, SchemaEditor.__exit__, DjangoLeases._changing

    def entering(editor: SchemaEditor) -> SchemaEditor:
        entered = enter(editor)
        _in_real_time.set(_in_real_time.get() + 1)
        return entered

    def leaving(editor: SchemaEditor, *error: Any) -> None:
        _in_real_time.set(_in_real_time.get() - 1)
        leave(editor, *error)

    @contextmanager
    def changing_in_real_time(leases: DjangoLeases) -> Iterator[None]:
        _in_real_time.set(_in_real_time.get() + 1)
        try:
            with changing(leases):
                yield
        finally:
            _in_real_time.set(_in_real_time.get() - 1)

    with ExitStack() as undoing:
        for owner, name, replacement in (
            (Family, "present", partialmethod(_present, clock)),
            # DDL, and the statements of migrations around it.
            (SchemaEditor, "__enter__", entering),
            (SchemaEditor, "__exit__", leaving),
            # A lease from the future would lock out real sweepers.
            (DjangoLeases, "_changing", changing_in_real_time),
        ):
            undoing.enter_context(patch.object(owner, name, replacement))
        return undoing.pop_all().close


def real_now() -> datetime | None:
    """Return None: this adapter keeps no samples of a database's clock."""
    return None


def lifetime(target: object) -> timedelta | None:
    """Return the lifetime of a row written now."""
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
    real, offset = _PRESENT(family, writing=writing), clock.offset
    if _in_real_time.get() or not (clock.frozen_at or offset):
        return real
    if clock.frozen_at is not None:
        utc = clock.frozen_at.astimezone(timezone.utc).replace(tzinfo=None)
        texts = {
            "postgresql": f"timestamptz '{utc.isoformat(sep=' ')}+00:00'",
            "mysql": f"TIMESTAMP'{utc.isoformat(sep=' ', timespec='microseconds')}'",
            "sqlite": f"'{utc.isoformat(sep=' ', timespec='milliseconds')}'",
        }
    else:
        microseconds = offset // timedelta(microseconds=1)
        seconds = offset // timedelta(milliseconds=1) / 1000
        texts = {
            "postgresql": f"({real} + interval '{microseconds} microseconds')",
            "mysql": f"({real} + INTERVAL {microseconds} MICROSECOND)",
            "sqlite": f"{real}, '{seconds:+.3f} seconds'",
        }
    return texts[family.family]
