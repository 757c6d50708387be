"""What ``--app`` and ``--url`` name: an engine and what to sweep with it.

Everything runs in one event loop, also where the engine is synchronous: nothing else waits there,
and the commands needn't be written twice.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from ttl_odm.cli import urls
from ttl_odm.cli.loading import failed, load
from ttl_odm.cli.problems import UsageProblem, explained
from ttl_odm.errors import TTLError
from ttl_odm.sweeper import AsyncSweeper, Sweeper, SweepOptions
from ttl_odm.sweeper.store import backend_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence

T = TypeVar("T")

_APP_NEEDED: Final = (
    "Say what to work on: --app module:Base (a declarative base, a list of models or of document "
    "classes, or a function that returns an engine and these), TTL_ODM_APP, or app in "
    "[tool.ttl_odm] of pyproject.toml."
)
_PAIR: Final = (
    "has to return an engine (for MongoDB: what ttl_database() gave) and what to sweep, and "
    "perhaps a dict of sweeper options: return engine, Base"
)


@dataclass(frozen=True, slots=True)
class Target:
    """One of the things to sweep.

    Attributes:
        name: The table's or collection's, as reports have it.
        model: The class's; None for a bare table.
        given: What a sweeper takes for it.
    """

    name: str
    model: str | None
    given: Any


@dataclass(frozen=True, slots=True)
class Application:
    """An engine and what to sweep with it.

    Attributes:
        engine: An engine, a database of MongoDB, or a store.
        targets: What to sweep, one by one. Empty for a store, which knows.
        options: Those of the sweeper that the application itself wants.
        database: The URL as it may be shown; None where nobody told.
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
        """Whether it is MongoDB's."""
        return not self.is_store and package_of(self.engine) in ("pymongo", "motor")

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
        """Make a sweeper that only counts, whoever has the lease, and whether paused or not."""
        alone: SweepOptions = {"dry_run": True, "lease": False, "max_jump": None, "window": None}
        return self._sweeper(cast("SweepOptions", {**self._merged(options), **alone}))

    def store(self) -> Any:
        """Return what the sweepers ask: a `Store` or an `AsyncStore`."""
        if self.is_store:
            return self.engine
        given = [each.given for each in self.targets]
        if self.is_mongodb:
            from ttl_odm.beanie.sweep import store as beanie  # noqa: PLC0415 (needs the extra)

            return beanie.open_store(self.engine, given)
        from ttl_odm.sqlalchemy.sweep import store as sqlalchemy  # noqa: PLC0415 (needs the extra)

        return sqlalchemy.open_store(self.engine, given)

    def every_target(self) -> Sequence[Target]:
        """The targets, also those that only a store knows."""
        return self.targets or [Target(name, None, None) for name in self.store().targets()]

    async def check_connection(self) -> None:
        """Ask the database for its time: a wrong URL is told now, not after a minute of trying.

        Raises:
            StoreError: It doesn't answer.
        """
        store = self.store()
        if hasattr(store, "now"):
            await answer(store.now())

    def _merged(self, options: dict[str, Any]) -> SweepOptions:
        told = {name: value for name, value in options.items() if value is not None}
        for name in ("on_progress", "on_report"):
            own: Any = self.options.get(name)
            if own is not None and name in told:
                told[name] = _both(own, told[name])
        return cast("SweepOptions", {**self.options, **told})

    def _sweeper(self, options: SweepOptions) -> Sweeper | AsyncSweeper:
        kind = AsyncSweeper if self.is_async else Sweeper
        given = None if self.is_store else [each.given for each in self.targets]
        return kind(self.engine, given, **options)

    def narrowed(self, models: Sequence[str], excepted: Sequence[str]) -> Application:
        """Leave targets out.

        Args:
            models: Names of models or tables that are wanted; all if empty.
            excepted: Those that aren't.

        Raises:
            UsageProblem: There is no such one, or nothing is left.
        """
        if not (models or excepted):
            return self
        if self.is_store:
            raise UsageProblem("--model and --except can't be used with a store of one's own.")
        wanted = self._named("--model", models) if models else list(self.targets)
        unwanted = self._named("--except", excepted)
        left = [each for each in self.targets if each in wanted and each not in unwanted]
        if not left:
            raise UsageProblem("--model and --except leave nothing over.")
        return replace(self, targets=left)

    def called(self, name: str) -> list[Target]:
        """The targets that have a name: that of the model, or of the table."""
        return [each for each in self.targets if name in _names_of(each)]

    def _named(self, option: str, names: Sequence[str]) -> list[Target]:
        found = []
        for name in names:
            fitting = self.called(name)
            if not fitting:
                raise self.unknown(f"{option} {name!r}")
            found += fitting
        return found

    def unknown(self, given: str) -> UsageProblem:
        """The error that something given names no target."""
        known = ", ".join(each.model or each.name for each in self.targets)
        return UsageProblem(f"{given}: there is no such model; there are {known}.")


