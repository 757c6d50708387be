"""All cases: importing this module fills the table."""

from tests.contract import (  # noqa: F401
    cases_declarations,
    cases_lifetimes,
    cases_values,
    cases_writes,
)
from tests.contract.case import CASES

__all__ = ["CASES"]
