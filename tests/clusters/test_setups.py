"""Each setup of docs/clusters.md goes through a failover of each kind that it has.

It is a run as that of `dev.py clusters`, but a short one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from clusters.catalogue import Setup

_ROOT: Final = Path(__file__).parents[2]
_TOOLS: Final = _ROOT / "tools"


def _setups() -> tuple[Setup, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(_TOOLS)
        from clusters.catalogue import SETUPS
    return SETUPS


@pytest.mark.slow
@pytest.mark.parametrize("setup", [pytest.param(setup, id=setup.name) for setup in _setups()])
def test_nobody_sees_anything_wrong_through_a_failover(setup: Setup, tmp_path: Path) -> None:
    """In a process of its own, since Django can be set up but once."""
    seen = tmp_path / "seen.json"
    words = [setup.kind.name, "--clients", setup.clients, "--faults", setup.faults[-1]]
    words += ["--loses", str(setup.loses), "--failovers", "1", "--seed", "1", "--to", str(seen)]
    subprocess.run(
        [sys.executable, "-m", "tests.clusters.measure", *words],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": f"{_ROOT}:{_TOOLS}"},
        check=True,
    )
    answer = json.loads(seen.read_text(encoding="utf-8"))
    assert (answer["wrong"], answer["failovers"]) == ({}, {setup.faults[-1]: 1})
