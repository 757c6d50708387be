"""The way from scope to scope reaches every row, in batches no larger than they may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ttl_odm.stored.scope_walk import (
    AT_ONCE,
    CountIn,
    Look,
    Question,
    Scope,
    ScopePlace,
    Scopes,
    alike,
    answered,
    next_range,
)


@dataclass
class Stretch:
    """Some rows of one scope."""

    number: int
    resume: int | None


class Table:
    """Rows by scope, of which each batch is deleted."""

    def __init__(self, rows: dict[Any, int], ends: int = 1) -> None:
        self.rows = rows
        self.ends = ends
        self.questions = 0

    def answer(self, size: int, question: Question) -> Any:
        self.questions += 1
        if isinstance(question, Look):
            after = question.after
            scopes = sorted(scope for scope in self.rows if scope is not None)
            seen = [scope for scope in scopes if after is None or scope > after][:AT_ONCE]
            due = [Scope(scope, 60, scope % self.ends, 1.0) for scope in seen if self.rows[scope]]
            return Scopes(tuple(due), seen[-1] if len(seen) == AT_ONCE else None)
        if isinstance(question, CountIn):
            return min(sum(self.rows[each.value] for each in question.scopes), question.limit)
        rows = self.rows.get(question.scope and question.scope.value, 0)
        number = min(rows, size)
        return Stretch(number, rows - number or None) if rows else None

    def sweep(self, size: int) -> list[int]:
        """Delete all, and say how many rows each batch had."""
        batches, place = [], None
        while True:
            found = answered(next_range(size, place), lambda asked: self.answer(size, asked))
            if found is None:
                return batches
            if found.inside is not None:
                scope = found.begin.due[0]
                self.rows[scope and scope.value] -= found.inside.number
                batches.append(found.inside.number)
            else:
                batches.append(sum(self.rows[scope.value] for scope in found.scopes))
                assert batches[-1] <= found.rows
                self.rows |= {scope.value: 0 for scope in found.scopes}
            place = found.resume
            if place is None:
                return batches


@pytest.mark.parametrize("size", [1, 3, 100, 10_000])
@pytest.mark.parametrize("ends", [1, 50])
def test_every_row_is_in_a_batch(size: int, ends: int) -> None:
    rows: dict[Any, int] = {None: 7, **{number: number % 4 for number in range(2_500)}}
    table = Table({**rows, 1_000: 250}, ends)
    total = sum(table.rows.values())
    batches = table.sweep(size)
    assert sum(batches) == total
    assert max(batches) <= size
    assert not any(table.rows.values())


def test_scopes_with_few_rows_share_batches() -> None:
    table = Table(dict.fromkeys(range(3000), 2))
    assert len(table.sweep(500)) <= 24
    assert table.questions <= 60


def test_where_nothing_is_due_one_look_is_enough() -> None:
    table = Table(dict.fromkeys(range(10), 0))
    assert table.sweep(100) == []
    assert table.questions == 2  # and one at the rows of no scope


def test_few_ends_are_in_one_range() -> None:
    scopes = [Scope(number, 60, number, 1.0) for number in range(100)]
    assert alike(scopes) == 20
    assert alike(scopes[:5]) == 5
    assert ScopePlace(tuple(scopes), has_more=False).past(100) is None
