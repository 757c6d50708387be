"""Runs clients against one setup while its members fail, and collects what they saw."""

from __future__ import annotations

import json
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from clusters.page import Measured
from environments import ROOT
from measured import Absent
from terminal import run

if TYPE_CHECKING:
    from clusters.catalogue import Setup

_PATHS = f"{ROOT}:{ROOT / 'tools'}"


def measure(setup: Setup, failovers: int, seed: int, python: str) -> Measured | Absent:
    """Start a setup, let clients and failovers go on for a round, and stop it.

    Args:
        setup: which.
        failovers: how many.
        seed: decides when they happen and what clients do.
        python: the interpreter with everything.
    """
    today = datetime.now(timezone.utc).date().isoformat()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "seen.json"
        words = [python, "-m", "tests.clusters.measure", setup.kind.name]
        options = {
            "--clients": setup.clients,
            "--failovers": failovers,
            "--loses": setup.loses,
            "--seed": seed,
            "--session": setup.session,
            "--to": file,
        }
        words += [str(word) for option in options.items() for word in option]
        words += ["--faults", *setup.faults]
        run(words, {"PYTHONPATH": _PATHS})
        if not file.exists():
            return Absent(today, "it could not be started, or its run broke off")
        seen = json.loads(file.read_text(encoding="utf-8"))
    return Measured(date=today, seeds=[seed], **seen)
