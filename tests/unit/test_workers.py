"""Several workers at one target: what the plan lets run at once, and that limits hold for all."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scripted import BUSY, CLAIM, OWN, Script, unhurried
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import (
    AsyncSweeper,
    BatchRequest,
    BatchResult,
    Due,
    Ending,
    Pace,
    Part,
    RefusedError,
    Skip,
    StoreError,
    Sweeper,
)
from ttl_odm.sweeper import commands as c
from ttl_odm.sweeper.options import settings_of
from ttl_odm.sweeper.pace import Crew
from ttl_odm.sweeper.target import Range, Ranges
from ttl_odm.testing import AsyncInMemoryStore, InMemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from ttl_odm.sweeper import SweepReport


@dataclass
class Line(Script):
    """A store whose rows are the numbers from 0 on, of each target and part.

    A batch takes as many milliseconds as it has rows.

    Attributes:
        rows: How many there are; these are left when it is over.
        refused: Rows that keep their batches from going.
        held: Rows that are skipped, for so many looks.
        trouble: What batches raise, one after the other, before they do anything.
    """

    rows: dict[str, set[int]] = field(default_factory=dict)
    refused: frozenset[int] = frozenset()
    held: Counter[int] = field(default_factory=Counter)
    trouble: list[Exception | None] = field(default_factory=list)
    deleted: Counter[tuple[str, int]] = field(default_factory=Counter)
    under_way: list[tuple[float, BatchRequest, Any]] = field(default_factory=list)
    most: list[list[BatchRequest]] = field(default_factory=list)
    """What was under way after each batch that began beside others."""

    @classmethod
    def holding(cls, refused: frozenset[int] = frozenset(), **rows: int) -> Line:
        every = {name: set(range(number)) for name, number in rows.items()}
        return cls({name: [OWN] for name in rows}, rows=every, refused=refused)

    def sweep(self, workers: int, **given: Any) -> SweepReport:
        return self.run(CLAIM, workers=workers, **given)

    def FindDue(self, command: c.FindDue) -> Due:  # noqa: N802
        parts = (Part.OWN,) if self.rows[command.target] else ()
        return Due(parts, 60.0 if parts else 0.0)

    def PurgeBatch(self, command: c.PurgeBatch) -> Any:  # noqa: N802
        result = self.purge(command.request)
        self.clock += getattr(result, "elapsed", 0.0)
        return result

    def Begin(self, command: c.Begin) -> None:  # noqa: N802
        result = self.purge(command.request)
        over = self.clock + getattr(result, "elapsed", 0.0)
        self.under_way.append((over, command.request, result))
        self.most.append([request for _, request, _ in self.under_way])

    def AwaitBatch(self, _: c.AwaitBatch) -> Any:  # noqa: N802
        first = min(self.under_way, key=lambda batch: batch[0])
        self.under_way.remove(first)
        over, request, result = first
        self.clock = max(self.clock, over)
        return request, result

    def Divide(self, command: c.Divide) -> list[int]:  # noqa: N802
        left = self.left(command.request)
        shares = min(command.shares, len(left) // command.request.size)
        return [left[len(left) * number // shares] - 1 for number in range(1, shares)]

    def left(self, request: BatchRequest) -> list[int]:
        after = -1 if request.resume is None else request.resume
        until = 10**9 if request.until is None else request.until
        return sorted(row for row in self.rows[request.target] if after < row <= until)

    def purge(self, request: BatchRequest) -> BatchResult | Exception:
        assert request.size > 0
        trouble = self.trouble.pop(0) if self.trouble else None
        if trouble is not None:
            return trouble
        rows = self.left(request)[: request.size]
        resume = rows[-1] if len(rows) == request.size else None
        elapsed = len(rows) / 1000
        if self.refused.intersection(rows):
            skipped, keys = {Skip.REFUSED: len(rows)}, [(row,) for row in rows]
            error = RefusedError("no")
            return BatchResult(
                0, resume, skipped=skipped, failure=error, left=keys, elapsed=elapsed
            )
        held = [row for row in rows if self.held[row] > 0]
        self.held.subtract(held)
        gone = [row for row in rows if row not in held]
        self.rows[request.target].difference_update(gone)
        self.deleted.update((request.target, row) for row in gone)
        skipped = {Skip.LOCKED: len(held)} if held else {}
        return BatchResult(len(gone), resume, skipped=skipped, elapsed=elapsed)


def test_one_worker_asks_for_nothing_new() -> None:
    line = Line.holding(a=5_000)
    report = line.sweep(1)
    assert report.deleted == 5_000
    assert not line.of(c.Begin)
    assert not line.of(c.Divide)
    assert report.targets[0].workers == 1
    assert "at once" not in str(report)


def test_workers_get_stretches_after_the_first_batch() -> None:
    line = Line.holding(a=5_000)
    report = line.sweep(2)
    assert report.deleted == 5_000
    (first,) = line.of(c.PurgeBatch)[:1]
    assert (first.request.resume, first.request.until) == (None, None)
    assert max(map(len, line.most)) == 2
    assert report.targets[0].workers == 2
    assert "a: 2 batches at once" in str(report)
    assert report.to_dict()["targets"][0]["workers"] == 2


def test_what_cannot_be_divided_is_one_workers() -> None:
    line = Line.holding(a=5_000)
    line.instead[c.Divide] = [()] * 1_000
    report = line.sweep(4)
    assert report.deleted == 5_000
    assert not line.most


@pytest.mark.slow
def test_it_is_not_asked_before_each_batch_whether_that_is_so() -> None:
    line = Line.holding(a=200_000)
    line.instead[c.Divide] = [()] * 1_000
    line.sweep(4, pace=Pace(start=1_000, lowest=1_000, highest=1_000, target=1.0))
    assert len(line.of(c.PurgeBatch)) >= 200
    assert len(line.of(c.Divide)) < 12


def test_a_division_that_fails_for_now_is_done_without() -> None:
    line = Line.holding(a=5_000)
    line.instead[c.Divide] = [BUSY] * 1_000
    report = line.sweep(2)
    assert (report.deleted, report.problems) == (5_000, ())


def test_a_stretch_that_fails_is_tried_again_alone_and_the_others_count() -> None:
    line = Line.holding(a=9_000)
    line.trouble = [None, None, BUSY, None]
    report = line.sweep(3)
    assert (report.deleted, report.problems) == (9_000, ())
    failed = [each.event for each in line.of(c.Emit) if each.event.error is BUSY]
    assert len(failed) == 1
    assert set(line.deleted.values()) == {1}
    begun = [command.request for command in line.of(c.Begin)]
    (again,) = [each for each in line.of(c.PurgeBatch) if each.request.resume == begun[1].resume]
    before = Counter(map(type, line.asked[: line.asked.index(again)]))
    assert before[c.Begin] == before[c.AwaitBatch]


def test_what_does_not_pass_fails_the_target_after_those_beside_it_were_counted() -> None:
    line = Line.holding(a=9_000, b=10)
    error = StoreError("broken")
    line.trouble = [None, None, error, None]
    report = line.sweep(3)
    a, b = report.targets
    assert (a.error, a.deleted) == (error, sum(target == "a" for target, _ in line.deleted))
    assert a.deleted == 2_000
    assert b.deleted == 10


def test_a_row_that_keeps_its_batch_from_going_stays_alone() -> None:
    line = Line.holding(frozenset({1_500, 1_501, 4_000}), a=6_000)
    report = line.sweep(3)
    (target,) = report.targets
    assert line.rows["a"] == line.refused
    assert (target.skips, len(target.left)) == ({Skip.REFUSED: 3}, 3)


def test_rows_that_another_worker_has_locked_are_looked_at_once_more() -> None:
    line = Line.holding(a=6_000)
    line.held[4_000] = 1
    (target,) = line.sweep(3).targets
    assert (target.deleted, target.skips) == (6_000, {})


def test_rows_that_stay_locked_are_left_to_the_next_sweep() -> None:
    line = Line.holding(a=6_000)
    line.held.update(dict.fromkeys(range(3_000, 6_000, 2), 1_000))
    (target,) = line.sweep(3).targets
    assert (target.deleted, target.skips) == (4_500, {Skip.LOCKED: 1_500})


def test_the_rate_holds_for_all_together() -> None:
    line = Line.holding(a=20_000)
    line.sweep(4, max_rows_per_second=1_000)
    assert line.clock >= 20_000 / 1_000 - 1
    assert all(sum(each.size for each in requests) <= 1_000 for requests in line.most)


def test_the_rest_is_for_the_work_of_all() -> None:
    line = Line.holding(a=20_000)
    line.sweep(4, nice=1.0)
    assert sum(line.pauses) == pytest.approx(20.0, rel=0.15)  # a millisecond for each row


def test_a_lost_lease_ends_it_when_those_under_way_are_over() -> None:
    line = Line.holding(a=50_000)

    def watch(command: Any, clock: float) -> None:
        if len(line.most) == 5 and isinstance(command, c.IsStopping):
            line.lease.taken_over(clock)
            line.clock += 60

    line.before = watch
    report = line.sweep(2)
    assert report.ended is Ending.LEASE_LOST
    assert len(line.most) == 5
    assert not line.under_way
    assert report.deleted == len(line.deleted)


@pytest.mark.slow
@unhurried
@given(
    rows=st.integers(1, 30_000),
    other=st.integers(0, 3_000),
    workers=st.integers(2, 5),
    max_rows=st.none() | st.integers(1, 20_000),
    max_seconds=st.none() | st.floats(0.1, 20.0),
    trouble=st.lists(st.sampled_from([None, None, None, BUSY]), max_size=20),
    refused=st.frozensets(st.integers(0, 30_000), max_size=4),
    held=st.dictionaries(st.integers(0, 30_000), st.integers(1, 5), max_size=5),
)
def test_rows_go_once_and_limits_hold(  # noqa: PLR0913, PLR0917 (what there may be)
    rows: int,
    other: int,
    workers: int,
    max_rows: int | None,
    max_seconds: float | None,
    trouble: list[Exception | None],
    refused: frozenset[int],
    held: dict[int, int],
) -> None:
    line = Line.holding(refused, a=rows, b=other)
    line.held.update(held)
    line.trouble = list(trouble)
    report = line.sweep(workers, max_rows=max_rows, max_seconds=max_seconds)
    assert all(number == 1 for number in line.deleted.values())
    assert report.deleted == len(line.deleted)
    assert max_rows is None or report.deleted <= max_rows
    assert not line.under_way
    for requests in line.most:
        assert len(requests) <= workers
        assert len({request.target for request in requests}) == 1
        places = sorted((request.resume, request.until or 10**9) for request in requests)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(places))
    failed = any(target.error for target in report.targets)  # five times in a row
    if report.ended is Ending.FINISHED and not failed:
        kept = set(refused) | {row for row, looks in line.held.items() if looks >= 0}
        assert line.rows["a"] <= kept
        assert line.rows["b"] <= kept
    if max_rows is not None and report.ended is Ending.MAX_ROWS:
        assert report.deleted == max_rows
    if max_rows == rows + other and not (trouble or refused or held) and max_seconds is None:
        assert report.deleted == max_rows


@pytest.mark.slow
@unhurried
@given(st.integers(2, 5), st.integers(2, 400))
def test_a_backlog_leaves_the_others_their_share(workers: int, max_rows: int) -> None:
    line = Line.holding(big=20_000, small=max_rows)
    report = line.sweep(workers, max_rows=max_rows)
    assert {target.table: target.deleted for target in report.targets} == {
        "big": pytest.approx(max_rows / 2, abs=1),
        "small": pytest.approx(max_rows / 2, abs=1),
    }


# --- the crew -------------------------------------------------------------------------------------


def learned(crew: Crew, rate: Callable[[int], float], rounds: int = 200) -> list[int]:
    """Let a crew learn from a machine that does so many rows a second with so many workers."""
    sizes = []
    for _ in range(rounds):
        sizes.append(crew.size)
        crew.learn(round(rate(crew.size) * 1_000), 1_000.0, is_slow=False)
    return sizes


def test_a_crew_is_complete_while_each_brings_something() -> None:
    sizes = learned(Crew(4), lambda workers: workers * 1_000)
    assert sizes[0] == 4
    assert sizes.count(4) > 180


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_a_crew_shrinks_to_what_the_machine_has(cores: int) -> None:
    sizes = learned(Crew(4), lambda workers: min(workers, cores) * 1_000)
    assert sizes[-100:].count(cores) > 90


def test_a_crew_grows_when_there_is_room_again() -> None:
    crew = Crew(3)
    learned(crew, lambda _: 1_000.0)
    assert crew.size == 1
    sizes = learned(crew, lambda workers: workers * 1_000, 2_000)
    assert sizes[-1] == 3


def test_a_crew_lets_one_go_at_once_when_batches_are_slow() -> None:
    crew = Crew(3)
    crew.learn(1_000, 1.0, is_slow=False)
    crew.learn(1_000, 3.0, is_slow=True)
    assert crew.size == 2
    for _ in range(5):
        crew.learn(1_000, 3.0, is_slow=True)
    assert crew.size == 1


def test_nothing_is_learned_of_one_or_of_no_time() -> None:
    one, still = Crew(1), Crew(2)
    one.learn(10, 1.0, is_slow=True)
    still.learn(10, 0.0, is_slow=True)
    assert (one.size, still.size) == (1, 2)


# --- ranges ---------------------------------------------------------------------------------------


def test_parts_are_not_mixed() -> None:
    first, second, other = Range(Part.OWN, 1, 5), Range(Part.OWN, 5), Range(Part.CAPPED)
    ranges = Ranges([first, second, other])
    assert ranges.next([]) is first
    assert ranges.next([first]) is second
    assert ranges.next([first, second]) is None


def test_what_goes_whole_and_first_batches_are_alone() -> None:
    whole = Part("volumes", whole=True)
    for part in (whole, Part.OWN):
        range_ = Range(part)
        assert not range_.is_shareable
        assert Ranges([range_, Range(Part.CAPPED)]).next([range_]) is None
    assert not Range(whole, 5).is_shareable


def test_those_that_are_purged_again_wait_for_all_others() -> None:
    first, second = Range(Part.OWN, 1, 5), Range(Part.OWN, 5, 9, begin=5)
    third = Range(Part.OWN, 9, begin=9)
    ranges = Ranges([first, second, third])
    for range_ in (second, third):
        range_.skips[Skip.LOCKED] = 1
        ranges.end(range_)
    assert ranges.next([first]) is None
    ranges.end(first)
    again = ranges.next([])
    assert again is not None
    assert (again.resume, again.is_again) == (5, True)
    assert ranges.next([again]) is None


def test_one_that_has_failed_waits_for_the_others_and_is_next() -> None:
    first, second = Range(Part.OWN, 1, 5), Range(Part.OWN, 5)
    second.error = BUSY
    ranges = Ranges([first, second])
    assert ranges.next([first]) is None
    assert ranges.next([]) is second


# --- the drivers ----------------------------------------------------------------------------------


class Meeting:
    """A hook that waits until so many are in it at once."""

    def __init__(self, parties: int) -> None:
        # It is over before the first of them goes on, or that one might wait for the next meeting.
        self.barrier = threading.Barrier(parties, self._end, timeout=30)
        self.threads: set[str] = set()
        self.is_over = False

    def __call__(self, _: Any) -> None:
        name = threading.current_thread().name
        if name.startswith("ttl_odm-sweeper") and not self.is_over:
            self.threads.add(name)
            self.barrier.wait()

    def _end(self) -> None:
        self.is_over = True


def stocked(store: Any, rows: int = 90) -> Any:
    store.create("carts", 10)
    for key in range(rows):
        store.put("carts", key, age=1_000 - key)
    return store


def test_batches_of_a_store_run_in_threads_at_once() -> None:
    store, meeting = stocked(InMemoryStore()), Meeting(3)
    before = threading.active_count()
    report = Sweeper(store, workers=3, batch_size=5, on_purged=meeting).run_once()
    assert (report.deleted, report.problems) == (90, ())
    assert len(meeting.threads) == 3
    assert threading.active_count() == before
    assert report.targets[0].workers == 3


def test_one_worker_needs_no_thread() -> None:
    names = set()
    hook: Any = lambda _: names.add(threading.current_thread().name)  # noqa: E731
    Sweeper(stocked(InMemoryStore()), batch_size=5, on_purged=hook).run_once()
    assert names == {threading.current_thread().name}


def test_batches_of_an_asynchronous_store_run_in_tasks_at_once() -> None:
    store, most, now = stocked(AsyncInMemoryStore()), 0, 0

    async def hook(_: Any) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        for _ in range(5):
            await asyncio.sleep(0)
        now -= 1

    sweeper = AsyncSweeper(store, workers=3, batch_size=5, on_purged=hook)
    report = asyncio.run(sweeper.run_once())
    assert (report.deleted, most, now) == (90, 3, 0)


def test_a_callback_that_raises_ends_it_with_no_thread_left_and_the_lease_given_back() -> None:
    store, before = stocked(InMemoryStore()), threading.active_count()

    def on_progress(progress: Any) -> None:
        if progress.deleted_so_far > 20:
            raise KeyError("mine")

    sweeper = Sweeper(store, workers=3, batch_size=5, on_progress=on_progress)
    with pytest.raises(KeyError, match="mine"):
        sweeper.run_once()
    assert threading.active_count() == before
    assert sweeper.status().holder is None


@pytest.mark.parametrize("times", [1, 2])
def test_a_task_that_is_cancelled_leaves_no_batch_under_way(times: int) -> None:
    store = stocked(AsyncInMemoryStore())
    now = interrupted = 0

    async def scene() -> None:
        at_work = asyncio.Event()

        async def hook(_: Any) -> None:
            nonlocal now, interrupted
            now += 1
            try:
                if now == 3:
                    at_work.set()
                for _ in range(20):
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                interrupted += 1
                raise
            finally:
                now -= 1

        sweeper = AsyncSweeper(store, workers=3, batch_size=5, on_purged=hook)
        task = asyncio.ensure_future(sweeper.run_once())
        await at_work.wait()
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert now == 0
        assert (await sweeper.status()).holder is None

    asyncio.run(scene())
    assert (now, interrupted) == (0, 3 if times == 2 else 0)
    # What was interrupted was undone, the rest is committed.
    left = store.keys("carts")
    assert 0 < len(left) < 90
    assert asyncio.run(AsyncSweeper(store, workers=2).run_once()).deleted == len(left)


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, -1, 65, True, 1.5, "2"])
def test_a_number_of_workers_is_checked(workers: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"^workers = .*from 1 to 64"):
        Sweeper(InMemoryStore(), workers=workers)


def test_a_store_that_cannot_be_divided_has_one() -> None:
    class Plain:
        pace = InMemoryStore().pace

    assert settings_of({"workers": 4}, Plain()).workers == 1  # type: ignore[arg-type]
    assert settings_of({"workers": 4}, InMemoryStore()).workers == 4
    assert settings_of({}, InMemoryStore()).workers == 1


def test_gentle_is_small_batches_and_long_rests() -> None:
    usual, gentle = InMemoryStore().pace, settings_of({"gentle": True}, InMemoryStore()).pace
    assert isinstance(gentle, Pace)
    assert gentle.highest < usual.highest
    assert gentle.target < usual.target
    assert gentle.rest >= 4
    settings = settings_of({"gentle": True, "batch_size": 3, "nice": 1}, InMemoryStore())
    assert (settings.pace.start, settings.limits.nice) == (3, 1.0)


def test_gentle_makes_nothing_less_gentle() -> None:
    pace = Pace(start=10, lowest=5, highest=50, target=0.001, rest=9.0)
    assert pace.gentle() == replace(pace)


def test_a_gentle_batch_has_the_rows_that_suit_the_database_however_far_that_is() -> None:
    gentle = Pace(start=1_000, lowest=100, highest=5_000, target=0.1, gentle_rows=20).gentle()
    far, slow = 0.01, 0.2  # seconds that a batch takes: of the network, and of the database
    assert (gentle.start, gentle.next(20, far), gentle.next(20, 0.0001)) == (20, 20, 20)
    assert (gentle.next(20, slow), gentle.next(10, slow)) == (10, 10)
    assert gentle.rest == 4
    assert gentle.gentle() == gentle


def test_a_gentle_batch_has_no_more_rows_than_any_other() -> None:
    pace = Pace(start=5, lowest=2, highest=10, target=0.01, gentle_rows=20)
    assert pace.gentle() == replace(pace, rest=4.0)


def test_a_sweep_that_is_not_replicated_has_one() -> None:
    with pytest.raises(
        TTLConfigurationError, match=r"^replicate = False: it implies a single worker"
    ):
        Sweeper(InMemoryStore(), replicate=False, workers=2)


def test_gentle_is_one_worker_and_no_pace_of_ones_own() -> None:
    with pytest.raises(TTLConfigurationError, match=r"^gentle: .*Leave workers out"):
        Sweeper(InMemoryStore(), gentle=True, workers=2)
    with pytest.raises(TTLConfigurationError, match=r"^gentle: it has no effect on a custom pace"):
        Sweeper(InMemoryStore(), gentle=True, pace=InMemoryStore().pace)
    with pytest.raises(TTLConfigurationError, match=r"^gentle = 1"):
        Sweeper(InMemoryStore(), gentle=1)  # type: ignore[arg-type]
