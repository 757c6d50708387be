"""`--otel`: what a command reports to OpenTelemetry, and what it says where that can't be."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli import shop
from tests.cli.running import CliRunner, run
from ttl_odm.cli.commands import cli

if TYPE_CHECKING:
    from sqlalchemy import Engine

pytestmark = pytest.mark.databases("sqlite")
CONSOLE = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"}


@pytest.fixture
def app(engine: Engine) -> list[str]:
    shop.fill(engine)
    url = engine.url.render_as_string(hide_password=False)
    return ["--app", "tests.cli.shop:Base", "--url", url]


@pytest.mark.slow
def test_a_sweep_reports_metrics_and_spans_as_the_environment_says(app: list[str]) -> None:
    finished = run("sweep", *app, "--otel", OTEL_LOGS_EXPORTER="none", **CONSOLE)
    assert (finished.returncode, finished.stderr) == (0, "")
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
