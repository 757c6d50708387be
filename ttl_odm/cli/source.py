"""`Source`: what a command works on, according to options, environment and settings file."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from ttl_odm.cli.errors import UsageError
from ttl_odm.cli.tables import paired
from ttl_odm.cli.urls import pasted_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ttl_odm.cli.tables import Declared
    from ttl_odm.sweeper.command_line import Program

    Command = Callable[..., None]

_TYPED: Final = click.core.ParameterSource.COMMANDLINE

_OPTIONS: Final = (
    click.option(
        "--app",
        envvar="TTL_ODM_APP",
        metavar="MODULE:NAME",
        help="What to work on: a declarative base, a list of models or document classes, or a "
        "function that returns an engine together with one of these.",
    ),
    click.option(
        "--url",
        envvar="TTL_ODM_URL",
        metavar="URL",
        help="The database, unless --app provides it: postgresql://user@host/database, "
        "mysql://..., sqlite:///file, mongodb://host/database.",
    ),
)
_TABLE_OPTIONS: Final = (
    click.option(
        "--table",
        "tables",
        multiple=True,
        metavar="NAME",
        help="Instead of --app: this table or collection, with the --policy that follows; may be "
        "repeated.",
    ),
    click.option(
        "--policy",
        "policies",
        multiple=True,
        metavar="POLICY",
        help="The policy of a --table, as printed by inspect.",
    ),
)


@dataclass(frozen=True, slots=True)
class Source:
    """What a command works on.

    Attributes:
        app: The value of ``--app``.
        url: The database's URL.
        tables: The tables and collections without a model, by their names.
        words: The typed options among ``--app``, ``--table`` and ``--policy``, as words of a
            command line.
    """

    app: str | None = None
    url: str | None = None
    tables: Mapping[str, Declared] = field(default_factory=dict)
    words: Sequence[str] = ()

    def only(self, name: str) -> Source:
        """Return the source with only one of its tables; with none, if the name isn't there."""
        return replace(self, tables={name: self.tables[name]} if name in self.tables else {})

    def program(self, lease_name: str | None = None) -> Program:
        """Return the command line for another command of ``ttl-odm``: see `Program`.

        It repeats only typed options; the other command finds the environment and the file itself.
        """
        context, words = click.get_current_context(), [*self.words]
        if self.url is not None and self.is_url_typed:
            words += ["--url", pasted_url(self.url)]
        if lease_name is not None and context.get_parameter_source("lease_name") is _TYPED:
            words += ["--lease-name", lease_name]
        root, start = context.find_root(), ["ttl-odm"]
        if root.get_parameter_source("config") is _TYPED:
            start += ["--config", str(root.params["config"])]
        return lambda name: shlex.join([*start, name, *words])

    @property
    def is_url_typed(self) -> bool:
        """Whether the URL was typed for this command, not set in the environment or the file."""
        return click.get_current_context().get_parameter_source("url") is _TYPED


def app_options(command: Command) -> Command:
    """Add ``--app`` and ``--url`` to a command, which gets a `Source`."""
    return _with(command, _OPTIONS)


def source_options(command: Command) -> Command:
    """Add ``--table`` and ``--policy`` as well."""
    return _with(command, (*_OPTIONS, *_TABLE_OPTIONS))


def _with(command: Command, added: Sequence[Callable[[Command], Command]]) -> Command:
    @wraps(command)
    def wrapped(
        app: str | None,
        url: str | None,
        tables: Sequence[str] = (),
        policies: Sequence[str] = (),
        **options: Any,
    ) -> None:
        command(source=_source(app, url, tables, policies), **options)

    decorated: Command = wrapped
    for option in reversed(added):
        decorated = option(decorated)
    return decorated


def _source(
    app: str | None, url: str | None, tables: Sequence[str], policies: Sequence[str]
) -> Source:
    context = click.get_current_context()
    is_app_typed = context.get_parameter_source("app") is _TYPED
    known: Mapping[str, Declared] = context.find_root().obj or {}
    words = ["--app", app] if app is not None and is_app_typed else []
    if not (tables or policies):
        return Source(app, url, known, words)
    if is_app_typed:
        raise UsageError("--table is for tables without a model, --app for models: give only one.")
    words += (word for name in tables for word in ("--table", name))
    words += (word for policy in policies for word in ("--policy", policy))
    # An application in the environment or the file is then meant for other commands.
    return Source(None, url, paired(tables, policies, known), words)
