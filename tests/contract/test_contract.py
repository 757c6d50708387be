"""Every case of the contract on every backend, and docs/conformance.md, which tells of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.backends import DATABASES
from tests.contract.backends import (
    BEANIE,
    DJANGO,
    DJANGO_STORED,
    SQLALCHEMY,
    SQLALCHEMY_ASYNC,
    SQLALCHEMY_STORED,
    SQLALCHEMY_VIEWS,
    Subjects,
    names,
)
from tests.contract.cases import CASES
from tests.contract.run import ADAPTERS, column_of, foretold
from tools.conformance_table import document, without_versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.case import Case

DOCUMENT = Path(__file__).parents[2] / "docs" / "conformance.md"


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subjects]:
    opened = Subjects(tmp_path_factory.mktemp("contract"))
    yield opened
    opened.close()


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """The name only: its database is there for the whole module."""
    name: str = request.param
    return name


@pytest.fixture
def async_backend(request: pytest.FixtureRequest) -> str:
    """The same for asynchronous drivers."""
    name: str = request.param
    return name


def of(adapter: str) -> pytest.MarkDecorator:
    """The cases that can be asked there; that the others can't, the document says with reasons."""
    asked = [case for case in CASES.values() if not case.reason_not_on(ADAPTERS[adapter])]
    return pytest.mark.parametrize("case", asked, ids=str)


def check(subjects: Subjects, adapter: str, backend: str, case: Case) -> None:
    reason = case.reason_not_on(column_of(f"{adapter}:{backend}"))
    if reason is not None:
        pytest.skip(reason)
    subject = subjects[f"{adapter}:{backend}"]
    subject.clear()
    case.check(subject)


@pytest.mark.every_server
@pytest.mark.every_driver
@of(SQLALCHEMY)
def test_sqlalchemy(subjects: Subjects, backend: str, case: Case) -> None:
    check(subjects, SQLALCHEMY, backend, case)


@pytest.mark.every_driver
@of(SQLALCHEMY_ASYNC)
def test_sqlalchemy_asynchronously(subjects: Subjects, async_backend: str, case: Case) -> None:
    check(subjects, SQLALCHEMY_ASYNC, async_backend, case)


@pytest.mark.one_driver
@of(SQLALCHEMY_STORED)
def test_sqlalchemy_with_stored_defaults(subjects: Subjects, backend: str, case: Case) -> None:
    check(subjects, SQLALCHEMY_STORED, backend, case)


@pytest.mark.one_driver
@of(SQLALCHEMY_VIEWS)
def test_views_of_live_rows(subjects: Subjects, backend: str, case: Case) -> None:
    check(subjects, SQLALCHEMY_VIEWS, backend, case)


@of(BEANIE)
def test_beanie(subjects: Subjects, mongodb_url: str, case: Case) -> None:
    check(subjects, BEANIE, "mongodb", case)


@pytest.mark.one_driver
@of(DJANGO)
def test_django(subjects: Subjects, backend: str, case: Case) -> None:
    check(subjects, DJANGO, backend, case)


@pytest.mark.one_driver
@of(DJANGO_STORED)
def test_django_with_stored_defaults(subjects: Subjects, backend: str, case: Case) -> None:
    check(subjects, DJANGO_STORED, backend, case)


def test_the_document_says_what_is_right_and_why_something_is_not() -> None:
    written = DOCUMENT.read_text(encoding="utf-8")
    expected = document([foretold()])
    assert without_versions(written) == without_versions(expected), (
        "run: python3 tools/conformance.py --write docs/conformance.md"
    )


def test_no_adapter_is_left_out_by_a_slip_of_the_pen() -> None:
    for case in CASES.values():
        columns = {column_of(name) for name in names(DATABASES)}
        assert case.not_on.keys() <= {*ADAPTERS.values(), *columns}, case.name
        assert any(not case.reason_not_on(column) for column in columns), case.name
    assert len(CASES) >= 60
