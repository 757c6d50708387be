"""The metrics of prometheus-client, filled by real sweeps and by reports."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry

from tests.cli import shop
from tests.cli.running import CliRunner, command, variables
from tests.guard import GUARD
from ttl_odm.cli.commands import cli
from ttl_odm.metrics.prometheus import SweeperMetrics
from ttl_odm.partitions.facts import partitions
from ttl_odm.stored.scopes import deleted_by_scope, due_by_scope
from ttl_odm.sweeper import (
    Ending,
    Fact,
    FuseError,
    PartitionsCounted,
    Server,
    Skip,
    StoreError,
    Sweeper,
    SweepReport,
    TargetReport,
)

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

sqlite = pytest.mark.databases("sqlite")


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, {"backend": "sqlite", **labels})


@sqlite
def test_a_sweep_is_counted(engine: Engine, registry: CollectorRegistry) -> None:
    shop.fill(engine)
    metrics = SweeperMetrics("sqlite", registry)
    sweeper = Sweeper(
        engine, shop.Base, on_progress=metrics.on_progress, batch_size=50, max_fraction=1
    )
    metrics.on_report(sweeper.run_once())
    metrics.on_report(sweeper.run_once())

    assert value(registry, "ttl_odm_rows_deleted_total", table="carts") == 10
    assert value(registry, "ttl_odm_runs_total", outcome="finished") == 2
    assert value(registry, "ttl_odm_run_duration_seconds_count") == 2
    batches = "ttl_odm_batch_duration_seconds"
    for phase in ("find", "delete", "commit"):
        labels = {"table": "carts", "phase": phase}
        assert value(registry, f"{batches}_count", **labels) == 1
        assert (value(registry, f"{batches}_sum", **labels) or 0) > 0
    assert value(registry, f"{batches}_count", table="carts", phase="hook") is None
    assert value(registry, "ttl_odm_oldest_expired_age_seconds", table="carts") == 0
    assert value(registry, "ttl_odm_target_failing", table="carts") == 0
    assert value(registry, "ttl_odm_leader") == 1
    assert (value(registry, "ttl_odm_last_success_timestamp_seconds") or 0) > 1.7e9


def test_what_was_left_failed_and_waited_for_is_counted(registry: CollectorRegistry) -> None:
    metrics = SweeperMetrics("sqlite", registry)
    target = TargetReport(
        "carts", skips={Skip.LOCKED: 3}, due=10, deleted=4, oldest_before=9.0, oldest_after=8.0
    )
    waited = {"rest": 1.0, "replica 7 lags": 2.0, "replica 8 lags": 3.0}
    metrics.on_report(SweepReport([target], waited=waited))
    assert value(registry, "ttl_odm_rows_skipped_total", table="carts", reason="locked") == 3
    assert value(registry, "ttl_odm_expired_rows", table="carts") == 6
    assert value(registry, "ttl_odm_oldest_expired_age_seconds", table="carts") == 8
    assert value(registry, "ttl_odm_throttle_seconds_total", reason="throttle") == 5

    blown = FuseError("no", target="carts", due=10, allowed=1)
    metrics.on_report(SweepReport([TargetReport("carts", error=blown)]))
    assert value(registry, "ttl_odm_runs_total", outcome="failed") == 1
    assert value(registry, "ttl_odm_target_failing", table="carts") == 1
    # What isn't known any more is absent.
    assert value(registry, "ttl_odm_oldest_expired_age_seconds", table="carts") is None


def test_partitions_are_counted_where_a_table_has_any(registry: CollectorRegistry) -> None:
    metrics = SweeperMetrics("sqlite", registry)
    counted = PartitionsCounted(9, over=3, missing=2, dead=1)
    metrics.on_report(
        SweepReport([TargetReport("logs", facts=partitions(counted)), TargetReport("a")])
    )
    names = ("partitions", "partitions_over", "partitions_missing", "partitions_dead")
    for name, number in zip(names, (9, 3, 2, 1), strict=True):
        assert value(registry, f"ttl_odm_{name}", table="logs") == number
        assert value(registry, f"ttl_odm_{name}", table="a") is None
    metrics.on_report(SweepReport([TargetReport("logs", error=StoreError("no"))]))
    assert value(registry, "ttl_odm_partitions_dead", table="logs") is None


def test_standing_by_is_neither_a_success_nor_a_run(registry: CollectorRegistry) -> None:
    metrics = SweeperMetrics("sqlite", registry)
    metrics.on_report(SweepReport(ended=Ending.LEASE_HELD, holder="x"))
    assert value(registry, "ttl_odm_leader") == 0
    assert value(registry, "ttl_odm_last_success_timestamp_seconds") is None
    assert value(registry, "ttl_odm_run_duration_seconds_count") is None


@pytest.mark.every_server
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_the_server_that_answers_is_named(engine: Engine, registry: CollectorRegistry) -> None:
    def servers() -> list[tuple[str, str, float]]:
        return [
            (sample.labels["server"], sample.labels["writable"], sample.value)
            for metric in registry.collect()
            for sample in metric.samples
            if sample.name == "ttl_odm_server_info"
        ]

    shop.fill(engine)
    metrics = SweeperMetrics("sqlite", registry)
    sweeper = Sweeper(engine, shop.Base, on_server=metrics.on_server)
    sweeper.run_once()
    sweeper.run_once()
    ((server, *_),) = servers()
    assert servers() == [(server, "true", 1)]
    assert server.endswith(f":{engine.url.port}")
    # After a failover there is the other one, and no more of the first.
    metrics.on_server(Server("db2:5432", takes_writes=False))
    assert servers() == [("db2:5432", "false", 1)]
    metrics.on_server(Server(None, takes_writes=True))  # behind a local socket
    assert servers() == [("", "true", 1)]


@pytest.mark.slow
@sqlite
def test_run_serves_them(engine: Engine) -> None:
    shop.fill(engine)
    url = engine.url.render_as_string(hide_password=False)
    app = ["--app", "tests.cli.shop:Base", "--url", url]
    with subprocess.Popen(
        command("run", *app, "--json", "--metrics-port", "0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        served = process.stderr.readline()
        assert json.loads(process.stdout.readline())["deleted"] == 20
        found = re.search(r"http://\S+", served)
        assert found, served
        with urlopen(found[0], timeout=GUARD) as reply:  # noqa: S310 (our own)
            content = reply.read().decode()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=GUARD)
    assert process.returncode == 0
    assert 'ttl_odm_rows_deleted_total{backend="sqlite",table="carts"} 10.0' in content
    assert "ttl_odm_leader" in content


@sqlite
def test_a_port_that_is_taken_is_told(engine: Engine) -> None:
    shop.fill(engine)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        url = engine.url.render_as_string(hide_password=False)
        options = ["--metrics-port", port, "--metrics-host", "127.0.0.1"]
        app = ["--app", "tests.cli.shop:Base", "--url", url]
        finished = CliRunner().invoke(cli, ["run", *app, *options])
    assert finished.exit_code == 2
    assert f"--metrics-port {port}" in finished.stderr


def test_scopes_have_labels_but_never_more_than_a_few(registry: CollectorRegistry) -> None:
    metrics = SweeperMetrics("sqlite", registry)

    def sweep(deleted: int, due: int | None, *facts: dict[str, Fact]) -> None:
        known = {name: fact for some in facts for name, fact in some.items()}
        target = TargetReport("messages", deleted=deleted, due=due, facts=known)
        metrics.on_report(SweepReport((target, TargetReport("carts", deleted=1))))

    def scope(name: str, number: str = "rows_deleted_total") -> float | None:
        return value(registry, f"ttl_odm_scope_{number}", table="messages", scope=name)

    sweep(1, 1, due_by_scope({}), deleted_by_scope({}))
    assert scope("") is None
    sweep(9, 20, due_by_scope({"acme": 15, "": 5}), deleted_by_scope({"acme": 7, "": 2}))
    assert (scope("acme"), scope("")) == (7, 2)
    assert (scope("acme", "expired_rows"), scope("", "expired_rows")) == (8, 3)
    many = {f"t{number}": 2 for number in range(30)}
    sweep(60, None, deleted_by_scope(many))
    assert (scope("acme"), scope("t18"), scope("t19"), scope("")) == (7, 2, None, 2 + 22)
    assert scope("acme", "expired_rows") is None
    series = [sample for metric in registry.collect() for sample in metric.samples]
    names = {sample.labels.get("scope") for sample in series if "scope" in sample.labels}
    assert len(names) == 21


SEVERAL_PROCESSES = """
import os
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from ttl_odm.metrics.prometheus import SweeperMetrics
from ttl_odm.sweeper import StoreError, SweepReport, TargetReport

def scrape():
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    print(generate_latest(registry).decode())

metrics = SweeperMetrics("sqlite")
metrics.on_report(SweepReport((TargetReport("carts", oldest_after=7.0), TargetReport("codes"))))
failed = TargetReport("carts", error=StoreError("no"))
metrics.on_report(SweepReport((failed, TargetReport("codes"))))
scrape()
mark_process_dead(os.getpid())
scrape()
"""


@sqlite
def test_several_processes_that_share_a_folder_keep_no_number_that_is_over(tmp_path: Path) -> None:
    scraped = subprocess.run(
        [sys.executable, "-W", "error", "-c", SEVERAL_PROCESSES],
        env=variables(PROMETHEUS_MULTIPROC_DIR=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=True,
    ).stdout
    while_alive, afterwards = scraped.split("\n\n", 1)
    oldest = r"ttl_odm_oldest_expired_age_seconds{.*carts.*} (.*)"
    assert re.findall(oldest, while_alive) == ["NaN"]
    assert re.search(r"ttl_odm_leader{.*} 1.0", while_alive)
    assert "ttl_odm_leader{" not in afterwards
    assert "ttl_odm_runs_total{" in afterwards
