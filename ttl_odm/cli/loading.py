"""``module:attribute`` on the command line: importing it, and saying well why that failed."""

from __future__ import annotations

import importlib
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ttl_odm.cli.problems import UsageProblem, in_one_line


def load(spec: str, option: str) -> Any:
    """Import an object.

    The working directory is looked in first, as ``python -m`` does.

    Args:
        spec: ``package.module:attribute``.
        option: What it was given by, for messages: ``--app``.

    Raises:
        UsageProblem: It isn't there.
    """
    module_name, colon, path = spec.partition(":")
    if not (colon and module_name and path):
        raise UsageProblem(
            f"{option} {spec!r}: give a module and a name in it, such as myapp.models:Base."
        )
    found = _module(module_name, f"{option} {spec!r}")
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            near = get_close_matches(name, [each for each in dir(found) if each[0] != "_"], n=3)
            hint = f" (there is {', '.join(near)})" if near else ""
            raise UsageProblem(
                f"{option} {spec!r}: {module_name} has no {name!r}{hint}."
            ) from error
    return found


def _module(name: str, where: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise UsageProblem(
                f"{where}: there is no module {missing!r}, neither here nor in the environment of "
                f"{sys.executable}."
            ) from error
        raise UsageProblem(f"{where}: {name} needs the module {missing!r}.") from error
    except Exception as error:
        raise failed(f"{where}: importing {name}", error) from error


def failed(what: str, error: Exception) -> UsageProblem:
    """Say that code of the application's failed, and in which line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return UsageProblem(
        f"{what} failed with {type(error).__name__}: {in_one_line(error)} "
        f"({last.filename}, line {last.lineno})."
    )
