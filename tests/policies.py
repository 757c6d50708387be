"""Which models raw SQL may mean, in a process where many tests have models of the same names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ttl_odm.sqlalchemy.gate import raw_leaks
from ttl_odm.sqlalchemy.policy.following import gated_tables, root_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest
    from sqlalchemy import Table


@dataclass(frozen=True)
class _Known:
    """The tables with a policy, but those of tests outside of a package."""

    package: str

    def __iter__(self) -> Iterator[Table]:
        return (table for table in gated_tables if not self._is_of_others(table))

    def _is_of_others(self, table: Table) -> bool:
        binding = root_of(table)
        module = "" if binding is None else binding.default.owner.__module__
        return module.startswith("tests.") and not module.startswith(f"{self.package}.")


def know_only(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let raw SQL mean tables of this package of tests, or of no test's.

    Where models have different policies for a name, raw SQL is refused, and nothing is guessed.
    """
    monkeypatch.setattr(raw_leaks, "gated_tables", _Known(package))
