"""``[tool.ttl_odm]`` in pyproject.toml or another file: defaults of the commands' options.

A key is the name of an option with underscores. A key in ``[tool.ttl_odm]`` itself holds for every
command that has the option, one in ``[tool.ttl_odm.sweep]`` for that command, and one in
``[tool.ttl_odm.policy]`` for all of its subcommands. ``[tool.ttl_odm.tables]`` has the policies of
tables without a model. Options take precedence over environment variables, which take precedence
over the file. The file shouldn't have passwords: ``url = "$DATABASE_URL"`` names the environment
variable that has the URL. A relative path of a SQLite file starts at the settings file, since cron
and systemd start commands in a directory of their own.
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
    """The content of the file: click's ``default_map``, and tables with their policies."""

    defaults: dict[str, Any]
    tables: dict[str, Declared]


def read(commands: Commands, file: Path | None) -> Configuration:
    """Read the file, or the nearest pyproject.toml in this directory or above.

    The defaults are those of the loaded commands, which include the command that will run. A
    command of an extension is loaded if the file has, or may have, a key for it.

    Raises:
        UsageError: The file can't be read, or no command knows one of its keys.
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
    options = _options(commands.loaded.values())
    if not options.keys() >= shared.keys():
        options = _options(commands.values())
    _check(shared, options, f"{path}: [tool.ttl_odm]")
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
    """Return the options of some commands and of their subcommands."""
    parts = chain.from_iterable(_parts(command).values() for command in commands)
    return dict(chain.from_iterable(options.items() for options in parts))


def _parts(command: click.Command) -> dict[str, _Options]:
    """Return the options of each subcommand of a group; any other command's have an empty name."""
    if isinstance(command, click.Group):
        return {name: _parts(part)[""] for name, part in command.commands.items()}
    # --config, which isn't exposed to commands, can't be in the file.
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
    """Return the working directory, unless it has been deleted."""
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
    """Reject environment variables of a command that belong to no option of it.

    click would ignore them, and ``TTL_ODM_SWEEP_MODEL`` for ``..._MODELS`` would sweep everything.
    """
    for command in commands:
        prefix = f"TTL_ODM_{_in_variables(command)}_"
        # Kubernetes sets these for a service whose name is ttl-odm-run.
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
            hint = did_you_mean(key, known) or "."
            raise UsageError(f"{where} has an unknown key {key!r}{hint}")


def _check_kind(value: object, option: click.Parameter, where: str) -> None:
    """Reject values that click would convert (true to 1) or fail on (a list, a date)."""
    if option.multiple:
        if not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise UsageError(f"{where} = {value!r}: give a list of names.")
        return
    is_flag = option.type is click.BOOL or getattr(option, "is_flag", False)
    is_path = isinstance(option.type, click.Path)
    kinds = (str, bool) if is_flag else (str,) if is_path else (str, int, float)
    is_whole = isinstance(option.type, type(click.INT))
    is_number = is_whole or isinstance(option.type, (type(click.FLOAT), Duration))
    kind = "true or false" if is_flag else "a number" if is_number else "a string"
    if not isinstance(value, kinds) or (isinstance(value, bool) and not is_flag):
        raise UsageError(f"{where} = {value!r}: give {kind}.")
    if is_whole and isinstance(value, float):
        raise UsageError(f"{where} = {value!r}: give a whole number.")


def _resolved(value: object, option: click.Parameter, where: str) -> object:
    """Return a value of the file, which may name an environment variable."""
    _check_kind(value, option, where)
    if not (isinstance(value, str) and value.startswith("$")):
        return value
    name = value[1:].strip("{}")
    content = os.environ.get(name)
    if not content:
        raise UsageError(f"{where} = {value!r}: the environment variable {name} is not set.")
    return content
