"""Names that would change what a terminal shows."""

from __future__ import annotations

import json
import subprocess
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Column, DateTime, Integer, MetaData, Table, insert

from tests.cli.running import CliRunner, command, variables
from tests.guard import GUARD
from tests.sql.test_odd_names import let_pass, thing
from ttl_odm.cli.commands import cli

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

OBEYED = "\u202e\u2066\u200b\u2028\x85\x1b\ufeff"
NAME = f"carts{OBEYED}x"


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("words", ["status", "check", "plan", "sweep --dry-run", "sweep --yes"])
@pytest.mark.parametrize("form", ["text", "json", "github"])
def test_a_table_reaches_no_terminal_as_it_is(engine: Engine, words: str, form: str) -> None:
    model = thing(NAME)
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(model.__table__.insert().values(id=1, label="a"))
        let_pass(connection, model.__table__, 7_200, 2)
    url = engine.url.render_as_string(hide_password=False)
    place = [NAME] if words == "plan" else ["--table", NAME]
    arguments = [*words.split(), *place, "--policy", "TTL(3600, unit='ms')", "--url", url]
    arguments += ["--json"] * (form == "json")
    actions = {"GITHUB_ACTIONS": "true" if form == "github" else ""}
    shown = CliRunner().invoke(cli, arguments, env=actions)
    assert "carts\\u202e\\u2066\\u200b\\u2028" in shown.stdout, shown.stderr
    assert not set(shown.stdout + shown.stderr) & set(OBEYED)
    if form == "json":
        assert json.loads(shown.stdout)


@pytest.mark.databases("sqlite")
def test_inspect_escapes_names_in_what_it_prints_and_writes(engine: Engine, tmp_path: Path) -> None:
    ends = Table(
        NAME, MetaData(), Column("id", Integer, primary_key=True), Column("expires_at", DateTime)
    )
    ends.create(engine)
    with engine.begin() as connection:
        connection.execute(insert(ends).values(expires_at=datetime(2026, 1, 1)))  # noqa: DTZ001
    url, file = engine.url.render_as_string(hide_password=False), tmp_path / "ttl.toml"
    shown = CliRunner().invoke(cli, ["inspect", url, "--write", str(file)])
    written = file.read_text()
    assert "carts\\U0000202e" in written, shown.stdout
    assert not set(shown.stdout + shown.stderr + written) & set(OBEYED)


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_name_that_the_encoding_lacks_is_escaped(engine: Engine, encoding: str) -> None:
    model = thing("Küche\u2713")
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(model.__table__.insert().values(id=1, label="a"))
        let_pass(connection, model.__table__, 7_200, 2)
    url = engine.url.render_as_string(hide_password=False)
    words = ["check", "--table", model.__table__.name, "--policy", "TTL(3600, unit='ms')"]
    words += ["--max-age", "1m"]

    def shown(*further: str) -> str:
        finished = subprocess.run(
            command(*words, "--url", url, *further),
            capture_output=True,
            check=False,
            timeout=GUARD,
            env=variables(PYTHONIOENCODING=encoding, PYTHONUTF8="0"),
        )
        assert finished.returncode == 1, finished.stderr
        return finished.stdout.decode(encoding)

    name = "Küche\u2713".encode(encoding, "backslashreplace").decode(encoding)
    assert f"{name}: expired rows are waiting" in shown()
    assert "Küche\u2713" in {each["target"] for each in json.loads(shown("--json"))["findings"]}
