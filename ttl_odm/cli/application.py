"""`Application`: an engine and what to sweep with it. Every command works on one.

Everything runs in one event loop, even with a synchronous engine: nothing else waits there, and
the commands needn't be written twice. SIGINT interrupts it as if there were no loop. `connect`
makes an application from ``--app`` and ``--url``; this module must not know how.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ttl_odm.cli.errors import UsageError, did_you_mean, readable_errors
from ttl_odm.sweeper import AsyncSweeper, Sweeper, SweepOptions
from ttl_odm.sweeper.command_line import count_options, due_rows
from ttl_odm.sweeper.store import backend_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from ttl_odm.sweeper import SweepReport

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """A table or collection to sweep.

    Attributes:
        name: Its name in reports.
        model: The name of its class; None for a bare table.
        entity: The Table or document class that a sweeper takes; None if only the database or the
            store knows the target.
        dependents: Targets that expire with this one. The application doesn't list them itself.
    """

    name: str
    model: str | None
    entity: Any
    dependents: Sequence[Target] = ()

    def is_called(self, name: str) -> bool:
        """Whether a name is its model's or its table's, with or without the schema."""
        return name in (self.name, self.name.rpartition(".")[2], self.model)

    def has_dependent(self, name: str) -> bool:
        """Whether a name is one of its dependents'."""
        return any(target.is_called(name) for target in self.dependents)


@dataclass(frozen=True, slots=True)
class Application:
    """An engine (or a MongoDB database, or a store) and what to sweep with it.

    Attributes:
        engine: The engine, database or store.
        targets: What to sweep; empty for a store, which knows its targets itself.
        options: Options that the application has for its sweeper.
        database: The URL in a form that may be printed; None if it isn't known.
    """

    engine: Any
    targets: Sequence[Target] = ()
    options: SweepOptions = field(default_factory=SweepOptions)
    database: str | None = None

    @property
    def is_store(self) -> bool:
        """Whether the engine is a store."""
        return hasattr(type(self.engine), "purge")

    @property
    def is_mongodb(self) -> bool:
        """Whether the engine is a MongoDB database, by the package of its class or base classes."""
        packages = (base.__module__.partition(".")[0] for base in type(self.engine).__mro__)
        return not self.is_store and next(
            package in ("pymongo", "motor") for package in packages if package != "ttl_odm"
        )

    @property
    def backend(self) -> str:
        """The database's name for the labels of metrics."""
        return backend_of(self.store())

    @property
    def is_async(self) -> bool:
        """Whether the engine needs an `AsyncSweeper`."""
        if self.is_store:
            return inspect.iscoroutinefunction(self.engine.purge)
        return self.is_mongodb or hasattr(self.engine, "sync_engine")

    def sweeper(self, **options: Any) -> Sweeper | AsyncSweeper:
        """Make a sweeper; an option that is None has the application's value."""
        return self._sweeper(self._merged(options))

    def counter(self, **options: Any) -> Sweeper | AsyncSweeper:
        """Make a sweeper that only counts, regardless of the lease and of a pause.

        Options that don't matter for counting, such as the window, are checked too.
        """
        self.sweeper(**options)
        return self._sweeper(count_options(self._merged(options)))

    def due_rows(self, count: SweepReport, chosen: int | None) -> Mapping[str, int]:
        """Return how many rows of each table a sweep will delete.

        Args:
            count: The report of a `counter`.
            chosen: The limit of rows; None for the application's.
        """
        return due_rows(count, self.options.get("max_rows") if chosen is None else chosen)

    def _merged(self, options: dict[str, Any]) -> SweepOptions:
        chosen = {name: value for name, value in options.items() if value is not None}
        for name in ("on_progress", "on_report", "on_server"):
            own: Any = self.options.get(name)
            if own is not None and name in chosen:
                chosen[name] = _both(own, chosen[name])
        return cast("SweepOptions", {**self.options, **chosen})

    def _sweeper(self, options: SweepOptions) -> Sweeper | AsyncSweeper:
        kind = AsyncSweeper if self.is_async else Sweeper
        entities = None if self.is_store else [target.entity for target in self.targets]
        return kind(self.engine, entities, **options)

    def store(self) -> Any:
        """Return the sweepers' `Store` or `AsyncStore`."""
        if self.is_store:
            return self.engine
        entities = [target.entity for target in self.targets]
        if self.is_mongodb:
            from ttl_odm.beanie.sweep import store as beanie  # noqa: PLC0415 (needs the extra)

            return beanie.open_store(self.engine, entities)
        from ttl_odm.sqlalchemy.sweep import store as sqlalchemy  # noqa: PLC0415 (needs the extra)

        return sqlalchemy.open_store(self.engine, entities)

    def all_targets(self) -> Sequence[Target]:
        """Return the targets, including those that only a store knows."""
        return self.targets or [Target(name, None, None) for name in self.store().targets()]

    async def check_connection(self) -> None:
        """Ask the database for its time: a wrong URL fails now, not after a minute of retries."""
        store = self.store()
        if hasattr(store, "now"):
            await answer(store.now())

    async def ask(self, read: Callable[[Connection], T]) -> T:
        """Call a function with a SQL connection; the function always gets a synchronous one."""
        if self.is_async:
            async with self.engine.connect() as connection:
                return cast("T", await connection.run_sync(read))
        with self.engine.connect() as connection:
            return read(connection)

    def select(self, models: Sequence[str], excepted: Sequence[str]) -> Application:
        """Return the application with some of its targets only: see the function `select`."""
        (selected,) = select([self], models, excepted)
        return selected

    def named(self, name: str) -> list[Target]:
        """Return the targets whose model or table has a name."""
        return [target for target in self.targets if target.is_called(name)]


