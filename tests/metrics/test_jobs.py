"""Metrics of the jobs by which databases sweep by themselves, read when somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry
from sqlalchemy import text

import ttl_odm.alembic
from tests.cli import shop
from ttl_odm.metrics.opentelemetry import JobTelemetry
from ttl_odm.metrics.prometheus import JobMetrics
from ttl_odm.sqlalchemy import database_jobs
from ttl_odm.sweeper import JobState

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

assert ttl_odm.alembic

STATES = {
    "carts": JobState("carts_ttl_sweep", "60", "there", 2.5, 10, 30, "swept"),
    "visits": JobState("visits_ttl_sweep", "60", "gone"),
}


def by_prometheus(read: Callable[[], Any]) -> dict[tuple[str, str], float]:
    registry = CollectorRegistry()
    JobMetrics("postgresql", read, registry)
    return {
        (sample.name.removeprefix("ttl_odm_database_sweep_"), sample.labels["table"]): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.labels["backend"] == "postgresql"
    }


def test_prometheus_reads_them_at_each_scrape() -> None:
    states = dict(STATES)
    assert by_prometheus(lambda: states) == {
        ("rows_deleted_total", "carts"): 30,
        ("age_seconds", "carts"): 2.5,
        ("failing", "carts"): 0,
        ("rows_deleted_total", "visits"): 0,
        ("failing", "visits"): 1,
    }


def test_opentelemetry_reads_them_at_each_collection() -> None:
    reader = InMemoryMetricReader()
    JobTelemetry("mariadb", lambda: STATES, meter_provider=MeterProvider([reader]))
    data: Any = reader.get_metrics_data()
    found = {
        (metric.name, point.attributes["table"]): point.value
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
        if point.attributes["backend"] == "mariadb"
    }
    assert found == {
        ("ttl_odm.database_sweep_rows_deleted", "carts"): 30,
        ("ttl_odm.database_sweep_age", "carts"): 2.5,
        ("ttl_odm.database_sweep_failing", "carts"): 0,
        ("ttl_odm.database_sweep_rows_deleted", "visits"): 0,
        ("ttl_odm.database_sweep_failing", "visits"): 1,
    }


def test_no_job_is_read_when_the_metrics_are_made() -> None:
    def fail() -> Any:
        raise AssertionError

    registry = CollectorRegistry()
    JobMetrics("postgresql", fail, registry)
    JobTelemetry("postgresql", fail, meter_provider=MeterProvider([InMemoryMetricReader()]))


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_what_a_job_has_done_is_read_from_the_database(engine: Engine) -> None:
    shop.fill(engine)
    assert database_jobs(engine, shop.Base) == {}
    is_postgresql = engine.dialect.name == "postgresql"
    with engine.connect() as connection:
        if not is_postgresql:
            before = connection.scalar(text("SELECT @@event_scheduler"))
            connection.execute(text("SET GLOBAL event_scheduler = ON"))
            connection.rollback()
        operations = Operations(MigrationContext.configure(connection))
        operations.alter_ttl("carts", 86_400, sweep="database")  # type: ignore[attr-defined]
        if not is_postgresql:
            connection.execute(text(f"SET GLOBAL event_scheduler = {before}"))
            connection.execute(text("DROP EVENT carts_ttl_sweep"))
        connection.commit()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if not is_postgresql:  # after a run that the EVENT may have begun
            name = "CONCAT('ttl_odm.', LEFT(SHA2(CONCAT(DATABASE(), '.carts'), 256), 48))"
            connection.scalar(text(f"SELECT GET_LOCK({name}, 120)"))
        connection.execute(text("CALL carts_ttl_sweep()"))
    found = by_prometheus(lambda: database_jobs(engine, shop.Base))
    assert found["rows_deleted_total", "carts"] == 10
    assert found["age_seconds", "carts"] >= 0
    assert found["failing", "carts"] == (not is_postgresql)  # the EVENT is gone
