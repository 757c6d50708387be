"""What is run: checks, and lots, which are runs of pytest in one environment over some folders.

A lot is as large as it can be without making a slot wait for it at the end: each one imports and
collects anew. `LOTS_OF_NEWEST` and `LOTS_OF_LOWEST` have the figures that order them, and `PARTS`
says which are divided.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from environments import ROOT
from suite.without import EXTENSIONS

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
        seconds: How long it takes beside others on two cores, about.
        tests: Whether it runs pytest.
        servers: Whether it needs servers.
        first: Whether the other tasks are pointless if it fails.
        may_be_empty: Whether it may have no test.
        whole: Whether only the whole lot can be run again, and none of its tests by itself.
    """

    environment: str
    name: str
    command: tuple[str, ...]
    seconds: float
    tests: bool = True
    servers: bool = True
    first: bool = False
    may_be_empty: bool = False
    whole: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The words of a lot, for pytest."""
        return self.command[len(_PYTEST) + 1 :]

    @property
    def title(self) -> str:
        """Its name with its environment's."""
        return f"{self.environment} {self.name}"


FIRST: Final = ("unit", "suite", "contract")
"""The folders whose tests the others depend on."""

LOTS_OF_NEWEST: Final = (
    (("sql",), 420),
    (("mongo", "leaks_mongo"), 280),
    (("leaks", "apps"), 135),
    (("cli", "metrics", "integrations", "faults"), 180),
    (("django_app",), 190),
    (("migrations", "pg_cron"), 165),
    (("docs", "examples", "adoption", "deploy"), 185),
    (("stores", "events", "testkit", "fuzz", "servers", "clusters"), 275),
    (("packaging", "benchmarks", "beanie_suite", "oauth_suite"), 170),
)
"""The other folders, as lots of `.venv`, and how many seconds each takes in one turn."""

LOTS_OF_LOWEST: Final = (
    (("sql", "django_app", "apps"), 85),
    (("migrations", "cli", "metrics", "integrations", "faults", "examples", "adoption"), 40),
    (("mongo", "leaks_mongo", "docs", "deploy", "pg_cron"), 85),
    (("leaks", "stores", "events", "testkit", "fuzz", "servers", "clusters"), 95),
)
"""The same for `.venv-lowest`."""

PARTS: Final[dict[tuple[str, ...], int]] = {("sql",): 3}
"""Into how many lots a lot is divided by files: one that runs alone beside all others would show
its first failure late, and keep a slot busy when the others have ended."""

ONLY_NEWEST: Final = ("packaging", "benchmarks", "beanie_suite", "oauth_suite")
"""What the lowest versions run with `--all` only: it is slow, or belongs to `.venv`."""

_CHECKS: Final = (
    ("pyright", ("pyright",), 60),
    ("mypy", ("mypy",), 45),
    ("import-linter", ("lint-imports", "--no-logo"), 5),
    ("ruff check", ("ruff", "check", "."), 1),
    ("ruff format", ("ruff", "format", "--check", "."), 1),
)


@dataclass(frozen=True)
class Choice:
    """What a run covers.

    Attributes:
        turn: Which turn it is; None if everything runs.
        only: The databases that are left; empty if all are.
        all_pages: Whether no page of the documentation waits for its turn.
        pages: The pages that don't.
    """

    turn: int | None = None
    only: tuple[str, ...] = ()
    all_pages: bool = False
    pages: tuple[str, ...] = ()

    @property
    def databases(self) -> tuple[str, ...]:
        """The databases that tests may use."""
        return self.only or (SQLITE, *SERVERS)

    def newest(self, databases: Iterable[str] = ()) -> list[str]:
        """Return pytest's options for the newest versions, on some databases only."""
        options = only_on(databases or self.only)
        if self.turn is None:
            return options
        pages = ["--all-pages"] if self.all_pages else _each("--page", self.pages)
        return [*options, "--turn", str(self.turn), *pages]

    def lowest(self) -> list[str]:
        """Return pytest's options for the lowest versions."""
        options = [*only_on(self.only), *_each("--briefly", _BRIEFLY)]
        return options if self.turn is None else [*options, "--turn", str(self.turn), "--once"]