def select(
    applications: Sequence[Application], models: Sequence[str], excepted: Sequence[str]
) -> list[Application]:
    """Return the applications with some of their targets only.

    Args:
        applications: The applications, of which each keeps its own targets.
        models: Names of models or tables to keep; none for all.
        excepted: Names of models or tables to leave out.
    """
    if not (models or excepted):
        return [*applications]
    if any(app.is_store for app in applications):
        raise UsageError("--model and --except can't be used with a custom store.")
    targets = [target for app in applications for target in app.targets]
    chosen = [] if models else [*targets]
    left_out: list[Target] = []
    for option, names, listed in (("model", models, chosen), ("except", excepted, left_out)):
        dependents = [
            name
            for name in names
            if not any(target.is_called(name) for target in targets)
            and any(target.has_dependent(name) for target in targets)
        ]
        for name in names:
            fitting = [target for target in targets if target.is_called(name)]
            if not fitting and name not in dependents:
                raise unknown(targets, f"--{option}", name)
            listed.extend(fitting)
        for name in dependents:  # allowed if its root is listed as well, and then adds nothing
            if not any(target.has_dependent(name) for target in listed):
                raise unknown(targets, f"--{option}", name)
    kept = [target for target in chosen if target not in left_out]
    if not kept:
        raise UsageError("--model and --except leave nothing to work on.")
    return [
        replace(app, targets=[target for target in app.targets if target in kept])
        for app in applications
    ]


def unknown(targets: Sequence[Target], option: str, name: str) -> UsageError:
    """Return the error for a name that isn't a target's."""
    for root in targets:
        if root.has_dependent(name):
            parent = root.model or root.name
            return UsageError(
                f"{option} {name!r}: its rows follow those of {parent} and are deleted with them. "
                f"Give {parent} instead."
            )
    known = ", ".join(target.model or target.name for target in targets)
    names = [name for target in targets for name in (target.model, target.name) if name]
    hint = did_you_mean(name, names)
    return UsageError(f"{option} {name!r}: no such model; known models: {known}{hint or '.'}")


def sql_targets(models: object) -> list[Target]:
    """List the tables that a sweeper sweeps for SQLAlchemy models, with their dependents."""
    from ttl_odm.sqlalchemy.policy.references import all_rules_below  # noqa: PLC0415 (needs the extra)
    from ttl_odm.sqlalchemy.sweep.store import bindings_of  # noqa: PLC0415

    return [
        Target(
            binding.table.fullname,
            binding.name,
            binding.table,
            tuple(
                Target(rule.table.fullname, rule.owner.__name__, rule.table)
                for rule in all_rules_below(binding.table)
            ),
        )
        for binding in bindings_of(models)
    ]


def in_loop(work: Callable[[], Coroutine[object, None, T]]) -> T:
    """Run a command's work; report its errors in a line."""
    with readable_errors(), _interruptible():
        return asyncio.run(work())


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGINT interrupt code that doesn't await: imports, prompts, synchronous drivers.

    From Python 3.11 on, asyncio.run() replaces Python's own handler with one that only cancels the
    task, which such code doesn't notice. It leaves other handlers alone, so a wrapper of Python's
    own is set.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, partial(signal.default_int_handler))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


async def answer(reply: T | Awaitable[T]) -> T:
    """Return what a `Sweeper` or an `AsyncSweeper` has returned, awaited if need be."""
    if inspect.isawaitable(reply):
        return await reply
    return reply


def _both(first: Callable[[T], object], second: Callable[[T], object]) -> Callable[[T], object]:
    """Return a callback that calls two others in order."""
    if not (inspect.iscoroutinefunction(first) or inspect.iscoroutinefunction(second)):

        def call(event: T) -> None:
            first(event)
            second(event)

        return call

    async def call_async(event: T) -> None:
        await answer(first(event))
        await answer(second(event))

    return call_async
