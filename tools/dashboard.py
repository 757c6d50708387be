"""Draw deploy/grafana-dashboard.json without Grafana: its panels over six hours of metrics.

A night of sweeps goes through `SweeperMetrics`; a real Prometheus stores what that exposes and
answers the panels' own queries. Titles, places, units and legends are the file's. So the picture
shows what the dashboard has, and not how Grafana styles it.
"""

from __future__ import annotations

import html
import json
import math
import random
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest import mock
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest

from ttl_odm.metrics.prometheus import SweeperMetrics
from ttl_odm.sweeper import Progress, Skip, SweepReport, TargetReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BOARD: Final = Path(__file__).resolve().parents[1] / "deploy" / "grafana-dashboard.json"
HOURS: Final = 6
STEP: Final = 120
"""Seconds between two points of a line."""

BEFORE: Final = 70
"""Minutes of metrics before the first point, for `rate(...[1h])`."""

AGO: Final = 21
"""Seconds from the end of a sweep until Prometheus reads its metrics."""

ROWS: Final = 30
"""How many rows of the dashboard's grid are drawn; below are partitions, tenants and events."""

# Of the drawing, in pixels: a cell of the grid, and the room around a plot.
COLUMN, ROW, GAP = 48, 25, 8
LEFT, TOP, BELOW = 86, 34, 40
LINES: Final = ("a", "b", "c", "d", "e", "f")
"""Classes of the colors of lines."""

_STYLE: Final = """\
text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 13px } .stat { font-size: 34px; font-weight: 600 }
.quiet { fill: #57606a } .board { fill: #f6f8fa }
.panel { fill: #ffffff; stroke: #d0d7de } .grid { stroke: #d8dee4 }
polyline { fill: none; stroke-width: 1.6 }
.a { stroke: #0969da } .b { stroke: #bc4c00 } .c { stroke: #1a7f37 } .d { stroke: #8250df }
.e { stroke: #bf3989 } .f { stroke: #9a6700 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .quiet { fill: #9198a1 } .board { fill: #0d1117 }
.panel { fill: #161b22; stroke: #30363d } .grid { stroke: #30363d }
.a { stroke: #58a6ff } .b { stroke: #f0883e } .c { stroke: #3fb950 } .d { stroke: #bc8cff }
.e { stroke: #ff7eb6 } .f { stroke: #d29922 }
}
"""


class Line(NamedTuple):
    """The answer to a query: a legend, and its points as (seconds since 1970, value)."""

    legend: str
    points: list[tuple[float, float]]


def dashboard(promtool: str) -> str:
    """Draw the dashboard.

    Args:
        promtool: The path of promtool; Prometheus itself is beside it.
    """
    end = int(time.time()) // STEP * STEP
    with (
        tempfile.TemporaryDirectory(prefix="ttl-odm-dashboard-") as folder,
        _prometheus(Path(promtool), Path(folder), _history(end)) as address,
    ):
        panels = [
            panel
            for panel in json.loads(BOARD.read_text(encoding="utf-8"))["panels"]
            if panel["gridPos"]["y"] < ROWS
        ]
        drawn = "".join(_panel(panel, _answers(address, panel, end), end) for panel in panels)
    width, height = 24 * COLUMN + GAP, ROWS * ROW + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">\n<style>\n{_STYLE}</style>\n'
        f'<rect class="board" width="{width}" height="{height}"/>\n{drawn}</svg>\n'
    )


# --- the metrics


def _history(end: int) -> str:
    """Return what a sweeper exposed at each minute, with two tables and a busy hour."""
    chance = random.Random(1)
    registry = CollectorRegistry()
    metrics = SweeperMetrics("postgresql", registry)
    lines: list[str] = []
    for minute in range(-BEFORE, HOURS * 60 + 1):
        at = end - (HOURS * 60 - minute) * 60
        with mock.patch.object(time, "time", lambda at=at: at - AGO):
            _sweep(metrics, minute, chance)
        exposed = generate_latest(registry).decode()  # type: ignore[no-untyped-call]
        lines += [f"{line} {at}" for line in exposed.splitlines() if not line.startswith("#")]
    return "\n".join([*lines, "# EOF\n"])


def _sweep(metrics: SweeperMetrics, minute: int, chance: random.Random) -> None:
    busy = math.exp(-(((minute - 215) / 35) ** 2))
    targets, spent = [], 0.0
    for table, usual in (("web_sessions", 2600), ("carts", 700)):
        rows = int(usual * (0.8 + 0.4 * chance.random() + 2.5 * busy))
        batches = rows // 500 + 1
        for batch in range(1, batches + 1):
            seconds = chance.uniform(0.03, 0.05) + 0.05 * busy
            phases: Any = {
                "find": seconds * 0.3,
                "delete": seconds * 0.6,
                "commit": seconds * 0.1,
            }
            deleted = rows // batches
            metrics.on_progress(
                Progress(table, deleted, deleted * batch, 500, seconds, phases=phases)
            )
            spent += seconds
        skips = {Skip.LOCKED: chance.randrange(3) + int(12 * busy)}
        oldest = chance.uniform(0, 3) + 50 * busy * (table == "web_sessions")
        targets.append(
            TargetReport(table, deleted=rows, skips=skips, batches=batches, oldest_after=oldest)
        )
    rest = spent * 3
    metrics.on_report(SweepReport(targets, duration=spent + rest, waited={"rest": rest}))


