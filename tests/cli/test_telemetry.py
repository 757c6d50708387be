"""`--otel`: what a command reports to OpenTelemetry, and what it says where that can't be."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry

from tests.cli import shop
from tests.cli.running import CliRunner, complaints, run
from ttl_odm.cli.commands import cli
from ttl_odm.cli.telemetry import Listeners
from ttl_odm.metrics.prometheus import SweeperMetrics
from ttl_odm.sweeper import Server

if TYPE_CHECKING:
    from sqlalchemy import Engine

pytestmark = pytest.mark.databases("sqlite")
CONSOLE = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"}


@pytest.fixture
def app(engine: Engine) -> list[str]:
    shop.fill(engine)
    url = engine.url.render_as_string(hide_password=False)
    return ["--app", "tests.cli.shop:Base", "--url", url]


def test_sweeps_ask_which_server_answers_if_metrics_want_to_know() -> None:
    metrics = SweeperMetrics("postgresql", registry := CollectorRegistry())
    assert Listeners([], on_report=print).on_server is None
    tell = Listeners([metrics]).on_server
    assert tell is not None
    tell(Server("db1:5432", takes_writes=True))
    labels = {"backend": "postgresql", "server": "db1:5432", "writable": "true"}
    assert registry.get_sample_value("ttl_odm_server_info", labels) == 1


@pytest.mark.slow
def test_a_sweep_reports_metrics_and_spans_as_the_environment_says(app: list[str]) -> None:
    finished = run("sweep", *app, "--otel", OTEL_LOGS_EXPORTER="none", **CONSOLE)
    assert (finished.returncode, complaints(finished)) == (0, "")
    assert '"name": "DELETE carts"' in finished.stdout
    assert '"name": "ttl_odm.rows_deleted"' in finished.stdout
    assert '"name": "ttl_odm.runs"' in finished.stdout
    assert '"service.name": "ttl-odm"' in finished.stdout


@pytest.mark.slow
def test_an_exporter_that_is_not_there_is_told_in_a_line(app: list[str]) -> None:
    finished = run("sweep", *app, "--otel", OTEL_TRACES_EXPORTER="pigeon")
    assert finished.returncode == 2
    assert "--otel: OpenTelemetry says: Requested component 'pigeon' not found" in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize("package", ["opentelemetry.metrics", "opentelemetry.distro"])
def test_without_the_packages_it_is_told_what_to_install(
    app: list[str], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    finished = CliRunner().invoke(cli, ["sweep", *app, "--otel"])
    assert finished.exit_code == 2
    assert "pip install 'ttl-odm[metrics]' opentelemetry-distro" in finished.stderr
