"""All cases: importing this module fills the table."""

from tests.contract import cases_declarations as declarations
from tests.contract import cases_lifetimes as lifetimes
from tests.contract import cases_values as values
from tests.contract import cases_writes as writes
from tests.contract.case import CASES

RULES = (
    *(lifetimes.TRUTH_TABLE, lifetimes.BOUNDARY, lifetimes.CLOCK, writes.RESETS, writes.GONE),
    *(writes.KEYS, lifetimes.DEFAULTS, lifetimes.COPIES, lifetimes.INHERITING, writes.SWEEPING),
    *(values.DEFAULT, values.STRICT, values.LENIENT, values.PRECISION),
    *(declarations.ADOPTED, declarations.AFTER, declarations.AT, declarations.ERRORS),
    declarations.INDEXES,
)
"""In the order of the document."""

__all__ = ["CASES", "RULES"]
