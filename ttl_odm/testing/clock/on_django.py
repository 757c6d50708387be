"""The test clock on Django: the one text that stands for the database's clock is another one.

Every statement that Django compiles asks `ttl_odm.django.clock.present` for it, so nothing is kept
on a connection, and a transaction that is rolled back takes nothing back. What is written into a
schema stays the database's own clock, for a column's default outlives the test.

This module must not know predicates or models.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from datetime import timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from django.db.backends.base.schema import BaseDatabaseSchemaEditor as SchemaEditor

from ttl_odm.django import clock as texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from ttl_odm.testing.clock import TTLClock

_PRESENT: Final = texts.present
_MICROSECOND: Final = timedelta(microseconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)

_schema_editors: ContextVar[int] = ContextVar("ttl_odm_schema_editors", default=0)
"""How many are open, one in the other."""


def install(clock: TTLClock) -> Callable[[], None]:
    """Let databases of Django's tell the clock's now.

    Args:
        clock: Is asked whenever a statement is compiled.

    Returns:
        What undoes it.
    """
    with ExitStack() as undoing:
        undoing.enter_context(patch.object(texts, "present", partial(_present, clock)))
        undoing.enter_context(_counting_schema_editors())
        return undoing.pop_all().close


def _present(clock: TTLClock, vendor: str, *, writing: bool) -> str:
    real = _PRESENT(vendor, writing=writing)
    if _schema_editors.get():
        return real
    if clock.frozen_at is not None:
        return _frozen(vendor, clock.frozen_at)
    return _moved(vendor, real, clock.offset) if clock.offset else real


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
def _counting_schema_editors() -> Iterator[None]:
    enter, leave = SchemaEditor.__enter__, SchemaEditor.__exit__

    def entering(editor: Any) -> Any:
        entered = enter(editor)
        _schema_editors.set(_schema_editors.get() + 1)
        return entered

    def leaving(editor: Any, *error: Any) -> Any:
        _schema_editors.set(_schema_editors.get() - 1)
        return leave(editor, *error)

    with (
        patch.object(SchemaEditor, "__enter__", entering),
        patch.object(SchemaEditor, "__exit__", leaving),
    ):
        yield
