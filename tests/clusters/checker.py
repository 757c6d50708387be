"""Judges a `History`: what of it the contract forbids.

Which write made the state that a server answered with is often uncertain, since clients work at the
same time, and the outcome of a write is unknown when its connection was lost. So the checker lists
all writes of a key that may have been the last one before an answer (`_Key.candidates`), and
objects only to an answer that none of them explains. It never objects to a right answer, whatever
the order was; it may miss a wrong one that another order would explain.

Each objection is tried again without the writes that an asynchronous failover may have lost. If the
answer is right then, the engine lost a write, and the finding names the failover.

A history is judged by itself: this module imports nothing of ttl_odm.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import accumulate
from typing import TYPE_CHECKING

from tests.clusters.history import (
    SECOND,
    WRITES,
    Failover,
    History,
    Holding,
    Kind,
    Operation,
    Outcome,
    Row,
    Tenure,
    is_before,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class Rule(Enum):
    """What the contract forbids."""

    LOST = "an acknowledged live row was lost"
    REVIVED = "a row acknowledged as deleted or expired came back"
    SHOWN = "an expired row was visible"
    CHANGED = "a write changed an expired row"
    TWICE = "two live rows had one key"
    PHANTOM = "a write that had failed was visible"
    TWO_HOLDERS = "two sweepers held the lease"
    TOKEN = "the fencing token didn't grow"
    BROKE = "a sweeper ended with an error"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that the contract forbids.

    Attributes:
        rule: What.
        key: The row's key, or the sweeper that broke; empty for a lease.
        event: What showed it.
        cause: What it contradicts; None if it contradicts itself.
        failover: The failover in which the engine lost a write; None if ttl_odm is wrong.
    """

    rule: Rule
    key: str
    event: Operation | Tenure
    cause: Operation | Tenure | None = None
    failover: Failover | None = None

    def __str__(self) -> str:
        """Describe it in a few lines, for people who look for the reason."""
        lines = [f"{self.rule.value}: {self.key}", f"  shown by {self.event}"]
        if self.cause is not None:
            lines.append(f"  after {self.cause}")
        if self.failover is not None:
            lines.append(f"  lost by the engine in {self.failover}")
        return "\n".join(lines)


@dataclass(slots=True)
class Verdict:
    """What the checker found.

    Attributes:
        wrong: What ttl_odm did wrong.
        by_engine: What the engine lost in an asynchronous failover.
        behind: How often a replica did not show a live row yet.
    """

    wrong: list[Finding] = field(default_factory=list)
    by_engine: list[Finding] = field(default_factory=list)
    behind: int = 0

    def counts(self) -> Counter[Rule]:
        """How often each rule was broken by ttl_odm."""
        return Counter(finding.rule for finding in self.wrong)

    def add(self, findings: Iterable[Finding]) -> None:
        """Add findings, each contradiction once: the next readers see the same."""
        seen = {_contradiction(finding) for finding in (*self.wrong, *self.by_engine)}
        for finding in findings:
            if _contradiction(finding) not in seen:
                seen.add(_contradiction(finding))
                (self.wrong if finding.failover is None else self.by_engine).append(finding)


def _contradiction(finding: Finding) -> tuple[Rule, str, int, bool]:
    cause = id(finding.cause or finding.event)
    return finding.rule, finding.key, cause, finding.failover is None


def check(history: History) -> Verdict:
    """Judge a history."""
    verdict = Verdict()
    keys: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in history.operations:
        for key in operation.keys:
            keys[key].append(operation)
    for key, operations in keys.items():
        judged = _Key(history, key, operations)
        verdict.add(judged.findings())
        verdict.behind += judged.behind()
    verdict.add(_leases(history))
    return verdict


