"""The virtual environments that the commands work in, made when needed and kept until stale.

| folder | what it holds |
|---|---|
| `.venv` | every extra, every tool, the newest versions of all, on the newest Python here |
| `.venv-lowest` | the lowest versions of what the library runs with, on the lowest Python here |
| `.venv-demo` | what a user of the demo would install, and nothing else |
| `.venv-rivals` | another package, to compare ours with: tools/leaks.py and benchmarks/ |
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from terminal import run, say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[1]
_PYPROJECT = ROOT / "pyproject.toml"
_STAMP = "ttl-odm-stamp"
_LOWEST_EXTRAS = (
    "sqlalchemy",
    "motor",
    "alembic",
    "flask",
    "fastapi",
    "django",
    "cli",
    "metrics",
    "guard",
    "langgraph",
)
_BOUND = re.compile(r'"([A-Za-z0-9-]+)(?:\[[a-z,]+\])?>=([0-9.]+)')
_LOWEST_MINOR = 10
_BEYOND_ANY_MINOR = 30

# Its newest release, and the newest SQLAlchemy that its metadata allow: "sqlalchemy<2.1,>=1.4".
EASY = "sqlalchemy-easy-softdelete==0.9.1"
EASY_SQLALCHEMY = "sqlalchemy[asyncio]==2.0.58"

# An interpreter counts if it can make environments and has what the drivers need. One that we look
# for has been released, and isn't an environment's own: making that anew would remove it.
_PROBE = """
import ensurepip, sqlite3, ssl, sys, venv
print(*sys.version_info[:2], sys.version_info.releaselevel, sys.prefix == sys.base_prefix)
"""


class CannotMakeError(Exception):
    """An environment could not be made; the message says what to do."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment of the repository.

    Attributes:
        folder: where it is.
        python: the interpreter to make it with.
        requirements: what pip installs into it.
    """

    folder: Path
    python: str
    requirements: tuple[str, ...]

    def program(self, name: str) -> str:
        """Return the path of one of its programs."""
        return str(self.folder / "bin" / name)

    def make(self) -> None:
        """Make it, or bring it up to date, unless it fits pyproject.toml as it is now.

        Raises:
            CannotMakeError: the interpreter or pip failed.
        """
        with _only_one_at_a_time():
            stamp = self.folder / _STAMP
            old = stamp.read_text() if stamp.exists() else ""
            new = f"{self.python}\n{self._fingerprint()}\n"
            if old == new:
                return
            if self.folder.is_symlink():
                message = f"{self.folder} is a link and out of date: make it where it really is"
                raise CannotMakeError(message)
            say(f"{self.folder.name}: making it with {self.python}")
            # Start over unless a complete environment of the same interpreter only grew old.
            begin = [] if old.startswith(f"{self.python}\n") else ["--clear"]
            stamp.unlink(missing_ok=True)
            self._run([self.python, "-m", "venv", *begin, str(self.folder)])
            say(f"{self.folder.name}: installing {' '.join(self.requirements)}")
            self._run(
                [
                    *(self.program("python"), "-m", "pip", "install", "--quiet", "--quiet"),
                    *("--disable-pip-version-check", "--no-warn-script-location"),
                    *("--upgrade", "--upgrade-strategy", "eager", *self.requirements),
                ]
            )
            stamp.write_text(new)

    def _fingerprint(self) -> str:
        parts = (_PYPROJECT.read_text(), str(self.folder), *self.requirements)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _run(self, arguments: list[str]) -> None:
        if run(arguments) != 0:
            message = f"{self.folder.name} could not be made (see above)"
            raise CannotMakeError(message)


def development() -> Environment:
    """Describe the environment with everything, on the newest Python here.

    The newest releases of some frameworks run on nothing older (Django 6 asks for 3.12).
    """
    return Environment(ROOT / ".venv", _newest_python(), ("-e", f"{ROOT}[dev]"))


def lowest() -> Environment:
    """Describe the environment with the lowest versions of all that the library runs with.

    Its Beanie is 1.30, which speaks to MongoDB through Motor; `all` asks for Beanie 2. What only
    the tests need is the newest that goes with these.
    """
    pins = _lower_bounds(_PYPROJECT.read_text(), _LOWEST_EXTRAS)
    extras = ",".join((*_LOWEST_EXTRAS, "test"))
    return Environment(ROOT / ".venv-lowest", _lowest_python(), ("-e", f"{ROOT}[{extras}]", *pins))


def demo() -> Environment:
    """Describe the environment of somebody who only wants to see the demo."""
    return Environment(ROOT / ".venv-demo", _this_python(), ("-e", f"{ROOT}[sqlalchemy,cli]"))


def rivals() -> Environment:
    """Describe the environment with the package that ours is compared with.

    On the Python of `.venv`, beside which benchmarks/ measures it.
    """
    drivers = ("aiosqlite>=0.20", "psycopg[binary]>=3.2", "pymysql>=1.1")
    requirements = (EASY, EASY_SQLALCHEMY, *drivers)
    return Environment(ROOT / ".venv-rivals", _newest_python(), requirements)


def _lower_bounds(pyproject: str, extras: tuple[str, ...]) -> tuple[str, ...]:
    """Read the lower bounds of extras out of pyproject.toml's text, as pins for pip.

    By patterns, because Python 3.10 has no TOML reader.

    Args:
        pyproject: the text, with each extra's list on one line.
        extras: whose requirements.
    """
    pins: dict[str, str] = {}
    for extra in extras:
        line = re.search(rf"^{extra} = \[(.*)\]$", pyproject, re.MULTILINE)
        if line is None:
            message = f"pyproject.toml has no line '{extra} = [...]'"
            raise CannotMakeError(message)
        pins |= {package: f"{package}=={bound}" for package, bound in _BOUND.findall(line[1])}
    return tuple(pins.values())


def _this_python() -> str:
    """Return the interpreter that runs this; inside an environment, the one it was made with."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    base = Path(sys.base_prefix, "bin", version)
    python = str(base) if base.exists() else sys.executable
    if not _works(python):
        message = f"{python} cannot make environments (on Debian: apt-get install python3-venv)"
        raise CannotMakeError(message)
    return python


