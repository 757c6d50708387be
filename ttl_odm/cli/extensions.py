"""The commands and checks that extensions bring to the command line.

They are listed by the names of their modules, which are imported when a command or check is needed,
and are left out if the extension isn't there. Everything else that `check` reports of an extension
comes with a declaration: see `ttl_odm.sqlalchemy.policy.rules` and
`ttl_odm.sqlalchemy.sweep.whereabouts`.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import MutableMapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import click
    from sqlalchemy import Connection

    from ttl_odm.beanie.drivers import Database
    from ttl_odm.cli.application import Application, Target
    from ttl_odm.cli.checked_table import CheckedTable
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sweeper.findings import Finding

_COMMANDS: Final = {
    "events": "ttl_odm.events.cli.commands",
    "install-sweep": "ttl_odm.database_sweep.cli.install_sweep",
    "policy": "ttl_odm.stored.cli.policy",
}
"""Modules, each with a ``command``."""

_CHECKS: Final = ("ttl_odm.database_sweep.cli.checks", "ttl_odm.events.cli.checks")
"""Modules, each with ``checks``: `TableChecks`."""

_MONGODB_CHECKS: Final = ("ttl_odm.events.cli.checks_mongodb",)
"""Modules, each with ``check``: a coroutine function that returns findings on a database and its
targets. It runs after the checks of the base."""

_STATUS: Final = {"ttl_odm.events": "ttl_odm.events.cli.commands"}
"""Modules with ``further_status``, by extension: `status` asks it if the application uses it."""


class Commands(MutableMapping[str, "click.Command"]):
    """Commands by their names; those of extensions are imported when they are looked up.

    Attributes:
        loaded: The commands that have been added or looked up.
    """

    def __init__(
        self,
        modules: Mapping[str, str],
        prepare: Callable[[click.Command], None] = lambda command: None,  # noqa: ARG005
    ) -> None:
        """Begin with the commands of extensions.

        Args:
            modules: The modules with an extension's ``command``, by its name.
            prepare: Called with each command of an extension when it has been imported.
        """
        self.loaded: dict[str, click.Command] = {}
        self._modules = dict(modules)
        self._prepare = prepare

    def __getitem__(self, name: str) -> click.Command:
        """Return a command, imported if need be."""
        if name not in self.loaded and name in self._modules:
            command = cast("click.Command", import_module(self._modules[name]).command)
            self._prepare(command)
            self.loaded[name] = command
        return self.loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        """Add a command."""
        self.loaded[name] = command

    def __delitem__(self, name: str) -> None:
        """Remove a command."""
        self._modules.pop(name, None)
        self.loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(dict.fromkeys((*self.loaded, *self._modules)))

    def __len__(self) -> int:
        """Return the number of commands."""
        return len({*self.loaded, *self._modules})


def installed_commands() -> dict[str, str]:
    """Return the modules of commands of installed extensions, by the command's name."""
    return {name: module for name, module in _COMMANDS.items() if is_installed(module)}


class TableChecks(ABC):
    """Checks of an extension that no model declares, so they look at every table with a policy.

    Attributes:
        subject: The subject of the checks, for the finding that they failed.
    """

    subject: str

    @abstractmethod
    def findings(self, checked: CheckedTable) -> Iterator[Finding]:
        """Yield what is wrong with a table."""

    @abstractmethod
    def needs_sweeper(self, connection: Connection, binding: Binding) -> bool:
        """Whether expired rows of a table stay unless a sweeper deletes them.

        The connection is in a transaction.
        """


def table_checks() -> list[TableChecks]:
    """Return the checks of all installed extensions."""
    return [import_module(module).checks for module in _CHECKS if is_installed(module)]


async def mongodb_findings(database: Database, targets: Sequence[Target]) -> list[Finding]:
    """Return the findings of all installed extensions on a MongoDB database."""
    modules = [import_module(module) for module in _MONGODB_CHECKS if is_installed(module)]
    return [finding for module in modules for finding in await module.check(database, targets)]


class FurtherStatus(NamedTuple):
    """What an extension adds to ``ttl-odm status``.

    Attributes:
        name: The key in JSON.
        rows: A table for people, its head first.
        content: The value in JSON.
    """

    name: str
    rows: Sequence[Sequence[str]]
    content: object


async def further_status(app: Application) -> list[FurtherStatus]:
    """Return the status of the extensions that the application has imported."""
    modules = (module for name, module in _STATUS.items() if name in sys.modules)
    parts = [await import_module(module).further_status(app) for module in modules]
    return [part for part in parts if part is not None]


def is_installed(module: str) -> bool:
    """Whether the extension of a module is installed; imports nothing."""
    return find_spec(".".join(module.split(".")[:2])) is not None
