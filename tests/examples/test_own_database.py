"""A database of one's own: DuckDB by the family in examples/own_database, found by entry point.

It passes the shipped suites, and every case of the contract that it can be asked.
"""

from __future__ import annotations

import configparser
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import QueuePool, create_engine

from tests.backends import Backend
from tests.contract.cases import CASES
from tests.examples.duckdb_subject import DUCKDB, NOT_ASKED, opened
from ttl_odm.dialects.families import brought_family
from ttl_odm.sqlalchemy.time import clock
from ttl_odm.testing import FamilyContract, SQLAlchemyRig, StoreContract

pytest.importorskip("duckdb", "2", reason="DuckDB counts the rows of a write since 2.0")

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from tests.contract.case import Case
    from tests.examples.duckdb_subject import OnDuckDB

# A statement of DuckDB takes ten times as long as one of SQLite.
pytestmark = pytest.mark.in_turns

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_database"
ASKED = [
    case
    for case in CASES.values()
    if not (case.reason_not_on("SQLAlchemy") or case.name in NOT_ASKED)
]


def install(folder: Path) -> None:
    """Put into a folder what pip would: the module, and the entry points of the distribution."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    shutil.copy(EXAMPLE / "ttl_odm_duckdb.py", folder)
    info = folder / f"ttl_odm_duckdb-{project['version']}.dist-info"
    info.mkdir()
    named = f"Name: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\n{named}", encoding="utf-8")
    points = configparser.ConfigParser(delimiters="=")
    points.read_dict(project["entry-points"])
    with (info / "entry_points.txt").open("w", encoding="utf-8") as file:
        points.write(file)


@pytest.fixture(scope="module", autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("site")
    install(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        forget()
        yield
    forget()


def forget() -> None:
    """Let the family be looked for again, as in a new process."""
    brought_family.cache_clear()
    clock._CLOCKS.pop(DUCKDB, None)
    sys.modules.pop("ttl_odm_duckdb", None)


def url(folder: Path) -> str:
    return f"duckdb:///{folder / 'rows.duckdb'}"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(url(tmp_path), poolclass=QueuePool)
    yield made
    made.dispose()


class TestFamily(FamilyContract):
    """The family by itself."""


class TestStore(StoreContract):
    """A sweep with it, but for what needs locks: in DuckDB who comes second gets an error.

    Or none: see `NOT_ASKED`.
    """

    test_a_row_that_is_renewed_between_look_and_deletion_stays = None  # type: ignore[assignment]
    test_of_many_at_once_exactly_one_gets_it = None  # type: ignore[assignment]

    @pytest.fixture
    def rig(self, engine: Engine, tmp_path: Path) -> Iterator[SQLAlchemyRig]:
        made = SQLAlchemyRig(engine, create_engine(url(tmp_path), poolclass=QueuePool))
        yield made
        made.close()


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnDuckDB]:
    yield from opened(Backend(DUCKDB, url(tmp_path_factory.mktemp("contract")), None))


@pytest.mark.parametrize("case", ASKED, ids=str)
def test_a_case_of_the_contract(subject: OnDuckDB, case: Case) -> None:
    subject.clear()
    case.check(subject)


def test_what_is_not_asked_are_cases() -> None:
    assert NOT_ASKED.keys() <= CASES.keys()
