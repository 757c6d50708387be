"""`Sweeper` and `AsyncSweeper`: a store, the plan and the driver that fits, put together.

This module must not know any database: the store of an engine is found by the entry-point group
``ttl_odm.stores``, under the name of the package that the engine's class comes from.
"""

from __future__ import annotations

import random
from importlib.metadata import entry_points
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.drive import OnProgress, drive, drive_async
from ttl_odm.sweeper.plan import Plan, Settings, sweep
from ttl_odm.sweeper.store import AsyncStore, Store

if TYPE_CHECKING:
    from ttl_odm.sweeper.report import SweepReport

STORES: Final = "ttl_odm.stores"
"""The entry-point group. A name in it is a top-level package, such as ``sqlalchemy``; its object
is called with an engine of that package and with what to sweep, and returns a store."""


class _Sweeper:
    """What the two sweepers share: their arguments."""

    _is_async: bool

    def __init__(
        self,
        engine: Any,
        targets: Any = None,
        *,
        max_rows: int | None = None,
        batch_size: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._store = _store_of(engine, targets)
        if iscoroutinefunction(self._store.purge) is not self._is_async:
            fitting = Sweeper if self._is_async else AsyncSweeper
            raise TTLConfigurationError(
                f"{type(self).__name__} can't work with {type(engine).__name__}: "
                f"use {fitting.__name__}."
            )
        self._on_progress = on_progress
        pace = self._store.pace
        if batch_size is not None:
            pace = pace.starting_at(_rows(batch_size, "batch_size"))
        self._settings = Settings(
            pace=pace,
            jitter=random.random,
            max_rows=None if max_rows is None else _rows(max_rows, "max_rows"),
        )

    def _plan(self) -> Plan[SweepReport]:
        return sweep(self._store.targets(), self._settings)


class Sweeper(_Sweeper):
    """Deletes expired rows, in small batches: ``Sweeper(engine, Base).run_once()``.

    Args:
        engine: An engine, or a store.
        targets: What to sweep, as the engine's store takes it. With SQLAlchemy: a declarative
            base, a registry, a MetaData, a model, a Table, or a list of these. None with a store,
            which knows its targets.
        max_rows: Rows that one sweep deletes, at most; None for all that have expired.
        batch_size: Rows in the first batch of each target; None for what suits the database. The
            next batches adapt to the time that it took.
        on_progress: Called with a `Progress` after each batch. What it raises ends the sweep.

    Raises:
        TTLConfigurationError: One of these can't work; the message says what to give instead.
    """

    _is_async = False

    def run_once(self) -> SweepReport:
        """Sweep every target once.

        Returns:
            What was done. A target that fails doesn't stop the others and raises nothing: see
            `SweepReport.failed` and `SweepReport.raise_for_failures`.
        """
        return drive(self._plan(), self._store, self._on_progress)


class AsyncSweeper(_Sweeper):
    """`Sweeper` for an asynchronous engine: ``await AsyncSweeper(engine, Base).run_once()``."""

    _is_async = True

    async def run_once(self) -> SweepReport:
        """Sweep every target once; see `Sweeper.run_once`."""
        return await drive_async(self._plan(), self._store, self._on_progress)


def _rows(number: object, where: str) -> int:
    if isinstance(number, int) and not isinstance(number, bool) and number > 0:
        return number
    raise TTLConfigurationError(f"{where} = {number!r}: give a number of rows, at least 1.")


def _store_of(engine: Any, targets: Any) -> Any:
    """Return the engine if it is a store itself, otherwise the one that its package registered."""
    if isinstance(engine, (Store, AsyncStore)):
        if targets is not None:
            raise TTLConfigurationError(
                f"{type(engine).__name__} is a store and knows its targets; give it alone."
            )
        return engine
    found = entry_points(group=STORES)
    for cls in type(engine).__mro__:
        for opens in found.select(name=cls.__module__.partition(".")[0]):
            return opens.load()(engine, targets)
    known = ", ".join(sorted(found.names)) or "none: is ttl-odm installed?"
    raise TTLConfigurationError(
        f"Nothing is registered for sweeping with {type(engine).__name__!r}. Give an engine of one "
        f"of these packages ({known}), or a store."
    )