class _Key:
    """The operations on one key, and which of them explain an answer."""

    def __init__(self, history: History, key: str, operations: Sequence[Operation]) -> None:
        self._history = history
        self._key = key
        self._operations = sorted(operations, key=lambda operation: operation.begin)
        self._losing = [failover for failover in history.failovers if failover.loses]
        happened = [
            one
            for one in self._operations
            if one.kind in WRITES and one.outcome in {Outcome.ACKNOWLEDGED, Outcome.UNKNOWN}
        ]
        self._writes = [one for one in happened if one.outcome is Outcome.ACKNOWLEDGED]
        self._open = [
            replace(one, end=math.inf) for one in happened if one.outcome is Outcome.UNKNOWN
        ]
        """Writes of unknown outcome, which may take effect at any later time."""
        self._begins = [one.begin for one in self._writes]
        self._latest_ends = list(accumulate((one.end for one in self._writes), max))
        self._absences = [one for one in operations if one.fresh and self._is_absent(one)]
        self._never = Operation(
            kind=Kind.DELETE, client="", server="", begin=-math.inf, end=-math.inf, keys=(key,)
        )
        """The state before the first write, which is no row, as after a DELETE."""

    def findings(self) -> Iterator[Finding]:
        """Judge every operation on the key."""
        for operation in self._operations:
            if operation.outcome in {Outcome.FAILED, Outcome.UNKNOWN}:
                continue
            yield from self._plain(operation)
            if not operation.fresh:
                continue
            objection = self._objection(operation, ())
            if objection is not None:
                yield self._explained(operation, objection)

    def behind(self) -> int:
        """Count the answers of replicas that lack a row which is live."""
        absent = (one for one in self._operations if not one.fresh and self._is_absent(one))
        return sum(self._lost(one, self.candidates(one)) is not None for one in absent)

    def candidates(self, at: Operation, losing: Sequence[Failover] = ()) -> list[Operation]:
        """The writes of which one made the state that an operation met.

        Args:
            at: The operation.
            losing: Failovers in which the engine may have lost writes.
        """
        possible: list[Operation] = []
        firm = -math.inf
        """When the last write began that had certainly happened: it supersedes the earlier ones."""
        for number in reversed(range(bisect_left(self._begins, at.end))):
            if self._latest_ends[number] < firm:
                break
            write = self._writes[number]
            if write.end >= firm and not _is_same(write, at):
                possible.append(write)
                if firm == -math.inf and is_before(write, at):
                    was_lost = any(_was_lost(write, at, failover) for failover in losing)
                    firm = firm if was_lost else write.begin
        never = [self._never] if firm == -math.inf else []
        unknown = [one for one in self._open if one.begin < at.end and not _is_same(one, at)]
        return [*never, *unknown, *reversed(possible)]

    def _explained(self, at: Operation, finding: Finding) -> Finding:
        """Name the failover without which an answer would be wrong."""
        for failover in self._losing:
            if self._objection(at, [failover]) is None:
                return replace(finding, failover=failover)
        # Two may have followed each other closely.
        remaining = self._objection(at, self._losing)
        return remaining or replace(finding, failover=self._losing[-1])

    def _plain(self, at: Operation) -> Iterator[Finding]:
        """What is wrong about an answer in itself, on any server."""
        rows = [row for row in at.rows if row.key == self._key]
        if at.kind is not Kind.READ:
            return
        if len(rows) > 1:
            yield Finding(Rule.TWICE, self._key, at)
        for row in rows:
            expiry = self._history.expiry(row)
            if expiry is not None and expiry <= row.judged:
                yield Finding(Rule.SHOWN, self._key, at)

    def _objection(self, at: Operation, losing: Sequence[Failover]) -> Finding | None:
        """What is wrong about an answer, given all other operations."""
        before = self.candidates(at, losing)
        if self._is_absent(at):
            return self._lost(at, before)
        if at.kind is Kind.READ:
            row = next(row for row in at.rows if row.key == self._key)
            return self._misplaced(at, row, before) or self._back(at, row, losing)
        if at.kind is Kind.INSERT:
            is_refused = at.outcome is Outcome.REFUSED
            return self._conflict(at, before) if is_refused else self._displaced(at, before)
        return self._dead(Rule.CHANGED, at, before)

    def _is_absent(self, at: Operation) -> bool:
        """Whether the answer says that there is no such row."""
        if at.kind in {Kind.READ, Kind.PURGE} and at.outcome is Outcome.ACKNOWLEDGED:
            return all(row.key != self._key for row in at.rows)
        return at.outcome is Outcome.MISSED

    def _lost(self, at: Operation, before: Sequence[Operation]) -> Finding | None:
        """The row is not there, although each write that may be the last has left a live one."""
        if at.answered is None or not all(self._is_live(one, at.answered) for one in before):
            return None
        return Finding(Rule.LOST, self._key, at, before[-1])

    def _displaced(self, at: Operation, before: Sequence[Operation]) -> Finding | None:
        """An INSERT succeeded, although a live row had its key."""
        if at.answered is None or not all(self._is_live(one, at.answered) for one in before):
            return None
        return Finding(Rule.TWICE, self._key, at, before[-1])

    def _conflict(self, at: Operation, before: Sequence[Operation]) -> Finding | None:
        """An INSERT was refused for the sake of a row that is gone or has expired."""
        if all(one.kind is Kind.DELETE for one in before):
            rule = Rule.PHANTOM if before == [self._never] else Rule.REVIVED
            return Finding(rule, self._key, at, before[-1])
        return self._dead(Rule.SHOWN, at, before)

    def _dead(self, rule: Rule, at: Operation, before: Sequence[Operation]) -> Finding | None:
        """A row was met, although it was gone or had expired whatever write was the last."""
        if at.asked is None or any(self._may_live(one, at.asked) for one in before):
            return None
        return Finding(rule, self._key, at, before[-1])

    def _misplaced(self, at: Operation, row: Row, before: Sequence[Operation]) -> Finding | None:
        """A row is shown that none of the writes has left which may be the last."""
        if any(_left(one, row) for one in before):
            return None
        writers = (*self._writes, *self._open)
        if not any(one.begin < at.end and _wrote(one, row) for one in writers):
            return Finding(Rule.PHANTOM, self._key, at)
        last = before[-1]
        rule = Rule.REVIVED if last.kind is Kind.DELETE else Rule.LOST
        return Finding(rule, self._key, at, last)

    def _back(self, at: Operation, row: Row, losing: Sequence[Failover]) -> Finding | None:
        """A row is shown that was acknowledged as gone since it was last written."""
        if any(_left(one, row) for one in self._open):
            return None
        written = [one for one in self._writes if _left(one, row)]
        for other in self._absences:
            if (
                is_before(other, at)
                and all(is_before(one, other) for one in written)
                and not any(_was_lost(other, at, failover) for failover in losing)
            ):
                return Finding(Rule.REVIVED, self._key, at, other)
        return None

    def _is_live(self, write: Operation, now: int) -> bool:
        """Whether a write has certainly left a row that is live at an instant."""
        is_certain = write.outcome is Outcome.ACKNOWLEDGED and bool(write.rows)
        return is_certain and self._may_live(write, now)

    def _may_live(self, write: Operation, now: int) -> bool:
        """Whether a write may have left a row that is live at an instant."""
        if write.kind is Kind.DELETE:
            return False
        if not write.rows:
            return True
        expiry = self._history.expiry(write.rows[0])
        return expiry is None or expiry > now


