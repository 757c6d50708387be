"""Every code block of docs/ and README.md runs, and prints what its page shows: see blocks.py."""

from __future__ import annotations

import ast
import contextlib
import doctest
import gc
import io
import re
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

import pymongo
import pytest
import sqlalchemy

import ttl_odm
import ttl_odm.sqlalchemy  # a clock moves the adapters that are imported
from tests.backends import fresh
from tests.docs.blocks import Page, sleep_moves
from tests.docs.pages import ROOT, Section, blocks, keyed, scaffolding
from ttl_odm.testing import TTLClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sybil import Example

# What else than SQLite a page is about.
ON = {
    "README.md": "mongodb",
    "docs/database-side.md": "mariadb",
    "docs/fastapi.md": "mongodb",
    "docs/migrating.md": "mongodb",
    "docs/mongodb.md": "mongodb",
    "docs/mongodb-deletion.md": "mongodb",
    "docs/mongodb-families.md": "mongodb",
    "docs/mongodb-policies.md": "mongodb",
    "docs/mongodb-sweeping.md": "mongodb",
    "docs/quickstart-fastapi.md": "mongodb",
    "docs/schedulers.md": "mongodb",
    "docs/schema.md": "postgres",
    "docs/sweeping-sql.md": "postgres",
}
pytestmark = [
    # Of Litestar's imports.
    pytest.mark.filterwarnings("ignore:The declarative_mixin decorator:DeprecationWarning"),
    # A page shows no more than a reader needs; Python 3.13 reports the files of SQLite that an
    # engine had open whose name the page has given to another.
    pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning"),
]
PAGES = [
    *("README.md", "CONTRIBUTING.md"),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
]


def _nothing(_language: str) -> Callable[[Example], None]:
    """Evaluate no block: the page is only read."""
    return lambda _example: None


# How many blocks of a page are not run. Its scaffolding says why.
NOT_RUN = {
    "README.md": 1,
    "docs/database-side.md": 5,
    "docs/django-operating.md": 1,
    "docs/families.md": 1,
    "docs/metrics.md": 2,
    "docs/migrating.md": 2,
    "docs/quickstart-fastapi.md": 2,
    "docs/replicas.md": 1,
    "docs/schedulers.md": 1,
    "docs/without-models.md": 1,
}


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Let what a page has left open go with its own test, which knows of it."""
    yield
    gc.collect()


def pages(on: str | None) -> list[str]:
    """List the pages about a database."""
    return [page for page in PAGES if ON.get(page) == on]


@pytest.mark.in_turns
@pytest.mark.parametrize("page", pages(None))
def test_the_blocks_of_a_page_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page == "docs/a-database-of-your-own.md":
        pytest.importorskip("duckdb", "2", reason="DuckDB counts the rows of a write since 2.0")
    monkeypatch.chdir(tmp_path)
    Page(ROOT / page, tmp_path).run()


@pytest.mark.in_turns
@pytest.mark.parametrize("page", pages("postgres"))
def test_the_blocks_of_a_page_about_postgresql_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with fresh("postgres-psycopg", tmp_path) as database:
        Page(ROOT / page, tmp_path, url=database.sync_url).run()


@pytest.mark.in_turns
@pytest.mark.parametrize("page", pages("mariadb"))
def test_the_blocks_of_a_page_about_mariadb_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mariadb_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with fresh("mariadb-pymysql", tmp_path) as database:
        Page(ROOT / page, tmp_path, url=database.sync_url).run()


@pytest.mark.skipif(
    sqlalchemy.__version__.startswith("2.0."), reason="these pages show Beanie 2: in .venv only"
)
@pytest.mark.in_turns
@pytest.mark.parametrize("page", pages("mongodb"))
def test_the_blocks_of_a_page_about_mongodb_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mongodb_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = f"ttl_odm_{tmp_path.name[-20:]}_"

    class Client(pymongo.AsyncMongoClient[Any]):
        """The databases that pages name are ours alone, whatever else is on the server."""

        def __getitem__(self, name: str) -> Any:
            return super().__getitem__(
                name if name.startswith(("admin", folder)) else folder + name
            )

    monkeypatch.setattr(pymongo, "AsyncMongoClient", Client)
    try:
        Page(ROOT / page, tmp_path, url=mongodb_url).run()
    finally:
        with pymongo.MongoClient[Any](mongodb_url) as client:
            for name in client.list_database_names():
                if name.startswith(folder):
                    client.drop_database(name)


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    counts = {}
    for page in PAGES:
        sections = scaffolding(ROOT / page, _nothing)
        if left_out := sum(bool(section.not_run) for section in sections.values()):
            counts[page] = left_out
    assert counts == NOT_RUN


def test_no_page_has_hidden_text() -> None:
    hidden = {
        page: comments
        for page in PAGES
        if (comments := re.findall("<!--(?! Written by: )", (ROOT / page).read_text()))
    }
    assert hidden == {}


def tree_of(example: Example) -> ast.AST:
    """Parse a block; one that isn't Python is an empty program."""
    is_python = example.region.lexemes["language"] == "python"
    source = str(example.parsed) if is_python else ""
    return compile(source, "", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def imports(example: Example) -> set[str]:
    """List the names that a block imports."""
    return {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree_of(example))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


def test_a_page_shows_every_import_of_its_blocks() -> None:
    hidden = []
    for page in PAGES:
        sections = scaffolding(ROOT / page, _nothing)
        by_scaffolding: set[str] = set()
        shown: set[str] = set()
        for key, example in keyed(blocks(ROOT / page, _nothing)):
            by_scaffolding.update(*map(imports, sections.get(key, Section()).steps))
            shown |= imports(example)
            names = {node.id for node in ast.walk(tree_of(example)) if isinstance(node, ast.Name)}
            hidden += [(page, key, name) for name in sorted(names & by_scaffolding - shown)]
    assert hidden == []


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 700
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert [len(block.splitlines()) <= 30 for block in blocks] == [True] * 3


def test_the_first_example_of_the_readme_runs_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(
        r"^```(?:python|text)\n(.*?)^```$",
        (ROOT / "README.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    program, shown = blocks[:2]
    code = compile(program, "README.md", "exec", dont_inherit=True)
    with TTLClock() as clock, sleep_moves(clock):
        clock.freeze()
        for _ in range(2):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(code, {"__name__": "__main__"})  # noqa: S102 - our own page
            assert printed.getvalue() == shown


@pytest.mark.slow
def test_examples_in_docstrings_give_what_they_show() -> None:
    for found in walk_packages(ttl_odm.__path__, "ttl_odm."):
        path = ROOT / found.name.replace(".", "/")
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if ">>> " in source.read_text():
            assert doctest.testmod(import_module(found.name)).failed == 0
