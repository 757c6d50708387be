"""Every case of the contract on every backend, and docs/conformance.md, which tells of it.

The subjects of extensions have modules of their own, so that this one does without them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.backends import DATABASES
from tests.contract.backends import (
    BEANIE,
    DJANGO,
    SQLALCHEMY,
    SQLALCHEMY_ASYNC,
    names,
)
from tests.contract.cases import CASES
from tests.contract.run import ADAPTERS, check, column_of, foretold, of
from tools.conformance_table import document, without_versions

if TYPE_CHECKING:
    from tests.contract.backends import Subjects
    from tests.contract.case import Case

DOCUMENT = Path(__file__).parents[2] / "docs" / "conformance.md"


@pytest.mark.every_server
@pytest.mark.every_driver
@of(SQLALCHEMY)
def test_sqlalchemy(subjects: Subjects, backend: str, case: Case) -> None:
    check(subjects, SQLALCHEMY, backend, case)


@pytest.mark.every_driver
@of(SQLALCHEMY_ASYNC)
def test_sqlalchemy_asynchronously(subjects: Subjects, async_backend: str, case: Case) -> None:
    check(subjects, SQLALCHEMY_ASYNC, async_backend, case)


@of(BEANIE)
def test_beanie(subjects: Subjects, mongodb_url: str, case: Case) -> None:
    check(subjects, BEANIE, "mongodb", case)


@pytest.mark.one_driver
@of(DJANGO)
def test_django(subjects: Subjects, backend: str, case: Case) -> None:
    check(subjects, DJANGO, backend, case)


def test_the_document_says_what_is_right_and_why_something_is_not() -> None:
    written = DOCUMENT.read_text(encoding="utf-8")
    expected = document([foretold()])
    assert without_versions(written) == without_versions(expected), (
        "run: python3 tools/conformance.py --write docs/conformance.md"
    )


@pytest.mark.slow
def test_no_adapter_is_left_out_by_a_slip_of_the_pen() -> None:
    for case in CASES.values():
        columns = {column_of(name) for name in names(DATABASES)}
        assert case.not_on.keys() <= {*ADAPTERS.values(), *columns}, case.name
        assert any(not case.reason_not_on(column) for column in columns), case.name
    assert len(CASES) >= 60
