"""A sweep that is counted in both."""

from prometheus_client import CollectorRegistry, generate_latest

from ttl_odm.metrics.opentelemetry import SweeperTelemetry
from ttl_odm.metrics.prometheus import SweeperMetrics
from ttl_odm.sweeper import Sweeper
from ttl_odm.testing import InMemoryStore

registry = CollectorRegistry()
metrics = SweeperMetrics("memory", registry)
telemetry = SweeperTelemetry("memory")


def told(report: object) -> None:
    metrics.on_report(report)
    telemetry.on_report(report)


Sweeper(InMemoryStore(), on_report=told).run_once()
assert b"ttl_odm_runs_total" in generate_latest(registry)
