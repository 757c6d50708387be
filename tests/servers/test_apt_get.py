"""What tools/servers.py installs waits for its turn: with a stand-in."""

from __future__ import annotations

from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)"


def apt_get(folder: Path, first: str) -> Path:
    """A program of that name, which fails once with these words; and where it counts its runs."""
    runs = folder / "runs"
    program = folder / "apt-get"
    program.write_text(
        f"#!/bin/sh\necho >> {runs}\n[ $(/usr/bin/wc -l < {runs}) -gt 1 ] && exit\n"
        f"echo '{first}' >&2\nexit 100\n"
    )
    program.chmod(0o755)
    return runs


@pytest.fixture(autouse=True)
def _stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.syspath_prepend(TOOLS)


@pytest.mark.slow
def test_apt_get_is_run_again_while_another_holds_its_lock(tmp_path: Path) -> None:
    from local_servers import debian

    runs = apt_get(tmp_path, LOCKED)
    debian._apt_get("update")
    assert len(runs.read_text().splitlines()) == 2


def test_apt_get_that_fails_otherwise_is_not_run_again(tmp_path: Path) -> None:
    from local_servers import debian
    from local_servers.children import ServerError

    runs = apt_get(tmp_path, "E: Unable to locate package")
    with pytest.raises(ServerError, match=r"update failed:\nE: Unable to locate package"):
        debian._apt_get("update")
    assert len(runs.read_text().splitlines()) == 1
