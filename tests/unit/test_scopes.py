"""A scope of a stored default has one form, or is rejected."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ttl_odm import TTLConfigurationError
from ttl_odm.stored.scope_columns import ScopeColumn

TEXT = ScopeColumn("Message.tenant", "text", 40)
PADDED = ScopeColumn("Message.tenant", "text", 40, keeps_blanks=False)
NUMBER = ScopeColumn("Message.tenant", "number", least=-(2**31), most=2**31 - 1)
IDENTIFIER = ScopeColumn("Message.tenant", "uuid")
ONE = UUID(int=1)


@pytest.mark.parametrize(
    ("column", "value", "canonical"),
    [
        (TEXT, "acme", "acme"),
        (TEXT, " acme ", " acme "),
        (TEXT, "042", "042"),
        (PADDED, " acme", " acme"),
        (NUMBER, 42, 42),
        (NUMBER, "42", 42),
        (NUMBER, "042", 42),
        (NUMBER, "-7", -7),
        (NUMBER, 42.0, 42),
        (NUMBER, -(2**31), -(2**31)),
        (IDENTIFIER, ONE, ONE),
        (IDENTIFIER, str(ONE), ONE),
        (IDENTIFIER, ONE.hex.upper(), ONE),
        (IDENTIFIER, f"{{{ONE}}}", ONE),
    ],
)
def test_what_can_mean_one_value_is_normalised(
    column: ScopeColumn, value: object, canonical: object
) -> None:
    found = column.canonical(value)
    assert (type(found), found) == (type(canonical), canonical)


@pytest.mark.parametrize(
    ("column", "value", "fix"),
    [
        (TEXT, 42, "holds text; give a str, not int"),
        (TEXT, True, "give a str, not bool"),
        (TEXT, b"acme", "give a str, not bytes"),
        (TEXT, "", ": a scope has 1 to 40 characters"),
        (TEXT, "x" * 41, ": a scope has 1 to 40 characters"),
        (TEXT, "a\0", "NUL"),
        (TEXT, "\ud800", "surrogate"),
        (PADDED, "acme ", "treats it as 'acme'"),
        (NUMBER, True, "holds whole numbers; give a whole number, not bool"),
        (NUMBER, "abc", "give a whole number"),
        (NUMBER, " 42", "give a whole number"),
        (NUMBER, "4_2", "give a whole number"),
        (NUMBER, "\u0664\u0662", "give a whole number"),
        (NUMBER, "", "give a whole number"),
        (NUMBER, 42.5, "not float"),
        (NUMBER, float("nan"), "not float"),
        (NUMBER, float("inf"), "not float"),
        (NUMBER, [42], "not list"),
        (NUMBER, 2**31, "from -2147483648 to 2147483647"),
        (NUMBER, "9" * 5_000, "give a whole number"),
        (IDENTIFIER, "acme", "holds UUIDs; give a UUID"),
        (IDENTIFIER, 1, "not int"),
    ],
)
def test_what_no_row_can_have_is_rejected(column: ScopeColumn, value: Any, fix: str) -> None:
    with pytest.raises(TTLConfigurationError, match=r"^Message\.tenant = ") as raised:
        column.canonical(value)
    assert fix in str(raised.value)