@contextmanager
def _prometheus(promtool: Path, folder: Path, history: str) -> Iterator[str]:
    """Let Prometheus have a history; give its address."""
    (folder / "history").write_text(history, encoding="utf-8")
    (folder / "prometheus.yml").write_text("{}", encoding="utf-8")
    words = ["tsdb", "create-blocks-from", "openmetrics", "history", "data"]
    subprocess.run([promtool, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                promtool.with_name("prometheus"),
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        while not _is_ready(address):
            if process.poll() is not None:
                raise SystemExit((folder / "log").read_text())
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def _is_ready(address: str) -> bool:
    try:
        urlopen(f"{address}/-/ready").close()  # noqa: S310 (ours)
    except (URLError, ConnectionError):
        return False
    return True


def _answers(address: str, panel: dict[str, Any], end: int) -> list[Line]:
    """Ask a panel's own queries."""
    lines = []
    for target in panel["targets"]:
        query = {"query": target["expr"], "start": end - HOURS * 3600, "end": end, "step": STEP}
        with urlopen(f"{address}/api/v1/query_range?{urlencode(query)}") as answer:  # noqa: S310
            series = json.load(answer)["data"]["result"]
        for one in series:
            legend = target["legendFormat"]
            for label, value in one["metric"].items():
                legend = legend.replace(f"{{{{{label}}}}}", value)
            points = [(at, float(value)) for at, value in one["values"]]
            lines.append(Line(legend, [point for point in points if math.isfinite(point[1])]))
    return sorted(lines)


# --- the drawing


def _panel(panel: dict[str, Any], lines: Sequence[Line], end: int) -> str:
    place = panel["gridPos"]
    x, y = place["x"] * COLUMN + GAP, place["y"] * ROW + GAP
    width, height = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
    unit = _UNITS[panel["fieldConfig"]["defaults"]["unit"]]
    draw = _plot if panel["type"] == "timeseries" else _stat
    return (
        f'<g transform="translate({x} {y})"><rect class="panel" width="{width}" '
        f'height="{height}" rx="3"/><text class="title" x="12" y="21">'
        f"{html.escape(panel['title'])}</text>{draw(lines, unit, width, height, end)}</g>\n"
    )


def _stat(
    lines: Sequence[Line], unit: Callable[[float], str], width: int, height: int, _end: int
) -> str:
    line = lines[0]
    return (
        f'<text class="stat" text-anchor="middle" x="{width / 2}" y="{height / 2 + 16}">'
        f'{unit(line.points[-1][1])}</text><text class="quiet" text-anchor="middle" '
        f'x="{width / 2}" y="{height - 12}">{html.escape(line.legend)}</text>'
    )


def _plot(
    lines: Sequence[Line], unit: Callable[[float], str], width: int, height: int, end: int
) -> str:
    top = _round(max((value for line in lines for _, value in line.points), default=0))
    right, bottom = width - 16, height - BELOW

    def across(at: float) -> float:
        return LEFT + (right - LEFT) * (at - end + HOURS * 3600) / (HOURS * 3600)

    def up(value: float) -> float:
        return bottom - (bottom - TOP) * value / top

    parts = [
        f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{up(value):.1f}" y2="{up(value):.1f}"/>'
        f'<text class="quiet" text-anchor="end" x="{LEFT - 6}" y="{up(value) + 4:.1f}">'
        f"{unit(value)}</text>"
        for value in (0, top / 2, top)
    ]
    for hours in range(0, HOURS + 1, 2):
        at = end - (HOURS - hours) * 3600
        anchor = {0: "start", HOURS: "end"}.get(hours, "middle")
        parts.append(
            f'<text class="quiet" text-anchor="{anchor}" x="{across(at):.1f}" y="{bottom + 16}">'
            f"{time.strftime('%H:%M', time.gmtime(at))}</text>"
        )
    where = 12.0
    for color, line in zip(LINES, lines, strict=False):
        points = " ".join(f"{across(at):.1f},{up(value):.1f}" for at, value in line.points)
        parts.append(
            f'<polyline class="{color}" points="{points}"/><line class="{color}" '
            f'stroke-width="3" x1="{where:g}" x2="{where + 12:g}" y1="{height - 13}" '
            f'y2="{height - 13}"/><text x="{where + 17:g}" y="{height - 9}">'
            f"{html.escape(line.legend)}</text>"
        )
        where += 30 + 7.1 * len(line.legend)
    return "".join(parts)


def _round(value: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= value)


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if 0 < value < 1 else f"{value:g} s"


_UNITS: Final[dict[str, Callable[[float], str]]] = {
    "s": _seconds,
    "rowsps": lambda value: f"{value:g} rows/s",
    "short": lambda value: f"{value:g}",
    "percentunit": lambda value: f"{value * 100:g} %",
}
