"""A machine without pg_cron, where it can't be installed, is told so: no test is skipped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(autouse=True)
def _tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TOOLS)


def test_pg_cron_that_is_not_there_is_an_error_with_what_to_do() -> None:
    from local_servers.children import ServerError
    from local_servers.lifetime import started
    from local_servers.pg_cron import PG_CRON

    absent = replace(PG_CRON, find=lambda: None, packages=lambda: (), suite=None)
    said = "pg_cron is missing: install pg_cron .* TTL_ODM_TEST_PG_CRON_URL"
    with pytest.raises(ServerError, match=said), started([absent]):
        pass


def test_it_comes_for_the_postgresql_that_is_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from local_servers import pg_cron, postgres, suites

    folder = tmp_path / "17"
    (folder / "lib").mkdir(parents=True)
    programs = {"initdb": str(folder / "bin/initdb"), "postgres": str(folder / "bin/postgres")}
    monkeypatch.setattr(postgres, "find", lambda: programs)
    monkeypatch.setattr(suites, "_cache", lambda: tmp_path)
    assert pg_cron.find() is None
    assert pg_cron.packages() == ("postgresql-17-cron",)
    (folder / "lib" / "pg_cron.so").touch()
    assert pg_cron.find() == programs
    monkeypatch.setattr(postgres, "find", lambda: None)
    assert pg_cron.find() is None
    assert pg_cron.packages() == ()
