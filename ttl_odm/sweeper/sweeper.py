"""`Sweeper` and `AsyncSweeper`: a store, the plan and a driver, put together.

This module must not know any database: the store of an engine is found by the entry-point group
``ttl_odm.stores``, under the name of the package that the engine's class comes from.
"""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.batch_gate import Claim
from ttl_odm.sweeper.drive import Ports, drive, drive_async
from ttl_odm.sweeper.options import (
    check_interval,
    lease_duration_of,
    lease_name_of,
    leases_of,
    settings_of,
)
from ttl_odm.sweeper.plan import run_forever, run_once
from ttl_odm.sweeper.report import Ending
from ttl_odm.sweeper.stop import Stop
from ttl_odm.sweeper.store import AsyncStore, Store

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ttl_odm.sweeper.commands import Plan
    from ttl_odm.sweeper.leases import LeaseState
    from ttl_odm.sweeper.options import SweepOptions, Throttle
    from ttl_odm.sweeper.report import SweepReport

T = TypeVar("T")

STORES: Final = "ttl_odm.stores"
"""The entry-point group. A name in it is a top-level package, such as ``sqlalchemy``; its object
is called with an engine of that package and with the targets, and returns a store."""

THROTTLES: Final = "ttl_odm.throttles"
"""The entry-point group of throttles with names. An object in it is called with the engine or store
of the sweeper, and returns a `Throttle`."""

INTERVAL: Final = 60.0
JITTER: Final = 0.1


class _Sweeper:
    """The base of both sweepers: their arguments, and `stop`."""

    _is_async: bool

    def __init__(
        self, engine: object, targets: object = None, **options: Unpack[SweepOptions]
    ) -> None:
        """Find the store, and check the options.

        Args:
            engine: An engine, or a store.
            targets: What to sweep, as the engine's store takes it. With SQLAlchemy: a declarative
                base, a registry, a MetaData, a model, a Table, or a list of these. None with a
                store, which knows its targets.
            options: See `SweepOptions`.

        Raises:
            TTLConfigurationError: One of these can't work; the message names a fix.
        """
        self._store = _store_of(engine, targets)
        if iscoroutinefunction(self._store.purge) is not self._is_async:
            fitting = Sweeper if self._is_async else AsyncSweeper
            raise TTLConfigurationError(
                f"{type(self).__name__} can't work with {type(engine).__name__}: "
                f"use {fitting.__name__}."
            )
        self._settings = settings_of(options, self._store)
        self._leases = leases_of(options, self._store)
        self._lease_name = lease_name_of(options)
        self._lease_duration = lease_duration_of(options)
        self._stop = Stop()
        self._ports = Ports(
            self._store,
            leases=self._leases,
            throttle=_throttle_of(options.get("throttle"), engine),
            on_progress=options.get("on_progress"),
            on_report=options.get("on_report"),
            on_server=options.get("on_server"),
            stop=self._stop,
        )
        self._check_kinds()

    def stop(self) -> None:
        """End every run of this sweeper after its current batch, and let no other begin.

        May be called from another thread and from a signal handler; see `stop_on_signals`.
        """
        self._stop.ask()

    @property
    def lease_name(self) -> str | None:
        """The name of its lease; None if it has none."""
        return None if self._leases is None else self._lease_name

    def ended_at_standby(self, last: SweepReport | None) -> bool:
        """Return whether `run_forever`, which returned `last`, ended at a server without writes.

        It does so only with ``standby="exit"``.
        """
        is_at_standby = last is not None and last.ended is Ending.STANDBY
        return is_at_standby and not self._settings.waits_at_standby

    def _check_kinds(self) -> None:
        if self._leases is not None and (
            iscoroutinefunction(self._leases.acquire) is not self._is_async
        ):
            raise TTLConfigurationError(
                f"{type(self).__name__} can't work with {type(self._leases).__name__}: its "
                f"methods must be {'coroutines' if self._is_async else 'plain functions'}."
            )
        calls = {
            "throttle": self._ports.throttle,
            "on_progress": self._ports.on_progress,
            "on_report": self._ports.on_report,
            "on_server": self._ports.on_server,
        }
        waiting = [name for name, call in calls.items() if iscoroutinefunction(call)]
        waiting += ["on_purged"] * self._settings.hooks.has_async
        if waiting and not self._is_async:
            raise TTLConfigurationError(
                f"{waiting[0]} is a coroutine function, which needs an AsyncSweeper."
            )

    def _once(self) -> tuple[Plan[SweepReport], Ports]:
        return run_once(self._settings, self._claim()), replace(self._ports)

    def _forever(self, interval: float, jitter: float) -> tuple[Plan[SweepReport | None], Ports]:
        check_interval(interval, jitter)
        plan = run_forever(self._settings, self._claim(), interval=interval, jitter=jitter)
        return plan, replace(self._ports)

    def _claim(self) -> Claim | None:
        if self._leases is None:
            return None
        holder = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        return Claim(self._lease_name, holder, self._lease_duration)

    def _needed_leases(self) -> Any:
        if self._leases is None:
            raise TTLConfigurationError(
                "Pausing and status require a lease, and this sweeper has none."
            )
        return self._leases


