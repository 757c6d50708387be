"""Primaries that are killed, stopped and cut off, while clients go on: nothing is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.clusters import beanie_clients, sqlalchemy_clients
from tests.clusters.checker import check
from tests.clusters.history import Outcome
from tests.clusters.members import running
from tests.clusters.workload import Load, one_of, run

if TYPE_CHECKING:
    from random import Random

    from local_servers.cluster import Fault

pytestmark = pytest.mark.slow

_ROOT: Final = Path(__file__).parents[2]
FAULTS: Final[list[Fault]] = ["kill", "switchover", "partition"]


@pytest.mark.parametrize(
    ("module", "kind", "clients"),
    [
        pytest.param(
            *("postgres_standby", "POSTGRES_STANDBY", sqlalchemy_clients),
            marks=pytest.mark.starts("postgres"),
        ),
        pytest.param(
            *("mongodb_members", "MONGODB_MEMBERS", beanie_clients),
            marks=pytest.mark.starts("mongodb"),
        ),
    ],
)
def test_clients_find_nothing_wrong_whatever_becomes_of_the_primary(
    module: str, kind: str, clients: Any
) -> None:
    faults = [*FAULTS]

    def take_away(cluster: Any, random: Random) -> None:
        one_of([faults.pop(0)])(cluster, random)

    with running(module, kind) as cluster:
        history = run(
            cluster,
            Load(seed=1, most=80),
            opened=clients.opened,
            faults=take_away,
            number=len(FAULTS),
        )
    verdict = check(history)
    assert [str(finding) for finding in (*verdict.wrong, *verdict.by_engine)] == []
    assert [failover.fault for failover in history.failovers] == FAULTS
    assert all(failover.old != failover.new for failover in history.failovers)
    acknowledged = {one.server for one in history.operations if one.outcome is Outcome.ACKNOWLEDGED}
    assert acknowledged >= {failover.new for failover in history.failovers}


@pytest.mark.starts("postgres")
def test_nor_does_an_application_with_django(tmp_path: Path) -> None:
    """In a process of its own, since it sets Django up."""
    seen = tmp_path / "seen.json"
    words = ["postgres-standby", "--clients", "django", "--faults", *FAULTS, "--loses", "0"]
    words += ["--failovers", "3", "--seed", "1", "--to", str(seen)]
    subprocess.run(
        [sys.executable, "-m", "tests.clusters.measure", *words],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": f"{_ROOT}:{_ROOT / 'tools'}"},
        check=True,
    )
    answer = json.loads(seen.read_text(encoding="utf-8"))
    assert (answer["wrong"], answer["by_engine"]) == ({}, {})
    assert sum(answer["failovers"].values()) == 3
