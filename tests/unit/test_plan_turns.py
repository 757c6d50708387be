"""Who gets how much of a sweep that is limited, and where the next one begins."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.scripted import BUSY, CLAIM, NOTHING, OWN, Script, due, full, unhurried
from ttl_odm.sweeper import BatchResult, Due, Ending, Part, StoreError
from ttl_odm.sweeper.commands import FindDue, PurgeBatch
from ttl_odm.sweeper.plan import LEAST, targets_after, weights_of

if TYPE_CHECKING:
    from ttl_odm.sweeper import SweepReport


@dataclass
class Stock(Script):
    """A store with so many expired rows in each target, which are so many seconds overdue."""

    rows: dict[str, int] = field(default_factory=dict)
    overdue: dict[str, float | None] = field(default_factory=dict)
    elapsed: float = 0.0

    @classmethod
    def holding(cls, elapsed: float = 0.0, **targets: tuple[int, float | None]) -> Stock:
        rows = {name: number for name, (number, _) in targets.items()}
        overdue = {name: seconds for name, (_, seconds) in targets.items()}
        return cls({name: [] for name in targets}, rows=rows, overdue=overdue, elapsed=elapsed)

    def sweep(self, **limits: Any) -> SweepReport:
        """Sweep, and give the lease back, as the driver does."""
        report = self.run(CLAIM, **limits)
        self.lease.until = self.clock
        return report

    def FindDue(self, command: FindDue) -> Any:  # noqa: N802
        is_due = self.rows[command.target]
        return Due((Part.OWN,), self.overdue[command.target]) if is_due else NOTHING

    def PurgeBatch(self, command: PurgeBatch) -> Any:  # noqa: N802
        request = command.request
        self.clock += self.elapsed
        deleted = min(request.size, self.rows[request.target])
        self.rows[request.target] -= deleted
        return BatchResult(deleted, "on" if self.rows[request.target] else None, elapsed=0.1)


def deleted(report: SweepReport) -> dict[str, int]:
    return {target.table: target.deleted for target in report.targets}


def test_a_backlog_leaves_the_others_their_share() -> None:
    stock = Stock.holding(big=(100_000, 60.0), small=(10, 60.0))
    report = stock.run(max_rows=100)
    assert deleted(report) == {"big": 90, "small": 10}
    assert report.ended is Ending.MAX_ROWS


def test_rows_are_shared_by_how_long_the_oldest_have_been_expired() -> None:
    stock = Stock.holding(a=(1_000, 300.0), b=(1_000, 100.0))
    assert deleted(stock.run(max_rows=400)) == {"a": 300, "b": 100}


def test_a_target_that_is_little_overdue_gets_a_tenth_of_an_equal_share() -> None:
    stock = Stock.holding(a=(1_000, 86_400.0), b=(1_000, 0.5))
    assert deleted(stock.run(max_rows=200))["b"] == pytest.approx(10, abs=1)


def test_no_target_gets_a_row_that_is_anothers() -> None:
    targets = {"a": (61, 54.0), "b": (4, 1.0), "c": (5, 0.0), "d": (2, 2.0), "e": (1, 0.0)}
    assert deleted(Stock.holding(**targets).run(max_rows=66))["e"] == 1


def test_seconds_are_shared_too() -> None:
    stock = Stock.holding(elapsed=1.0, a=(10**9, 100.0), b=(10**9, 100.0))
    report = stock.run(max_seconds=20)
    assert [target.batches for target in report.targets] == [10, 10]
    assert [target.duration for target in report.targets] == [10.0, 10.0]
    assert report.ended is Ending.MAX_SECONDS


def test_what_one_leaves_the_others_get() -> None:
    stock = Stock.holding(a=(10, 60.0), b=(1_000, 60.0), c=(20, 60.0))
    assert deleted(stock.run(max_rows=300)) == {"a": 10, "b": 270, "c": 20}


def test_each_target_is_reported_once_however_many_turns_it_took() -> None:
    stock = Stock.holding(a=(500, 60.0), b=(20, 60.0), c=(0, 0.0))
    report = stock.run(max_rows=1_000)
    assert [target.table for target in report.targets] == ["a", "b", "c"]
    assert report.ended is Ending.FINISHED
    assert [target.oldest_after for target in report.targets] == [0.0, 0.0, 0.0]


def test_what_is_left_of_a_turn_says_nothing_of_the_size_of_batches() -> None:
    stock = Stock.holding(a=(10**6, 60.0), b=(10, 60.0))
    stock.run(max_rows=4_010)
    of_a = [each.request.size for each in stock.of(PurgeBatch) if each.request.target == "a"]
    assert of_a == [1_000, 1_000, 5, 1_000, 995]


def test_a_target_goes_on_where_its_last_turn_ended() -> None:
    script = Script(
        {"a": [due(Part.INHERITING, Part.OWN)], "b": [OWN]},
        [
            *(full(5, "x"), full(5, "k"), full(5, "y")),
            *(BatchResult(1), full(5, "z"), full(5, "l")),
        ],
    )
    script.run(max_rows=26)
    asked = [command.request for command in script.of(PurgeBatch)]
    of_a = [(request.part, request.resume) for request in asked if request.target == "a"]
    assert of_a[0] == (Part.INHERITING, None)
    assert len(of_a) == len(set(of_a))


def test_where_nobody_knows_how_overdue_a_target_is_it_counts_as_the_others_do() -> None:
    assert weights_of([None, 30.0, 10.0]) == [20.0, 30.0, 10.0]
    assert weights_of([None, None]) == [1.0, 1.0]
    assert weights_of([0.0, 0.0]) == [1.0, 1.0]


def test_without_a_limit_each_target_is_purged_to_its_end_before_the_next_is_looked_at() -> None:
    stock = Stock.holding(a=(10, 60.0), b=(10, 60.0))
    stock.run()
    asked = [command for command in stock.asked if isinstance(command, (FindDue, PurgeBatch))]
    assert [type(command) for command in asked] == [FindDue, PurgeBatch, FindDue, PurgeBatch]


def test_a_target_that_fails_leaves_its_share_to_the_others() -> None:
    script = Script(
        {"a": [StoreError("no such column")], "b": [OWN], "c": [BUSY, BUSY, NOTHING]},
        [BatchResult(7)],
    )
    report = script.run(max_rows=10)
    assert deleted(report) == {"a": 0, "b": 7, "c": 0}
    assert [target.table for target in report.failed] == ["a"]
    assert report.ended is Ending.FINISHED


# where the next one begins


def test_one_batch_may_take_all_the_time_and_the_next_sweep_begins_elsewhere() -> None:
    stock = Stock.holding(elapsed=60.0, a=(10**6, 9e9), b=(10, 1.0), c=(10, 1.0))
    firsts = [stock.sweep(max_seconds=50).targets[0].table for _ in range(4)]
    assert firsts == ["a", "b", "c", "a"]
    assert (stock.rows["b"], stock.rows["c"]) == (0, 0)


def test_fewer_rows_than_targets_come_to_each_of_them_in_time() -> None:
    stock = Stock.holding(**dict.fromkeys("abcdefgh", (50, 60.0)))
    for _ in range(4):
        stock.sweep(max_rows=2)
    assert set(stock.rows.values()) == {49}


def test_a_sweep_that_was_stopped_is_remembered_as_well() -> None:
    stock = Stock.holding(elapsed=10.0, a=(10**6, 60.0), b=(10, 60.0))
    stock.stop_at = 5.0
    assert stock.sweep().ended is Ending.STOPPED
    stock.stop_at = float("inf")
    stock.rows["a"] = 10
    assert [target.table for target in stock.sweep().targets] == ["b", "a"]


def test_after_a_sweep_that_came_to_its_end_the_order_is_that_of_the_store() -> None:
    stock = Stock.holding(elapsed=10.0, a=(2_000, 60.0), b=(10, 60.0))
    stock.sweep(max_seconds=5)
    tables = [[target.table for target in stock.sweep().targets] for _ in range(2)]
    assert tables == [["b", "a"], ["a", "b"]]


@pytest.mark.parametrize(
    ("last", "order"),
    [(None, "abc"), ("a", "bca"), ("b", "cab"), ("c", "abc"), ("dropped meanwhile", "abc")],
)
def test_the_order_begins_with_the_one_after_the_last(last: str | None, order: str) -> None:
    assert targets_after(last, ["a", "b", "c"]) == list(order)


# whatever there is


@pytest.mark.slow
@unhurried
@given(
    st.lists(st.tuples(st.integers(0, 100), st.floats(0, 1e6)), min_size=1, max_size=6),
    st.integers(1, 80),
)
@example([(0, 0.0), (61, 54.0), (4, 1.0), (5, 0.0), (2, 2.0), (1, 0.0)], 66)
def test_a_limit_is_used_up_and_everybody_gets_a_share(
    targets: list[tuple[int, float]], most: int
) -> None:
    stock = Stock.holding(**{f"t{number}": each for number, each in enumerate(targets)})
    before = dict(stock.rows)
    report = stock.sweep(max_rows=most)
    assert report.deleted == min(most, sum(before.values()))
    waiting = [name for name, rows in before.items() if rows]
    for name in waiting:
        least = floor(LEAST * most / len(waiting) / (1 + LEAST))
        assert before[name] - stock.rows[name] >= min(before[name], least)
    sweeps = 1
    while any(stock.rows.values()):
        stock.sweep(max_rows=most)
        sweeps += 1
    assert sweeps <= sum(before.values()) // most + 1
