"""Modules, files, commands, options and messages that the documentation names exist."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

import click
import pytest

from tests.docs.pages import ROOT
from ttl_odm.cli.commands import cli

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *(ROOT / folder / "README.md" for folder in ("benchmarks", "examples")),
]
PACKAGE = ROOT / "ttl_odm"
FOLDERS = "ttl_odm|tests|tools|examples|deploy|benchmarks|docs"
# Files of the reader's own project, and of other packages.
OF_OTHERS = {
    *("env.py", "script.py.mako", "conftest.py", "manage.py", "settings.py", "wsgi.py"),
    *("sweeping.py", "models.py", "test_beanie.py"),
}
# Names in telemetry that are put together.
OF_TELEMETRY = {"ttl_odm.oldest_expired_age", "ttl_odm.phase.find"}
# What other programs raise, with the rest of its heading on the troubleshooting page.
RAISED_BY_OTHERS = re.compile(r" \((SQLAlchemy|Django)\)$")


def code(page: Path) -> Iterator[str]:
    """Yield the code of a page: spans of a sentence, and lines of console blocks."""
    text = page.read_text()
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("$ ") or "\n$ " not in f"\n{block}":
                yield line.removeprefix("$ ")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose))


@cache
def source() -> str:
    """All of the package's source."""
    return "\n".join(path.read_text() for path in sorted(PACKAGE.rglob("*.py")))


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


@pytest.mark.slow
def test_every_module_and_name_of_the_package_exists() -> None:
    from tests.django_app import project

    project.set_up()
    missing = {
        (page.name, name)
        for page in PAGES
        if page.name not in {"CHANGELOG.md", "leaks.md"}
        for span in code(page)
        for name in re.findall(r"(?<![\w./\"'])ttl_odm(?:\.[A-Za-z]\w*)+(?!\w|/|-)", span)
        # Names of metrics, loggers and checks are not Python's, but are in the source.
        if not (is_there(name) or f'"{name}"' in source() or name in OF_TELEMETRY)
        if "[tool." not in span
    }
    assert missing == set()


def test_every_file_of_the_repository_exists() -> None:
    names = {path.name for folder in FOLDERS.split("|") for path in (ROOT / folder).rglob("*.*")}
    missing = set()
    for page in PAGES:
        if page.name in {"CHANGELOG.md", "leaks.md"}:
            continue
        for span in code(page):
            for path in re.findall(rf"(?<![\w./-])(?:{FOLDERS})/[\w./*-]+\w", span):
                if "*" not in path and not (ROOT / path).exists():
                    missing.add((page.name, path))
            if re.fullmatch(r"\w+\.py", span) and span not in names | OF_OTHERS:
                missing.add((page.name, span))
    assert missing == set()


def unknown_in(words: list[str]) -> str | None:
    """What of a command line of `ttl-odm` is neither a command, an option nor a value."""
    command: click.Command = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        known = command.commands.get(words[0])
        if known is None:
            return words[0]
        command, words = known, words[1:]
    options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    options |= {"--help", "-h", "--version"} | {
        name for option in cli.params for name in option.opts
    }
    for word in words:
        name = word.partition("=")[0]
        if re.fullmatch(r"--[a-z-]+", name) and name not in options:
            return name
    return None


def test_every_command_and_option_of_the_command_line_exists() -> None:
    unknown = {
        (page.name, span, word)
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for span in code(page)
        if (found := re.match(r"(?:\S+/)?ttl-odm ((?:[a-z-]|--).*)", span))
        if "..." not in span.split()
        for word in [unknown_in(shlex.split(found[1], comments=True))]
        if word is not None
    }
    assert unknown == set()


