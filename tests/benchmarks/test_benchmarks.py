"""Every benchmark still runs, on sizes that say nothing of its figures, and the report is right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="benchmarks run with the newest versions only")

from benchmarks.__main__ import PARTS
from benchmarks.findings import Finding, Goal, ratio
from benchmarks.goals import BY_HAND, GOALS, IDLE_TIME, SPEED
from benchmarks.harness import Estimate, estimate
from benchmarks.report import Part, Report

ROOT = Path(__file__).parents[2]

# Each benchmark once: what is done for one database only is done there.
ON = [
    pytest.param("sqlite", "sql_overhead", marks=pytest.mark.databases("sqlite")),
    pytest.param("sqlite", "rivals", marks=pytest.mark.databases("sqlite")),
    pytest.param("sqlite", "migrations", marks=pytest.mark.databases("sqlite")),
    pytest.param("sqlite", "importing", marks=pytest.mark.databases("sqlite")),
    pytest.param("postgres", "sweeping", marks=pytest.mark.databases("postgres")),
    pytest.param("mariadb", "django_overhead", marks=pytest.mark.databases("mariadb", "mysql")),
    pytest.param("mongodb", "beanie_overhead", marks=pytest.mark.databases("mongodb")),
    pytest.param("mongodb", "mongo_sweeping", marks=pytest.mark.databases("mongodb")),
]


def test_each_benchmark_is_run_by_these_tests() -> None:
    assert sorted(str(each.values[1]) for each in ON) == sorted(PARTS)


@pytest.mark.parametrize(("database", "name"), ON)
def test_a_benchmark_runs_and_makes_a_report(database: str, name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "benchmarks", "--smoke"]
    finished = subprocess.run(
        [*command, "--only", database, "--run", name, "--output", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    (part,) = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["parts"]
    assert part["name"] == name
    assert part["findings"]
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    for goal in GOALS:
        assert goal.what in text
    for found in part["findings"]:
        assert f"| {found['what']} |" in text
    assert (tmp_path / "report.svg").stat().st_size > 0


def judged(value: float, low: float, high: float, goal: Goal) -> str | None:
    """The verdict on a figure with this spread."""
    found = Finding("S", "w", "SQLite", goal.unit, Estimate(value, low, high), goal=goal)
    return found.verdict


def test_a_figure_is_judged_as_it_is_shown_and_unclear_where_its_spread_reaches_the_goal() -> None:
    assert judged(1.004, 1.0, 1.1, BY_HAND) == "met"
    assert judged(1.01, 1.0, 1.1, BY_HAND) == "unclear"
    assert judged(1.02, 1.01, 1.1, BY_HAND) == "missed"
    assert judged(0.6, 0.4, 0.7, SPEED) == "met"
    assert judged(0.4, 0.3, 0.5, SPEED) == "unclear"
    assert judged(0.4, 0.3, 0.45, SPEED) == "missed"


def test_a_ratio_is_the_median_of_the_sittings_medians() -> None:
    sittings = [[{"a": 2.0, "b": 1.0}] * 3, [{"a": 3.0, "b": 1.0}] * 3, [{"a": 9.0, "b": 1.0}] * 3]
    found = ratio("S", "w", "SQLite", sittings, "a", "b")
    assert found.estimate == Estimate(3.0, 2.0, 9.0)
    assert found.times == (3e6, 1e6)
    assert found.text == "3.00 (2.00..9.00)"


def test_from_six_sittings_on_the_interval_holds_the_median_at_95_percent() -> None:
    sittings = [[{"a": float(value)}] for value in range(9)]
    assert estimate(sittings, lambda each: each["a"]) == Estimate(4.0, 1.0, 7.0)


def part(name: str, value: float) -> Part:
    """A part with one figure."""
    found = Finding("S", "w", "SQLite", "ms", Estimate(value, value, value), goal=IDLE_TIME)
    return Part(name, "2026-01-01 00:00", 1.0, 0.5, "smoke", ["Linux"], [found])


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    report = Report([part("rivals", 4.0)], ["mariadb: not measured"])
    report.write(tmp_path)
    assert Report.read(tmp_path) == report
    assert Report.read(tmp_path / "elsewhere") == Report([])


def test_measuring_one_benchmark_anew_keeps_the_others_in_their_order() -> None:
    report = Report([part("rivals", 4.0), part("gone", 1.0), part("importing", 1.0)])
    found = report.with_part(part("rivals", 6.0), PARTS).with_part(part("sweeping", 1.0), PARTS)
    assert [each.name for each in found.parts] == ["rivals", "sweeping", "importing"]
    assert "| 1.0..6.0 ms, **2 of 3 met** |" in "\n".join(found.goals())
