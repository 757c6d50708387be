"""The sweeper's drivers, its arguments, and how it finds a store."""

from __future__ import annotations

import asyncio
from importlib.metadata import EntryPoint, EntryPoints
from typing import TYPE_CHECKING, Any

import pytest

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import (
    AsyncStore,
    AsyncSweeper,
    BatchResult,
    Due,
    Pace,
    Part,
    Progress,
    Store,
    Sweeper,
    SweepReport,
    TransientStoreError,
    sweeper,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class FakeStore:
    """Numbers of expired rows, by target; what `trouble` returns or raises happens first."""

    pace = Pace(start=10, lowest=1, highest=100, target=0.1, rest=0.001)

    def __init__(self, **rows: int) -> None:
        self.rows = rows
        self.trouble: Callable[[], object] = lambda: None

    def targets(self) -> Sequence[str]:
        return list(self.rows)

    def due(self, target: str) -> Due | None:
        return Due((Part.ALL,), 5.0) if self.rows[target] else Due((), 0.0)

    def purge(self, target: str, part: Part, size: int, resume: object) -> BatchResult:
        assert part is Part.ALL
        assert resume in (None, "on")
        self.trouble()
        deleted = min(size, self.rows[target])
        self.rows[target] -= deleted
        return BatchResult(deleted, "on" if self.rows[target] else None)


class FakeAsyncStore:
    """The same, asynchronously."""

    pace = FakeStore.pace

    def __init__(self, **rows: int) -> None:
        self.store = FakeStore(**rows)

    def targets(self) -> Sequence[str]:
        return self.store.targets()

    async def due(self, target: str) -> Due | None:
        await asyncio.sleep(0)
        return self.store.due(target)

    async def purge(self, target: str, part: Part, size: int, resume: object) -> BatchResult:
        await asyncio.sleep(0)
        return self.store.purge(target, part, size, resume)


def once(error: BaseException) -> Callable[[], object]:
    errors = [error]

    def trouble() -> None:
        if errors:
            raise errors.pop()

    return trouble


def run(rows: dict[str, int], trouble: Callable[[], object], **config: Any) -> SweepReport:
    store = FakeStore(**rows)
    store.trouble = trouble
    return Sweeper(store, **config).run_once()


def run_async(rows: dict[str, int], trouble: Callable[[], object], **config: Any) -> SweepReport:
    store = FakeAsyncStore(**rows)
    store.store.trouble = trouble
    return asyncio.run(AsyncSweeper(store, **config).run_once())


Run = Any
both = pytest.mark.parametrize("run", [run, run_async])


def quiet() -> None:
    """Make no trouble."""


@both
def test_a_sweep_purges_every_target_to_its_end(run: Run) -> None:
    report = run({"a": 35, "b": 0, "c": 7}, quiet)
    assert [(each.table, each.deleted) for each in report.targets] == [
        ("a", 35),
        ("b", 0),
        ("c", 7),
    ]
    assert report.duration > 0


@both
def test_a_sweep_tells_its_progress_with_the_time_that_was_measured(run: Run) -> None:
    events: list[Progress] = []
    run({"a": 35}, quiet, on_progress=events.append)
    assert [event.deleted_so_far for event in events] == [10, 30, 35]
    assert all(event.elapsed > 0 for event in events)


@both
def test_what_the_store_raises_goes_to_the_plan(run: Run) -> None:
    report = run({"a": 35}, once(TransientStoreError("busy")))
    assert report.deleted == 35
    assert not report.failed


@both
def test_a_bug_in_the_store_fails_its_target(run: Run) -> None:
    report = run({"a": 35, "b": 3}, once(ZeroDivisionError()))
    assert [each.table for each in report.failed] == ["a"]
    assert report.targets[1].deleted == 3


@both
@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError, SystemExit])
def test_an_interruption_ends_the_sweep(run: Run, error: type[BaseException]) -> None:
    with pytest.raises(error):
        run({"a": 35}, once(error()))


@both
@pytest.mark.parametrize("error", [BrokenPipeError, StopIteration, RuntimeError])
def test_an_error_in_the_callers_callback_is_the_callers(run: Run, error: type[Exception]) -> None:
    def broken(_: Progress) -> None:
        raise error

    # A coroutine can't raise StopIteration; Python makes a RuntimeError of it.
    with pytest.raises((error, RuntimeError)):
        run({"a": 35}, quiet, on_progress=broken)


async def test_a_cancelled_sweep_stops_at_once() -> None:
    store = FakeAsyncStore(a=35)
    started = asyncio.Event()
    store.store.trouble = started.set
    task = asyncio.create_task(AsyncSweeper(store).run_once())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_max_rows_and_batch_size_reach_the_plan() -> None:
    events: list[Progress] = []
    report = Sweeper(
        FakeStore(a=35), max_rows=12, batch_size=4, on_progress=events.append
    ).run_once()
    assert report.deleted == 12
    assert report.limited
    assert events[0].batch_size == 4


@pytest.mark.parametrize("number", [0, -1, True, 1.5, "10"])
@pytest.mark.parametrize("name", ["max_rows", "batch_size"])
def test_numbers_of_rows_are_checked(name: str, number: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=f"^{name} = .*: give a number of rows"):
        Sweeper(FakeStore(), **{name: number})


def test_the_fakes_are_stores() -> None:
    assert isinstance(FakeStore(), Store)
    assert isinstance(FakeAsyncStore(), AsyncStore)


def test_a_sweeper_of_the_wrong_kind_names_the_right_one() -> None:
    with pytest.raises(TTLConfigurationError, match=r"with FakeAsyncStore: use AsyncSweeper\.$"):
        Sweeper(FakeAsyncStore())
    with pytest.raises(TTLConfigurationError, match=r"with FakeStore: use Sweeper\.$"):
        AsyncSweeper(FakeStore())


def test_a_store_takes_no_targets() -> None:
    with pytest.raises(TTLConfigurationError, match="knows its targets"):
        Sweeper(FakeStore(), ["a"])


class Engine:
    """Somebody's engine."""


class SpecialEngine(Engine):
    """A subclass of it, from another package."""


SpecialEngine.__module__ = "elsewhere.engines"


def opens(engine: object, targets: Any) -> FakeStore:
    """Stand in for a package's entry point."""
    assert isinstance(engine, Engine)
    return FakeStore(**dict.fromkeys(targets, 1))


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint(Engine.__module__.partition(".")[0], "somewhere:opens", sweeper.STORES)
    monkeypatch.setattr(EntryPoint, "load", lambda _: opens)
    monkeypatch.setattr(sweeper, "entry_points", lambda **_: EntryPoints([entry]))


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("engine", [Engine(), SpecialEngine()])
def test_an_engine_finds_the_store_of_its_package(engine: Engine) -> None:
    report = Sweeper(engine, ["a", "b"]).run_once()
    assert [each.table for each in report.targets] == ["a", "b"]


@pytest.mark.usefixtures("registered")
def test_an_engine_of_an_unknown_package_is_refused() -> None:
    with pytest.raises(TTLConfigurationError, match=r"^Nothing is registered .* 'int'\. Give an"):
        Sweeper(42, ["a"])
