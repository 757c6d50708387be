"""The newest Pythons, which few machines have yet: from Debian's unstable suite, if not here.

Only what differs by interpreter is tested with them, on SQLite; `.venv` and `.venv-lowest` run
everything.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from environments import ROOT, Environment, works
from local_servers.suites import Suite

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSIONS: Final = ("3.14", "3.15")

FOLDERS: Final = ("tests/unit", "tests/contract", "tests/sql")
"""What runs with each of them."""

# A requirement of the extras that can't be installed yet, because a package that it depends on has
# no wheel for the newest Python: zstandard 0.25.
_OVERRIDES: Final = "langgraph>=1.0.10; python_version < '3.15'\n"


def python(version: str) -> str:
    """Return the path of an interpreter; download it if it is not on this machine.

    Raises:
        ServerError: It can't be downloaded.
    """
    here = shutil.which(f"python{version}")
    if here is not None and works(here, int(version.partition(".")[2])):
        return here
    # Wheels in C++ expect that library of the machine.
    packages = (f"python{version}", "libstdc++6")
    suite = Suite("sid", packages, (("python", f"usr/bin/python{version}"),))
    if (found := suite.find()) is None:
        suite.bring()
        found = suite.find() or {}
    return found["python"]


def environment(version: str, uv: str) -> Environment:
    """Describe the environment of a Python, with all extras and what the suite needs.

    Args:
        version: Such as `3.14`.
        uv: The path of uv, which installs into a Python that has no pip of its own.
    """
    overrides = ROOT / "build" / "overrides.txt"
    overrides.parent.mkdir(exist_ok=True)
    overrides.write_text(_OVERRIDES)
    return Environment(
        ROOT / f".venv-{version}",
        python(version),
        ("-e", f"{ROOT}[all,test]"),
        (uv, "--override", str(overrides), "--only-binary", ":all:", "--no-binary", "ttl-odm"),
    )


def steps(version: str, made: Environment, words: list[str]) -> Mapping[str, list[str]]:
    """Return what to run in its environment, by titles.

    `words` go to pytest. The compiler's own warnings show only where there is no bytecode yet.
    """
    cache = f"pycache_prefix={ROOT / 'build' / 'pycache'}"
    compiler = ("-W", "error", "-X", cache, "-m", "compileall", "-q", "-f", "ttl_odm", "tests")
    return {
        f"compile with {version}": [made.program("python"), *compiler],
        f"pytest with {version}": [
            *(made.program("python"), "-m", "pytest", "--only", "sqlite", *FOLDERS, *words)
        ],
    }
