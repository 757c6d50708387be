"""What MariaDB and MySQL store for a value, as an expression of that value.

An INSERT rounds, pads and cuts; a comparison does none of that. ``CAST`` comes close, but has no
FLOAT(7, 4), BIT, ENUM or SET, and turns the text '1.6' into 1 where a column gets 2.
"""

from __future__ import annotations

import re
from typing import Final

_TYPE: Final = re.compile(r"(\w+)(?:\((.*)\))?", re.DOTALL)
_MEMBER: Final = re.compile(r"'((?:[^']|'')*)'")

_FORMS: Final = {
    # A text as a double, a decimal half away from zero.
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), "ROUND({0})"),
    "decimal": "CAST({0} AS DECIMAL(@))",
    "float": "CAST({0} AS FLOAT)",
    "double": "CAST({0} AS DOUBLE)",
    # By way of whole seconds: MySQL rounds the last half second of a day up.
    "date": "CAST(CAST({0} AS DATETIME) AS DATE)",
    "datetime": "CAST({0} AS DATETIME(@))",
    "timestamp": "CAST({0} AS DATETIME(@))",
    "time": "CAST({0} AS TIME(@))",
    "char": "RTRIM(LEFT({0}, @))",
    "varchar": "LEFT({0}, @)",
    "binary": "CAST({0} AS BINARY(@))",
    "bit": "CAST(CONV(HEX({0}), 16, 10) AS UNSIGNED)",  # of a number, or of bytes
    "enum": "RTRIM({0})",
}
"""By the names of types, with a place for what a type has in parentheses: `@`."""


def stored_form(column_type: str) -> str | None:
    """A template of what a column keeps of a value, `{0}`; None where it keeps what it gets.

    Args:
        column_type: The type as ``information_schema`` has it: ``decimal(10,2) unsigned``.
    """
    match = _TYPE.match(column_type)
    name, arguments = (match[1].lower(), match[2] or "0") if match else ("", "0")
    if name == "set":
        return _set_form(arguments)
    form = _FORMS.get(name)
    _, _, digits = arguments.partition(",")
    if form and digits and name in {"float", "double"}:
        form = form.replace("{0}", f"ROUND({{0}} + 0e0, {digits})")
    return form and form.replace("@", arguments)


def _set_form(arguments: str) -> str | None:
    """The members in the order of the type."""
    if "\\" in arguments:  # whether it escapes anything is up to the session
        return None
    members = _MEMBER.findall(arguments.replace("{", "{{").replace("}", "}}"))
    bits = " + ".join(
        f"(FIND_IN_SET('{member}', {{0}}) > 0) * {1 << number}"
        for number, member in enumerate(members)
    )
    named = ", ".join(f"'{member}'" for member in members)
    return f"MAKE_SET(COALESCE(NULLIF({bits}, 0), {{0}} + 0), {named})"