def json_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--json`` to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def app_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--app`` and ``--url`` to a command."""
    command = click.option(
        "--url",
        envvar="TTL_ODM_URL",
        metavar="URL",
        help="The database, where --app doesn't say: postgresql://user@host/database, "
        "mysql://..., sqlite:///file, mongodb://host/database.",
    )(command)
    return click.option(
        "--app",
        envvar="TTL_ODM_APP",
        metavar="MODULE:NAME",
        help="What to work on: a declarative base, a list of models or of document classes, or a "
        "function that returns an engine and these.",
    )(command)


def in_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a command's work, and explain what goes wrong in it."""
    with explained():
        return asyncio.run(work())


async def answer(reply: T | Awaitable[T]) -> T:
    """Await what has to be awaited: what a `Sweeper` or an `AsyncSweeper` returns."""
    if inspect.isawaitable(reply):
        return await reply
    return reply


@asynccontextmanager
async def opened(
    app: str | None, url: str | None, *, with_ttl: bool = True
) -> AsyncIterator[Application]:
    """Give the application that was named, and close what was opened for it.

    Args:
        app: Its name; None is enough for a database whose tables are looked at without TTL.
        url: The database's, where the application doesn't say.
        with_ttl: Whether its targets are what has a TTL, or every table or document class.

    Raises:
        UsageProblem: It can't be used; the message says what to give instead.
    """
    if app is None and (with_ttl or url is None):
        raise UsageProblem(_APP_NEEDED)
    given = [] if app is None else load(app, "--app")
    async with AsyncExitStack() as stack:
        if app is not None and _is_factory(given):
            yield await _from_factory(given, app, stack, with_ttl=with_ttl)
        elif url is None:
            raise UsageProblem(
                f"--app {app!r} doesn't say where the database is: give --url, TTL_ODM_URL, or url "
                "in [tool.ttl_odm]; or let --app name a function that returns an engine and models."
            )
        elif urls.is_mongodb(url):
            database = await _mongodb(url, given, app, stack)
            targets = document_targets(given, with_ttl=with_ttl)
            yield Application(database, targets, database=urls.shown(url))
        else:
            engine = urls.sql_engine(url)
            stack.push_async_callback(_dispose, engine)
            targets = table_targets(given, with_ttl=with_ttl)
            yield Application(engine, targets, database=urls.shown(url))


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


def _is_factory(given: Any) -> bool:
    return callable(given) and not isinstance(given, type)


async def _from_factory(
    given: Any, app: str, stack: AsyncExitStack, *, with_ttl: bool
) -> Application:
    try:
        made = await answer(given())
        if hasattr(made, "__aenter__"):
            made = await stack.enter_async_context(made)
        elif hasattr(made, "__enter__"):
            made = stack.enter_context(made)
    except (click.ClickException, TTLError):
        raise
    except Exception as error:
        raise failed(f"--app {app!r}: calling it", error) from error
    # One thing alone can only be a store, which knows its targets.
    pair = made if isinstance(made, (tuple, list)) else (made, None)
    lengths = (2, 3)
    if len(pair) not in lengths or (pair[1] is None and not hasattr(type(pair[0]), "purge")):
        raise UsageProblem(f"--app {app!r}: {app.partition(':')[2]}() {_PAIR}")
    engine, targets, options = (*pair, {})[:3]
    if not isinstance(options, dict):
        raise UsageProblem(f"--app {app!r}: {app.partition(':')[2]}() {_PAIR}")
    base = Application(engine, options=cast("SweepOptions", options))
    if base.is_store:
        return base
    targets_of = document_targets if base.is_mongodb else table_targets
    found = targets_of(targets, with_ttl=with_ttl)
    shown = None if base.is_mongodb else getattr(engine, "url", None)  # there: a collection
    database = None if shown is None else urls.shown(shown.render_as_string(hide_password=True))
    return replace(base, targets=found, database=database)


