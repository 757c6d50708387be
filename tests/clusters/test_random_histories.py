"""A right database gives histories without a finding, whatever clients do and however they overlap.

A model is run: a row per key, a clock, and operations that each happen at one instant between their
beginning and their end. What it answers is right by construction. Then it is broken.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clusters.checker import Rule, check
from tests.clusters.history import (
    SECOND,
    WRITES,
    Failover,
    History,
    Kind,
    Operation,
    Outcome,
    Row,
)

DEFAULT = 3
KEYS = ("a", "b")
KINDS = (*sorted(WRITES, key=lambda kind: kind.value), Kind.READ, Kind.PURGE)


@dataclass
class Model:
    """A database with the contract's behaviour, and its history."""

    random: Random
    overlap: float
    loses: float
    rows: dict[str, Row] = field(default_factory=dict)
    before: list[tuple[float, dict[str, Row]]] = field(default_factory=list)
    history: History = field(default_factory=lambda: History(DEFAULT))
    broken: str | None = None
    acted: int = 0

    def live(self, key: str, now: int) -> Row | None:
        row = self.rows.get(key)
        if row is None:
            return None
        expiry = self.history.expiry(row)
        return row if expiry is None or expiry > now else None

    def run(self, steps: int) -> History:
        moment = 100.0
        for number in range(steps):
            moment += self.random.uniform(0.01, 1)
            if self.loses >= 0 and self.random.random() < 0.1:
                self.fail_over(moment)
            else:
                self.step(number, moment)
        return self.history

    def fail_over(self, moment: float) -> None:
        """Go back to a state of a little while ago."""
        begin = moment - self.random.uniform(0, self.overlap)
        states = [state for when, state in self.before if when > begin - self.loses]
        if states and self.loses:
            self.rows = dict(self.random.choice(states))
        end = moment + self.random.uniform(0, self.overlap)
        # What happens from here on was not there to be lost.
        self.before.clear()
        self.history.failovers.append(
            Failover(begin=begin, end=end, old="one", new="two", loses=self.loses)
        )

    def step(self, number: int, moment: float) -> None:
        """Do one operation, which happens at an instant."""
        random, now = self.random, round(moment * SECOND)
        self.before.append((moment, dict(self.rows)))
        key, kind = random.choice(KEYS), random.choice(KINDS)
        begin = moment - random.uniform(0, self.overlap)
        end = moment + random.uniform(0, self.overlap)
        version = None if kind is Kind.TOUCH else str(number)
        outcome, rows = Outcome.ACKNOWLEDGED, ()
        happens = kind not in WRITES or random.random() > 0.2
        if happens:
            outcome, rows = self.happen(kind, key, version, now)
        if not happens or (outcome is Outcome.ACKNOWLEDGED and random.random() < 0.1):
            # The client doesn't know, or knows that nothing happened.
            certain = not happens and random.random() < 0.5
            outcome, rows = (Outcome.FAILED if certain else Outcome.UNKNOWN), ()
            end = random.uniform(begin, end)  # the server may go on after that
        if kind is Kind.PURGE and (self.rows.get(key) is None or self.live(key, now)):
            return
        if kind is Kind.PURGE:
            del self.rows[key]
        self.history.operations.append(
            Operation(
                kind=kind,
                client=f"client {number}",
                server="one",
                begin=begin,
                end=end,
                keys=(key,),
                outcome=outcome,
                version=version if kind in WRITES else None,
                rows=rows,
                asked=round(random.uniform(begin, moment) * SECOND),
                answered=now
                if kind is Kind.PURGE
                else max(now, round(random.uniform(moment, end) * SECOND)),
            )
        )

    def happen(
        self, kind: Kind, key: str, version: str | None, now: int
    ) -> tuple[Outcome, tuple[Row, ...]]:
        """Change the state, and return the answer."""
        row = self.live(key, now)
        if self.broken is not None:
            row = self.misjudge(kind, key, row)
        if kind is Kind.READ:
            return Outcome.ACKNOWLEDGED, () if row is None else (self.shown(row, now),)
        if kind is Kind.PURGE:
            return Outcome.ACKNOWLEDGED, ()
        if kind is Kind.INSERT and row is not None:
            return Outcome.REFUSED, ()
        if kind is not Kind.INSERT and row is None:
            return Outcome.MISSED, ()
        if kind is Kind.DELETE:
            del self.rows[key]
            return Outcome.ACKNOWLEDGED, ()
        same = row.version if row is not None and version is None else str(version)
        ttl = row.ttl if row is not None and version is None else self.random.choice((None, 1, 5))
        self.rows[key] = Row(key, same, now, ttl, now)
        return Outcome.ACKNOWLEDGED, (self.rows[key],)

    def shown(self, row: Row, now: int) -> Row:
        return Row(row.key, row.version, row.changed, row.ttl, now)

    def misjudge(self, kind: Kind, key: str, row: Row | None) -> Row | None:
        """Break the contract at times."""
        stored = self.rows.get(key)
        if self.broken == "loses" and row is not None and kind is Kind.READ:
            self.acted += 1
            del self.rows[key]
            return None
        if self.broken == "shows" and row is None and stored is not None:
            self.acted += kind in {Kind.READ, Kind.RENEW, Kind.UPDATE, Kind.TOUCH}
            return stored
        if self.broken == "displaces" and kind is Kind.INSERT and row is not None:
            self.acted += 1
            return None
        return row


@given(
    st.integers(0, 2**32),
    st.integers(1, 60),
    st.sampled_from([0, 0.3, 2]),
    st.sampled_from([-1, 0, 2]),
)
def test_nothing_is_wrong_with_a_database_that_keeps_the_contract(
    seed: int, steps: int, overlap: float, loses: float
) -> None:
    verdict = check(Model(Random(seed), overlap, loses).run(steps))  # noqa: S311
    assert [str(finding) for finding in verdict.wrong] == []
    if loses <= 0:
        assert verdict.by_engine == []


@pytest.mark.parametrize(
    ("broken", "rules"),
    [
        ("loses", {Rule.LOST}),
        ("shows", {Rule.SHOWN, Rule.CHANGED}),
        ("displaces", {Rule.TWICE}),
    ],
)
def test_a_broken_database_is_found_out(broken: str, rules: set[Rule]) -> None:
    acted, caught = 0, Counter[Rule]()
    for seed in range(40):
        model = Model(Random(seed), overlap=0.0, loses=-1, broken=broken)  # noqa: S311
        caught += check(model.run(60)).counts()
        acted += model.acted
    assert rules <= set(caught)
    # Unknown outcomes hide the rest.
    assert sum(caught[rule] for rule in rules) > acted / 10
