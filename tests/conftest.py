"""Which databases a run covers, and the fixtures that hand them to tests.

| fixture | what a test gets |
|---|---|
| `backend` | `Backend` with a fresh database, once for every database with a synchronous driver |
| `async_backend` | the same, once for every asynchronous driver |
| `engine`, `async_engine` | an engine on it; fails the test if a connection was not given back |
| `noon` | nothing: it is noon by `ttl_clock`, so that no day ends during the test |
| `postgres_url`, `mariadb_url`, `mysql_url`, `mongodb_url` | a server's address, without a driver |

`--hypothesis-profile=long` tries many more examples, other ones in each run.
TTL_ODM_TEST_INTERLEAVINGS=1000000 lets readers, writers and sweepers of families send so many
statements between each other's.
`@pytest.mark.every_driver` also runs a test with the drivers that come second to
another one; `--every-driver` all tests. Those that aren't installed are named above the results.
`--only BACKEND` leaves the other databases out, and says so in the count of deselected tests; so
does TTL_ODM_TEST_MYSQL=none with MySQL. `--briefly BACKEND` runs no more of that database than the
contract and what is marked with `every_driver`. `--turn N` runs each test on a part of its
databases, see tests/turns.py.
`@pytest.mark.databases("postgres", "mariadb")` limits a test to databases that have its feature.
A server that is wanted but has no address stops the run before its first test: it is not a skip.
`--order` changes the order of the test files (`tests/order.py`).
"""

from __future__ import annotations

import gc
import sys
import warnings
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.backends import (
    DATABASES,
    VARIABLES,
    MissingServerError,
    async_backends,
    database_of,
    databases,
    drivers_left_out,
    fresh,
    server_url,
    sync_backends,
)
from tests.recorder import LEFT_OUT, Recorder
from tests.turns import ELSEWHERE, Variant, left_out, shared_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from tests.backends import Backend
    from ttl_odm.testing import TTLClock

pytest_plugins = ("tests.order",)

# The same examples in every run, however slow the machine: a change fails for what it does, never
# for what chance found that day. Who goes looking for more says --hypothesis-profile=long.
_STEADY = hypothesis.settings(derandomize=True, deadline=None, database=None)
hypothesis.settings.register_profile("steady", _STEADY)
hypothesis.settings.register_profile("long", _STEADY, derandomize=False, max_examples=5_000)
hypothesis.settings.load_profile("steady")

# There are some 200,000 objects before the first test. Looking through all of them as often as
# Python does by itself takes a seventh of the tests' time, and frees little.
gc.set_threshold(20_000, 20, 20)

_CONTRACT = Path(__file__).parent / "contract"
_DJANGO = Path(__file__).parent / "django_app"
_DOCS = Path(__file__).parent / "docs"
_URL_FIXTURES = {f"{database}_url": database for database in VARIABLES}
_BACKEND_FIXTURES = ("backend", "async_backend")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --only, --briefly, --rest-of and --every-driver."""
    parser.addoption(
        "--only",
        action="append",
        default=[],
        choices=DATABASES,
        help="run tests on this database and no other; may be repeated",
    )
    parser.addoption(
        "--briefly",
        action="append",
        default=[],
        choices=DATABASES,
        help="run no more on this database than the contract and what each driver has to pass",
    )
    parser.addoption(
        "--turn",
        type=int,
        help="run each test on a part of its databases, which changes with this number: four "
        "consecutive turns run everything (see tests/turns.py)",
    )
    parser.addoption(
        "--once",
        action="store_true",
        help="with --turn: run each test on one database, and no slow ones",
    )
    parser.addoption(
        "--all-pages",
        action="store_true",
        help="with --turn: run all pages of the documentation",
    )
    parser.addoption(
        "--page",
        action="append",
        default=[],
        help="with --turn: run this page of the documentation; may be repeated",
    )
    parser.addoption(
        "--record",
        type=Path,
        help="a file to which each result is written as it comes (see tests/recorder.py)",
    )
    parser.addoption(
        "--every-driver",
        action="store_true",
        help="run all tests with every driver, not just those with the marker",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Describe our markers."""
    config.addinivalue_line(
        "markers", "databases(*names): the databases that have the feature under test"
    )
    config.addinivalue_line("markers", "every_driver: run with every driver of a database")
    config.addinivalue_line("markers", "every_server: run on every server in each turn")
    config.addinivalue_line("markers", "slow: run on each database in one of four turns (--turn)")
    config.addinivalue_line("markers", "in_turns: run in one of four turns (--turn)")
    config.addinivalue_line("markers", "one_driver: run with one, whatever --every-driver says")
    config.addinivalue_line("markers", "starts(name): starts servers of this database for itself")
    if config.getoption("--once") and config.getoption("--turn") is None:
        raise pytest.UsageError("--once needs --turn")
    if (file := config.getoption("--record")) is not None:
        config.pluginmanager.register(Recorder(file, config.stash))


