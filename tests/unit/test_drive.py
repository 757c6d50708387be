"""The sweeper's drivers, its arguments, and how it finds a store."""

from __future__ import annotations

import asyncio
import threading
from importlib.metadata import EntryPoint, EntryPoints
from typing import TYPE_CHECKING, Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded  # type: ignore[import-untyped]

from tests.guard import GUARD
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import (
    AsyncStore,
    AsyncSweeper,
    BatchRequest,
    BatchResult,
    Due,
    Ending,
    Hook,
    HookError,
    Pace,
    Part,
    Progress,
    Purged,
    StandbyStoreError,
    Store,
    Sweeper,
    SweepReport,
    TransientStoreError,
    commands,
    sweeper,
)
from ttl_odm.sweeper.drive import Ports
from ttl_odm.testing import AsyncInMemoryStore, InMemoryStore
from ttl_odm.testing.memory_leases import InMemoryLeases

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class FakeStore:
    """Numbers of expired rows, by target; what `trouble` returns or raises happens first."""

    pace = Pace(start=10, lowest=1, highest=100, target=60.0, rest=0.001)

    def __init__(self, **rows: int) -> None:
        self.rows = rows
        self.trouble: Callable[[], object] = lambda: None

    def targets(self) -> Sequence[str]:
        return list(self.rows)

    def due(self, target: str) -> Due | None:
        return Due((Part.ALL,), 5.0) if self.rows[target] else Due((), 0.0)

    def purge(self, request: BatchRequest) -> BatchResult:
        assert request.part is Part.ALL
        assert request.resume in (None, "on")
        self.trouble()
        deleted = min(request.size, self.rows[request.target])
        self.rows[request.target] -= deleted
        return BatchResult(deleted, "on" if self.rows[request.target] else None)


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

    async def purge(self, request: BatchRequest) -> BatchResult:
        await asyncio.sleep(0)
        return self.store.purge(request)


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
    begun: list[asyncio.Task[Any] | None] = []

    async def sweep() -> SweepReport:
        begun.append(asyncio.current_task())
        return await AsyncSweeper(store, **config).run_once()

    try:
        return asyncio.run(sweep())
    finally:
        # An event loop that a KeyboardInterrupt has ended asks its tasks for nothing, and they
        # would complain when they are collected: in the middle of another test.
        for task in begun:
            if task is not None and task.done() and not task.cancelled():
                task.exception()