def _lowest_python() -> str:
    """Find the lowest Python from 3.10 on that really works here."""
    return _first_python(range(_LOWEST_MINOR, _BEYOND_ANY_MINOR))


def _newest_python() -> str:
    """Find the newest Python that really works here."""
    return _first_python(reversed(range(_LOWEST_MINOR, _BEYOND_ANY_MINOR)))


def _first_python(minors: Iterable[int]) -> str:
    for minor in minors:
        for folder in _folders_with_pythons():
            program = folder / f"python3.{minor}"
            if os.access(program, os.X_OK) and _works(str(program), minor):
                return str(program)
    return _this_python()


def _folders_with_pythons() -> Iterator[Path]:
    yield from (Path(part) for part in os.get_exec_path())
    # A pyenv shim on PATH may name a version that is installed but not active: it fails.
    for pyenv in (os.environ.get("PYENV_ROOT"), "~/.pyenv"):
        # It may be closed to us, and we may have no home.
        with contextlib.suppress(PermissionError, RuntimeError):
            if pyenv:
                yield from sorted(Path(pyenv).expanduser().glob("versions/*/bin"))


def _works(program: str, minor: int | None = None) -> bool:
    """Run an interpreter, because one that is there may still fail."""
    try:
        finished = subprocess.run(
            [program, "-c", _PROBE], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    looked_for = ["3", str(minor), "final", "True"]
    return finished.returncode == 0 and (minor is None or finished.stdout.split() == looked_for)


@contextlib.contextmanager
def _only_one_at_a_time() -> Iterator[None]:
    """Keep two commands in one tree from installing into one environment."""
    with (ROOT / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
