"""`Application`: an engine and what to sweep with it, which every command works on.

Everything runs in one event loop, also where the engine is synchronous: nothing else waits there,
and the commands needn't be written twice. SIGINT interrupts it as if there were none. `connect`
makes one of what ``--app`` and ``--url`` name; this module must not know how.
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
    """One of the things to sweep: its name in reports, its class's (None for a bare table).

    The entity is what a sweeper takes for it, a Table or a document class; None where only the
    database or the store knows it. Its dependents expire with it and are not in the list
    themselves.
    """

    name: str
    model: str | None
    entity: Any
    dependents: Sequence[Target] = ()

    def is_called(self, name: str) -> bool:
        """Whether a name is its model's or its table's, with its schema or without."""
        return name in (self.name, self.name.rpartition(".")[2], self.model)

    def has_dependent(self, name: str) -> bool:
        """Whether a name is that of one of its dependents."""
        return any(target.is_called(name) for target in self.dependents)


@dataclass(frozen=True, slots=True)
class Application:
    """An engine (or a database of MongoDB, or a store) and what to sweep with it.

    A store has no targets here: it knows them. The options are those of the sweeper that the
    application itself wants; `database` is the URL as it may be printed, None where it isn't known.
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
        """Whether it is MongoDB's: by the package of its class, or of what that is made of."""
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
        """Whether it takes an `AsyncSweeper`."""
        if self.is_store:
            return inspect.iscoroutinefunction(self.engine.purge)
        return self.is_mongodb or hasattr(self.engine, "sync_engine")

    def sweeper(self, **options: Any) -> Sweeper | AsyncSweeper:
        """Make a sweeper; options that are None are those of the application."""
        return self._sweeper(self._merged(options))

    def counter(self, **options: Any) -> Sweeper | AsyncSweeper:
        """Make a sweeper that only counts, whoever has the lease, and whether paused or not.

        A slip in an option that it needn't obey, such as the window, is found all the same.
        """
        self.sweeper(**options)
        return self._sweeper(count_options(self._merged(options)))

    def due_rows(self, count: SweepReport, chosen: int | None) -> Mapping[str, int]:
        """Return how many rows of each table a sweep will delete, by what `counter` reported.

        The limit of rows is the `chosen` one, or that of the application.
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
        """Return what the sweepers ask: a `Store` or an `AsyncStore`."""
        if self.is_store:
            return self.engine
        entities = [target.entity for target in self.targets]
        if self.is_mongodb:
            from ttl_odm.beanie.sweep import store as beanie  # noqa: PLC0415 (needs the extra)

            return beanie.open_store(self.engine, entities)
        from ttl_odm.sqlalchemy.sweep import store as sqlalchemy  # noqa: PLC0415 (needs the extra)

        return sqlalchemy.open_store(self.engine, entities)

    def all_targets(self) -> Sequence[Target]:
        """The targets, also those that only a store knows."""
        return self.targets or [Target(name, None, None) for name in self.store().targets()]

    async def check_connection(self) -> None:
        """Ask the database for its time: a wrong URL is found now, not after a minute of trying."""
        store = self.store()
        if hasattr(store, "now"):
            await answer(store.now())

    async def ask(self, read: Callable[[Connection], T]) -> T:
        """Call a function with a SQL connection, which for it is a synchronous one in any case."""
        if self.is_async:
            async with self.engine.connect() as connection:
                return cast("T", await connection.run_sync(read))
        with self.engine.connect() as connection:
            return read(connection)

    def select(self, models: Sequence[str], excepted: Sequence[str]) -> Application:
        """Keep the models or tables of these names, all if there are none, but for others."""
        (selected,) = select([self], models, excepted)
        return selected

    def named(self, name: str) -> list[Target]:
        """The targets that have a name: that of the model, or of the table."""
        return [target for target in self.targets if target.is_called(name)]


def select(
    applications: Sequence[Application], models: Sequence[str], excepted: Sequence[str]
) -> list[Application]:
    """Keep of each the models or tables of these names, all if there are none, but for others."""
    if not (models or excepted):
        return [*applications]
    if any(app.is_store for app in applications):
        raise UsageError("--model and --except can't be used with a custom store.")
    every = [target for app in applications for target in app.targets]
    chosen = [] if models else [*every]
    left_out: list[Target] = []
    for option, names, listed in (("model", models, chosen), ("except", excepted, left_out)):
        dependents = [name for name in names if _is_dependent(every, name)]
        for name in names:
            fitting = [target for target in every if target.is_called(name)]
            if not fitting and name not in dependents:
                raise unknown(every, f"--{option}", name)
            listed.extend(fitting)
        for name in dependents:  # beside its root it adds nothing
            if not any(target.has_dependent(name) for target in listed):
                raise unknown(every, f"--{option}", name)
    kept = [target for target in chosen if target not in left_out]
    if not kept:
        raise UsageError("--model and --except leave nothing to work on.")
    return [
        replace(app, targets=[target for target in app.targets if target in kept])
        for app in applications
    ]


def _is_dependent(targets: Sequence[Target], name: str) -> bool:
    is_target = any(target.is_called(name) for target in targets)
    return not is_target and any(target.has_dependent(name) for target in targets)


def unknown(targets: Sequence[Target], option: str, name: str) -> UsageError:
    """The error that a name is not a target's."""
    for root in targets:
        if root.has_dependent(name):
            parent = root.model or root.name
            return UsageError(
                f"{option} {name!r}: its rows follow those of {parent} and are deleted with them. "
                f"Give {parent} instead."
            )
    known = ", ".join(target.model or target.name for target in targets)
    names = [called for target in targets for called in (target.model, target.name) if called]
    hint = did_you_mean(name, names)
    return UsageError(f"{option} {name!r}: no such model; known models: {known}{hint or '.'}")


def sql_targets(models: Any) -> list[Target]:
    """List the tables that a sweeper sweeps for models of SQLAlchemy, with their dependents."""
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


def in_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a command's work, and say in a line what goes wrong in it."""
    with readable_errors(), _interruptible():
        return asyncio.run(work())


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGINT interrupt what doesn't await: imports, questions, synchronous drivers.

    Where Python's own handler is set, asyncio.run() replaces it from Python 3.11 on, and only
    cancels the task, which all of these never hear of. So it finds another one, that does the same.
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
    """Await what has to be awaited: what a `Sweeper` or an `AsyncSweeper` returns."""
    if inspect.isawaitable(reply):
        return await reply
    return reply


def _both(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a callback that calls two, the application's own one first."""
    if not (inspect.iscoroutinefunction(first) or inspect.iscoroutinefunction(second)):

        def call(event: Any) -> None:
            first(event)
            second(event)

        return call

    async def call_async(event: Any) -> None:
        await answer(first(event))
        await answer(second(event))

    return call_async
