"""The sweep's plan: what it does next, for everything that a store can answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from ttl_odm.sweeper import (
    BatchResult,
    Due,
    Pace,
    Part,
    StoreError,
    SweepReport,
    TransientStoreError,
)
from ttl_odm.sweeper.plan import (
    ATTEMPTS,
    Emit,
    FindDue,
    Now,
    Pause,
    PurgeBatch,
    Settings,
    sweep,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

PACE = Pace(start=1_000, lowest=100, highest=10_000, target=0.1)
BUSY = TransientStoreError("busy")


@dataclass
class Script:
    """Carries a plan out against answers that are given beforehand, and writes down what it asked.

    Attributes:
        due: What `FindDue` gets, for each target one after the other; the last one stays.
        batches: What `PurgeBatch` gets, one after the other. Errors are thrown.
        asked: The commands, without the readings of the clock.
    """

    due: dict[str, list[Due | Exception | None]]
    batches: list[BatchResult | Exception]
    asked: list[Any] = field(default_factory=list)
    clock: float = 0.0

    def run(self, *, pace: Pace = PACE, max_rows: int | None = None) -> SweepReport:
        plan = sweep(list(self.due), Settings(pace, jitter=lambda: 1.0, max_rows=max_rows))
        reply: Any = None
        try:
            while True:
                command = plan.throw(reply) if isinstance(reply, Exception) else plan.send(reply)
                reply = self._answer(command)
        except StopIteration as end:
            report: SweepReport = end.value
            return report

    def _answer(self, command: Any) -> Any:
        if isinstance(command, Now):
            self.clock += 1.0
            return self.clock
        self.asked.append(command)
        if isinstance(command, FindDue):
            answers = self.due[command.target]
            return answers.pop(0) if len(answers) > 1 else answers[0]
        return self.batches.pop(0) if isinstance(command, PurgeBatch) else None

    def of(self, kind: type[Any]) -> list[Any]:
        return [command for command in self.asked if isinstance(command, kind)]


def due(*parts: Part, oldest: float = 60.0) -> Due:
    return Due(parts, oldest)


NOTHING = Due((), 0.0)
OWN = due(Part.OWN)


def full(deleted: int, resume: object = "on", elapsed: float = 0.1) -> BatchResult:
    return BatchResult(deleted, resume, elapsed=elapsed)


def last(deleted: int) -> BatchResult:
    return BatchResult(deleted)


def sizes(script: Script) -> list[int]:
    return [command.size for command in script.of(PurgeBatch)]


def test_where_nothing_has_expired_nothing_is_purged() -> None:
    script = Script({"a": [NOTHING], "b": [NOTHING]}, [])
    report = script.run()
    assert script.asked == [FindDue("a"), FindDue("b")]
    assert [(each.table, each.oldest_before, each.oldest_after) for each in report.targets] == [
        ("a", 0.0, 0.0),
        ("b", 0.0, 0.0),
    ]


def test_each_batch_begins_where_the_one_before_it_ended() -> None:
    script = Script({"a": [OWN, NOTHING]}, [full(1_000, "x"), full(1_000, "y"), last(7)])
    report = script.run()
    assert [command.resume for command in script.of(PurgeBatch)] == [None, "x", "y"]
    assert report.targets[0].deleted == 2_007
    assert report.targets[0].batches == 3


def test_each_part_begins_at_its_beginning() -> None:
    both = due(Part.INHERITING, Part.OWN)
    script = Script({"a": [both, NOTHING]}, [full(1_000, "x"), last(1), last(2)])
    script.run()
    assert [(command.part, command.resume) for command in script.of(PurgeBatch)] == [
        (Part.INHERITING, None),
        (Part.INHERITING, "x"),
        (Part.OWN, None),
    ]


def test_the_age_of_the_oldest_is_asked_again_after_purging() -> None:
    script = Script({"a": [due(Part.OWN, oldest=90.0), due(Part.OWN, oldest=2.0)]}, [last(1)])
    (target,) = script.run().targets
    assert (target.oldest_before, target.oldest_after) == (90.0, 2.0)


def test_a_target_that_is_off_is_not_reported() -> None:
    script = Script({"a": [None], "b": [NOTHING]}, [])
    assert [each.table for each in script.run().targets] == ["b"]


def test_ttl_that_is_switched_off_meanwhile_leaves_the_age_unknown() -> None:
    script = Script({"a": [OWN, None]}, [last(1)])
    (target,) = script.run().targets
    assert (target.deleted, target.oldest_after, target.error) == (1, None, None)


def test_batches_adapt_to_the_time_that_they_take() -> None:
    times = [0.05, 0.05, 0.4, 0.1]
    script = Script({"a": [OWN, NOTHING]}, [*(full(1, elapsed=t) for t in times), last(1)])
    script.run()
    assert sizes(script) == [1_000, 2_000, 4_000, 2_000, 2_000]


def test_each_target_starts_anew() -> None:
    batches = [full(1_000, elapsed=0.01), last(1), last(1)]
    script = Script({"a": [OWN, NOTHING], "b": [OWN, NOTHING]}, batches)
    script.run()
    assert sizes(script) == [1_000, 2_000, 1_000]


def test_a_database_with_one_writer_gets_pauses() -> None:
    pace = Pace(start=200, lowest=50, highest=1_000, target=0.025, rest=1.0)
    script = Script({"a": [OWN, NOTHING]}, [full(200, elapsed=0.03), last(1)])
    script.run(pace=pace)
    assert script.of(Pause) == [Pause(0.03)]


def test_the_others_get_none() -> None:
    script = Script({"a": [OWN, NOTHING]}, [full(1_000), last(1)])
    script.run()
    assert script.of(Pause) == []


def test_progress_is_told_after_each_batch() -> None:
    script = Script({"a": [OWN, NOTHING]}, [full(1_000, elapsed=0.2), last(7)])
    script.run()
    events = [command.event for command in script.of(Emit)]
    assert [(e.table, e.deleted, e.deleted_so_far, e.batch_size, e.elapsed) for e in events] == [
        ("a", 1_000, 1_000, 1_000, 0.2),
        ("a", 7, 1_007, 500, 0.0),
    ]


def test_skipped_rows_are_reported() -> None:
    batches = [BatchResult(900, "x", skipped=2), BatchResult(5, skipped=1)]
    report = Script({"a": [OWN, NOTHING]}, batches).run()
    assert report.skipped == 3


def test_durations_are_those_of_the_clock() -> None:
    # The clock of the script strikes each time it is read: twice a target, twice a sweep.
    report = Script({"a": [NOTHING], "b": [NOTHING]}, []).run()
    assert [each.duration for each in report.targets] == [1.0, 1.0]
    assert report.duration == 5.0


# max_rows


def test_max_rows_caps_the_last_batch() -> None:
    script = Script({"a": [OWN]}, [full(1_000), full(500)])
    report = script.run(max_rows=1_500)
    assert sizes(script) == [1_000, 500]
    assert report.limited


def test_max_rows_counts_what_was_deleted_not_what_was_looked_at() -> None:
    script = Script({"a": [OWN]}, [full(10), full(5)])
    script.run(max_rows=15)
    assert sizes(script) == [15, 5]


def test_max_rows_that_just_suffice_limit_nothing() -> None:
    assert not Script({"a": [OWN, NOTHING]}, [last(15)]).run(max_rows=15).limited


def test_targets_after_max_rows_are_looked_at_and_not_purged() -> None:
    script = Script({"a": [OWN], "b": [due(Part.OWN, oldest=90.0)], "c": [NOTHING]}, [last(15)])
    report = script.run(max_rows=15)
    assert [(each.table, each.batches, each.oldest_after) for each in report.targets] == [
        ("a", 1, 60.0),
        ("b", 0, 90.0),
        ("c", 0, 0.0),
    ]
    assert report.limited


# failures


def test_a_passing_failure_is_tried_again_with_a_smaller_batch_after_a_pause() -> None:
    script = Script({"a": [OWN, NOTHING]}, [full(1_000, "x"), BUSY, BUSY, last(7)])
    report = script.run()
    assert [(c.size, c.resume) for c in script.of(PurgeBatch)] == [
        (1_000, None),
        (1_000, "x"),
        (500, "x"),
        (250, "x"),
    ]
    assert script.of(Pause) == [Pause(0.1), Pause(0.2)]
    assert report.deleted == 1_007
    assert not report.failed


def test_a_success_ends_the_count_of_failures() -> None:
    patience = [BUSY] * (ATTEMPTS - 1)
    batches = [*patience, full(100), *patience, last(100)]
    assert not Script({"a": [OWN, NOTHING]}, batches).run().failed


def test_a_failure_that_does_not_pass_fails_the_target_and_no_other() -> None:
    batches: list[BatchResult | Exception] = [full(1_000), *[BUSY] * ATTEMPTS, last(3)]
    script = Script({"a": [OWN], "b": [OWN, NOTHING]}, batches)
    report = script.run()
    assert [(each.table, each.deleted, each.error) for each in report.targets] == [
        ("a", 1_000, BUSY),
        ("b", 3, None),
    ]
    assert len(script.of(Pause)) == ATTEMPTS - 1


@pytest.mark.parametrize("error", [StoreError("no such table"), ZeroDivisionError("a bug")])
def test_any_other_error_fails_the_target_at_once_and_no_other(error: Exception) -> None:
    script = Script({"a": [OWN], "b": [OWN, NOTHING]}, [error, last(3)])
    report = script.run()
    assert [(each.table, each.error) for each in report.targets] == [("a", error), ("b", None)]
    assert script.of(Pause) == []


def test_a_target_that_fails_halfway_reports_what_was_done() -> None:
    (target,) = Script({"a": [OWN]}, [full(1_000), StoreError("gone")]).run().targets
    assert (target.deleted, target.batches) == (1_000, 1)
    assert (target.oldest_before, target.oldest_after) == (60.0, None)


def test_finding_what_is_due_is_tried_again_too() -> None:
    script = Script({"a": [BUSY, NOTHING]}, [])
    assert not script.run().failed
    assert script.of(Pause) == [Pause(0.1)]


def test_a_target_whose_age_cannot_be_asked_fails_and_keeps_its_count() -> None:
    (target,) = Script({"a": [OWN, StoreError("gone")]}, [last(7)]).run().targets
    assert target.deleted == 7
    assert str(target.error) == "gone"


@pytest.mark.parametrize("steps", range(1, 9))
def test_a_plan_can_be_closed_at_any_step(steps: int) -> None:
    plan = sweep(["a"], Settings(PACE, jitter=lambda: 1.0))
    replies: Sequence[Any] = [None, 0.0, 0.0, OWN, full(1_000), None, full(1_000), None]
    for reply in replies[:steps]:
        plan.send(reply)
    plan.close()
