"""`connect`: an `Application` from ``--app`` and ``--url``, whose connections end with the command.

Also `load`, which imports a ``module:attribute`` and reports well why that failed.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import click

from ttl_odm.cli import urls
from ttl_odm.cli.application import Application, Target, answer, sql_targets
from ttl_odm.cli.configuration import working_directory
from ttl_odm.cli.errors import UsageError, in_one_line
from ttl_odm.cli.tables import document_classes, enabled_tables
from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from ttl_odm.cli.source import Source
    from ttl_odm.cli.tables import Declared
    from ttl_odm.sweeper import SweepOptions

_APP_NEEDED: Final = (
    "Specify what to work on: give --app module:Base (a declarative base, a list of models or "
    "document classes, or a function that returns an engine together with one of these), "
    "TTL_ODM_APP, or app in [tool.ttl_odm] of pyproject.toml. Without models, give --table NAME "
    "--policy POLICY, or [tool.ttl_odm.tables]; ttl-odm inspect proposes policies."
)
_TABLES_NEEDED: Final = (
    "The database is known, but not which of its tables to work on: give --table NAME --policy "
    "POLICY, or --app module:Base; in a settings file written by ttl-odm inspect, remove the # "
    "before each policy that is right."
)
_UNSEEN: Final = (
    "Usually the models' module was not imported: point --app at it, or at one that imports it; "
    "see docs/cli.md#what-to-work-on."
)
_PAIR: Final = (
    "must return an engine (for MongoDB: the result of ttl_database()), what to sweep, and "
    "optionally a dict of sweeper options: return engine, Base"
)


@asynccontextmanager
async def connect(source: Source, *, with_ttl: bool = True) -> AsyncIterator[Application]:
    """Open the application of a source, and close its connections at the end.

    Args:
        source: Names the application. Its tables become the last targets.
        with_ttl: Whether the targets are only those with a TTL. If not, they are all tables or
            document classes, and a URL alone is enough.
    """
    app, url, tables = source.app, source.url, source.tables
    if app is None and not tables and (with_ttl or url is None):
        raise UsageError(_APP_NEEDED if url is None else _TABLES_NEEDED)
    models = None if app is None else load(app, "--app")
    async with AsyncExitStack() as stack:
        if app is not None and callable(models) and not isinstance(models, type):
            # A URL in a variable or a file may be meant for other commands, but not a typed one.
            if source.is_url_typed:
                raise UsageError(
                    f"--url: --app {app!r} is a function, which chooses the database itself."
                )
            application = await _from_factory(models, app, stack, with_ttl=with_ttl)
            yield await _with_tables(application, tables, stack)
        elif url is None:
            what = f"--app {app!r} doesn't say" if app is not None else "Nothing says"
            raise UsageError(
                f"{what} where the database is: give --url, TTL_ODM_URL, or url in [tool.ttl_odm]; "
                "or point --app at a function that returns an engine and models."
            )
        elif urls.is_mongodb(url):
            database = await _mongodb(url, models, app, stack)
            targets = [] if app is None else _documents(models, with_ttl=with_ttl)
            application = Application(database, targets, database=urls.public_url(url))
            yield await _with_tables(application, tables, stack)
        else:
            application = await database_of(url, stack)
            targets = [] if app is None else _tables(models, with_ttl=with_ttl)
            yield await _with_tables(replace(application, targets=targets), tables, stack)


async def database_of(url: str, stack: AsyncExitStack) -> Application:
    """Return the database of a URL, without targets; the stack closes its connections."""
    if urls.is_mongodb(url):
        return Application(await _mongodb(url, None, None, stack), database=urls.public_url(url))
    engine = urls.sql_engine(url)

    async def dispose() -> None:
        await answer(engine.dispose())

    stack.push_async_callback(dispose)
    return Application(engine, database=urls.public_url(url))


async def _with_tables(
    application: Application, tables: Mapping[str, Declared], stack: AsyncExitStack
) -> Application:
    """Add the tables and collections without a model as targets; reject those with one."""
    if not tables:
        return application
    if application.is_store:
        raise UsageError("[tool.ttl_odm.tables] can't be used with a custom store.")
    if application.is_mongodb:
        classes = document_classes(tables, stack)
        from beanie import init_beanie  # noqa: PLC0415 (needs the extra)

        await init_beanie(database=application.engine, document_models=classes)
        own = _documents(classes, with_ttl=True)
    else:
        bare_tables = await application.ask(partial(enabled_tables, tables=tables, ending=stack))
        own = _tables(bare_tables, with_ttl=True)
    for target in own:
        if models := application.named(target.name):
            raise UsageError(
                f"{tables[target.name].where}: --app has a model for this table, "
                f"{models[0].model or models[0].name}, which declares its policy."
            )
    own = [replace(target, model=None) for target in own]  # the class, if any, isn't the user's
    return replace(application, targets=[*application.targets, *own])


def load(spec: str, option: str) -> Any:
    """Import the ``package.module:attribute`` of an option, first from the working directory."""
    module_name, colon, path = spec.partition(":")
    if not (colon and module_name and path):
        raise UsageError(f"{option} {spec!r}: give MODULE:NAME, such as myapp.models:Base.")
    where, here = f"{option} {spec!r}", str(working_directory())
    if module_name.endswith(".py") or "/" in module_name:
        name = ".".join(
            part for part in module_name.removesuffix(".py").split("/") if part.strip(".")
        )
        raise UsageError(f"{where}: give the name of the module, not its file: {name}:{path}.")
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        value: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise UsageError(
                f"{where}: there is no module {missing!r}, neither in this directory nor in the "
                f"environment of {sys.executable}."
            ) from error
        raise UsageError(
            f"{where}: {module_name} imports {missing!r}, which is missing."
        ) from error
    except (Exception, SystemExit) as error:  # the latter's status would be taken for the command's
        raise _failure(f"{where}: importing {module_name}", error) from error
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError as error:
            public = [attribute for attribute in dir(value) if attribute[0] != "_"]
            near = get_close_matches(name, public, n=3)
            hint = f" (did you mean {', '.join(near)}?)" if near else ""
            raise UsageError(f"{where}: {module_name} has no {name!r}{hint}.") from error
    return value


def _failure(what: str, error: Exception | SystemExit) -> UsageError:
    """Return the error for a failure in the application's code, with the line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return UsageError(
        f"{what} failed with {type(error).__name__}: {in_one_line(error)} "
        f"({last.filename}, line {last.lineno})."
    )


