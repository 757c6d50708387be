"""Runs the tests on one engine and collects what came of them."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.page import Measured
from environments import ROOT
from local_servers.children import ServerError
from local_servers.kind import Wanted
from local_servers.lifetime import started
from local_servers.mysql import MYSQL
from measured import Absent
from terminal import Command, run_together, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engines.catalogue import Engine


def measure(engine: Engine, python: str) -> Measured | Absent:
    """Start an engine, run its tests, stop it.

    Args:
        engine: which.
        python: the interpreter with everything.
    """
    kind = engine.kind
    try:
        if kind is not None and kind.suite is not None and kind.find() is None:
            kind.suite.bring()
    except ServerError as error:
        say(f"engines: {error}")
        return Absent(_today(), f"it could not be downloaded from {engine.source}")
    try:
        with started([kind] if kind else []) as urls:
            return _asked(engine, python, urls)
    except ServerError as error:
        say(f"engines: {error}")
        return Absent(_today(), "it did not start")


def _asked(engine: Engine, python: str, urls: Mapping[str, str]) -> Measured | Absent:
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / str(number) for number, _ in enumerate(engine.runs)]
        commands = [
            Command(
                [
                    *(python, "-m", "pytest", *words, "--only", engine.database, "-q"),
                    *("-p", "tests.engines.verdicts", "--verdicts", str(file)),
                ],
                {**urls, "PYTHONPATH": str(ROOT), MYSQL.wanted: Wanted.REQUIRED.value},
            )
            for words, file in zip(engine.runs, files, strict=True)
        ]
        run_together(commands)
        if not all(file.exists() for file in files):
            return Absent(_today(), "its tests could not be run")
        answers = [json.loads(file.read_text()) for file in files]
    version = answers[0]["server"]
    if not version.startswith(engine.version):
        return Absent(_today(), f"{engine.source} has {version} by now")
    return _together(answers)


def _together(answers: list[dict[str, Any]]) -> Measured:
    reasons: Counter[str] = Counter()
    for answer in answers:
        for counted in answer["reasons"].values():
            reasons.update(counted)
    first = answers[0]
    return Measured(
        date=_today(),
        version=first["server"],
        drivers=list(dict.fromkeys(name for answer in answers for name in answer["drivers"])),
        libraries=first["libraries"],
        suites={name: counts for answer in answers for name, counts in answer["suites"].items()},
        reasons=dict(reasons),
    )


def _today() -> str:
    return datetime.now(timezone.utc).date().isoformat()
