"""docs/clusters.md belongs to what was seen of the clusters in the list; nothing was wrong."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"
COMMAND = "run: python3 tools/dev.py clusters"


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The package in tools, which is run from there."""
    monkeypatch.syspath_prepend(DOCS.parent / "tools")
    return importlib.import_module("clusters")


@pytest.fixture
def page(clusters: ModuleType) -> ModuleType:
    return importlib.import_module("clusters.page")


def test_the_page_says_what_was_seen_of_the_clusters_in_the_list(clusters: ModuleType) -> None:
    results = clusters.load(DOCS / "clusters.json")
    file = DOCS / "clusters.md"
    assert file.exists() is bool(results)
    if results:
        assert file.read_text(encoding="utf-8") == clusters.page_of(results), COMMAND
    assert set(results) <= set(clusters.NAMES), COMMAND


def test_the_page_on_quality_has_its_summary(clusters: ModuleType) -> None:
    results = clusters.load(DOCS / "clusters.json")
    page = (DOCS / "quality.md").read_text(encoding="utf-8")
    assert page == clusters.quality_of(results, page), COMMAND
    assert clusters.quality_of({}, page) != page


def test_nothing_was_wrong(clusters: ModuleType) -> None:
    for name, result in clusters.load(DOCS / "clusters.json").items():
        if isinstance(result, clusters.Measured):
            assert not result.is_wrong, name
            assert result.failovers, name
            assert result.operations, name


def test_every_cluster_is_in_the_list(clusters: ModuleType) -> None:
    kinds = importlib.import_module("local_servers.cluster")
    lifetime = importlib.import_module("local_servers.lifetime")
    there = [kind for kind in lifetime.ON_REQUEST if isinstance(kind, kinds.ClusterKind)]
    assert {kind.name for kind in there} == {setup.kind.name for setup in clusters.SETUPS}


class Setup(NamedTuple):
    name: str
    title: str
    faults: tuple[str, ...] = ("kill", "partition")


def seen(page: ModuleType, **values: Any) -> Any:
    base = {
        "date": "2026-11-29",
        "seeds": [7],
        "version": "15.1",
        "driver": "psycopg 3.3",
        "failovers": {"kill": 60, "partition": 40},
        "operations": 12_345,
        "wrong": {},
        "by_engine": {},
        "behind": 4,
        "outages": [0.6, 1.9, 0.5],
    }
    return page.Measured(**{**base, **values})


def test_a_row_of_the_page_has_what_was_seen(page: ModuleType) -> None:
    setups = [
        Setup("sync", "Synchronous pair"),
        Setup("async", "Asynchronous pair", ("kill",)),
        Setup("none", "Missing one"),
    ]
    wrong = {"lost": 1, "token": 2, "changed": 3}
    lossy = seen(page, wrong=wrong, by_engine={"lost": 8}, outages=[])
    results = {
        "sync": seen(page),
        "async": lossy,
        "none": page.Absent("2026-11-29", "it could not be started"),
    }
    written = page.document(setups, results, {"Something else": "for a reason"})
    assert (
        "| Synchronous pair | 60 | - | 40 | 12,345 | 0 | 0 | 0 | 0 | 0 | 4 | 0.6 | 1.9 |" in written
    )
    assert "| Asynchronous pair | 60 | - | 40 | 12,345 | 1 | 0 | 0 | 5 | 8 | 4 | - | - |" in written
    assert "asynchronous (Asynchronous pair): nothing keeps" in written
    assert "- Missing one: it could not be started\n- Something else: for a reason\n" in written
    assert (
        "**2 setups, 200 failovers, 24,690 operations: 6 wrong (1 lost, 0 came back, 0 shown "
        "expired), 8 lost by the engine. Seconds unavailable: 0.6 (median), 1.9 at most.**\n"
    ) in written
    assert "- Synchronous pair 15.1, psycopg 3.3: 2026-11-29, seed 7\n" in written


def test_a_later_round_adds_to_what_was_seen(page: ModuleType) -> None:
    later = seen(page, seeds=[8], failovers={"kill": 1}, wrong={"lost": 1}, outages=[0.4])
    both = seen(page).joined(later)
    assert both == seen(
        page,
        seeds=[7, 8],
        failovers={"kill": 61, "partition": 40},
        operations=24_690,
        wrong={"lost": 1},
        behind=8,
        outages=[0.6, 1.9, 0.5, 0.4],
    )


def test_what_was_seen_is_read_back_as_it_was_written(page: ModuleType, tmp_path: Path) -> None:
    from measured import dump

    results = {"one": seen(page), "two": page.Absent("2026-11-29", "a reason")}
    file = tmp_path / "seen.json"
    file.write_text(dump(results), encoding="utf-8")
    assert page.load(file) == results
    assert page.load(tmp_path / "missing.json") == {}


def test_a_run_writes_the_page_of_a_setup_at_its_end_and_goes_on_after_an_interruption(
    clusters: ModuleType, page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_DATA", "_PAGE", "_QUALITY"):
        file = tmp_path / getattr(clusters, name).name
        file.write_bytes(getattr(clusters, name).read_bytes())
        monkeypatch.setattr(clusters, name, file)
    monkeypatch.setattr(clusters, "_PARTIAL", tmp_path / "build" / "clusters.json")
    data, before = tmp_path / "clusters.json", (tmp_path / "clusters.json").read_bytes()
    seeds: list[int] = []

    def measure(_setup: Any, number: int, seed: int, _python: str) -> Any:
        if len(seeds) == 2:
            raise KeyboardInterrupt
        seeds.append(seed)
        return seen(page, seeds=[seed], failovers={"kill": number}, outages=[0.5] * number)

    monkeypatch.setattr(clusters, "measure", measure)
    arguments = {"only": ["galera"], "failovers": 50, "python": ""}
    with pytest.raises(KeyboardInterrupt):
        clusters.write(**arguments, seed=3)
    assert data.read_bytes() == before
    seeds.remove(3)
    assert clusters.write(**arguments, seed=9, resume=True) == 0
    result = clusters.load(data)["galera"]
    assert (result.seeds, result.failovers) == ([3, 4, 5], {"kill": 50})
    assert "| Galera | 50 | - | - |" in (tmp_path / "clusters.md").read_text(encoding="utf-8")
    assert clusters.load(clusters._PARTIAL) == {}
