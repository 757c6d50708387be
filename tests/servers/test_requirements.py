"""What a test run needs is found, or reported before anything is installed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with nothing on the PATH, nothing downloaded and no apt."""
    monkeypatch.syspath_prepend(TOOLS)
    from local_servers import suites

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(suites, "_cache", lambda: tmp_path / "cache")
    for option in ("MYSQL", "PG_CRON", "BROWSER", "PROMTOOL"):
        monkeypatch.delenv(f"TTL_ODM_TEST_{option}", raising=False)


def program(name: str) -> Any:
    import programs

    return getattr(programs, name)


@pytest.mark.parametrize("name", ["BROWSER", "PROMTOOL"])
def test_a_missing_program_is_an_error_with_what_to_do(name: str) -> None:
    from programs import NoProgramError

    missing = program(name)
    said = rf"There is no {missing.title} .*apt-get is missing.*{missing.option}=none"
    with pytest.raises(NoProgramError, match=said):
        missing.path()


def test_a_program_of_ones_own_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTL_ODM_TEST_BROWSER", "/opt/chrome")
    assert program("BROWSER").path() == "/opt/chrome"


def test_a_program_on_the_path_is_taken(tmp_path: Path) -> None:
    promtool = tmp_path / "promtool"
    promtool.write_text("#!/bin/sh\n")
    promtool.chmod(0o755)
    assert program("PROMTOOL").path() == str(promtool)


@pytest.fixture
def requirements(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, on a machine that has no server, for which there is no wheel."""
    import requirements

    kinds = [replace(kind, find=lambda: None, wheel_on=()) for kind in requirements.KINDS]
    for name, absent in {
        "KINDS": kinds,
        "PG_CRON": replace(requirements.PG_CRON, find=lambda: None, packages=lambda: ()),
    }.items():
        monkeypatch.setattr(requirements, name, absent)
    for kind in (*kinds, requirements.PG_CRON):
        monkeypatch.delenv(kind.variable, raising=False)
    return requirements


def test_whatever_is_missing_is_reported_at_once_in_one_sentence(requirements: ModuleType) -> None:
    with pytest.raises(requirements.ServerError, match="can't be set up here") as raised:
        requirements.check([], everything=True)
    sentence = str(raised.value)
    assert "because this is not Debian (apt-get is missing)" in sentence
    assert sentence.count("apt-get") == 1
    assert "\n" not in sentence
    servers = ["PostgreSQL", "MariaDB", "MySQL", "MongoDB", "pg_cron"]
    for title in (*servers, "browser", "promtool"):
        assert f" {title} (" in sentence


def test_what_is_left_out_is_not_asked_for(
    requirements: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTL_ODM_TEST_MYSQL", "none")
    requirements.check(["sqlite", "mysql"], everything=False)
    for option in ("BROWSER", "PROMTOOL"):
        monkeypatch.setenv(f"TTL_ODM_TEST_{option}", "none")
    requirements.check(["sqlite"], everything=True)


def test_a_server_of_ones_own_is_not_asked_for(
    requirements: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(requirements.ServerError, match="MariaDB"):
        requirements.check(["mariadb"], everything=False)
    monkeypatch.setenv("TTL_ODM_TEST_MARIADB_URL", "mysql://127.0.0.1/mine")
    requirements.check(["mariadb"], everything=False)


def test_a_wheel_is_enough_for_a_platform_that_has_one(
    requirements: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [replace(kind, wheel_on=(sys.platform,)) for kind in requirements.KINDS]
    monkeypatch.setattr(requirements, "KINDS", kinds)
    requirements.check(["postgres", "mongodb"], everything=False)
