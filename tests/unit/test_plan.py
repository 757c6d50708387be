"""The sweep's plan: what it does next, for everything that a store can answer."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scripted import (
    AWAY,
    BUSY,
    CLAIM,
    NOTHING,
    OWN,
    PACE,
    STANDBY,
    Script,
    due,
    endless,
    full,
    last,
    settings,
    unhurried,
)
from ttl_odm.sweeper import (
    BatchResult,
    Counted,
    Due,
    Ending,
    Hook,
    HookError,
    Hooks,
    Pace,
    Part,
    Progress,
    Purged,
    RefusedError,
    Skip,
    StoreError,
)
from ttl_odm.sweeper.batch_gate import ATTEMPTS
from ttl_odm.sweeper.commands import (
    Acquire,
    CallHooks,
    CountDue,
    Emit,
    FindDue,
    ListTargets,
    PurgeBatch,
)
from ttl_odm.sweeper.plan import run_once

if TYPE_CHECKING:
    from ttl_odm.sweeper.batch_gate import Claim


def test_where_nothing_has_expired_nothing_is_purged() -> None:
    script = Script({"a": [NOTHING], "b": [NOTHING]})
    report = script.run()
    assert script.of(FindDue) == [FindDue("a"), FindDue("b")]
    assert script.of(PurgeBatch) == []
    assert [(each.table, each.oldest_before, each.oldest_after) for each in report.targets] == [
        ("a", 0.0, 0.0),
        ("b", 0.0, 0.0),
    ]
    assert report.ended is Ending.FINISHED


def test_each_batch_begins_where_the_one_before_it_ended() -> None:
    script = Script({"a": [OWN, NOTHING]}, [full(1_000, "x"), full(1_000, "y"), last(7)])
    report = script.run()
    assert [each.request.resume for each in script.of(PurgeBatch)] == [None, "x", "y"]
    assert report.targets[0].deleted == 2_007
    assert report.targets[0].batches == 3


def test_each_part_begins_at_its_beginning() -> None:
    both = due(Part.INHERITING, Part.OWN)
    script = Script({"a": [both, NOTHING]}, [full(1_000, "x"), last(1), last(2)])
    script.run()
    requests = [each.request for each in script.of(PurgeBatch)]
    assert [(request.part, request.resume) for request in requests] == [
        (Part.INHERITING, None),
        (Part.INHERITING, "x"),
        (Part.OWN, None),
    ]


def test_a_batch_is_asked_for_as_the_sweeper_was_told_to() -> None:
    hooks, more = Hooks.of(print), Hooks.of({"a": repr})
    script = Script({"a": [OWN, NOTHING]}, [last(1)], hooks=more)
    script.run(hooks=hooks, statement_timeout=2.5, force=True)
    (batch,) = script.of(PurgeBatch)
    assert batch.request.hooks == hooks + more
    assert (batch.request.timeout, batch.request.force) == (2.5, True)


SOME_STAYED = BatchResult(1, skipped={Skip.LOCKED: 1})


def test_the_age_of_the_oldest_is_asked_again_where_rows_were_skipped() -> None:
    script = Script({"a": [due(Part.OWN, oldest=90.0), due(Part.OWN, oldest=2.0)]}, [SOME_STAYED])
    (target,) = script.run().targets
    assert (target.oldest_before, target.oldest_after) == (90.0, 2.0)


def test_what_was_purged_to_its_end_is_not_walked_over_again() -> None:
    script = Script({"a": [OWN]}, [full(1_000), last(1)])
    (target,) = script.run().targets
    assert target.oldest_after == 0.0
    assert len(script.of(FindDue)) == 1


def test_a_target_that_is_off_is_not_reported() -> None:
    script = Script({"a": [None], "b": [NOTHING]})
    assert [each.table for each in script.run().targets] == ["b"]


def test_ttl_that_is_switched_off_meanwhile_leaves_the_age_unknown() -> None:
    script = Script({"a": [OWN, None]}, [SOME_STAYED])
    (target,) = script.run().targets
    assert (target.deleted, target.oldest_after, target.error) == (1, None, None)


def test_batches_adapt_to_the_time_that_they_take() -> None:
    times = [0.05, 0.05, 0.4, 0.1]
    batches = [full(1, number, elapsed) for number, elapsed in enumerate(times)]
    script = Script({"a": [OWN, NOTHING]}, [*batches, last(1)])
    script.run()
    assert script.sizes == [1_000, 2_000, 4_000, 2_000, 2_000]


def test_each_target_starts_anew() -> None:
    batches = [full(1_000, elapsed=0.01), last(1), last(1)]
    script = Script({"a": [OWN, NOTHING], "b": [OWN, NOTHING]}, batches)
    script.run()
    assert script.sizes == [1_000, 2_000, 1_000]


def test_progress_is_told_after_each_batch() -> None:
    batches = [full(1_000, elapsed=0.2), BatchResult(7, archived=7)]
    script = Script({"a": [OWN, NOTHING]}, batches)
    report = script.run()
    assert [command.event for command in script.of(Emit)] == [
        Progress("a", 1_000, 1_000, 1_000, 0.2),
        Progress("a", 7, 1_007, 500, 0.0, archived=7),
    ]
    assert (report.deleted, report.archived) == (1_007, 7)


def test_skipped_rows_are_reported_by_reason() -> None:
    skips = [{Skip.LOCKED: 2}, {Skip.LOCKED: 1, Skip.RESTRICTED: 4}]
    batches = [BatchResult(900, "x", skipped=skips[0]), BatchResult(5, skipped=skips[1])]
    report = Script({"a": [OWN, NOTHING]}, batches).run()
    assert report.targets[0].skips == {Skip.LOCKED: 3, Skip.RESTRICTED: 4}
    assert report.skipped == 7


def test_durations_are_those_of_the_clock() -> None:
    batches = [full(1_000, elapsed=2.0), last(1), full(1_000, elapsed=0.5), last(1)]
    report = Script({"a": [OWN, NOTHING], "b": [OWN, NOTHING]}, batches).run()
    assert [each.duration for each in report.targets] == [2.0, 0.5]
    assert report.duration == 2.5


# failures


def test_a_passing_failure_is_tried_again_with_a_smaller_batch_after_a_pause() -> None:
    script = Script({"a": [OWN, NOTHING]}, [full(1_000, "x"), BUSY, BUSY, last(7)])
    report = script.run()
    requests = [each.request for each in script.of(PurgeBatch)]
    assert [(request.size, request.resume) for request in requests] == [
        (1_000, None),
        (1_000, "x"),
        (500, "x"),
        (250, "x"),
    ]
    assert script.pauses == [0.1, 0.2]
    assert report.waited == {"retry": pytest.approx(0.3)}
    assert report.deleted == 1_007
    assert not report.problems


def test_a_success_ends_the_count_of_failures() -> None:
    patience = [BUSY] * (ATTEMPTS - 1)
    batches = [*patience, full(100), *patience, last(100)]
    assert not Script({"a": [OWN, NOTHING]}, batches).run().failed


def test_a_failure_that_does_not_pass_fails_the_target_and_no_other() -> None:
    batches: list[Any] = [full(1_000), *[BUSY] * ATTEMPTS, last(3)]
    script = Script({"a": [OWN], "b": [OWN, NOTHING]}, batches)
    report = script.run()
    assert [(each.table, each.deleted, each.error) for each in report.targets] == [
        ("a", 1_000, BUSY),
        ("b", 3, None),
    ]
    assert len(script.pauses) == ATTEMPTS - 1
    assert report.ended is Ending.FINISHED


def away(script: Script, seconds: float, error: Exception = AWAY) -> None:
    """Let the database be away from the first batch on, for so long."""
    script.batches[:0] = [error] * 1_000

    def back(command: Any, clock: float) -> None:
        if isinstance(command, PurgeBatch) and clock >= seconds:
            script.batches[:] = [each for each in script.batches if each is not error]

    script.before = back


@pytest.mark.parametrize("jitter", [0.01, 0.5, 1.0])
def test_a_server_that_is_restarted_fails_no_sweep(jitter: float) -> None:
    script = Script({"a": [OWN, NOTHING]}, [full(1_000, "x"), last(7)])
    away(script, 50.0)
    report = script.run(jitter=lambda: jitter)
    assert not report.problems
    assert report.deleted == 1_007
    assert 49.0 <= report.waited["retry"] <= 55.0


def test_a_lost_connection_makes_the_batch_smaller_once() -> None:
    script = Script({"a": [OWN, NOTHING]}, [full(1_000, "x"), last(7)])
    away(script, 50.0)
    script.run()
    assert set(script.sizes) == {1_000, 500}


def test_a_server_that_stays_away_ends_the_sweep_after_a_minute() -> None:
    script = Script({"a": [OWN], "b": [OWN, NOTHING]}, [])
    away(script, 1e9)
    report = script.run()
    assert (report.ended, report.error) == (Ending.FAILED, AWAY)
    assert [each.table for each in report.targets] == ["a"]
    assert 60.0 <= script.clock <= 65.0


def test_a_standby_ends_the_sweep_after_a_minute() -> None:
    script = Script({"a": [OWN], "b": [OWN, NOTHING]}, [])
    away(script, 1e9, STANDBY)
    report = script.run()
    assert (report.ended, report.problems) == (Ending.STANDBY, ())
    assert 60.0 <= script.clock <= 65.0


def test_a_standby_that_is_promoted_is_swept() -> None:
    script = Script({"a": [OWN, NOTHING]}, [last(7)])
    away(script, 50.0, STANDBY)
    report = script.run()
    assert (report.ended, report.deleted) == (Ending.FINISHED, 7)


@pytest.mark.parametrize("claim", [None, CLAIM])
def test_a_standby_ends_a_sweep_at_once_that_should_not_wait(claim: Claim | None) -> None:
    instead = {} if claim is None else {Acquire: [STANDBY]}
    script = Script({"a": [OWN]}, [STANDBY], instead=instead)
    report = script.run(claim, waits_at_standby=False)
    assert (report.ended, report.problems, report.deleted) == (Ending.STANDBY, (), 0)
    assert script.pauses == []


def test_a_server_that_is_away_is_waited_for_by_a_sweep_that_does_not_wait_at_standbys() -> None:
    script = Script({"a": [OWN, NOTHING]}, [AWAY, last(7)])
    assert script.run(waits_at_standby=False).deleted == 7


def test_a_server_that_comes_and_goes_is_no_reason_to_give_up_before_it_failed_often() -> None:
    failures = [BUSY, AWAY, AWAY, BUSY, AWAY, BUSY, AWAY, BUSY, AWAY]
    script = Script({"a": [OWN, NOTHING]}, [*failures, last(3)])
    assert not script.run().problems
    assert Script({"a": [OWN]}, [*failures, BUSY]).run().failed


def test_the_database_may_be_away_before_anything_was_found() -> None:
    script = Script({"a": [*[AWAY] * 10, OWN, NOTHING]}, [last(3)])
    assert script.run(CLAIM).deleted == 3


def test_a_server_may_be_away_for_as_long_as_the_lease_is_trusted() -> None:
    script = Script({"a": [OWN, NOTHING]}, [last(7)])
    away(script, 40.0)

    def answer(command: Any, clock: float) -> None:
        back(command, clock)
        script.lease.trouble = AWAY if 0 < clock < 40.0 else None

    back, script.before = script.before, answer
    assert not script.run(CLAIM).problems


@pytest.mark.parametrize("error", [StoreError("no such table"), ZeroDivisionError("a bug")])
def test_any_other_error_fails_the_target_at_once_and_no_other(error: Exception) -> None:
    script = Script({"a": [OWN], "b": [OWN, NOTHING]}, [error, last(3)])
    report = script.run()
    assert [(each.table, each.error) for each in report.targets] == [("a", error), ("b", None)]
    assert script.pauses == []


def test_a_target_that_fails_halfway_reports_what_was_done() -> None:
    (target,) = Script({"a": [OWN]}, [full(1_000), StoreError("gone")]).run().targets
    assert (target.deleted, target.batches) == (1_000, 1)
    assert (target.oldest_before, target.oldest_after) == (60.0, None)


def test_finding_what_is_due_is_tried_again_too() -> None:
    script = Script({"a": [BUSY, NOTHING]})
    assert not script.run().failed
    assert script.pauses == [0.1]


def test_a_target_whose_age_cannot_be_asked_fails_and_keeps_its_count() -> None:
    (target,) = Script({"a": [OWN, StoreError("gone")]}, [SOME_STAYED]).run().targets
    assert target.deleted == 1
    assert str(target.error) == "gone"


def test_a_store_that_makes_no_progress_is_given_up() -> None:
    stuck = BatchResult(0, "here")
    report = Script({"a": [OWN], "b": [NOTHING]}, [stuck, stuck]).run()
    assert str(report.failed[0].error).startswith("The store makes no progress")


def test_an_error_that_is_no_targets_fails_the_sweep() -> None:
    error = RuntimeError("no targets today")
    report = Script({}, instead={ListTargets: [error]}).run()
    assert (report.ended, report.error) == (Ending.FAILED, error)
    assert report.problems == ("no targets today",)


@pytest.mark.parametrize("steps", range(1, 14))
def test_a_plan_can_be_closed_at_any_step(steps: int) -> None:
    script = Script({"a": [OWN]}, endless())
    plan = run_once(settings())
    reply: Any = None
    for _ in range(steps):
        reply = script.answer(plan.send(reply))
    plan.close()


# hooks


ROWS = Purged("a", [(1,)], 1, as_of=None)  # type: ignore[arg-type]
BROKEN = HookError("the hook broke")


def failing(resume: object, rows: int = 10) -> BatchResult:
    return BatchResult(0, resume, skipped={Skip.HOOK: rows}, failure=BROKEN)


def test_hooks_after_the_commit_are_told_each_batch() -> None:
    hooks = Hooks.of(Hook(print, when="commit"))
    batches = [BatchResult(1, "x", purged=[ROWS]), BatchResult(1, purged=[ROWS, ROWS])]
    script = Script({"a": [OWN, NOTHING]}, batches)
    script.run(hooks=hooks)
    assert script.of(CallHooks) == [CallHooks(hooks, ROWS)] * 3


def test_a_hook_that_fails_after_the_commit_is_reported_and_stops_nothing() -> None:
    batches = [BatchResult(1, "x", purged=[ROWS]), BatchResult(1, purged=[ROWS])]
    report = Script({"a": [OWN, NOTHING]}, batches, instead={CallHooks: [BROKEN]}).run()
    (target,) = report.targets
    assert (target.deleted, target.error, target.oldest_after) == (2, BROKEN, 0.0)
    assert report.problems == ("a: the hook broke",)


def test_a_hook_that_fails_in_the_transaction_fails_one_row_and_no_other() -> None:
    script = Rows(1_000, {500})
    (target,) = script.run().targets
    assert (target.deleted, target.skips, target.error) == (999, {Skip.HOOK: 1}, BROKEN)
    assert target.left == ("(500): the hook broke",)


def test_a_hook_that_fails_once_fails_nothing() -> None:
    batches = [full(1_000, "x"), failing("y"), full(5, "y"), last(5)]
    script = Script({"a": [OWN, NOTHING]}, batches)
    (target,) = script.run().targets
    assert (target.deleted, target.skips, target.error) == (1_010, {}, None)
    assert [each.request.resume for each in script.of(PurgeBatch)] == [None, "x", "x", "y"]


def test_a_hook_that_always_fails_fails_its_target_before_long() -> None:
    script = Rows(100_000, range(100_000), target="a")
    script.due["b"] = [NOTHING]
    report = script.run()
    assert [(each.table, each.deleted, each.error) for each in report.targets] == [
        ("a", 0, BROKEN),
        ("b", 0, None),
    ]
    assert len(script.sizes) <= 30


# rows that can't go


class Rows(Script):
    """A target with so many rows, some of which can't go: each batch that has one of them fails."""

    def __init__(
        self,
        rows: int,
        stuck: Any,
        failure: Any = BROKEN,
        skip: Skip = Skip.HOOK,
        target: str = "a",
    ) -> None:
        super().__init__({target: [OWN, NOTHING]})
        self.rows, self.stuck, self.failure, self.skip = list(range(rows)), stuck, failure, skip

    def PurgeBatch(self, command: PurgeBatch) -> Any:  # noqa: N802
        begin = bisect_left(self.rows, command.request.resume or 0)
        rows = self.rows[begin : begin + command.request.size]
        resume = rows[-1] + 1 if len(rows) == command.request.size else None
        if any(row in self.stuck for row in rows):
            keys = [(row,) for row in rows[:3]]
            skips = {self.skip: len(rows)}
            return BatchResult(0, resume, skipped=skips, failure=self.failure, left=keys)
        del self.rows[begin : begin + len(rows)]
        return BatchResult(len(rows), resume, elapsed=0.1)