class Sweeper(_Sweeper):
    """Deletes expired rows in small batches: ``Sweeper(engine, Base).run_once()``.

    One instance may be used from several threads.
    """

    _is_async = False

    def run_once(self) -> SweepReport:
        """Sweep every target once.

        Returns:
            What was done. A failing target neither stops the others nor raises: see
            `SweepReport.problems` and `SweepReport.raise_for_failures`.
        """
        return drive(*self._once())

    def run_forever(
        self, *, interval: float = INTERVAL, jitter: float = JITTER
    ) -> SweepReport | None:
        """Sweep at intervals until `stop` is called.

        Any number of processes may do this at once: one sweeps, the others wait for its lease to
        end.

        Args:
            interval: Seconds from the end of one sweep to the start of the next.
            jitter: How far the interval varies at random, up or down, as a share of it.

        Returns:
            The last report. Each report is also logged to ``ttl_odm.sweeper`` and passed to
            `on_report`.
        """
        return drive(*self._forever(interval, jitter))

    def pause(self) -> None:
        """Keep all sweepers with this lease name, in any process, from starting another batch."""
        self._needed_leases().set_paused(self._lease_name, paused=True)

    def resume(self) -> None:
        """Let them continue."""
        self._needed_leases().set_paused(self._lease_name, paused=False)

    def status(self) -> LeaseState:
        """Return who holds the lease, and whether the sweepers are paused."""
        state: LeaseState = self._needed_leases().read(self._lease_name)
        return state

    def carry_out(self, plan: Plan[T]) -> T:
        """Carry out another plan than a sweep, such as `ttl_odm.sweeper.snapshot.look`."""
        return drive(plan, replace(self._ports))


class AsyncSweeper(_Sweeper):
    """`Sweeper` for an asynchronous engine: ``await AsyncSweeper(engine, Base).run_once()``.

    A cancelled task finishes the current batch and releases the lease before it ends. If it is
    cancelled a second time, it ends at once, except on SQLite, where the file would stay locked.
    """

    _is_async = True

    async def run_once(self) -> SweepReport:
        """Sweep every target once; see `Sweeper.run_once`."""
        return await drive_async(*self._once())

    async def run_forever(
        self, *, interval: float = INTERVAL, jitter: float = JITTER
    ) -> SweepReport | None:
        """Sweep at intervals until `stop` is called; see `Sweeper.run_forever`."""
        return await drive_async(*self._forever(interval, jitter))

    async def pause(self) -> None:
        """Keep all sweepers with this lease name, in any process, from starting another batch."""
        await self._needed_leases().set_paused(self._lease_name, paused=True)

    async def resume(self) -> None:
        """Let them continue."""
        await self._needed_leases().set_paused(self._lease_name, paused=False)

    async def status(self) -> LeaseState:
        """Return who holds the lease, and whether the sweepers are paused."""
        state: LeaseState = await self._needed_leases().read(self._lease_name)
        return state

    async def carry_out(self, plan: Plan[T]) -> T:
        """Carry out another plan than a sweep; see `Sweeper.carry_out`."""
        return await drive_async(plan, replace(self._ports))


@cache
def registered() -> EntryPoints:
    """Return the installed stores; cached, because reading them takes longer than many sweeps."""
    return entry_points(group=STORES)


def _throttle_of(throttle: Throttle | str | None, engine: object) -> Throttle | None:
    """Return the throttle that is registered under a name, or the one that was passed."""
    if not isinstance(throttle, str):
        return throttle
    throttles = entry_points(group=THROTTLES)
    for entry in throttles.select(name=throttle):
        loaded: Throttle = entry.load()(engine)
        return loaded
    known = ", ".join(sorted(throttles.names)) or "none: is ttl-odm installed?"
    raise TTLConfigurationError(
        f"throttle = {throttle!r}: give a function, or the name of a registered one ({known})."
    )


def _store_of(engine: object, targets: object) -> Store | AsyncStore:
    """Return the engine if it is a store, otherwise the store that its package registered."""
    # Asked of its class first: a database of PyMongo has every attribute, each a collection.
    if hasattr(type(engine), "purge") and isinstance(engine, (Store, AsyncStore)):
        if targets is not None:
            raise TTLConfigurationError(
                f"{type(engine).__name__} is a store, which knows its targets: pass the store only."
            )
        return engine
    stores = registered()
    for cls in type(engine).__mro__:
        for entry in stores.select(name=cls.__module__.partition(".")[0]):
            store: Store | AsyncStore = entry.load()(engine, targets)
            return store
    known = ", ".join(sorted(stores.names)) or "none: is ttl-odm installed?"
    raise TTLConfigurationError(
        f"Nothing is registered for sweeping with {type(engine).__name__!r}. Give an engine of one "
        f"of these packages ({known}), or a store."
    )