async def _from_factory(
    factory: Callable[[], object], app: str, stack: AsyncExitStack, *, with_ttl: bool
) -> Application:
    try:
        result: Any = await answer(factory())
        if hasattr(result, "__aenter__"):
            result = await stack.enter_async_context(result)
        elif hasattr(result, "__enter__"):
            result = stack.enter_context(result)
    except (click.ClickException, TTLError):
        raise
    except (Exception, SystemExit) as error:
        raise _failure(f"--app {app!r}: calling it", error) from error
    # A single value can only be a store, which knows its targets.
    parts = result if isinstance(result, (tuple, list)) else (result, None)
    wrong = UsageError(f"--app {app!r}: {app.partition(':')[2]}() {_PAIR}")
    lengths = (2, 3)
    if len(parts) not in lengths or (parts[1] is None and not hasattr(type(parts[0]), "purge")):
        raise wrong
    engine, models, options = (*parts, {})[:3]
    if not isinstance(options, dict):
        raise wrong
    application = Application(engine, options=cast("SweepOptions", options))
    if application.is_store:
        return application
    if application.is_mongodb:  # `url` would be a collection there
        return replace(application, targets=_documents(models, with_ttl=with_ttl))
    url = getattr(engine, "url", None)
    database = None if url is None else urls.public_url(url.render_as_string(hide_password=True))
    return replace(application, targets=_tables(models, with_ttl=with_ttl), database=database)