def only_on(databases: Iterable[str]) -> list[str]:
    """Return the options that limit pytest to some databases."""
    return _each("--only", databases)


def _each(option: str, values: Iterable[str]) -> list[str]:
    """Return an option once for each of its values."""
    return [word for value in values for word in (option, value)]


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
    for names, seconds in LOTS_OF_NEWEST:
        yield from _divided(development, names, choice.newest(), seconds)
    further = () if choice.turn is not None else ((ONLY_NEWEST, 60),)
    for names, seconds in ((FIRST, 65), *LOTS_OF_LOWEST, *further):
        yield _lot(lowest, names, choice.lowest(), seconds)
    if choice.turn is None:
        yield from _without_extensions(development, choice)


def _lot(
    environment: Environment, names: Sequence[str], options: Sequence[str], seconds: float
) -> Task:
    """Describe the lot of some folders, which is empty at most if databases are left out."""
    lot = pytest(environment, ", ".join(names), [*_paths(names), *options], seconds)
    return replace(lot, may_be_empty="--only" in options)


def _without_extensions(environment: Environment, choice: Choice) -> Iterator[Task]:
    """Describe what runs the base's tests without an extension, for each one.

    Those of the tools are left out: they are about the whole library.
    """
    databases = [name for name in (SQLITE, "mongodb") if name in choice.databases]
    if not databases:
        return
    paths = _paths(("unit", "contract", "sql", "django_app", "mongo"))
    for extension in EXTENSIONS:
        command = (
            environment.program("python"),
            str(ROOT / "tools" / "suite" / "without.py"),
            *(extension, "--", *paths, *only_on(databases)),
        )
        yield Task(environment.folder.name, f"without {extension}", command, 400, whole=True)


def _divided(
    environment: Environment, names: Sequence[str], options: Sequence[str], seconds: float
) -> Iterator[Task]:
    """Describe the lot of some folders, or the lots that it is divided into."""
    lot = _lot(environment, names, options, seconds)
    number = PARTS.get((*names,), 1)
    if number == 1:
        yield lot
        return
    places = (ROOT / path for path in _paths(names))
    files = sorted(file for place in places for file in place.glob("test_*.py"))
    for part in range(number):
        # Every third one, say: neighbours are about the same subject, and take as long.
        words = [str(file.relative_to(ROOT)) for file in files[part::number]]
        name = f"{lot.name} {part + 1}/{number}"
        divided = pytest(environment, name, [*words, *options], seconds / number)
        yield replace(divided, may_be_empty=lot.may_be_empty)


def _first(development: Environment, choice: Choice) -> Iterator[Task]:
    """List the lots that run before all others, and the rest of their folders."""
    *others, contract = _paths(FIRST)
    if SQLITE in choice.databases:
        words = [contract, *choice.newest([SQLITE])]
        lot = pytest(development, "contract on SQLite", words, 20)
        yield replace(lot, servers=False, first=True)
    unit = pytest(development, "unit", [*others, *choice.newest()], 35)
    yield replace(unit, servers=False, first=True)
    if servers := [name for name in SERVERS if name in choice.databases]:
        words = [contract, *choice.newest(servers)]
        yield pytest(development, "contract on servers", words, 85)


def chosen(
    development: Environment, lowest: Environment, choice: Choice, words: Sequence[str]
) -> list[Task]:
    """List the lots that run what somebody has chosen, in both environments."""
    options = {
        development: choice.newest(),
        lowest: only_on(choice.only) if choice.turn is None else choice.lowest(),
    }
    return [
        replace(pytest(environment, "chosen", [*given, *words], 60), may_be_empty=True)
        for environment, given in options.items()
    ]


def _paths(folders: Iterable[str]) -> list[str]:
    return [f"tests/{name}" for name in folders]


def in_order(tasks: Iterable[Task]) -> list[Task]:
    """Sort tasks: first those that the others depend on, as they are, and then the longest."""
    return sorted(tasks, key=lambda task: (not task.first, 0.0 if task.first else -task.seconds))
