"""Every case of the contract where the database stores the defaults: `ttl_odm.stored`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.backends import DJANGO_STORED, SQLALCHEMY_STORED
from tests.contract.run import check, of

if TYPE_CHECKING:
    from tests.contract.backends import Subjects
    from tests.contract.case import Case


@pytest.mark.one_driver
@of(SQLALCHEMY_STORED)
def test_sqlalchemy(subjects: Subjects, backend: str, case: Case) -> None:
    check(subjects, SQLALCHEMY_STORED, backend, case)


@pytest.mark.one_driver
@of(DJANGO_STORED)
def test_django(subjects: Subjects, backend: str, case: Case) -> None:
    check(subjects, DJANGO_STORED, backend, case)
