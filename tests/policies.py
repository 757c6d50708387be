"""Which models raw SQL may mean, in a process where many tests have models of the same names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ttl_odm.guard.sqlalchemy import leaks
from ttl_odm.sqlalchemy.policy.references import gated_tables, root_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest
    from sqlalchemy import Table


@dataclass(frozen=True)
class _Known:
    """The tables with a policy, but those of models outside of some packages, or modules.

    Benchmarks, examples and documents have models too, once a test has imported or run them.
    """

    packages: tuple[str, ...]
    but: tuple[str, ...]

    def __iter__(self) -> Iterator[Table]:
        return (table for table in gated_tables if not self._is_of_others(table))

    def _is_of_others(self, table: Table) -> bool:
        binding = root_of(table)
        if binding is None:
            return False
        module = binding.default.owner.__module__
        return not _is_in(module, self.packages) or _is_in(module, self.but)


def _is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def know_only(monkeypatch: pytest.MonkeyPatch, *packages: str, but: str | None = None) -> None:
    """Let raw SQL mean tables of models in these packages, or modules, and of no others.

    Where models have different policies for a name, raw SQL is refused, and nothing is guessed.
    """
    known = _Known(packages, () if but is None else (but,))
    monkeypatch.setattr(leaks, "gated_tables", known)