Run = Any
both = pytest.mark.parametrize("run", [run, run_async])


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What the sweeper has logged; others may have logged something too."""
    ours = [each for each in caplog.records if each.name == "ttl_odm.sweeper"]
    return [(each.levelname, each.getMessage()) for each in ours]


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


class BaseTimeoutException(Exception):  # noqa: N818 (RQ's, which isn't installed here)
    __module__ = "rq.timeouts"


class JobTimeoutException(BaseTimeoutException):
    __module__ = "rq.job"


@both
@pytest.mark.parametrize("limit", [SoftTimeLimitExceeded(), JobTimeoutException()], ids=repr)
@pytest.mark.parametrize("is_in_a_hook", [False, True])
def test_the_time_limit_of_a_queue_ends_the_sweep(
    run: Run, limit: Exception, *, is_in_a_hook: bool
) -> None:
    error = limit
    if is_in_a_hook:
        error = HookError("The hook failed.")
        error.__cause__ = limit
    with pytest.raises(type(limit)) as raised:
        run({"a": 35, "b": 3}, once(error))
    assert raised.value is limit


@both
@pytest.mark.parametrize("error", [BrokenPipeError, StopIteration, RuntimeError])
def test_an_error_in_the_callers_callback_is_the_callers(run: Run, error: type[Exception]) -> None:
    def broken(_: Progress) -> None:
        raise error

    # A coroutine can't raise StopIteration; Python makes a RuntimeError of it.
    with pytest.raises((error, RuntimeError)):
        run({"a": 35}, quiet, on_progress=broken)


def test_max_rows_and_batch_size_reach_the_plan() -> None:
    events: list[Progress] = []
    report = Sweeper(
        FakeStore(a=35), max_rows=12, batch_size=4, on_progress=events.append
    ).run_once()
    assert report.deleted == 12
    assert report.limited
    assert events[0].batch_size == 4


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
    monkeypatch.setattr(sweeper, "registered", lambda: EntryPoints([entry]))


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("engine", [Engine(), SpecialEngine()])
def test_an_engine_finds_the_store_of_its_package(engine: Engine) -> None:
    report = Sweeper(engine, ["a", "b"]).run_once()
    assert [each.table for each in report.targets] == ["a", "b"]


@pytest.mark.usefixtures("registered")
def test_an_engine_of_an_unknown_package_is_refused() -> None:
    with pytest.raises(TTLConfigurationError, match=r"^Nothing is registered .* 'int'\. Give an"):
        Sweeper(42, ["a"])


# with everything that a store may offer


HOUR = 3600


def filled(store: Any, rows: int = 30) -> Any:
    store.create("carts", HOUR)
    for number in range(rows):
        store.put("carts", number, age=2 * HOUR + number)
    return store


@pytest.mark.parametrize("asked", [True, False])
async def test_callbacks_and_throttle_may_be_coroutines(*, asked: bool) -> None:
    heard: list[object] = []

    async def throttle() -> float | None:
        heard.append("throttle")
        return 0.001 if asked and len(heard) == 1 else None

    async def hear(event: object) -> None:
        heard.append(event)

    report = await AsyncSweeper(
        filled(AsyncInMemoryStore()), throttle=throttle, on_progress=hear
    ).run_once()
    assert report.deleted == 30
    assert heard.count("throttle") == (2 if asked else 1)
    assert isinstance(heard[-1], Progress)


async def test_an_asynchronous_sweep_sets_no_timer_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    call_at, timers = loop.call_at, []

    def set_timer(when: float, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *args, **kwargs)

    monkeypatch.setattr(loop, "call_at", set_timer)
    report = await AsyncSweeper(filled(AsyncInMemoryStore()), batch_size=10).run_once()
    assert (report.deleted, timers) == (30, [])


def test_a_throttle_that_raises_fails_the_sweep() -> None:
    def broken() -> None:
        raise OSError("no metrics")

    report = Sweeper(filled(InMemoryStore()), throttle=broken).run_once()
    assert report.problems == ("no metrics",)
    assert report.deleted == 0


@pytest.mark.parametrize("is_async", [False, True])
def test_it_sweeps_for_ever_and_logs_until_it_is_stopped(
    caplog: pytest.LogCaptureFixture, *, is_async: bool
) -> None:
    caplog.set_level("INFO", "ttl_odm.sweeper")
    store = filled(AsyncInMemoryStore() if is_async else InMemoryStore())
    reports: list[SweepReport] = []

    def hear(report: SweepReport) -> None:
        reports.append(report)
        if len(reports) == 3:
            made.stop()

    kind: Any = AsyncSweeper if is_async else Sweeper
    made = kind(store, on_report=hear)
    result = made.run_forever(interval=1e-9)
    report = asyncio.run(result) if is_async else result
    assert report is reports[-1]
    assert [each.deleted for each in reports] == [30, 0, 0]
    assert [level for level, _ in logged(caplog)] == ["INFO"] * 3
    assert logged(caplog)[0][1].startswith("Swept 1 table in ")


def test_a_failing_sweep_is_logged_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ttl_odm.sweeper")
    store = filled(InMemoryStore())
    made = Sweeper(store, on_purged=fails, on_report=lambda _: made.stop())
    made.run_forever()
    levels = [level for level, _ in logged(caplog)]
    assert (set(levels[:-1]), levels[-1]) == ({"INFO"}, "WARNING")  # the batches, the sweep


def fails(_: object) -> None:
    raise ValueError("not now")


def test_a_sweeper_knows_that_it_ended_at_a_standby() -> None:
    store = filled(InMemoryStore())

    def refuse() -> None:
        raise StandbyStoreError("read-only")

    store.between = refuse
    made = Sweeper(store, standby="exit")
    assert not made.ended_at_standby(None)
    assert made.ended_at_standby(made.run_forever())
    waiting = Sweeper(store)  # another reason than its report has ended it
    assert not waiting.ended_at_standby(SweepReport(ended=Ending.STANDBY))


def test_a_stop_from_a_thread_ends_a_sweeper_that_waits() -> None:
    made = Sweeper(InMemoryStore())
    runner = threading.Thread(target=made.run_forever, kwargs={"interval": 3600})
    runner.start()
    made.stop()
    runner.join(GUARD)
    assert not runner.is_alive()
    assert made.run_forever() is None


# the lease


def test_an_interrupted_sweep_gives_its_lease_back() -> None:
    def interrupt(_: Progress) -> None:
        raise KeyboardInterrupt

    store = filled(InMemoryStore())
    with pytest.raises(KeyboardInterrupt):
        Sweeper(store, on_progress=interrupt).run_once()
    assert store.leases.read("ttl_odm").token == 1
    assert store.leases.read("ttl_odm").holder is None


async def test_an_interrupted_asynchronous_sweep_gives_its_lease_back() -> None:
    store = filled(AsyncInMemoryStore())
    with pytest.raises(ValueError, match="not now"):
        await AsyncSweeper(store, on_progress=fails).run_once()
    assert (await store.leases.read("ttl_odm")).holder is None


def test_a_single_sweep_records_its_history_and_gives_its_lease_back_in_one_step() -> None:
    calls = []

    class Leases(InMemoryLeases):
        def __getattribute__(self, name: str) -> Any:
            if not name.startswith("_"):
                calls.append(name)
            return super().__getattribute__(name)

    store = filled(InMemoryStore())
    leases = Leases(store.clock)
    assert Sweeper(store, lease=leases).run_once().deleted == 30
    assert leases.read("ttl_odm").history
    assert leases.read("ttl_odm").holder is None
    assert "finish" in calls
    assert not {"record", "release"} & {*calls}


def test_a_lease_that_cannot_be_given_back_hides_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store = filled(InMemoryStore())
    store.leases.finish, store.leases.release = None, fails
    assert Sweeper(store).run_once().deleted == 30
    assert logged(caplog) == [
        ("WARNING", "The lease could not be released, so it lasts until it expires: not now")
    ]


async def test_an_asynchronous_lease_that_cannot_be_given_back_hides_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_: object) -> None:
        raise ValueError("not now")

    store = filled(AsyncInMemoryStore())
    store.leases.finish, store.leases.release = None, fail
    assert (await AsyncSweeper(store).run_once()).deleted == 30
    assert len(logged(caplog)) == 1


def test_a_lease_that_was_lost_is_not_given_back() -> None:
    store = filled(InMemoryStore())

    def steal(_: Progress) -> None:
        store.advance(100)
        store.leases.acquire("ttl_odm", "them", 60)

    made = Sweeper(store, on_progress=steal, batch_size=10)
    # The clock of the lease has moved on, the sweeper's hasn't, so it asks before it must.
    made._lease_duration = 0.001
    report = made.run_once()
    assert report.ended is Ending.LEASE_LOST
    assert store.leases.read("ttl_odm").holder == "them"


@both
def test_each_run_is_another_holder(run: Run) -> None:
    store = filled(AsyncInMemoryStore() if run is run_async else InMemoryStore())
    kind: Any = AsyncSweeper if run is run_async else Sweeper
    made = kind(store)
    assert made._claim().holder != made._claim().holder


# cancelling


def in_the_middle(store: Any) -> asyncio.Event:
    """Tell when a batch is under way, and let it take a while."""
    begun = asyncio.Event()
    purge = store.purge

    async def slow_purge(request: Any) -> Any:
        begun.set()
        await asyncio.sleep(0.02)
        return await purge(request)

    store.purge = slow_purge
    return begun


async def test_a_cancelled_sweep_finishes_its_batch_tells_it_and_gives_the_lease_back() -> None:
    store = filled(AsyncInMemoryStore())
    begun = in_the_middle(store)
    told: list[Purged] = []
    hook = Hook(told.append, when="commit")
    made = AsyncSweeper(store, batch_size=10, on_purged=hook, nice=100)
    task = asyncio.create_task(made.run_once())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(store.keys("carts")) == 20
    assert [each.count for each in told] == [10]
    assert (await store.leases.read("ttl_odm")).holder is None


async def test_a_sweep_that_is_cancelled_twice_is_interrupted() -> None:
    store = filled(AsyncInMemoryStore())
    begun = in_the_middle(store)
    task = asyncio.create_task(AsyncSweeper(store, batch_size=10).run_once())
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(store.keys("carts")) == 30


async def test_a_timeout_ends_a_sweep() -> None:
    store, swept = filled(AsyncInMemoryStore()), asyncio.Event()
    sweeper = AsyncSweeper(store, on_report=lambda _: swept.set())
    running = asyncio.create_task(sweeper.run_forever(interval=3600))
    await swept.wait()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(running, 0.01)
    assert store.keys("carts") == set()
    assert (await store.leases.read("ttl_odm")).holder is None


@pytest.mark.parametrize("times", [1, 2])
async def test_a_sweep_that_is_cancelled_in_a_throttle_ends(times: int) -> None:
    asked = asyncio.Event()

    async def throttle() -> None:
        asked.set()
        try:
            await asyncio.sleep(3600)
        finally:
            if times == 2:
                asked.clear()
                await asyncio.sleep(3600)

    store = filled(AsyncInMemoryStore())
    task = asyncio.create_task(AsyncSweeper(store, throttle=throttle).run_once())
    await asked.wait()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(store.keys("carts")) == 30


async def test_a_sweep_is_cancelled_in_its_second_wait_too() -> None:
    store = filled(AsyncInMemoryStore())
    begun = in_the_middle(store)
    waiting = asyncio.Event()

    async def stuck(_: Progress) -> None:
        waiting.set()
        await asyncio.sleep(3600)

    task = asyncio.create_task(AsyncSweeper(store, on_progress=stuck).run_once())
    await begun.wait()
    task.cancel()  # the batch is finished first
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_command_that_no_driver_knows_is_a_bug() -> None:
    class Unknown(commands.Command[None]):
        """Nothing."""

    with pytest.raises(TypeError, match="No driver knows the command"):
        Ports(FakeStore()).remote(Unknown())


def deafened(leases: Any, *, is_async: bool) -> list[int]:
    """Have the first answers to requests for a lease be lost; return how many still will be."""
    acquire, left = leases.acquire, [1]

    def acquired(*args: Any) -> Any:
        granted = acquire(*args)
        if left and granted is not None:
            left.pop()
            raise TransientStoreError("the answer was lost")
        return granted

    async def acquired_async(*args: Any) -> Any:
        granted = await acquire(*args)
        if left and granted is not None:
            left.pop()
            raise TransientStoreError("the answer was lost")
        return granted

    leases.acquire = acquired_async if is_async else acquired
    return left


@pytest.mark.parametrize("is_async", [False, True])
def test_a_lease_is_used_and_given_back_though_the_answer_was_lost(*, is_async: bool) -> None:
    store: Any = filled(AsyncInMemoryStore() if is_async else InMemoryStore())
    left = deafened(store.leases, is_async=is_async)
    result = (AsyncSweeper if is_async else Sweeper)(store).run_once()
    report: Any = asyncio.run(result) if is_async else result  # type: ignore[arg-type]
    state = store.leases.read("ttl_odm")
    state = asyncio.run(state) if is_async else state
    assert (report.problems, report.deleted, left) == ((), 30, [])
    assert (state.holder, state.token) == (None, 1)