REFUSED = RefusedError("not this one")


@pytest.mark.parametrize(
    ("stuck", "batches"),
    [
        ({0}, 30),
        ({999}, 30),
        ({1, 998}, 60),
        (set(range(0, 5_000, 500)), 300),
        (set(range(100, 120)), 90),
        (set(range(2_000)), 400),
        (set(range(5_000)), 500),
        (set(range(3_000, 5_000)), 500),
    ],
)
def test_rows_that_cannot_go_are_left_and_all_others_go(stuck: set[int], batches: int) -> None:
    script = Rows(5_000, stuck, REFUSED, Skip.REFUSED)
    report = script.run()
    (target,) = report.targets
    assert script.rows == sorted(stuck)
    assert (target.deleted, target.skips) == (5_000 - len(stuck), {Skip.REFUSED: len(stuck)})
    assert (target.error, report.problems) == (None, ())
    assert target.left[0] == f"({min(stuck)}): not this one"
    assert len(target.left) <= 10
    assert len(script.sizes) <= batches


@pytest.mark.slow
def test_rows_that_cannot_go_cost_the_next_sweep_little_and_may_go_then() -> None:
    script = Rows(10_000, set(range(0, 10_000, 10)), REFUSED, Skip.REFUSED)
    script.run()
    assert len(script.rows) == 1_000
    script.asked.clear()
    script.rows += range(10_000, 10_100)
    script.due["a"] = [OWN, NOTHING]
    script.stuck -= {0, 10}
    assert script.run().deleted == 102
    assert len(script.sizes) <= 400


