"""Metrics and spans of sweeps: ``--metrics-port`` and ``--otel``."""

from __future__ import annotations

import importlib.util
import logging
import os
from typing import TYPE_CHECKING, Protocol

from ttl_odm.cli.errors import UsageError, in_one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ttl_odm.sweeper import Progress, Server, SweepReport


class Metrics(Protocol):
    """Metrics of a sweeper, such as `ttl_odm.metrics.prometheus.SweeperMetrics`."""

    def on_progress(self, progress: Progress) -> None:
        """Count a batch."""

    def on_report(self, report: SweepReport) -> None:
        """Count a sweep."""

    def on_server(self, server: Server) -> None:
        """Note which server answers."""


class Listeners:
    """Passes a sweeper's events on to metrics, and to a listener for batches and one for sweeps."""

    def __init__(
        self,
        metrics: Sequence[Metrics],
        *,
        on_progress: Callable[[Progress], object] | None = None,
        on_report: Callable[[SweepReport], object] | None = None,
    ) -> None:
        self._of_batches = [*(metric.on_progress for metric in metrics), on_progress]
        self._of_sweeps = [*(metric.on_report for metric in metrics), on_report]
        self._of_servers = [metric.on_server for metric in metrics]

    def on_progress(self, progress: Progress) -> None:
        """Pass a batch on."""
        for listener in filter(None, self._of_batches):
            listener(progress)

    def on_report(self, report: SweepReport) -> None:
        """Pass a sweep on."""
        for listener in filter(None, self._of_sweeps):
            listener(report)

    @property
    def on_server(self) -> Callable[[Server], None] | None:
        """The callback for servers; None without metrics, so that sweeps don't ask the server."""
        listeners = self._of_servers
        if not listeners:
            return None

        def pass_on(server: Server) -> None:
            for listener in listeners:
                listener(server)

        return pass_on


def prometheus(backend: str, host: str, port: int) -> Metrics:
    """Serve metrics for Prometheus, and return them."""
    if importlib.util.find_spec("prometheus_client") is None:
        raise UsageError("--metrics-port needs prometheus-client: pip install 'ttl-odm[metrics]'.")
    from prometheus_client import start_http_server  # noqa: PLC0415 (needs the extra)

    from ttl_odm.metrics.prometheus import SweeperMetrics  # noqa: PLC0415

    try:
        server, _ = start_http_server(port, host)
    except OSError as error:
        raise UsageError(f"--metrics-port {port} on {host}: {error.strerror or error}.") from error
    logging.getLogger("ttl_odm.cli").info("Metrics: http://%s:%s/metrics", host, server.server_port)
    return SweeperMetrics(backend)


def opentelemetry(backend: str) -> Metrics:
    """Set OpenTelemetry up, unless it is set up already, and return metrics that report to it.

    ``opentelemetry-instrument`` or the application's module may have set it up. Otherwise it is
    set up as that program does: by the installed distribution, from the variables ``OTEL_*``.
    """
    try:
        modules = [
            importlib.util.find_spec(name)
            for name in ("opentelemetry.metrics", "opentelemetry.distro")
        ]
    except ModuleNotFoundError:  # the parent package
        modules = [None]
    if None in modules:
        raise UsageError(
            "--otel needs OpenTelemetry: pip install 'ttl-odm[metrics]' opentelemetry-distro, and "
            "an exporter such as opentelemetry-exporter-otlp, configured by OTEL_* variables."
        )
    from opentelemetry.instrumentation.auto_instrumentation import (  # noqa: PLC0415 (see above)
        initialize,
    )
    from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider  # noqa: PLC0415

    from ttl_odm.metrics.opentelemetry import SweeperTelemetry  # noqa: PLC0415

    if isinstance(get_tracer_provider(), ProxyTracerProvider):
        if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
            os.environ.setdefault("OTEL_SERVICE_NAME", "ttl-odm")
        logging.disable(logging.ERROR)  # it would log the traceback of the error below
        try:
            initialize(swallow_exceptions=False)
        except Exception as error:
            raise UsageError(f"--otel: OpenTelemetry says: {in_one_line(error)}.") from error
        finally:
            logging.disable(logging.NOTSET)
    return SweeperTelemetry(backend)
