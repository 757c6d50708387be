"""``[tool.ttl_odm]`` in a file, pyproject.toml or another one: defaults of the commands' options.

A key is the name of an option with underscores. What stands in ``[tool.ttl_odm]`` itself holds for
every command that has the option, and ``[tool.ttl_odm.sweep]`` for that command
(``[tool.ttl_odm.policy]`` for all of its subcommands);
``[tool.ttl_odm.tables]`` has the policies of tables without a model. Options win over environment
variables, these over the file. A password has no place in it: ``url =
"$DATABASE_URL"`` names the environment variable that has the URL. A relative path of a SQLite file
is relative to the settings file: cron and systemd start in a directory of their own.
"""

from __future__ import annotations

import importlib
import os
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from ttl_odm.cli import tables
from ttl_odm.cli.errors import UsageError, did_you_mean
from ttl_odm.cli.options import Duration
from ttl_odm.cli.urls import in_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ttl_odm.cli.extensions import Commands
    from ttl_odm.cli.tables import Declared

    _Options = dict[str, click.Parameter]

FILE: Final = "pyproject.toml"


class Configuration(NamedTuple):
    """What the file says: click's ``default_map``, and tables with their policies."""

    defaults: dict[str, Any]
    tables: dict[str, Declared]


def read(commands: Commands, file: Path | None) -> Configuration:
    """Read the file, or pyproject.toml, here or above; a key that no command knows is refused.

    The defaults are those of commands that are loaded, as the one is that will run. A command of an
    extension is loaded if something is set for it, or might be.
    """
    _check_environment(commands)
    path = _nearest() if file is None else file
    if path is None:
        return Configuration({}, {})
    settings = {**_read(path)}
    where = f"{path}: [tool.ttl_odm.{tables.SECTION}]"
    declared = tables.of_file(settings.pop(tables.SECTION, {}), where)
    shared = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    own = {key: value for key, value in settings.items() if isinstance(value, dict)}
    if file is not None or path.parent != working_directory():
        for table in (shared, *own.values()):
            if isinstance(url := table.get("url"), str):
                table["url"] = in_folder(url, path.parent)
    every = _options(commands.loaded.values())
    if not every.keys() >= shared.keys():
        every = _options(commands.values())
    _check(shared, every, f"{path}: [tool.ttl_odm]")
    _check(own, commands, f"{path}: [tool.ttl_odm], as a command name,")
    for name, table in own.items():
        _check(table, _options([commands[name]]), f"{path}: [tool.ttl_odm.{name}]")
    defaults: dict[str, Any] = {}
    for name, command in commands.loaded.items():
        options = _options([command])
        values = {
            key: _resolved(value, options[key], f"{path}: {key}")
            for key, value in {**shared, **own.get(name, {})}.items()
            if key in options
        }
        for part, known in _parts(command).items():
            of_part = {key: value for key, value in values.items() if key in known}
            if part:  # click looks a subcommand's up below its group's
                of_part = {**defaults.get(name, {}), part: of_part}
            defaults[name] = of_part
    return Configuration(defaults, declared)


def _options(commands: Iterable[click.Command]) -> _Options:
    """The options of some commands, and of their subcommands."""
    parts = chain.from_iterable(_parts(command).values() for command in commands)
    return dict(chain.from_iterable(options.items() for options in parts))


def _parts(command: click.Command) -> dict[str, _Options]:
    """The options of each subcommand of a group; of any other command under an empty name."""
    if isinstance(command, click.Group):
        return {name: _parts(part)[""] for name, part in command.commands.items()}
    # --config itself, which no command gets, can't be in the file.
    return {
        "": {
            option.name: option for option in command.params if option.name and option.expose_value
        }
    }


def _nearest() -> Path | None:
    here = working_directory()
    files = (folder / FILE for folder in (here, *here.parents))
    return next((file for file in files if file.is_file()), None)


def working_directory() -> Path:
    """Where we are; it may have been deleted since."""
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError(f"The working directory no longer exists: {error.strerror}.") from error


def _read(path: Path) -> Mapping[str, Any]:
    tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} can't be read: {error}.") from error
    tool = content.get("tool", {})
    settings = tool.get("ttl_odm", {}) if isinstance(tool, dict) else {}
    if not isinstance(settings, dict):
        raise UsageError(f"{path}: [tool.ttl_odm] must be a table.")
    return settings


def _check_environment(commands: Commands) -> None:
    """Reject variables of a command that no option has: click would ignore them.

    ``TTL_ODM_SWEEP_MODEL`` for ``..._MODELS`` would then sweep everything.
    """
    for command in commands:
        prefix = f"TTL_ODM_{_in_variables(command)}_"
        # Kubernetes sets such ones for a service that is called ttl-odm-run.
        kubernetes = (f"{prefix}SERVICE_", f"{prefix}PORT")
        variables = [
            variable
            for variable in os.environ
            if variable.startswith(prefix) and not variable.startswith(kubernetes)
        ]
        if not variables:
            continue
        known = [
            prefix + _in_variables(f"{part}_{name}" if part else name)
            for part, names in _parts(commands[command]).items()
            for name in names
        ]
        _check(variables, known, "the environment")


def _in_variables(name: str) -> str:
    return name.replace("-", "_").upper()


def _check(keys: Iterable[str], known: Iterable[str], where: str) -> None:
    for key in keys:
        if key not in known:
            hint = did_you_mean(key, known)
            raise UsageError(f"{where} has an unknown key {key!r}{hint}.")


def _check_kind(value: Any, option: click.Parameter, where: str) -> None:
    """Refuse what click would convert, as true to 1, or fail at, as a list or a date."""
    if option.multiple:
        if not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise UsageError(f"{where} = {value!r}: give a list of names.")
        return
    is_flag = option.type is click.BOOL or getattr(option, "is_flag", False)
    is_path = isinstance(option.type, click.Path)
    kinds = (str, bool) if is_flag else (str,) if is_path else (str, int, float)
    is_whole = isinstance(option.type, type(click.INT))
    is_number = is_whole or isinstance(option.type, (type(click.FLOAT), Duration))
    wanted = "true or false" if is_flag else "a number" if is_number else "a string"
    if not isinstance(value, kinds) or (isinstance(value, bool) and not is_flag):
        raise UsageError(f"{where} = {value!r}: give {wanted}.")
    if is_whole and isinstance(value, float):
        raise UsageError(f"{where} = {value!r}: give a whole number.")


def _resolved(value: Any, option: click.Parameter, where: str) -> Any:
    _check_kind(value, option, where)
    if not (isinstance(value, str) and value.startswith("$")):
        return value
    name = value[1:].strip("{}")
    content = os.environ.get(name)
    if not content:
        raise UsageError(f"{where} = {value!r}: the environment variable {name} is not set.")
    return content