@pytest.mark.slow
@given(st.integers(1, 300), st.sets(st.integers(0, 299)), st.integers(1, 64))
@unhurried
def test_exactly_the_rows_that_cannot_go_stay(rows: int, stuck: set[int], size: int) -> None:
    script = Rows(rows, stuck, REFUSED, Skip.REFUSED)
    report = script.run(pace=PACE.starting_at(size))
    assert script.rows == sorted(row for row in stuck if row < rows)
    assert report.skipped == len(script.rows)
    assert report.deleted == rows - len(script.rows)


# rows that come to Python


def test_batches_of_rows_that_come_to_python_begin_small_and_stay_within_their_bytes() -> None:
    megabyte = 1024 * 1024
    batches = [BatchResult(10, 1, loaded=10 * megabyte)]
    batches += [BatchResult(16, number, loaded=16 * megabyte) for number in range(2, 5)]
    batches += [BatchResult(16, 5, loaded=160 * megabyte), last(1)]
    script = Script({"a": [Due((Part.OWN,), 1.0, loads_rows=True), NOTHING]}, batches)
    script.run()
    assert script.sizes == [10, 16, 16, 16, 16, 1]


def test_narrow_rows_that_come_to_python_come_by_the_thousand_at_most() -> None:
    hooks = Hooks.of(Hook(print, rows=True))
    batches = [BatchResult(10, number, loaded=500, elapsed=0.01) for number in range(10)]
    script = Script({"a": [OWN, NOTHING]}, [*batches, last(1)])
    script.run(hooks=hooks)
    assert script.sizes == [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000, 1_000]


