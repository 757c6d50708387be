"""The virtual environments that the commands work in, made when needed and kept until stale.

| folder | what it holds |
|---|---|
| `.venv` | every extra, every tool, the newest versions of all, on the newest Python here |
| `.venv-lowest` | the lowest versions of what the library runs with, on the lowest Python here |
| `.venv-demo` | what a user of the demo would install, and nothing else |
| `.venv-3.14`, `.venv-3.15` | the library's extras, on the newest Pythons: tools/pythons.py |
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

from terminal import Command, run, run_together, say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
        uv: uv's path and options, to install with it: for an interpreter that has no pip.
    """

    folder: Path
    python: str
    requirements: tuple[str, ...]
    uv: tuple[str, ...] = ()

    def program(self, name: str) -> str:
        """Return the path of one of its programs."""
        return str(self.folder / "bin" / name)

    def make(self) -> None:
        """Make it, or bring it up to date; see `make_all`."""
        make_all([self])

    @property
    def stamp(self) -> Path:
        """The file that says what it was made from."""
        return self.folder / _STAMP

    def stamp_text(self) -> str:
        """Return what the stamp says of an environment that is up to date."""
        return f"{self.python}\n{self._fingerprint()}\n"

    def begin(self) -> None:
        """Make it without packages, or let the old packages be replaced.

        Raises:
            CannotMakeError: It is a link, or the interpreter failed.
        """
        if self.folder.is_symlink():
            message = f"{self.folder} is a link and out of date: make it where it really is"
            raise CannotMakeError(message)
        say(f"{self.folder.name}: making it with {self.python}")
        old = self.stamp.read_text() if self.stamp.exists() else ""
        # Start over unless a complete environment of the same interpreter only grew old.
        clear = [] if old.startswith(f"{self.python}\n") else ["--clear"]
        self.stamp.unlink(missing_ok=True)
        pip = ["--without-pip"] if self.uv else []
        if run([self.python, "-m", "venv", *clear, *pip, str(self.folder)]) != 0:
            raise CannotMakeError(_failure(self))

    def installation(self) -> Command:
        """Return the command that installs its packages."""
        say(f"{self.folder.name}: installing {' '.join(self.requirements)}")
        if self.uv:
            program, *options = self.uv
            install = (program, "pip", "install", "--quiet", "--upgrade", *options)
            return Command([*install, "--python", self.program("python"), *self.requirements])
        # Compiling all packages takes as long as the rest, and a run keeps its own bytecode.
        return Command(
            [
                *(self.program("python"), "-m", "pip", "install", "--quiet", "--quiet"),
                *("--disable-pip-version-check", "--no-warn-script-location", "--no-compile"),
                *("--upgrade", "--upgrade-strategy", "eager", *self.requirements),
            ]
        )

    def _fingerprint(self) -> str:
        parts = (_PYPROJECT.read_text(), str(self.folder), *self.requirements, *self.uv)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def make_all(wanted: Sequence[Environment]) -> None:
    """Make environments, or bring them up to date, unless they fit pyproject.toml as it is now.

    Their packages are installed at the same time, for pip keeps one core busy.

    Raises:
        CannotMakeError: An interpreter or pip failed.
    """
    with contextlib.ExitStack() as locks:
        for environment in wanted:
            locks.enter_context(_only_one_at_a_time(environment.folder))
        stale = [
            environment
            for environment in wanted
            if not environment.stamp.exists()
            or environment.stamp.read_text() != environment.stamp_text()
        ]
        if not stale:
            return
        for environment in stale:
            environment.begin()
        ended = run_together([environment.installation() for environment in stale])
        for environment, how in zip(stale, ended, strict=True):
            if how.status != 0:
                raise CannotMakeError(_failure(environment))
            environment.stamp.write_text(environment.stamp_text())


def _failure(environment: Environment) -> str:
    return f"{environment.folder.name} could not be made (see above)"


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
    if not works(python):
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
            if os.access(program, os.X_OK) and works(str(program), minor):
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


def works(program: str, minor: int | None = None) -> bool:
    """Tell whether an interpreter runs: one that is there may still fail.

    Args:
        program: its path.
        minor: which release of Python 3 it has to be; None if any will do.
    """
    try:
        finished = subprocess.run(
            [program, "-c", _PROBE], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    looked_for = ["3", str(minor), "final", "True"]
    return finished.returncode == 0 and (minor is None or finished.stdout.split() == looked_for)


@contextlib.contextmanager
def _only_one_at_a_time(folder: Path) -> Iterator[None]:
    """Keep two commands in one tree from installing into one environment."""
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
