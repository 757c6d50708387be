"""Every benchmark still runs, on sizes that say nothing of its figures, and the report is right."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("matplotlib", reason="benchmarks run with the newest versions only")

from sqlalchemy import create_engine, event, text

from benchmarks import sql_counts, sql_groups
from benchmarks.__main__ import PARTS
from benchmarks.bench import SCALES, Bench
from benchmarks.costs import USES
from benchmarks.exponents import Curve, grown, steepest
from benchmarks.findings import Finding, Goal, Rival, ratio
from benchmarks.goal_rivals import RIVALS
from benchmarks.goals import (
    BY_HAND,
    EXTRA,
    GOALS,
    IDLE_TIME,
    LINEAR,
    ONE_ROW,
    ONE_ROW_POSTGRES,
    RENEWAL,
    SPEED,
    UNFILTERED,
)
from benchmarks.goals import delayed as delayed_goal
from benchmarks.harness import Estimate, estimate, sitting
from benchmarks.plot import draw_costs
from benchmarks.report import Part, Report
from benchmarks.sql_groups import GROUPS, Comparison
from benchmarks.sql_models import create_tables
from tests.backends import MYSQL_WANTED, VARIABLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

    from benchmarks.harness import Sample

pytestmark = [pytest.mark.slow, pytest.mark.in_turns]

ROOT = Path(__file__).parents[2]

# Each benchmark once, and on MySQL those with SQL of their own for it.
ON = {
    "sqlite": (
        "sql_overhead",
        "stored_defaults",
        "follows",
        "rivals",
        "migrations",
        "importing",
        "events",
        *("growth", "process_growth"),
    ),
    "postgres": (
        "counted_rows",
        "sweeping",
        "sweep_workers",
        "indexes",
        "partitions",
        *("database_sweep", "replication"),
        *("growth", "process_growth"),
    ),
    "mariadb": (
        *("django_overhead", "django_follows", "django_tenants"),
        *("database_sweep", "replication"),
    ),
    "mysql": (
        *("round_trip", "sweeping", "sweep_workers", "partitions", "migrations"),
        "replication",
    ),
    "mongodb": (
        "beanie_overhead",
        "beanie_follows",
        "beanie_stored",
        "mongo_sweeping",
        *("round_trip", "replication"),
        *("growth", "process_growth"),
    ),
}


def test_each_benchmark_is_run_by_these_tests() -> None:
    assert {name for names in ON.values() for name in names} == set(PARTS)


@pytest.mark.parametrize("name", ON["sqlite"])
def test_a_benchmark_runs_and_makes_a_report(name: str, tmp_path: Path) -> None:
    runs("sqlite", name, tmp_path)


@pytest.mark.parametrize("name", ON["postgres"])
def test_a_benchmark_runs_on_postgresql(name: str, postgres_url: str, tmp_path: Path) -> None:
    runs("postgres", name, tmp_path)


@pytest.mark.parametrize("name", ON["mariadb"])
def test_a_benchmark_runs_on_mariadb(name: str, mariadb_url: str, tmp_path: Path) -> None:
    runs("mariadb", name, tmp_path)


@pytest.mark.parametrize("name", ON["mysql"])
def test_a_benchmark_runs_on_mysql(name: str, mysql_url: str, tmp_path: Path) -> None:
    runs("mysql", name, tmp_path)


@pytest.mark.parametrize("name", ON["mongodb"])
def test_a_benchmark_runs_on_mongodb(name: str, mongodb_url: str, tmp_path: Path) -> None:
    runs("mongodb", name, tmp_path)


def runs(database: str, name: str, tmp_path: Path) -> None:
    """Run one benchmark on one database, and look at its report."""
    command = [sys.executable, "-W", "error", "-m", "benchmarks", "--smoke"]
    finished = subprocess.run(
        [*command, "--only", database, "--run", name, "--output", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert rivals_not_found(tmp_path, elsewhere=True) == []
    assert costs_not_found(tmp_path) == []
    (part,) = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["parts"]
    assert part["name"] == name
    assert part["findings"]
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    for goal in GOALS:
        assert goal.what in text
    for found in part["findings"]:
        assert f"| {found['what']} |" in text
    for picture in ("report.svg", "cost.svg"):
        assert (tmp_path / picture).stat().st_size > 0


def rivals_not_found(folder: Path, *, elsewhere: bool) -> list[str]:
    """The goals of which a report has figures, but none of the rival's.

    Args:
        folder: the report's.
        elsewhere: whether the rival's section may be in a part that isn't there.
    """
    findings = Report.read(folder).findings
    sections = {finding.section for finding in findings}
    missing = []
    for goal, rival in RIVALS.items():
        ours = [finding for finding in findings if finding.goal == goal]
        if elsewhere and rival.section not in sections:
            continue
        if ours and all(rival.figure(finding, findings) is None for finding in ours):
            missing.append(goal.what)
    return missing


def costs_not_found(folder: Path) -> list[str]:
    """What the page tells of costs, whose section a report has, but none of its lines."""
    findings = Report.read(folder).findings
    sections = {finding.section for finding in findings}
    return [
        cost.label
        for use in USES
        for cost in use.costs
        if cost.section in sections and not cost.figures(findings)
    ]


def test_each_rival_and_cost_stands_under_a_heading_that_a_benchmark_has() -> None:
    headings = {
        value
        for name in (*PARTS, "sql_bystanders", "sql_counts", "sql_groups", "exponents")
        for value in vars(import_module(f"benchmarks.{name}")).values()
        if isinstance(value, str)
    }
    assert {rival.section for rival in RIVALS.values()} - headings == set()
    assert {cost.section for use in USES for cost in use.costs} - headings == set()


def test_the_report_has_each_rival_of_what_it_has_measured() -> None:
    assert rivals_not_found(ROOT / "benchmarks", elsewhere=False) == []


def test_what_an_engine_asks_once_is_told_apart_from_the_extra_statements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, asked = f"sqlite:///{tmp_path / 'some.sqlite3'}", []
    engine = create_engine(url)
    create_tables(engine)
    engine.dispose()

    def read(*, extra: bool) -> sql_counts.Change:
        def prepare(session: Session) -> Callable[[], object]:
            def run() -> None:
                if extra and not asked:
                    asked.append(session.execute(text("SELECT 1")))
                session.execute(text("SELECT 2"))

            return run

        return prepare

    case = sql_counts.Case(
        sql_counts.ANYTHING, "case", EXTRA, gated=read(extra=True), plain=read(extra=False)
    )
    other = case._replace(section=sql_counts.INSERTS, gated=read(extra=False))
    monkeypatch.setattr(sql_counts, "_cases", lambda: [case, other])
    found = {
        (each.section, each.what): each.estimate.value
        for each in sql_counts.count_statements("SQLite", url)
    }
    assert found[sql_counts.ANYTHING, "case"] == 0
    assert found[sql_counts.ANYTHING, "the first time, once per engine and table"] == 1
    assert found[sql_counts.INSERTS, "the first time, once per engine and table"] == 0


def test_an_operation_of_hundreds_of_statements_takes_fewer_turns() -> None:
    def sample(seconds: float) -> Sample:
        return lambda count: seconds * count

    assert len(sitting({"quick": sample(0.001), "slow": sample(0.1)}, 40)) == 10
    assert len(sitting({"quick": sample(0.001), "other": sample(0.002)}, 40)) == 40


def test_a_goal_that_also_holds_with_a_longer_round_trip_has_a_line_for_each() -> None:
    found = Finding("S", "w", "MySQL", "ratio", Estimate.exactly(1.0), goal=ONE_ROW)
    late = replace(found, estimate=Estimate.exactly(1.5), goal=delayed_goal(ONE_ROW))
    lines = Report([replace(part("round_trip", 1.0), findings=[found, late])]).goals()
    assert [line.rpartition("≤ 1.10")[2] for line in lines if ONE_ROW.what in line] == [
        " | 1.00 met |",
        " | 1.50 **missed** |",
    ]
    assert len({goal.what for goal in GOALS}) == len(GOALS)


def test_one_row_has_a_goal_of_its_own_on_postgresql() -> None:
    (told,) = (
        each
        for group in GROUPS
        for each in group.told
        if each.what == "1 row, its own key; stamped by hand"
    )
    assert isinstance(told, Comparison)
    assert told.goal_on("PostgreSQL") is ONE_ROW_POSTGRES
    assert told.goal_on("MySQL") is told.goal_on("SQLite") is ONE_ROW


def test_the_report_says_that_mysql_could_not_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MYSQL_WANTED, "none")
    monkeypatch.delenv(VARIABLES["mysql"], raising=False)
    bench = Bench.of(SCALES["smoke"], ["sqlite", "mysql"], "python")
    (line,) = bench.missing(["sqlite", "mysql"])
    assert (
        line
        == "mysql: not measured, it was not available, or TTL_ODM_TEST_MYSQL=none leaves it out"
    )


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


def cells(goal: Goal, *findings: Finding) -> str:
    """What the table of goals has behind a goal's limit."""
    begin = f"| {goal.what} | {goal.text}"
    lines = Report([with_findings(*findings)]).goals()
    (found,) = [line.removeprefix(begin) for line in lines if line.startswith(begin)]
    return found