# dry runs


def test_a_dry_run_counts_and_deletes_nothing() -> None:
    counted = [Counted(42, 1_000), Counted(0, 7)]
    script = Script({"a": [OWN], "b": [NOTHING]}, instead={CountDue: counted})
    report = script.run(dry_run=True)
    assert script.of(PurgeBatch) == []
    assert script.of(CountDue) == [CountDue("a"), CountDue("b")]
    assert [(each.due, each.rows, each.oldest_before) for each in report.targets] == [
        (42, 1_000, 60.0),
        (0, 7, 0.0),
    ]
    assert (report.dry_run, report.due, report.deleted) == (True, 42, 0)


def test_counting_is_tried_again_too() -> None:
    script = Script({"a": [OWN]}, instead={CountDue: [BUSY, Counted(42, 1_000)]})
    assert script.run(dry_run=True).due == 42


# whatever the store answers


results = st.one_of(
    st.builds(
        BatchResult,
        deleted=st.integers(0, 10),
        resume=st.one_of(st.none(), st.integers(0, 3)),
        skipped=st.dictionaries(st.sampled_from(Skip), st.integers(0, 3)),
        failure=st.one_of(st.none(), st.just(BROKEN), st.just(REFUSED)),
        elapsed=st.floats(0, 10),
    ),
    st.just(BUSY),
    st.just(AWAY),
    st.just(StoreError("no")),
)
PARTS = (Part.INHERITING, Part.OWN, Part.ALL, Part("whole", whole=True), Part("last", last=True))
dues = st.one_of(
    st.none(),
    st.builds(Due, st.lists(st.sampled_from(PARTS), max_size=3).map(tuple), st.just(1.0)),
    st.just(BUSY),
    st.just(AWAY),
    st.just(StoreError("no")),
)


