"""What is run: checks, and lots, which are runs of pytest in one environment over some folders.

A lot is as large as it can be without making a slot wait for it at the end: each one imports and
collects anew. `FOLDERS` has the figures that order and divide them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from environments import Environment

SERVERS: Final = ("postgres", "mariadb", "mysql", "mongodb")
SQLITE: Final = "sqlite"

# With the lowest versions two of three SQL servers pass the contract only: what differs between
# versions is the libraries' code, and nearly all of that serves PostgreSQL too.
_BRIEFLY: Final = ("mariadb", "mysql")


_PYTEST: Final = ("-m", "pytest", "--quiet")


@dataclass(frozen=True)
class Task:
    """A check or a lot.

    Attributes:
        environment: The name of its environment's folder.
        name: What people call it.
        command: The program and its words.
        seconds: How long it takes by itself on an idle machine, about.
        tests: Whether it runs pytest.
        servers: Whether it needs servers.
        first: Whether the other tasks are pointless if it fails.
        may_be_empty: Whether it may have no test.
    """

    environment: str
    name: str
    command: tuple[str, ...]
    seconds: float
    tests: bool = True
    servers: bool = True
    first: bool = False
    may_be_empty: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The words of a lot, for pytest."""
        return self.command[len(_PYTEST) + 1 :]

    @property
    def title(self) -> str:
        """Its name with its environment's."""
        return f"{self.environment} {self.name}"


@dataclass(frozen=True)
class Folders:
    """Folders of tests that make one lot.

    Attributes:
        names: Their names in tests/.
        newest: How many seconds one turn takes in `.venv`.
        lowest: How many it takes in `.venv-lowest`; 0 if all of it belongs to `.venv`.
    """

    names: tuple[str, ...]
    newest: float
    lowest: float


FOLDERS: Final = (
    Folders(("sql",), 300, 120),
    Folders(("migrations", "pg_cron"), 120, 50),
    Folders(("django_app",), 120, 60),
    Folders(("mongo", "leaks_mongo"), 120, 60),
    Folders(("leaks", "apps"), 100, 60),
    Folders(("cli", "metrics", "faults", "integrations"), 150, 60),
    Folders(("docs", "examples", "adoption", "deploy"), 120, 40),
    Folders(("testkit", "stores", "fuzz", "servers"), 80, 40),
    Folders(("packaging", "benchmarks", "beanie_suite", "oauth_suite"), 100, 0),
)
"""All folders of tests but those that run first."""
FIRST: Final = ("unit", "suite", "contract")

_CHECKS: Final = (
    ("ruff check", ("ruff", "check", "."), 1),
    ("ruff format", ("ruff", "format", "--check", "."), 1),
    ("import-linter", ("lint-imports", "--no-logo"), 10),
    ("mypy", ("mypy",), 60),
    ("pyright", ("pyright",), 60),
)


@dataclass(frozen=True)
class Choice:
    """What a run covers.

    Attributes:
        turn: Which turn it is; None if everything runs.
        only: The databases that are left; empty if all are.
        all_pages: Whether no page of the documentation waits for its turn.
    """

    turn: int | None = None
    only: tuple[str, ...] = ()
    all_pages: bool = False

    @property
    def databases(self) -> tuple[str, ...]:
        """The databases that tests may use."""
        return self.only or (SQLITE, *SERVERS)

    def newest(self, databases: Iterable[str] = ()) -> list[str]:
        """Return pytest's options for the newest versions, on some databases only."""
        options = only_on(databases or self.only)
        if self.turn is None:
            return options
        pages = ["--all-pages"] if self.all_pages else []
        return [*options, "--turn", str(self.turn), *pages]

    def lowest(self) -> list[str]:
        """Return pytest's options for the lowest versions."""
        briefly = [word for name in _BRIEFLY for word in ("--briefly", name)]
        options = [*only_on(self.only), *briefly]
        return options if self.turn is None else [*options, "--turn", str(self.turn), "--once"]


def only_on(databases: Iterable[str]) -> list[str]:
    """Return the options that limit pytest to some databases."""
    return [word for name in databases for word in ("--only", name)]


def checks(development: Environment, names: Collection[str] | None = None) -> list[Task]:
    """List the static checks.

    Args:
        development: The environment that has the tools.
        names: Those that are wanted; None means all.
    """
    return [
        Task(
            development.folder.name,
            name,
            (development.program(words[0]), *words[1:]),
            seconds,
            tests=False,
            servers=False,
            first=True,
        )
        for name, words, seconds in _CHECKS
        if names is None or name in names
    ]


def pytest(environment: Environment, name: str, words: Sequence[str], seconds: float) -> Task:
    """Describe a lot."""
    command = (environment.program("python"), *_PYTEST, *words)
    return Task(environment.folder.name, name, command, seconds)


def everything(development: Environment, lowest: Environment, choice: Choice) -> Iterator[Task]:
    """List the lots of both environments.

    Args:
        development: The environment with the newest versions.
        lowest: The one with the lowest.
        choice: What the run covers.
    """
    yield from _first(development, choice)
    paths = _paths(FIRST)
    yield _limited(pytest(lowest, ", ".join(FIRST), [*paths, *choice.lowest()], 50), choice)
    for folders in FOLDERS:
        name, paths = ", ".join(folders.names), _paths(folders.names)
        words = [*paths, *choice.newest()]
        yield _limited(pytest(development, name, words, folders.newest), choice)
        if folders.lowest or choice.turn is None:
            words = [*paths, *choice.lowest()]
            yield _limited(pytest(lowest, name, words, folders.lowest), choice)


def _first(development: Environment, choice: Choice) -> Iterator[Task]:
    """List the lots that run before all others, and the rest of their folders."""
    *others, contract = _paths(FIRST)
    unit = pytest(development, "unit", [*others, *choice.newest()], 25)
    yield replace(unit, servers=False, first=True)
    if SQLITE in choice.databases:
        words = [contract, *choice.newest([SQLITE])]
        lot = pytest(development, "contract on SQLite", words, 20)
        yield replace(lot, servers=False, first=True)
    if servers := [name for name in SERVERS if name in choice.databases]:
        words = [contract, *choice.newest(servers)]
        yield pytest(development, "contract on servers", words, 60)


def chosen(
    development: Environment, lowest: Environment, choice: Choice, words: Sequence[str]
) -> list[Task]:
    """List the lots that run what somebody has chosen, in both environments."""
    options = {
        development: choice.newest(),
        lowest: choice.lowest() if choice.turn else only_on(choice.only),
    }
    return [
        replace(pytest(environment, "chosen", [*given, *words], 60), may_be_empty=True)
        for environment, given in options.items()
    ]


def _limited(lot: Task, choice: Choice) -> Task:
    """Let a lot be empty if databases are left out."""
    return replace(lot, may_be_empty=True) if choice.only else lot


def _paths(folders: Iterable[str]) -> list[str]:
    return [f"tests/{name}" for name in folders]


def in_order(tasks: Iterable[Task]) -> list[Task]:
    """Sort tasks: first those that the others depend on, as they are, and then the longest."""
    return sorted(tasks, key=lambda task: (not task.first, 0.0 if task.first else -task.seconds))