def with_findings(*findings: Finding) -> Part:
    """A part with these figures."""
    return replace(part("sql_overhead", 1.0), findings=findings)


def test_the_rival_stands_beside_a_figure_that_misses_its_goal() -> None:
    rival = RIVALS[RENEWAL]
    ours = Finding("S", "w", "MySQL", "ratio", Estimate.exactly(1.4), goal=RENEWAL)
    flush = Finding(rival.section, rival.line, "MySQL", "ratio", Estimate.exactly(1.2))
    name = rival.name
    assert cells(RENEWAL, ours) == " | 1.40 **missed** |"
    assert cells(RENEWAL, ours, flush) == f" | 1.40 **missed**; {name}: 1.20, misses it too |"
    met = replace(flush, estimate=Estimate.exactly(1.1))
    assert cells(RENEWAL, ours, met) == f" | 1.40 **missed**; {name}: 1.10 |"
    assert cells(RENEWAL, replace(ours, estimate=Estimate.exactly(1.1)), flush) == " | 1.10 met |"
    report = Report([with_findings(ours, flush)])
    assert report.goals()[-1].endswith("1 missed. Of those not met, the rival misses 1, too.")


def test_the_rival_of_what_is_compared_with_another_thing_is_a_quotient() -> None:
    rival = RIVALS[UNFILTERED]
    what = "select by key"
    ours = Finding("S", what, "SQLite", "ratio", Estimate.exactly(1.2), goal=UNFILTERED)
    by_hand = Finding(
        rival.section, f"{what}; by hand as expressions", "SQLite", "ratio", Estimate.exactly(0.8)
    )
    assert rival.figure(ours, [ours, by_hand]) == pytest.approx(1.5)
    assert rival.figure(ours, [replace(by_hand, database="MySQL")]) is None
    assert Rival("r", "S", "{work}").figure(replace(ours, what="w; x"), [ours]) is None
    assert Rival("r", "S", "{what}", is_below_ours=True).figure(ours, [ours]) is None


