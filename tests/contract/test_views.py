"""Every case of the contract through views of live rows: `ttl_odm.live_views`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.backends import SQLALCHEMY_VIEWS
from tests.contract.run import check, of

if TYPE_CHECKING:
    from tests.contract.backends import Subjects
    from tests.contract.case import Case


@pytest.mark.one_driver
@of(SQLALCHEMY_VIEWS)
def test_views_of_live_rows(subjects: Subjects, backend: str, case: Case) -> None:
    check(subjects, SQLALCHEMY_VIEWS, backend, case)
