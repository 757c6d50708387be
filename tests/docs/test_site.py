"""The documentation site builds, and no link in it leads nowhere.

Its tools are in the `dev` extra, so only in `.venv`; `.venv-lowest` has no part in the site.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest
import sqlalchemy

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PUBLISHED = "https://ttl-odm.readthedocs.io/en/latest/"

# By the version, not by whether Sphinx can be imported: in .venv its absence is a failure.
pytestmark = pytest.mark.skipif(
    sqlalchemy.__version__.startswith("2.0."), reason="the site is built in .venv only"
)


class Page(HTMLParser):
    """What a page links to, and what in it can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            if name in {"href", "src"} and value:
                self.targets.add(value)


def broken_links(site: Path) -> Iterator[str]:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not to.exists() or (anchor and to in pages and anchor not in pages[to].anchors):
                yield f"{path.relative_to(site)}: {target}"


@pytest.mark.slow
def test_every_link_within_the_site_leads_somewhere(site: Path) -> None:
    assert sorted(broken_links(site)) == []


@pytest.mark.parametrize("file", ["README.md", "pyproject.toml"])
def test_every_link_to_the_published_site_leads_somewhere(site: Path, file: str) -> None:
    links = re.findall(rf'{re.escape(PUBLISHED)}[^\s)"]*', (ROOT / file).read_text())
    assert links
    for link in links:
        path, _, anchor = link.removeprefix(PUBLISHED).partition("#")
        page = site / (path or "index.html")
        assert page.is_file(), link
        assert not anchor or anchor in Page(page).anchors, link


def test_the_readme_has_no_relative_link_which_would_lead_nowhere_on_pypi() -> None:
    targets = re.findall(r"\]\(([^)]*)\)", (ROOT / "README.md").read_text())
    assert [target for target in targets if not target.startswith("https://")] == []


@pytest.mark.slow
def test_the_site_links_to_its_own_pages_only_by_relative_links(site: Path) -> None:
    pages = {path: Page(path).targets for path in site.rglob("*.html")}
    outward = [
        f"{path.relative_to(site)}: {target}"
        for path, targets in pages.items()
        for target in targets
        if target.startswith(PUBLISHED)
    ]
    assert outward == []


def test_every_page_of_docs_is_in_the_table_of_contents(site: Path) -> None:
    front = Page(site / "docs" / "index.html").targets
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert {name for name in pages if f"{name}.html" not in front} == set()


def test_the_reference_has_every_public_name(site: Path) -> None:
    pages = {
        "root": "ttl_odm",
        "sqlalchemy": "ttl_odm.sqlalchemy",
        "beanie": "ttl_odm.beanie",
        "sweeper": "ttl_odm.sweeper",
        "alembic": "ttl_odm.alembic",
        "django": "ttl_odm.django",
        "testing": "ttl_odm.testing",
    }
    missing = []
    for page, module in pages.items():
        anchors = Page(site / "docs" / "api" / f"{page}.html").anchors
        names = set(import_module(module).__all__) - {"__version__"}
        missing += [f"{module}.{name}" for name in names if f"{module}.{name}" not in anchors]
    assert sorted(missing) == []