def test_a_goal_without_figures_has_not_been_measured() -> None:
    assert cells(SPEED) == ", not measured |"


def test_an_exponent_is_that_of_the_steepest_step() -> None:
    rounds = [[{"1": 1.0, "10": 1.5, "100": 15.0}, {"1": 2.0, "10": 3.0, "100": 30.0}]]
    assert steepest([1, 10, 100], rounds) == Estimate.exactly(pytest.approx(1.0))
    curve = Curve("read", "tenants", 1, "ms")
    exponent, *times = grown(curve, "SQLite", [1, 10, 100], rounds)
    assert (exponent.what, exponent.goal) == ("read; over tenants", LINEAR)
    assert exponent.text == "1.00 met"
    assert [(found.what, found.size) for found in times] == [
        ("read; 1 tenant", 1),
        ("read; 10 tenants", 10),
        ("read; 100 tenants", 100),
    ]
    assert times[0].text == "1,500.0 ms"
    as_read = [Finding.from_json(found.as_json(), GOALS) for found in (exponent, *times)]
    assert as_read == [exponent, *times]


def test_a_sentence_tells_what_a_use_costs_and_what_was_not_measured() -> None:
    renewing = next(use for use in USES if use.name == "Renewing")
    unloaded, loaded = renewing.costs
    found = Finding(loaded.section, loaded.lines[0], "SQLite", "ratio", Estimate.exactly(1.2))
    higher = replace(found, database="MySQL", estimate=Estimate.exactly(1.5))
    behind = "times as long as an UPDATE by hand with its commit"
    untold = f"(not measured: {unloaded.label})"
    assert renewing.sentence([found, higher]) == (
        f"**Renewing.** Touching a loaded row and committing takes 1.20 to 1.50 {behind} {untold}."
    )
    assert f"takes 1.20 {behind}" in renewing.sentence([found])
    assert renewing.sentence([]) == (
        f"**Renewing.** Not measured: {unloaded.label}; {loaded.label}."
    )
    growing = USES[-1]
    (cost,) = growing.costs
    grown = replace(found, section=cost.section, what=cost.lines[0], size=1_000)
    assert "of 1,000 times as many rows" in growing.sentence([grown])


