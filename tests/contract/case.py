"""The table of cases: how a case is declared, and how it is run.

A case is a function that gets a `Subject`; its name is the sentence that docs/conformance.md
prints. It says which rule it belongs to, where that rule comes from, and on which adapters or
databases it can't be asked, with the reason. Nothing is skipped without one.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.contract.subject import Subject


class Origin(NamedTuple):
    """Where a rule comes from."""

    name: str
    url: str


COSMOS = Origin("Cosmos DB", "https://learn.microsoft.com/azure/cosmos-db/nosql/time-to-live")
COSMOS_MONGO = Origin(
    "Cosmos DB for MongoDB", "https://learn.microsoft.com/azure/cosmos-db/mongodb/time-to-live"
)
AZURE = Origin(
    "Azure's tests",
    "https://github.com/Azure/azure-sdk-for-python/tree/main/sdk/cosmos/azure-cosmos/tests",
)
MONGODB = Origin("MongoDB", "https://www.mongodb.com/docs/manual/tutorial/expire-data/")
OURS = Origin("ttl_odm", "../README.md#the-rules")
ORIGINS = (COSMOS, COSMOS_MONGO, AZURE, MONGODB, OURS)


class Rule(NamedTuple):
    """A part of the contract: a heading and what it says."""

    name: str
    says: str


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Attributes:
        name: the sentence.
        rule: what it is a case of.
        origin: where that comes from.
        check: raises if the backend does otherwise.
        not_on: why it can't be asked, by adapter, or by column of the document.
    """

    name: str
    rule: Rule
    origin: Origin
    check: Callable[[Subject], None]
    not_on: Mapping[str, str] = field(default_factory=dict)

    def reason_not_on(self, column: str) -> str | None:
        """Why it can't be asked there (or on the adapter alone); None if it can."""
        return self.not_on.get(column) or self.not_on.get(column.partition(",")[0])

    def __str__(self) -> str:
        """Its sentence."""
        return self.name


CASES: dict[str, Case] = {}


def sql(reason: str) -> dict[str, str]:
    """Say that a case can't be asked on tables."""
    return {"SQLAlchemy": reason, "Django": reason}


def on_servers(reason: str, *databases: str) -> dict[str, str]:
    """Say that a case can't be asked on the tables of some databases."""
    return {f"{adapter}, {database}": reason for adapter in sql(reason) for database in databases}


def case(
    rule: Rule,
    origin: Origin,
    *,
    not_on: Mapping[str, str] | None = None,
    of: Iterable[Any] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Put a function into the table, or once for each value of `of`, which it gets as well.

    A value may be a pair of what it is called and what it is, see `named`.
    """

    def put(check: Callable[..., None]) -> Callable[..., None]:
        words = check.__name__.replace("_", " ").replace("minus 1", "-1")
        if of is None:
            _add(Case(words, rule, origin, check, not_on or {}))
            return check
        for value in of:
            called, what = value if isinstance(value, tuple) else (f"`{value!r}`", value)
            _add(
                Case(
                    f"{words}: {called}",
                    rule,
                    origin,
                    _given(check, what),
                    not_on or {},
                )
            )
        return check

    return put


def named(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Values with the code that makes them as their names."""
    return [(f"`{code}`", value) for code, value in values.items()]


def _given(check: Callable[..., None], value: Any) -> Callable[[Subject], None]:
    def checked(subject: Subject) -> None:
        check(subject, value)

    return checked


def _add(made: Case) -> None:
    frame = inspect.getmodule(made.check)
    assert made.name not in CASES, f"{frame}: a second case {made.name!r}"
    assert not re.search(r"[|\n]", made.name)
    CASES[made.name] = made