def _tables(models: object, *, with_ttl: bool) -> list[Target]:
    """List the tables with a TTL, or all tables, of a declarative base or of models."""
    if not with_ttl:
        from ttl_odm.inspection.readers.models import models_of  # noqa: PLC0415 (needs the extra)

        named = {} if models is None else models_of(models)
        return [
            Target(table.fullname, None if model is None else model.__name__, table)
            for table, model in named.items()
        ]
    targets = sql_targets(models)
    if targets:
        return targets
    from ttl_odm.sqlalchemy.policy.second_tables import policies_for  # noqa: PLC0415 (the extra)

    for table in getattr(getattr(models, "metadata", models), "tables", {}).values():
        if policies_for(table):
            raise UsageError(
                f"{models!r} has no model with a TTL. Table {table.fullname!r} in it is a second "
                "Table object of that name; the policy was given to the other one. Point --app at "
                "that Table, its model, or its MetaData."
            )
    raise UsageError(
        f"{models!r} has no model with a TTL: declare __ttl__ on one or enable() it. {_UNSEEN}"
    )


def _documents(models: object, *, with_ttl: bool) -> list[Target]:
    """List the classes with a TTL, or all, among classes that `init_beanie` has seen."""
    from ttl_odm.beanie.policy.bindings import (  # noqa: PLC0415 (needs the extra)
        binding_of,
        check_enforced,
    )
    from ttl_odm.beanie.policy.rules import rule_of  # noqa: PLC0415 (as above)

    classes: list[Any] = [
        model
        for model in _listed(models)
        if isinstance(model, type) and hasattr(model, "model_fields")  # a UnionDoc has none
    ]
    for model in classes:
        check_enforced(model)
    targets = [
        Target(str(model.get_settings().name), model.__name__, model, _dependents(model))
        for model in classes
        if not with_ttl or binding_of(model) is not None
    ]
    if with_ttl and not targets:
        for model in classes:
            _ = (rule := rule_of(model)) and rule.links  # raises if the rule is wrong
        raise UsageError(
            f"{models!r} has no document class with a TTL: add TTLMixin to one or enable() it. "
            f"{_UNSEEN}"
        )
    return targets


def _dependents(model: Any) -> Sequence[Target]:
    """List the classes whose documents expire with those of a class."""
    from ttl_odm.beanie.policy.bindings import binding_of, collection_of  # noqa: PLC0415
    from ttl_odm.beanie.policy.rules import all_rules_below  # noqa: PLC0415

    if binding_of(model) is None:
        return ()
    return [
        Target(rule.collection, rule.model.__name__, rule.model)
        for rule in all_rules_below(collection_of(model))
    ]


def _listed(models: object) -> list[Any]:
    if models is None:
        return []
    return list(models) if isinstance(models, (list, tuple, set)) else [models]


async def _mongodb(url: str, models: object, app: str | None, stack: AsyncExitStack) -> Any:
    """Connect, and call `init_beanie` for the classes."""
    name = urls.mongodb_name(url)
    from beanie import init_beanie  # noqa: PLC0415 (needs the extra)
    from beanie.exceptions import (  # noqa: PLC0415 (as above)
        CollectionWasNotInitialized,
        UnionDocNotInited,
    )

    from ttl_odm.beanie import ttl_database  # noqa: PLC0415

    client = urls.mongodb_client(url)

    async def close() -> None:
        await answer(client.close())

    stack.push_async_callback(close)
    database = ttl_database(client[name])
    classes = _listed(models)
    if not all(isinstance(model, type) and hasattr(model, "get_settings") for model in classes):
        raise UsageError(
            f"--app {app!r}: give a list of document classes for MongoDB, not {models!r}."
        )
    if classes:
        try:
            await init_beanie(database=database, document_models=classes)
        except (CollectionWasNotInitialized, UnionDocNotInited):
            raise UsageError(
                f"--app {app!r}: a class belongs to a UnionDoc, or a view reads a class, that the "
                "list lacks: name a list of all classes that the application gives init_beanie()."
            ) from None
    return database
