"""Metrics of events: what workers have delivered, and what consumers haven't dealt with."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry
from sqlalchemy import insert

from tests.events.holds import HOUR, handled, seat_hold
from tests.events.outboxes import Refuses, expire
from tests.guard import GUARD
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events import (
    AsyncEventWorker,
    Delivered,
    EventWorker,
    async_consumer_states,
    consumer_states,
    on_expired,
)
from ttl_odm.events.metrics.opentelemetry import EventTelemetry, OutboxTelemetry
from ttl_odm.events.metrics.prometheus import EventMetrics, OutboxMetrics
from ttl_odm.events.outbox import ConsumerState
from ttl_odm.sweeper import Ending, Hook, SweepReport

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ttl_odm.sweeper import Purged
    from ttl_odm.testing import TTLClock

STATES = [
    ConsumerState("mailer", (), pending=5, retried=2, dead=1, lag=90.5),
    ConsumerState("release", (), pending=0, retried=0, dead=0, lag=0.0),
]

LABELS = ("consumer", "outcome", "table")
NUMBERS = ("events_pending", "events_retried", "events_dead", "events_lag_seconds")


def scraped(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """What Prometheus gets, by the names and labels."""
    return {
        (
            sample.name.removeprefix("ttl_odm_"),
            *(sample.labels[name] for name in LABELS if name in sample.labels),
        ): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created") and sample.labels["backend"] == "sqlite"
    }


def collected(reader: InMemoryMetricReader) -> dict[tuple[Any, ...], Any]:
    """What OpenTelemetry gets, by the same."""
    data: Any = reader.get_metrics_data()
    return {
        (
            metric.name.removeprefix("ttl_odm."),
            *(point.attributes[name] for name in LABELS if name in point.attributes),
        ): point.value
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
        if point.attributes["backend"] == "sqlite"
    }


def test_prometheus_reads_the_outbox_at_each_scrape() -> None:
    registry, states = CollectorRegistry(), list(STATES)
    OutboxMetrics("sqlite", lambda: states, registry)
    assert scraped(registry) == {
        **dict(zip(((name, "mailer") for name in NUMBERS), (5, 2, 1, 90.5), strict=True)),
        **dict.fromkeys(((name, "release") for name in NUMBERS), 0),
    }
    del states[0]
    assert set(scraped(registry)) == {(name, "release") for name in NUMBERS}


def test_opentelemetry_reads_the_outbox_at_each_collection() -> None:
    reader = InMemoryMetricReader()
    OutboxTelemetry("sqlite", lambda: STATES, meter_provider=MeterProvider([reader]))
    names = [name.removesuffix("_seconds") for name in NUMBERS]
    assert collected(reader) == {
        **dict(zip(((name, "mailer") for name in names), (5, 2, 1, 90.5), strict=True)),
        **dict.fromkeys(((name, "release") for name in names), 0),
    }


def test_the_outbox_is_not_read_when_the_metrics_are_made() -> None:
    def fail() -> Any:
        raise AssertionError

    OutboxMetrics("sqlite", fail, CollectorRegistry())
    OutboxTelemetry("sqlite", fail, meter_provider=MeterProvider([InMemoryMetricReader()]))


@pytest.mark.slow
def test_a_worker_tells_what_it_has_delivered(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    on_expired(model, name="release", attempts=2)(Refuses("A1"))
    handled(model, "tell")
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    metrics = EventMetrics("sqlite", registry)
    telemetry = EventTelemetry("sqlite", meter_provider=MeterProvider([reader]))
    told: dict[str, Delivered] = {}

    def on_delivered(delivered: Delivered, consumer: str) -> None:
        metrics.on_delivered(delivered, consumer)
        telemetry.on_delivered(delivered, consumer)
        told[consumer] = told.get(consumer, Delivered()) + delivered

    expire(engine, ttl_clock, model, "A1", "A2", "A3")
    ttl_clock.freeze()
    worker = EventWorker(engine, model, on_delivered=on_delivered)
    assert worker.run_once() == Delivered(done=5, failed=1)
    assert told == {"release": Delivered(done=2, failed=1), "tell": Delivered(done=3)}
    told.clear()
    assert worker.run_once() == Delivered()
    assert told == {}
    ttl_clock.advance(1)
    assert worker.run_once() == Delivered(dead=1)
    counted = scraped(registry)
    assert counted == {
        ("event_deliveries_total", "release", "delivered"): 2,
        ("event_deliveries_total", "release", "retried"): 1,
        ("event_deliveries_total", "release", "dead"): 1,
        ("event_deliveries_total", "tell", "delivered"): 3,
        ("event_deliveries_total", "tell", "retried"): 0,
        ("event_deliveries_total", "tell", "dead"): 0,
    }
    assert collected(reader) == {
        ("event_deliveries", *labels): value for (_, *labels), value in counted.items()
    }


class OutageError(Exception):
    """What keeps a hook of a table from its work."""


def test_a_worker_tells_of_its_sweeps(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    handled(model)
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    metrics = EventMetrics("sqlite", registry)
    telemetry = EventTelemetry("sqlite", meter_provider=MeterProvider([reader]))
    outages = [OutageError(), None]

    def hook(_: Purged) -> None:
        if (outage := outages.pop(0)) is not None:
            raise outage

    def on_report(report: SweepReport) -> None:
        metrics.on_report(report)
        telemetry.on_report(report)

    model.__ttl_on_purged__ = [*model.__ttl_on_purged__, Hook(hook)]
    expire(engine, ttl_clock, model, "A1")
    worker = EventWorker(engine, model, on_report=on_report)
    assert scraped(registry) == {}
    before = time.time()
    assert worker.run_once() == Delivered()
    assert scraped(registry)["event_sweep_failures_total", "seat_holds"] == 1
    assert before <= scraped(registry)["event_sweep_timestamp_seconds",] <= time.time()
    assert worker.run_once() == Delivered(done=1)
    counted = scraped(registry)
    assert counted["event_sweep_failures_total", "seat_holds"] == 1
    assert counted["event_sweep_failures_total", "ttl_odm_events"] == 0
    measured = collected(reader)
    assert measured["event_sweep_failures", "seat_holds"] == 1
    assert measured["event_sweep_timestamp",] == pytest.approx(
        counted["event_sweep_timestamp_seconds",], abs=GUARD
    )


@pytest.mark.parametrize(
    ("ended", "is_swept"),
    [
        (Ending.FINISHED, True),
        (Ending.STOPPED, True),
        (Ending.PAUSED, False),
        (Ending.FAILED, False),
        (Ending.LEASE_HELD, False),
        (Ending.LEASE_LOST, False),
    ],
)
def test_a_worker_that_does_not_sweep_says_nothing_of_it(ended: Ending, is_swept: bool) -> None:  # noqa: FBT001
    registry = CollectorRegistry()
    metrics = EventMetrics("sqlite", registry)
    metrics.on_report(SweepReport([], ended=ended))
    swept = scraped(registry)
    assert (("event_sweep_timestamp_seconds",) in swept) is is_swept
    metrics.on_report(SweepReport([], ended=Ending.LEASE_HELD))
    assert scraped(registry) == swept  # of the last one that it did


def test_the_states_of_a_database_are_scraped(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    on_expired(model, name="release", attempts=1)(Refuses("A1"))
    expire(engine, ttl_clock, model, "A1", "A2")
    registry = CollectorRegistry()
    OutboxMetrics("sqlite", lambda: consumer_states(engine), registry)
    with pytest.raises(TTLConfigurationError, match="isn't asynchronous"):
        async_consumer_states(engine).send(None)
    EventWorker(engine, model).run_once()
    assert scraped(registry)["events_dead", "release"] == 1
    assert [state.consumer for state in consumer_states(engine, model)] == ["release"]


async def test_an_asynchronous_worker_tells_too(
    async_engine: AsyncEngine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    handled(model, "tell")
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.execute(insert(model), [{"seat": "A1", "person": "ann"}])
    ttl_clock.advance(HOUR)
    told: list[tuple[Delivered, str]] = []
    reports: list[SweepReport] = []

    def record(delivered: Delivered, consumer: str) -> None:
        told.append((delivered, consumer))

    worker = AsyncEventWorker(async_engine, model, on_delivered=record, on_report=reports.append)
    await worker.run_once()
    assert told == [(Delivered(done=1), "tell")]
    assert [report.deleted for report in reports] == [1]
    (state,) = await async_consumer_states(async_engine)
    assert (state.consumer, state.pending) == ("tell", 0)
    with pytest.raises(TTLConfigurationError, match="await async_consumer_states"):
        consumer_states(async_engine)
