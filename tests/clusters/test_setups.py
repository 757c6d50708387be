"""Each setup of docs/clusters.md goes through a failover of each kind that it has.

It is a run as that of `dev.py clusters`, but a short one. A third of them runs in each turn.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.backends import VARIABLES

if TYPE_CHECKING:
    from clusters.catalogue import Setup

_ROOT: Final = Path(__file__).parents[2]
_TOOLS: Final = _ROOT / "tools"


_DATABASES: Final = {variable: name for name, variable in VARIABLES.items()}


def _setups() -> tuple[Setup, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(_TOOLS)
        from clusters.catalogue import SETUPS
    return SETUPS


def _starting(setup: Setup) -> pytest.MarkDecorator:
    return pytest.mark.starts(_DATABASES[setup.kind.variable])


@pytest.mark.slow
@pytest.mark.parametrize(
    "setup", [pytest.param(setup, id=setup.name, marks=_starting(setup)) for setup in _setups()]
)
def test_nothing_is_wrong_after_a_failover(setup: Setup, tmp_path: Path) -> None:
    """In a process of its own, since Django can be set up but once."""
    seen = tmp_path / "seen.json"
    words = [setup.kind.name, "--clients", setup.clients, "--faults", setup.faults[-1]]
    words += [
        "--session",
        setup.session,
        "--loses",
        str(setup.loses),
        "--failovers",
        "1",
        "--seed",
        "1",
        "--to",
        str(seen),
    ]
    subprocess.run(
        [sys.executable, "-m", "tests.clusters.measure", *words],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": f"{_ROOT}:{_TOOLS}"},
        check=True,
    )
    answer = json.loads(seen.read_text(encoding="utf-8"))
    assert (answer["wrong"], answer["failovers"]) == ({}, {setup.faults[-1]: 1})