def test_the_page_of_costs_comes_before_the_figures(tmp_path: Path) -> None:
    report = Report.read(ROOT / "benchmarks")
    text = report.as_markdown()
    assert text == (ROOT / "benchmarks" / "report.md").read_text(encoding="utf-8")
    head, _, _ = text.partition("## The goals")
    assert head.count("\n- **") == len(USES) == 6
    draw_costs([], tmp_path / "cost.svg")
    assert "not measured" in (tmp_path / "cost.svg").read_text(encoding="utf-8")


def part(name: str, value: float) -> Part:
    """A part with one figure."""
    estimate = Estimate(value, value, value)
    found = Finding("S", f"w of {name}", "SQLite", "ms", estimate, goal=IDLE_TIME)
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


def test_measuring_some_databases_anew_keeps_what_others_have_shown() -> None:
    (found,) = part("rivals", 4.0).findings
    both = [found, replace(found, database="MySQL")]
    old, new = replace(part("rivals", 4.0), findings=both), part("rivals", 6.0)
    kept = Report([old]).with_part(new, PARTS, of_some_databases=True).parts
    assert [each.findings for each in kept] == [[both[1]], new.findings]
    assert Report([old]).with_part(new, PARTS).parts == [new]


def test_a_benchmark_that_was_split_off_another_takes_its_figures_along() -> None:
    whole, own = part("growth", 4.0), part("process_growth", 6.0)
    old = replace(whole, findings=[*whole.findings, *part("process_growth", 5.0).findings])
    assert Report([old]).with_part(own, PARTS).parts == [whole, own]
    assert Report([part("process_growth", 5.0)]).with_part(own, PARTS).parts == [own]


@pytest.mark.parametrize("commit", [True, False])
def test_each_way_to_renew_a_row_sends_one_update_each_time(
    tmp_path: Path, *, commit: bool
) -> None:
    url, sent = f"sqlite:///{tmp_path / 'some.sqlite3'}", []
    engines = []

    def new_engine() -> Engine:
        engines.append(create_engine(url))
        event.listen(
            engines[-1], "before_cursor_execute", lambda *given: sent.append(given[2].split()[0])
        )
        return engines[-1]

    create_tables(new_engine())
    for _ in range(2):  # what the first has committed must not be what the second sets
        ways = [sql_groups.renewals(commit=commit), sql_groups.touches(commit=commit)]
        ways.append(sql_groups.gets_and_touches)
        for sample in [sample for way in ways for sample in way(new_engine).values()]:
            sent.clear()
            sample(3)
            assert sent.count("UPDATE") == 4  # with the lead-in
    for engine in engines:
        engine.dispose()
