"""Without greenlet, which SQLAlchemy needs for asyncio only, synchronous applications work."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.running import variables
from tests.guard import GUARD
from ttl_odm.cli.commands import cli

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine


pytestmark = pytest.mark.slow

COMMAND = "from ttl_odm.cli import main; main()"


def without_greenlet(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process in which importing greenlet fails."""
    program = f"import sys; sys.modules['greenlet'] = None; {program}"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD,
        env=variables(),
    )


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
    finished = without_greenlet(COMMAND, "demo")
    assert finished.returncode == 0, finished.stderr


def test_an_asynchronous_driver_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    finished = without_greenlet(COMMAND, "inspect", f"sqlite+aiosqlite:///{tmp_path}/a.db")
    assert finished.returncode == 2, finished.stderr
    assert "Traceback" not in finished.stderr
    said = " ".join(finished.stderr.split())
    assert "needs greenlet: install it with pip install 'ttl-odm[cli,sqlalchemy]'" in said
