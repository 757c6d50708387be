"""What extensions bring to the command line: commands, and checks of tables.

They are here by the names of their modules, which aren't imported before a command, or a check, is
asked for, and are missed where an extension isn't there. Everything else that `check` reports of an
extension comes with a declaration: see `ttl_odm.sqlalchemy.policy.rules`, and
`ttl_odm.sqlalchemy.sweep.whereabouts`.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import MutableMapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import click
    from sqlalchemy import Connection

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
targets. They are asked after the checks of the base."""

_STATUS: Final = {"ttl_odm.events": "ttl_odm.events.cli.commands"}
"""Modules with ``further_status``, by the extension: `status` asks where an application uses it."""


class Commands(MutableMapping[str, "click.Command"]):
    """Commands by their names; those of extensions are imported when they are looked up.

    Attributes:
        loaded: Those that have been added or looked up.
    """

    def __init__(
        self,
        modules: Mapping[str, str],
        prepare: Callable[[click.Command], None] = lambda command: None,  # noqa: ARG005
    ) -> None:
        """Make one without commands but those of extensions.

        Args:
            modules: The names of the modules that have these, as ``command``.
            prepare: Called with each of them when it has been imported.
        """
        self.loaded: dict[str, click.Command] = {}
        self._modules = dict(modules)
        self._prepare = prepare

    def __getitem__(self, name: str) -> click.Command:
        """Return a command, and import it if need be."""
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
        """Go through the names."""
        return iter(dict.fromkeys((*self.loaded, *self._modules)))

    def __len__(self) -> int:
        """Return how many there are."""
        return len({*self.loaded, *self._modules})


def commands_there() -> dict[str, str]:
    """Return the names and modules of the commands of ``ttl-odm`` that extensions bring."""
    return {name: module for name, module in _COMMANDS.items() if is_there(module)}


class TableChecks(ABC):
    """What an extension looks at in every table with a policy, since no model tells of it.

    Attributes:
        subject: What it looks at, for the finding that it can't.
    """

    subject: str

    @abstractmethod
    def findings(self, checked: CheckedTable) -> Iterator[Finding]:
        """Report what isn't as it should be."""

    @abstractmethod
    def needs_sweeper(self, connection: Connection, binding: Binding) -> bool:
        """Whether expired rows of a table stay unless a sweeper deletes them; in a transaction."""


def table_checks() -> list[TableChecks]:
    """Return the checks of all extensions that are there."""
    return [import_module(module).checks for module in _CHECKS if is_there(module)]


async def mongodb_findings(database: Any, targets: Sequence[Target]) -> list[Finding]:
    """Ask all extensions that are there about a database of MongoDB."""
    modules = [import_module(module) for module in _MONGODB_CHECKS if is_there(module)]
    return [one for module in modules for one in await module.check(database, targets)]


class FurtherStatus(NamedTuple):
    """What an extension adds to ``ttl-odm status``.

    Attributes:
        name: Under which JSON has it.
        rows: A table for people, its head first.
        content: What JSON has.
    """

    name: str
    rows: Sequence[Sequence[str]]
    content: object


async def further_status(app: Application) -> list[FurtherStatus]:
    """Ask the extensions that the application has imported."""
    modules = (module for name, module in _STATUS.items() if name in sys.modules)
    found = [await import_module(module).further_status(app) for module in modules]
    return [one for one in found if one is not None]


def is_there(module: str) -> bool:
    """Whether there is the extension that a module belongs to, or is; nothing is imported."""
    return find_spec(".".join(module.split(".")[:2])) is not None
