"""Who is told of batches and sweeps besides the person in front: ``--metrics-port``, ``--otel``."""

from __future__ import annotations

import importlib.util
import logging
import os
from typing import TYPE_CHECKING, Any

from ttl_odm.cli.problems import UsageProblem, in_one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ttl_odm.sweeper import Progress, SweepReport


class Watchers:
    """Tells several who want to know what a sweeper does.

    Args:
        each: Objects with `on_progress` and `on_report`, such as `SweeperMetrics`.
        on_progress: Another one to tell of batches.
        on_report: Another one to tell of sweeps.
    """

    def __init__(
        self,
        each: Sequence[Any],
        *,
        on_progress: Callable[[Progress], object] | None = None,
        on_report: Callable[[SweepReport], object] | None = None,
    ) -> None:
        self._of_batches = [one.on_progress for one in each] + [on_progress] * bool(on_progress)
        self._of_sweeps = [one.on_report for one in each] + [on_report] * bool(on_report)

    def on_progress(self, progress: Progress) -> None:
        """Tell of a batch."""
        for tell in self._of_batches:
            tell(progress)

    def on_report(self, report: SweepReport) -> None:
        """Tell of a sweep."""
        for tell in self._of_sweeps:
            tell(report)


def served(backend: str, host: str, port: int) -> Any:
    """Serve metrics for Prometheus, and return what fills them.

    Raises:
        UsageProblem: prometheus-client isn't installed, or the port can't be had.
    """
    if importlib.util.find_spec("prometheus_client") is None:
        raise UsageProblem(
            "--metrics-port needs prometheus-client: pip install 'ttl-odm[metrics]'."
        )
    from prometheus_client import start_http_server  # noqa: PLC0415 (needs the extra)

    from ttl_odm.metrics.prometheus import SweeperMetrics  # noqa: PLC0415

    try:
        server, _ = start_http_server(port, host)
    except OSError as error:
        raise UsageProblem(
            f"--metrics-port {port} on {host}: {error.strerror or error}."
        ) from error
    logging.getLogger("ttl_odm.cli").info("Metrics: http://%s:%s/metrics", host, server.server_port)
    return SweeperMetrics(backend)


def traced(backend: str) -> Any:
    """Set OpenTelemetry up, unless that was done, and return what reports to it.

    It was done where ``opentelemetry-instrument`` has started us, or in the application's own
    module. Otherwise it is done as by that program: by the distribution that is installed, from the
    variables ``OTEL_*``.

    Raises:
        UsageProblem: There is none, or it can't do what the variables say.
    """
    needed = ("opentelemetry.metrics", "opentelemetry.distro")
    if not all(_is_there(name) for name in needed):
        raise UsageProblem(
            "--otel needs OpenTelemetry: pip install 'ttl-odm[metrics]' opentelemetry-distro, and "
            "an exporter such as opentelemetry-exporter-otlp; OTEL_* variables say where to."
        )
    from opentelemetry.instrumentation.auto_instrumentation import (  # noqa: PLC0415 (see above)
        initialize,
    )
    from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider  # noqa: PLC0415

    from ttl_odm.metrics.opentelemetry import SweeperTelemetry  # noqa: PLC0415

    if isinstance(get_tracer_provider(), ProxyTracerProvider):
        if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
            os.environ.setdefault("OTEL_SERVICE_NAME", "ttl-odm")
        logging.disable(logging.ERROR)  # its traceback of what is told below
        try:
            initialize(swallow_exceptions=False)
        except Exception as error:
            raise UsageProblem(f"--otel: OpenTelemetry says: {in_one_line(error)}.") from error
        finally:
            logging.disable(logging.NOTSET)
    return SweeperTelemetry(backend)


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of a package around it
        return False