def pytest_collection_finish() -> None:
    """Let Python's garbage collector no longer look through what is there to stay."""
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say with which drivers no test runs, and how to run again what runs now."""
    missing = ", ".join(drivers_left_out())
    lines = [f"drivers that are not installed, so not tested: {missing}"] if missing else []
    turn = config.getoption("--turn")
    return (
        lines if turn is None else [*lines, f"each test on a part of its databases: --turn {turn}"]
    )


@pytest.fixture(autouse=True)
def models_of_other_tests_have_no_say() -> Iterator[None]:
    """Forget the tables that a test gave a policy: those of the next may have the same names.

    A policy is the table's, wherever in the process it was declared, and as long as anything has
    the model. What a module has declared stays, for nobody imports it again, but not for others.
    """
    binding: Any = sys.modules.get("ttl_odm.sqlalchemy.policy.bindings")
    before = set() if binding is None else set(binding.bound_tables)
    following: Any = sys.modules.get("ttl_odm.sqlalchemy.policy.references")
    before_following = set() if following is None else set(following.ruled_tables)
    yield
    following = sys.modules.get("ttl_odm.sqlalchemy.policy.references")
    if following is not None:
        for table in set(following.ruled_tables) - before_following:
            following.ruled_tables.pop(table)
    binding = sys.modules.get("ttl_odm.sqlalchemy.policy.bindings")
    if binding is not None:
        for table in set(binding.bound_tables) - before:
            owner = binding.root_binding_of(table).default.owner
            if getattr(sys.modules.get(owner.__module__), owner.__name__, None) is owner:
                binding.bound_tables.forget_name(table)
            else:
                binding.bound_tables.discard(table)


@pytest.fixture(autouse=True)
def sockets_of_lost_connections_are_closed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close them with the test: pg8000 leaves them to the garbage collector, which warns."""
    if "pg8000" not in request.node.name:
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)
        yield
        gc.collect(1)  # which is enough for what a test has made, and quick


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for every backend that it can use.

    All of them, also those that --only leaves out: these are deselected afterwards, and counted.
    """
    marker = metafunc.definition.get_closest_marker("databases")
    fit = marker.args if marker else DATABASES
    unknown = set(fit) - set(DATABASES)
    if unknown:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: no such database: {unknown}")
    every_driver = _is_for_every_driver(metafunc.definition)
    names = [listed(fit, every_driver=every_driver) for listed in (sync_backends, async_backends)]
    for fixture, fitting in zip(_BACKEND_FIXTURES, names, strict=True):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, fitting, indirect=True)


def _is_for_every_driver(item: pytest.Item) -> bool:
    """Tell whether a test runs with each driver of a database; Django knows one."""
    if item.path.is_relative_to(_DJANGO) or item.get_closest_marker("one_driver") is not None:
        return False
    is_marked = item.get_closest_marker("every_driver") is not None
    return is_marked or bool(item.config.getoption("--every-driver"))


def databases_of(item: pytest.Item) -> set[str]:
    """Tell which databases a test talks to."""
    fixtures = set(getattr(item, "fixturenames", ()))
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return {
        *(database for fixture, database in _URL_FIXTURES.items() if fixture in fixtures),
        *(database_of(parameters[name]) for name in _BACKEND_FIXTURES if name in parameters),
    }


def _started_by(item: pytest.Item) -> set[str]:
    """Tell of which databases a test starts servers, so that it needs no address."""
    return {name for mark in item.iter_markers("starts") for name in mark.args}


def _is_essential(item: pytest.Item) -> bool:
    """Tell whether a test runs on databases that are tested briefly too."""
    is_contract = item.path.is_relative_to(_CONTRACT)
    return is_contract or item.get_closest_marker("every_driver") is not None


def _is_wanted_page(item: pytest.Item) -> bool:
    if not item.path.is_relative_to(_DOCS):
        return False
    page = item.callspec.params.get("page") if hasattr(item, "callspec") else None
    config = item.config
    return config.getoption("--all-pages") or page in config.getoption("--page")


def variant_of(item: pytest.Item) -> Variant:
    """Describe an item to those who choose what runs in a turn."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    names = (parameters[name] for name in _BACKEND_FIXTURES if name in parameters)
    backend = next((name for name in names if isinstance(name, str)), None)
    marks = {mark.name for mark in item.iter_markers()}
    return Variant(
        shared_name(item.nodeid, backend),
        backend,
        every_server="every_server" in marks,
        slow="slow" in marks,
        in_turns="in_turns" in marks and not _is_wanted_page(item),
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what nobody asked for; stop if a server that is left has no URL."""
    only = set(config.getoption("--only")) or databases()
    in_full = only - set(config.getoption("--briefly"))
    needed = {item: databases_of(item) for item in items}
    reasons = {
        item: ELSEWHERE
        for item in items
        if not needed[item] | _started_by(item) <= (only if _is_essential(item) else in_full)
    }
    if (turn := config.getoption("--turn")) is not None:
        kept = [item for item in items if item not in reasons]
        later = left_out([*map(variant_of, kept)], turn, once=config.getoption("--once"))
        reasons |= {kept[place]: reason for place, reason in later.items()}
    if reasons:
        config.stash[LEFT_OUT] = reasons
        config.hook.pytest_deselected(items=[*reasons])
        items[:] = [item for item in items if item not in reasons]
    for database in sorted({name for item in items for name in needed[item]} & VARIABLES.keys()):
        try:
            server_url(database)
        except MissingServerError as error:
            raise pytest.UsageError(str(error)) from None


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """Return the address of a PostgreSQL server, `postgresql://...`."""
    return server_url("postgres")


@pytest.fixture(scope="session")
def mariadb_url() -> str:
    """Return the address of a MariaDB server, `mysql://...`."""
    return server_url("mariadb")


@pytest.fixture(scope="session")
def mysql_url() -> str:
    """Return the address of a MySQL server, `mysql://...`."""
    return server_url("mysql")


@pytest.fixture(scope="session")
def mongodb_url() -> Iterator[str]:
    """Return the address of a MongoDB replica set, `mongodb://...`.

    Its monitor sleeps: once a minute it would take what some test has just put there. The tests of
    MongoDB's own deletion have a server of their own.
    """
    from pymongo import MongoClient

    url = server_url("mongodb")
    with MongoClient[dict[str, object]](url) as client:
        client.admin.command("setParameter", 1, ttlMonitorEnabled=False)
        yield url
        client.admin.command("setParameter", 1, ttlMonitorEnabled=True)


@pytest.fixture
def noon(ttl_clock: TTLClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be noon in UTC by the clock that decides over rows: no day ends during the test.

    Nor does a busy machine leave a partition for later because a look at its rows takes long.
    """
    now = datetime.now(timezone.utc)
    ttl_clock.advance(now.replace(hour=12, minute=0, second=0, microsecond=0) - now)
    for module in ("mysql_work", "postgresql_work"):
        monkeypatch.setattr(f"ttl_odm.partitions.sqlalchemy.{module}.HELD", 20.0)


@pytest.fixture
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """Make a fresh database, on every backend with a synchronous driver."""
    with fresh(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def async_backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """Make a fresh database, on every backend with an asynchronous driver."""
    with fresh(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def engine(backend: Backend) -> Iterator[Engine]:
    """Make an engine, and check that the test gave back every connection."""
    from sqlalchemy import QueuePool, create_engine

    assert backend.sync_url is not None
    made = create_engine(backend.sync_url, poolclass=QueuePool)
    try:
        yield made
        assert made.pool.checkedout() == 0, "the test did not give back every connection"
    finally:
        made.dispose()


@pytest.fixture
async def async_engine(async_backend: Backend) -> AsyncIterator[AsyncEngine]:
    """Make an asynchronous engine, and check that the test gave back every connection."""
    from sqlalchemy import AsyncAdaptedQueuePool
    from sqlalchemy.ext.asyncio import create_async_engine

    assert async_backend.async_url is not None
    made = create_async_engine(async_backend.async_url, poolclass=AsyncAdaptedQueuePool)
    try:
        yield made
        assert made.pool.checkedout() == 0, "the test did not give back every connection"
    finally:
        await made.dispose()
