"""Without greenlet, which SQLAlchemy needs for asyncio only, synchronous applications work."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.running import MAIN, run_without
from ttl_odm.cli.commands import cli

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from sqlalchemy import Engine

pytestmark = pytest.mark.slow


def without_greenlet(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process in which importing greenlet fails."""
    return run_without(["greenlet"], program, *words, PYTHONWARNINGS="error")


@pytest.mark.every_server
def test_every_command_works_on_a_synchronous_driver(engine: Engine, tmp_path: Path) -> None:
    url = engine.url.render_as_string(hide_password=False)
    program = "from tests.cli.synchronous import main; main(*sys.argv[1:])"
    finished = without_greenlet(program, url, str(tmp_path / "ttl.toml"))
    assert finished.returncode == 0, finished.stderr
    ran = json.loads(finished.stdout)
    assert {line.split()[0] for line in ran} == set(cli.commands) - {"demo"}
    for line, (status, output, error) in ran.items():
        assert "greenlet" not in f"{output}{error}", (line, output, error)
        # The one has findings, and the other rejects a server without a scheduler.
        may_fail = line.startswith(("check", "install-sweep"))
        assert status == 0 or (may_fail and "SystemExit" in error), (line, output, error)


def test_the_demo_works() -> None:
    finished = without_greenlet(MAIN, "demo")
    assert finished.returncode == 0, finished.stderr


def test_an_asynchronous_driver_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    finished = without_greenlet(MAIN, "inspect", f"sqlite+aiosqlite:///{tmp_path}/a.db")
    assert finished.returncode == 2, finished.stderr
    assert "Traceback" not in finished.stderr
    said = " ".join(finished.stderr.split())
    assert "needs greenlet: install it with pip install 'ttl-odm[cli,sqlalchemy]'" in said