def table_targets(given: Any, *, with_ttl: bool = True) -> list[Target]:
    """List the TTL tables, or all tables, of a declarative base, models, and so on."""
    if not with_ttl:
        from ttl_odm.inspection.readers import models  # noqa: PLC0415 (needs the extra)

        found = models.models_of(given).items() if given else ()
        return [Target(table.fullname, name, table) for table, name in found]
    from ttl_odm.sqlalchemy.sweep.targets import bindings_of  # noqa: PLC0415 (needs the extra)

    bindings = bindings_of(given)
    if not bindings:
        raise UsageProblem(f"{given!r} has no model with a TTL: declare __ttl__ on one.")
    return [Target(each.table.fullname, each.name, each.table) for each in bindings]


def document_targets(given: Any, *, with_ttl: bool = True) -> list[Target]:
    """List the TTL classes, or all, among document classes that `init_beanie` has seen."""
    from ttl_odm.beanie.policy.binding import binding_of  # noqa: PLC0415 (needs the extra)

    models = given if isinstance(given, (list, tuple, set)) else [given]
    classes = [each for each in models if isinstance(each, type)]
    found = [
        Target(str(each.get_settings().name), each.__name__, each)
        for each in cast("list[Any]", classes)
        if not with_ttl or binding_of(each) is not None
    ]
    if with_ttl and not found:
        raise UsageProblem(
            f"{given!r} has no document class with a TTL: make one a TTLMixin, or enable() it."
        )
    return found


async def _mongodb(url: str, given: Any, app: str | None, stack: AsyncExitStack) -> Any:
    """Connect, and let Beanie see the classes."""
    name = urls.mongodb_name(url)
    from beanie import init_beanie  # noqa: PLC0415 (needs the extra)

    from ttl_odm.beanie import ttl_database  # noqa: PLC0415

    client = _client(url)
    stack.push_async_callback(_close, client)
    database = ttl_database(client[name])
    models = list(given) if isinstance(given, (list, tuple, set)) else [given]
    if not all(isinstance(each, type) and hasattr(each, "model_fields") for each in models):
        raise UsageProblem(
            f"--app {app!r}: give a list of document classes for MongoDB, not {given!r}."
        )
    if models:
        await init_beanie(database=database, document_models=models)
    return database


def _client(url: str) -> Any:
    from importlib.metadata import version  # noqa: PLC0415

    first_without_motor = 2
    if int(version("beanie").partition(".")[0]) < first_without_motor:
        from motor.motor_asyncio import AsyncIOMotorClient  # noqa: PLC0415 (not for Beanie 2)

        return AsyncIOMotorClient(url, serverSelectionTimeoutMS=5_000)
    from pymongo import AsyncMongoClient  # noqa: PLC0415 (needs the extra)

    return AsyncMongoClient(url, serverSelectionTimeoutMS=5_000)


async def _close(client: Any) -> None:
    await answer(client.close())


async def _dispose(engine: Any) -> None:
    await answer(engine.dispose())


def package_of(engine: Any) -> str:
    """Return the package that an engine's class comes from, ours left out."""
    packages = [each.__module__.partition(".")[0] for each in type(engine).__mro__]
    return next(each for each in packages if each != "ttl_odm")


def _names_of(target: Target) -> tuple[str, ...]:
    return (target.name, target.name.rpartition(".")[2], target.model or target.name)
