"""``module:attribute`` on the command line: importing it, and saying well why that failed."""

from __future__ import annotations

import importlib
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ttl_odm.cli.errors import UsageError, in_one_line


def load(spec: str, option: str) -> Any:
    """Import an object.

    The working directory is looked in first, as ``python -m`` does.

    Args:
        spec: ``package.module:attribute``.
        option: The option it is the value of, for messages: ``--app``.

    Raises:
        UsageError: It isn't there.
    """
    module_name, colon, path = spec.partition(":")
    if not (colon and module_name and path):
        raise UsageError(
            f"{option} {spec!r}: give a module and a name in it, such as myapp.models:Base."
        )
    value = _module(module_name, f"{option} {spec!r}")
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError as error:
            public = [attribute for attribute in dir(value) if attribute[0] != "_"]
            near = get_close_matches(name, public, n=3)
            hint = f" (there is {', '.join(near)})" if near else ""
            raise UsageError(f"{option} {spec!r}: {module_name} has no {name!r}{hint}.") from error
    return value


def _module(name: str, where: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise UsageError(
                f"{where}: there is no module {missing!r}, neither here nor in the environment of "
                f"{sys.executable}."
            ) from error
        raise UsageError(f"{where}: {name} needs the module {missing!r}.") from error
    except Exception as error:
        raise failure(f"{where}: importing {name}", error) from error


def failure(what: str, error: Exception) -> UsageError:
    """Return the error that code of the application's failed, and in which line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return UsageError(
        f"{what} failed with {type(error).__name__}: {in_one_line(error)} "
        f"({last.filename}, line {last.lineno})."
    )