class Honest(Script):
    """Deletes no more than it was asked to."""

    def PurgeBatch(self, command: PurgeBatch) -> Any:  # noqa: N802
        reply = super().PurgeBatch(command) if self.batches else last(0)
        if isinstance(reply, BatchResult):
            return replace(reply, deleted=min(reply.deleted, command.request.size))
        return reply


@pytest.mark.slow
@unhurried
@given(
    st.lists(st.lists(dues, min_size=1, max_size=3), max_size=3),
    st.lists(results, max_size=40),
    st.integers(1, 50),
    st.floats(0.1, 20),
)
def test_whatever_the_store_answers_the_limits_hold_and_the_sweep_ends(
    due_by_target: list[list[Any]], batches: list[Any], max_rows: int, max_seconds: float
) -> None:
    script = Honest({str(n): each for n, each in enumerate(due_by_target)}, list(batches))
    begun: list[float] = []
    script.before = lambda command, clock: isinstance(command, PurgeBatch) and begun.append(clock)
    small = Pace(start=7, lowest=1, highest=20, target=0.1, rest=1.0)
    report = script.run(pace=small, max_rows=max_rows, max_seconds=max_seconds)
    assert report.deleted <= max_rows
    assert all(clock < max_seconds for clock in begun)
    assert all(0 < size <= 20 for size in script.sizes)
    assert len(script.asked) < 5_000


@unhurried
@given(st.lists(results, max_size=40), st.floats(0, 30))
def test_a_stop_is_obeyed_within_one_batch(batches: list[Any], stop_at: float) -> None:
    script = Honest({"a": [OWN], "b": [OWN]}, list(batches), stop_at=stop_at)
    late: list[float] = []

    def watch(command: Any, clock: float) -> None:
        if isinstance(command, PurgeBatch) and clock >= stop_at:
            late.append(clock)

    script.before = watch
    script.run(pace=PACE)
    assert late == []
