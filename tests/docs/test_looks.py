"""How the documentation site looks, measured by a browser: widths, colours, pictures, buttons.

Only `.venv` has what drives the browser, as it has what builds the site.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import pytest

from tests.browsers import in_venv_only, program
from tests.turns import TURNS, part

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.docs.looks import Reader, Seen

pytestmark = in_venv_only

MODES = ("light", "dark")
PHONE = 390
PICTURES = {
    "demo.svg": "README.html",
    "sql-gate.svg": "docs/how-it-works.html",
    "mongodb-gate.svg": "docs/how-it-works.html",
    "sweeper.svg": "docs/how-it-works.html",
    "extensions.svg": "docs/how-it-works.html",
    "postgresql-standbys.svg": "docs/replicas.html",
    "pgbouncer.svg": "docs/replicas.html",
    "mysql-replicas.svg": "docs/replicas.html",
    "multi-primary.svg": "docs/replicas.html",
    "mongodb-replica-set.svg": "docs/replicas.html",
    "policy-prompt.svg": "docs/policies.html",
    "policy-admin.svg": "docs/django-operating.html",
    "policy-flask.svg": "docs/flask.html",
    "plan.svg": "docs/cli-plan.html",
    "sweep.svg": "docs/cli.html",
    "dashboard.svg": "docs/metrics.html",
    "report.svg": "benchmarks/report.html",
    "cost.svg": "benchmarks/report.html",
}
"""Each picture of the site, and a page that shows it."""


@pytest.fixture(scope="module")
def reader(site: Path) -> Iterator[Reader]:
    from tests.docs.looks import reader

    with reader(program(), site) as made:
        yield made


@pytest.fixture(scope="module")
def names(site: Path) -> list[str]:
    """All pages but the one that only leads to the front page."""
    paths = sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))
    return [path for path in paths if path != "index.html"]


@pytest.fixture(scope="module")
def chosen(names: list[str], pytestconfig: pytest.Config) -> list[str]:
    """The pages to look at: all of them, or those of a turn and those that have changed."""
    turn = pytestconfig.getoption("--turn")
    if turn is None or pytestconfig.getoption("--all-pages"):
        return names
    changed = {path.replace(".md", ".html") for path in pytestconfig.getoption("--page")}
    return sorted({*part(names, turn), *changed.intersection(names)})


@pytest.fixture(scope="module")
def seen(reader: Reader, chosen: list[str]) -> Seen:
    return reader.walk(chosen)


def test_every_page_of_the_turn_is_looked_at(
    seen: Seen, names: list[str], chosen: list[str]
) -> None:
    assert seen.pages == len(chosen) >= len(names) // TURNS
    assert len(names) > 20


def test_nothing_is_wider_than_its_page_on_a_phone_a_tablet_or_a_laptop(seen: Seen) -> None:
    assert seen.too_wide == []


def test_every_image_is_there(seen: Seen) -> None:
    assert seen.unloaded == []
    assert seen.failed == []


def test_no_page_asks_another_host_for_anything(seen: Seen) -> None:
    assert seen.from_elsewhere == []


@pytest.mark.slow
@pytest.mark.parametrize("page", ["leaks", "conformance", "engines"])
def test_tables_of_marks_show_their_last_column_on_a_laptop(reader: Reader, page: str) -> None:
    reader.open(f"docs/{page}.html")
    assert reader.scrolled(".table-wrapper") == []


def test_no_line_of_the_readmes_code_is_cut_off_on_a_laptop(reader: Reader) -> None:
    reader.open("README.html")
    assert reader.scrolled("article pre") == []


@pytest.mark.parametrize("picture", PICTURES)
def test_a_picture_scrolls_in_its_own_box_on_a_phone(reader: Reader, picture: str) -> None:
    page = reader.open(PICTURES[picture], width=PHONE)
    image = page.locator(f'article p:has(> img[src$="{picture}"])')
    box, inside = image.evaluate("(box) => [box.clientWidth, box.scrollWidth]")
    assert box < PHONE < inside


def test_pictures_are_all_looked_at(site: Path) -> None:
    assert {file.name for file in (site / "_images").iterdir()} == set(PICTURES)


@pytest.mark.in_turns
@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("system", MODES)
@pytest.mark.parametrize("theme", ["auto", *MODES])
def test_a_picture_is_as_dark_as_the_page(
    reader: Reader, picture: str, system: str, theme: str
) -> None:
    from PIL import Image

    page = reader.open(PICTURES[picture], mode=system)
    page.evaluate("(theme) => { document.body.dataset.theme = theme }", theme)
    shot = Image.open(BytesIO(page.locator(f'article img[src$="{picture}"]').screenshot()))
    brightness = shot.convert("L").histogram()
    is_dark = brightness.index(max(brightness)) < 128
    assert is_dark == ((system if theme == "auto" else theme) == "dark")


@pytest.mark.in_turns
@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("mode", MODES)
def test_every_word_of_a_picture_can_be_read(reader: Reader, picture: str, mode: str) -> None:
    reader.open(f"_images/{picture}", mode=mode)
    assert reader.faint_words() == []


@pytest.mark.in_turns
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "page", ["README", "docs/index", "docs/cli", "docs/tutorial", "docs/api/sqlalchemy"]
)
def test_text_stands_out_from_its_ground(reader: Reader, page: str, mode: str) -> None:
    reader.open(f"{page}.html", mode=mode)
    assert reader.faint_text() == []


@pytest.mark.slow
def test_code_is_copied_without_its_prompts_and_without_what_it_printed(reader: Reader) -> None:
    page = reader.open("docs/tutorial.html")
    typed, printed = "article .highlight:not(.highlight-text *)", "article .highlight-text"
    assert page.locator(typed).count() == page.locator(f"{typed} button.copybtn").count() > 0
    assert page.locator(printed).count() > 0
    assert page.locator(f"{printed} button.copybtn").count() == 0

    page = reader.open("CONTRIBUTING.html")
    block = page.locator(".highlight").filter(has_text="$ python3 tools/dev.py lint")
    block.hover()
    block.locator("button.copybtn").click()
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert "\npython3 tools/dev.py lint " in copied
    assert "$" not in copied
