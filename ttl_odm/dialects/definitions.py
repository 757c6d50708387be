"""What MariaDB's and MySQL's ``SHOW CREATE TABLE`` says of a CHECK.

MariaDB shows a column's CHECK in the column's line, which SQLAlchemy doesn't reflect; MySQL shows
every CHECK in a line of the table's, under a name that it makes up, and only MySQL has CHECKs that
are not enforced.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_OF_A_TABLE: Final = re.compile(
    r"^\s*CONSTRAINT `(?P<name>(?:[^`]|``)+)` CHECK \((?P<condition>.*)\)"
    r"(?P<off> /\*!80016 NOT ENFORCED \*/)?,?$",
    re.MULTILINE,
)
_DECORATION: Final = re.compile(r"[`()\s]")


@dataclass(frozen=True)
class Check:
    """A CHECK.

    Attributes:
        name: Its name, unquoted; empty for a column's own on MariaDB, which has none.
        is_enforced: Whether it keeps anything out.
    """

    name: str = ""
    is_enforced: bool = True


def column_line(definition: str, column: str) -> str:
    """The line that defines a column; empty if there is none."""
    lines = (line.strip() for line in definition.splitlines())
    return next((line for line in lines if line.startswith(f"`{column}` ")), "")


def check_on(definition: str, column: str, condition: str) -> Check | None:
    """The CHECK of a column: its own, whatever it says, or the table's with this condition.

    Of several the one that is enforced.
    """
    if " CHECK (" in column_line(definition, column):
        return Check()
    asked = _plain(condition)
    checks = [
        Check(match["name"].replace("``", "`"), not match["off"])
        for match in _OF_A_TABLE.finditer(definition)
        if _plain(match["condition"]) == asked
    ]
    return max(checks, key=lambda check: check.is_enforced, default=None)


def _plain(condition: str) -> str:
    return _DECORATION.sub("", condition).lower()
