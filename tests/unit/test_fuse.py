"""The blast-radius fuse, as arithmetic and in the plan."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scripted import CLAIM, NOTHING, OWN, FakeLease, Script, full, last
from ttl_odm.stored.scopes import due_by_scope
from ttl_odm.sweeper import BatchResult, Counted, Ending, FuseError, Skip, StoreError
from ttl_odm.sweeper.batch_gate import KEPT, History
from ttl_odm.sweeper.commands import CountDue, FindDue, PurgeBatch
from ttl_odm.sweeper.fuse import FLOOR, NEEDED, Fuse


def blows(fuse: Fuse, counted: Counted, found: Any = ()) -> bool:
    try:
        fuse.check("a", counted, found)
    except FuseError:
        return True
    return False


@pytest.mark.parametrize(
    ("due", "rows", "is_blown"),
    [
        (50_000, 100_000, False),  # just so much
        (50_001, 100_000, True),
        (FLOOR, FLOOR, False),  # few rows are never too many
        (FLOOR + 1, FLOOR + 1, True),
        (3_000, 0, True),  # the estimate is behind
    ],
)
def test_a_fraction_of_the_rows_may_be_due(due: int, rows: int, *, is_blown: bool) -> None:
    assert blows(Fuse(max_fraction=0.5), Counted(due, rows)) is is_blown


@pytest.mark.parametrize(
    ("due", "found", "is_blown"),
    [
        (20_000, [10, 2_000, 500], False),
        (20_001, [10, 2_000, 500], True),
        (20_001, [2_000] * (NEEDED - 1), False),  # too little is known
        (FLOOR, [0, 0, 0], False),
        (FLOOR + 1, [0, 0, 0], True),
    ],
)
def test_a_jump_is_measured_by_the_most_of_the_last_sweeps(
    due: int, found: list[int], *, is_blown: bool
) -> None:
    assert blows(Fuse(max_jump=10), Counted(due, 10**9), found) is is_blown


def test_a_blown_fuse_says_by_how_much_it_was_blown_and_what_to_do() -> None:
    counted = Counted(60_000, 100_000, facts=due_by_scope({"eu": 50_000, "us": 9_000}))
    with pytest.raises(FuseError) as caught:
        Fuse(max_fraction=0.5).check("a", counted, ())
    error = caught.value
    assert "60,000 rows have expired (by scope: " in str(error)
    assert "more than max_fraction=0.5 of 100,000 rows; nothing was deleted" in str(error)
    assert "force=True" in str(error)
    assert (error.target, error.due, error.allowed) == ("a", 60_000, 50_000)
    assert dict(error.by_scope) == {"eu": 50_000, "us": 9_000, "": 1_000}
    assert FuseError("", target="a", due=1, allowed=0).by_scope == {}


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.lists(st.integers(0, 10**9), max_size=10))
def test_without_limits_or_below_the_floor_it_never_blows(
    due: int, rows: int, found: list[int]
) -> None:
    assert not blows(Fuse(), Counted(due, rows), found)
    assert not blows(Fuse(0.01, 1.0), Counted(min(due, FLOOR), rows), found)


@given(st.integers(0, 10**9), st.floats(0.001, 1), st.integers(0, 10**9))
def test_what_is_allowed_does_not_blow_it_and_one_row_more_does(
    rows: int, fraction: float, due: int
) -> None:
    fuse, rows = Fuse(max_fraction=fraction), max(rows, due)
    allowed = max(FLOOR, int(rows * fraction))
    assert blows(fuse, Counted(due, rows)) is (due > allowed)
    assert not blows(fuse, Counted(allowed, max(rows, allowed)))


def test_a_blown_fuse_says_the_numbers_and_what_to_do() -> None:
    with pytest.raises(FuseError, match=r"^50,001 rows have expired, more than ") as fraction:
        Fuse(max_fraction=0.5).check("a", Counted(50_001, 100_000), [])
    assert "max_fraction=0.5 of 100,000 rows" in str(fraction.value)
    assert "force=True" in str(fraction.value)
    with pytest.raises(FuseError, match=r"max_jump=10 times 2,000 rows, the most that one of"):
        Fuse(max_jump=10).check("a", Counted(50_001, 0), [1, 2_000, 3])


# the history


@pytest.mark.slow
@given(st.dictionaries(st.text(), st.lists(st.integers(0, 10**9), max_size=20)))
def test_a_history_is_read_as_it_was_written(found: dict[str, list[int]]) -> None:
    again = History.loads(History(found).dumps())
    for target, numbers in found.items():
        assert again.of(target) == numbers[-KEPT:]


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"found": 3}', '{"found": {"a": ["x"]}}'])
def test_a_history_that_cannot_be_read_counts_for_nothing(text: str) -> None:
    assert History.loads(text).of("a") == []


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"found": {"a": [1e999]}}', '{"found": {"a": ' + "[" * 100_000]
)
def test_a_history_that_somebody_has_tampered_with_fails_no_sweep(text: str) -> None:
    script = Script({"a": [OWN, NOTHING]}, [last(1)], lease=FakeLease(history=text))
    report = script.run(CLAIM)
    assert (report.deleted, report.problems) == (1, ())


def test_no_number_of_a_history_is_too_much_for_the_fuse() -> None:
    history = History.loads('{"found": {"a": [1%s, 1, 1]}}' % ("0" * 400))
    Fuse(max_jump=2).check("a", Counted(5_000, 6_000), history.of("a"))


def test_a_history_forgets_the_oldest() -> None:
    history = History()
    for number in range(KEPT + 5):
        history.add("a", number)
    assert history.of("a") == list(range(5, KEPT + 5))


def test_a_history_keeps_the_rate_of_the_last_sweep_that_deleted_any() -> None:
    history = History()
    history.add_rate("a", 1_000, 4.0)
    history.add_rate("a", 0, 1.0)
    again = History.loads(history.dumps())
    assert (again.rate_of("a"), again.rate_of("b")) == (250.0, None)


# in the plan


def remembered(*found: int) -> FakeLease:
    return FakeLease(history=History({"a": found, "other": [7]}).dumps())


def found_in(script: Script) -> Any:
    return json.loads(script.lease.history)["found"]


def many() -> dict[type[Any], list[Any]]:
    return {CountDue: [Counted(50_000, 60_000)]}


def test_a_blown_fuse_fails_its_target_and_no_other() -> None:
    script = Script({"a": [OWN], "b": [OWN, NOTHING]}, [last(1)], instead=many())
    report = script.run(fuse=Fuse(max_fraction=0.5))
    assert [each.request.target for each in script.of(PurgeBatch)] == ["b"]
    a, b = report.targets
    assert isinstance(a.error, FuseError)
    assert (a.due, a.rows, a.deleted, b.deleted) == (50_000, 60_000, 0, 1)
    assert report.problems


def test_force_overrules_the_fuse() -> None:
    script = Script({"a": [OWN, NOTHING]}, [last(50_000)], instead=many())
    report = script.run(fuse=Fuse(max_fraction=0.5), force=True)
    assert (report.deleted, report.problems) == (50_000, ())


def test_a_jump_is_seen_across_processes_by_the_history_beside_the_lease() -> None:
    script = Script({"a": [OWN]}, lease=remembered(10, 20, 30), instead=many())
    (target,) = script.run(CLAIM, fuse=Fuse(max_jump=10)).targets
    assert isinstance(target.error, FuseError)
    assert found_in(script) == {"a": [10, 20, 30], "other": [7]}


def test_a_dry_run_says_what_the_fuse_would_and_leaves_no_trace() -> None:
    lease = remembered(10, 20, 30)
    before = lease.history
    script = Script({"a": [OWN]}, lease=lease, instead=many())
    report = script.run(CLAIM, fuse=Fuse(max_jump=10), dry_run=True)
    assert report.failed
    assert report.due == 50_000
    assert (lease.history, lease.token) == (before, 0)


def test_without_a_fuse_nothing_is_counted() -> None:
    script = Script({"a": [OWN, NOTHING]}, [last(1)])
    script.run()
    assert script.of(CountDue) == []


def test_the_history_learns_what_was_found_without_counting() -> None:
    skipped = BatchResult(5, skipped={Skip.LOCKED: 2})
    script = Script({"a": [OWN, NOTHING], "b": [NOTHING]}, [full(10), skipped])
    script.run(CLAIM)
    assert found_in(script) == {"a": [17], "b": [0]}


def test_the_history_learns_what_was_counted_also_from_a_limited_sweep() -> None:
    counted = {CountDue: [Counted(900, 1_000)]}
    script = Script({"a": [OWN]}, [full(10)], instead=counted)
    script.run(CLAIM, max_rows=10, fuse=Fuse(max_fraction=1.0))
    assert found_in(script) == {"a": [900]}


def test_the_history_learns_also_from_a_sweep_that_was_stopped() -> None:
    script = Script({"a": [OWN], "b": [OWN]}, [full(10), *[full(1)] * 9], stop_at=0.15)
    script.due["a"] = [NOTHING]
    assert script.run(CLAIM).ended is Ending.STOPPED
    assert found_in(script) == {"a": [0]}


def test_the_history_learns_how_many_rows_a_second_were_deleted() -> None:
    script = Script({"a": [OWN, NOTHING], "b": [NOTHING]}, [full(300, elapsed=0.5), last(100)])
    script.run(CLAIM)
    assert json.loads(script.lease.history)["rates"] == {"a": 800.0}


def test_the_history_learns_nothing_from_a_sweep_that_did_not_see_everything() -> None:
    script = Script({"a": [OWN], "b": [StoreError("x")], "c": [None]}, [full(10)])
    script.run(CLAIM, max_rows=10)
    assert found_in(script) == {}


def test_a_target_that_does_not_begin_is_not_looked_at_twice() -> None:
    script = Script({"a": [NOTHING]})
    script.run(fuse=Fuse(max_fraction=0.5))
    assert script.of(CountDue) == []
    assert script.of(FindDue) == [FindDue("a")]
