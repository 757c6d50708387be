"""Import every module of the named packages of ours, and see that they come from the wheel."""

import importlib
import pkgutil
import sys
from pathlib import Path

import ttl_odm

SITE = Path(sys.prefix).resolve()

for name in sys.argv[1:]:
    package = importlib.import_module(name)
    assert SITE in Path(package.__file__).resolve().parents, package.__file__
    for found in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}."):
        if not found.name.endswith("__main__"):  # that one runs
            try:
                importlib.import_module(found.name)
            except ModuleNotFoundError as error:
                # One adapter of two that an extra may leave out, never a module of ours.
                if not error.name or error.name.startswith("ttl_odm"):
                    raise

assert ttl_odm.__version__