def _is_same(write: Operation, at: Operation) -> bool:
    return (write.client, write.begin) == (at.client, at.begin)


def _was_lost(write: Operation | Tenure, at: Operation | Tenure, failover: Failover) -> bool:
    """Whether a failover between the two may have undone the first."""
    return failover.may_lose(write.begin, write.end) and at.end > failover.begin


def _wrote(write: Operation, row: Row) -> bool:
    """Whether a row's values are those of a write, whenever it was last stamped."""
    return row.version in (write.version, *(left.version for left in write.rows))


def _left(write: Operation, row: Row) -> bool:
    """Whether a write may have left a row as it is shown."""
    if write.kind is Kind.DELETE:
        return False
    if not write.rows:
        return write.version in {None, row.version}
    return any((left.version, left.changed) == (row.version, row.changed) for left in write.rows)


class _Acquisitions:
    """When which fencing token was the highest that a sweeper knew of."""

    def __init__(self, tenures: Iterable[Tenure]) -> None:
        acquired = (one for one in tenures if one.action is Holding.ACQUIRED)
        by_end = sorted(acquired, key=lambda one: one.end)
        self._ends = [one.end for one in by_end]
        self._highest = list(accumulate(by_end, _higher))

    def highest(self, before: float) -> Tenure | None:
        """The acquisition with the highest token of those that had ended before a moment."""
        number = bisect_left(self._ends, before)
        return self._highest[number - 1] if number else None


def _higher(one: Tenure, other: Tenure) -> Tenure:
    return one if one.token >= other.token else other


def _leases(history: History) -> Iterator[Finding]:
    """Judge the sweepers: one holder of the lease at a time, a token that grows, no end."""
    for one in history.tenures:
        if one.action is Holding.BROKE:
            yield Finding(Rule.BROKE, one.client, one)
    tenures = sorted(history.tenures, key=lambda one: one.begin)
    acquisitions = _Acquisitions(tenures)
    contradictions = (
        (rule, one, _contradicted(rule, one, acquisitions))
        for one in tenures
        for rule in (Rule.TOKEN, Rule.TWO_HOLDERS)
    )
    held = ((Rule.TWO_HOLDERS, one, other) for one, other in _held_already(tenures))
    for rule, tenure, other in (*contradictions, *held):
        if other is not None:
            losing = (one for one in history.failovers if _was_lost(other, tenure, one))
            yield Finding(rule, "", tenure, other, next(losing, None))


def _contradicted(rule: Rule, at: Tenure, acquisitions: _Acquisitions) -> Tenure | None:
    """The acquisition by another sweeper that rules out what a sweeper did afterwards."""
    if at.action is Holding.ACQUIRED:
        other = acquisitions.highest(at.begin)
        return other if rule is Rule.TOKEN and other and other.token >= at.token else None
    if rule is Rule.TOKEN or at.action not in {Holding.WORKED, Holding.RENEWED}:
        return None
    # A batch may go on while another sweeper takes over, but not for longer than a lease lasts.
    patience = at.duration if at.action is Holding.WORKED else 0.0
    other = acquisitions.highest(at.begin - patience)
    return other if other and other.token > at.token else None


def _held_already(tenures: Sequence[Tenure]) -> Iterator[tuple[Tenure, Tenure]]:
    """List the leases that were granted while another holder's had not ended, with that one."""
    holding: list[Tenure] = []
    released = [one for one in tenures if one.action is Holding.RELEASED]
    given_back = {one.token: one.begin for one in reversed(released)}
    for grant in tenures:
        now = grant.answered
        if now is not None and grant.action is Holding.ACQUIRED:
            holding = [one for one in holding if _ends(one) > now]
            for other in holding:
                free = given_back.get(other.token, math.inf) < grant.end
                if is_before(other, grant) and other.token != grant.token and not free:
                    yield grant, other
        if grant.asked is not None and grant.action in {Holding.ACQUIRED, Holding.RENEWED}:
            holding = [one for one in holding if one.token != grant.token]
            holding.append(grant)


def _ends(grant: Tenure) -> int:
    """The earliest end of a lease, by the server's clock."""
    assert grant.asked is not None
    return grant.asked + round(grant.duration * SECOND)