def test_every_command_of_the_frameworks_and_of_development_exists() -> None:
    django = {path.stem for path in PACKAGE.glob("**/django/management/commands/ttl_*.py")}
    developers = set(re.findall(r"def command_(\w+)\(", (ROOT / "tools/dev.py").read_text()))
    unknown = set()
    for page in PAGES:
        for span in code(page):
            named = re.findall(r"(?:manage\.py|^) ?(ttl_(?:[a-z]+))(?= |$)", span)
            commands = {name for name in named if "manage.py" in span}
            unknown |= {(page.name, name) for name in commands - django}
            called = set(re.findall(r"tools/dev\.py (\w+)", span))
            unknown |= {(page.name, name) for name in called - developers}
    assert unknown == set()


def slug(heading: str) -> str:
    """The anchor of a heading, as the site and GitHub make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """What of a page can be linked to."""
    text = page.read_text()
    headings = re.findall(r"^#{1,3} (.+)$", text, re.MULTILINE)
    return {slug(heading) for heading in headings} | set(re.findall(r'<a id="([\w-]+)"', text))


def test_the_pages_that_messages_name_exist() -> None:
    missing = [
        f"{page}#{anchor}" if anchor else page
        for page, anchor in re.findall(r"(docs/[\w-]+\.md)(?:#([\w-]+))?", source())
        if not (ROOT / page).exists() or (anchor and anchor not in anchors(ROOT / page))
    ]
    assert missing == []


@cache
def messages() -> str:
    """All texts in the package's source, with … for what is filled in, a text a line."""
    lines = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    part.value if isinstance(part, ast.Constant) else "…" for part in node.values
                ]
                lines.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                lines.append(node.value)
    return "\n".join(" ".join(line.split()) for line in lines)


@pytest.mark.slow
def test_the_troubleshooting_page_has_messages_that_the_package_raises() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    headings = re.findall(r"^### (.+)$", page, re.MULTILINE)
    quoted = [
        re.fullmatch(r"`(.+)`", heading)[1]  # type: ignore[index]
        for heading in headings
        if not RAISED_BY_OTHERS.search(heading)
    ]
    assert len(quoted) > 20
    assert [words for words in quoted if words not in messages()] == []


MOVED = {
    "cli": {"plan": "cli-plan", "policy": "cli-plan", "check": "cli-check"},
    "limits": dict.fromkeys(("what-an-insert-costs", "what-cant-make-room"), "keys"),
    "django": dict.fromkeys(("sweeping", "admin", "defaults-in-the-database"), "django-operating"),
    "mongodb": dict.fromkeys(
        (
            *("what-reads-cost", "what-writes-cost", "the-clock", "the-stable-api"),
            *("odd-cases", "beanies-own-tests"),
        ),
        "mongodb-costs",
    ),
}
"""Sections that have moved to another page, by the page where they were and their anchor."""


@pytest.mark.parametrize(
    ("page", "anchor", "to"),
    [(page, anchor, to) for page, moved in MOVED.items() for anchor, to in moved.items()],
)
def test_the_old_address_of_a_section_leads_to_the_new_one(page: str, anchor: str, to: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    left = re.search(rf'<a id="{anchor}"></a>\[[^]]+\]\({to}\.md#{anchor}\)', text)
    assert left is not None
    assert anchor in anchors(ROOT / "docs" / f"{to}.md")


GENERATED = {"leaks.md", "conformance.md", "CHANGELOG.md"}


def test_no_page_is_longer_than_anybody_reads() -> None:
    long = {
        page.name: words
        for page in PAGES
        if page.name not in GENERATED and (words := len(page.read_text().split())) > 3500
    }
    assert long == {}


def test_the_glossary_has_at_most_twenty_terms() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    terms = [slug(heading) for heading in re.findall(r"^### (.+)$", page, re.MULTILINE)]
    assert 10 < len(terms) <= 20
    others = "\n".join(path.read_text() for path in PAGES if path.name != "glossary.md")
    assert {"gate", "lease", "scope", "follower-and-family", "sweep-and-sweeper"} <= {
        term for term in terms if f"glossary.md#{term})" in others
    }
