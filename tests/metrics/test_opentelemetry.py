"""The metrics and spans of OpenTelemetry, as its SDK collects them."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.cli import shop
from ttl_odm.metrics.opentelemetry import SweeperTelemetry
from ttl_odm.partitions.facts import partitions
from ttl_odm.sweeper import (
    PartitionsCounted,
    Purged,
    Server,
    StoreError,
    Sweeper,
    SweepReport,
    TargetReport,
    TransientStoreError,
)
from ttl_odm.testing import InMemoryStore


class Collected:
    """A `SweeperTelemetry`, and what came of it."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.spans = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.telemetry = SweeperTelemetry(
            "sqlite",
            meter_provider=MeterProvider([self.reader], shutdown_on_exit=False),
            tracer_provider=tracers,
        )

    def values(self, name: str) -> dict[frozenset[Any], Any]:
        """The points of a metric by their attributes, but for the backend."""
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        return {
            frozenset((point.attributes or {}).items() - {("backend", "sqlite")}): point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        }

    def value(self, name: str, **labels: str) -> Any:
        point = self.values(name).get(frozenset(labels.items()))
        return None if point is None else point.value


@pytest.mark.databases("sqlite")
def test_a_sweep_gives_metrics_and_a_span_for_each_batch(engine: Any) -> None:
    shop.fill(engine)
    collected = Collected()
    telemetry = collected.telemetry
    sweeper = Sweeper(
        engine, [shop.Cart], on_progress=telemetry.on_progress, batch_size=50, max_fraction=1
    )
    telemetry.on_report(sweeper.run_once())

    assert collected.value("ttl_odm.rows_deleted", table="carts") == 10
    assert collected.value("ttl_odm.runs", outcome="finished") == 1
    assert collected.value("ttl_odm.oldest_expired_age", table="carts") == 0
    assert collected.value("ttl_odm.leader") == 1
    batches = collected.values("ttl_odm.batch_duration")
    assert {dict(labels)["phase"]: point.count for labels, point in batches.items()} == {
        "find": 1,
        "delete": 1,
        "commit": 1,
    }

    (span,) = collected.spans.get_finished_spans()
    assert (span.name, span.kind) == ("DELETE carts", SpanKind.CLIENT)
    assert span.attributes is not None
    assert span.attributes["db.system.name"] == "sqlite"
    assert span.attributes["db.collection.name"] == "carts"
    assert span.attributes["ttl_odm.rows_deleted"] == 10
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time > span.start_time


@pytest.mark.databases("sqlite")
def test_a_batch_that_fails_is_a_span_with_what_went_wrong(engine: Any) -> None:
    shop.fill(engine, expired=1)
    collected = Collected()

    def refuse(_: Purged) -> None:
        raise KeyError("outbox")

    telemetry = collected.telemetry
    sweeper = Sweeper(engine, [shop.Cart], on_progress=telemetry.on_progress, on_purged=refuse)
    telemetry.on_report(sweeper.run_once())

    (span,) = collected.spans.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["error.type"] == "KeyError"
    assert span.attributes["ttl_odm.rows_deleted"] == 0
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description is not None
    assert "outbox" in span.status.description
    assert collected.values("ttl_odm.batch_duration") == {}


def test_each_try_of_a_batch_that_the_database_refuses_is_a_span() -> None:
    store = InMemoryStore()
    store.create("carts", 10)
    store.put("carts", 1, age=20)
    troubles: list[Exception] = [TransientStoreError("locked"), TransientStoreError("deadlock")]

    def trouble() -> None:
        if troubles:
            raise troubles.pop(0) from TimeoutError("1 s")

    store.between = trouble
    collected = Collected()
    sweeper = Sweeper(store, on_progress=collected.telemetry.on_progress)
    assert sweeper.run_once().deleted == 1
    spans = collected.spans.get_finished_spans()
    assert [each.status.description for each in spans] == ["locked", "deadlock", None]
    failed = [(each.attributes or {}).get("error.type") for each in spans]
    assert failed == ["TimeoutError", "TimeoutError", None]


def test_what_is_not_known_any_more_is_absent() -> None:
    collected = Collected()
    collected.telemetry.on_report(SweepReport([TargetReport("carts", oldest_after=5.0)]))
    assert collected.value("ttl_odm.oldest_expired_age", table="carts") == 5
    failed = TargetReport("carts", error=StoreError("no"))
    collected.telemetry.on_report(SweepReport([failed]))
    assert collected.value("ttl_odm.oldest_expired_age", table="carts") is None
    assert collected.value("ttl_odm.target_failing", table="carts") == 1
    assert collected.value("ttl_odm.runs", outcome="failed") == 1


def test_partitions_are_counted_where_a_table_has_any() -> None:
    collected = Collected()
    counted = PartitionsCounted(9, over=3, missing=2, dead=1)
    targets = [TargetReport("logs", facts=partitions(counted)), TargetReport("carts")]
    collected.telemetry.on_report(SweepReport(targets))
    names = ("partitions", "partitions_over", "partitions_missing", "partitions_dead")
    values = {name: collected.value(f"ttl_odm.{name}", table="logs") for name in names}
    assert tuple(values.values()) == (9, 3, 2, 1)
    assert collected.value("ttl_odm.partitions", table="carts") is None


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_the_server_that_answers_is_an_attribute(engine: Any) -> None:
    shop.fill(engine)
    collected = Collected()
    telemetry = collected.telemetry
    Sweeper(engine, [shop.Cart], on_server=telemetry.on_server).run_once()
    (attributes,) = map(dict, collected.values("ttl_odm.server_info"))
    assert attributes["server"].endswith(f":{engine.url.port}")
    assert attributes["writable"] == "true"
    telemetry.on_server(Server("db2:5432", takes_writes=False))
    assert len(collected.values("ttl_odm.server_info")) == 1
    assert collected.value("ttl_odm.server_info", server="db2:5432", writable="false") == 1


def test_without_an_sdk_nothing_is_collected_and_nothing_fails() -> None:
    telemetry = SweeperTelemetry("sqlite")
    telemetry.on_report(SweepReport([TargetReport("carts", oldest_after=5.0)]))
