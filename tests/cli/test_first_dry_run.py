"""Somebody without Python gets from a database to a first dry run, at a terminal.

The steps are those of docs/without-models.md, and of README's part for that reader: only commands,
and only those that the screen or the page names.
"""

from __future__ import annotations

import re
import shlex
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import BigInteger, Column, DateTime, Integer, MetaData, String, Table, insert

from tests.cli.running import CliRunner, command, on_a_terminal
from ttl_odm.cli.commands import cli

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

PYTHON = re.compile(r"^\s*(from|import|class|def|await|async|enable\()\b", re.MULTILINE)


def fill(engine: Engine) -> None:
    """A database of somebody else's: sessions in milliseconds, a log, leases, and colours."""
    metadata, now = MetaData(), datetime.now(timezone.utc)
    sessions = Table(
        "sessions",
        metadata,
        Column("sid", String(20), primary_key=True),
        Column("expires_ms", BigInteger, nullable=False),
    )
    log = Table(
        "audit_log",
        metadata,
        Column("id", Integer, primary_key=True),
        Column("created_at", DateTime(timezone=True)),
    )
    Table("colours", metadata, Column("id", Integer, primary_key=True), Column("name", String(9)))
    locks = Table(
        "locks",
        metadata,
        Column("name", String(20), primary_key=True),
        Column("acquired_at", BigInteger),
        Column("ttl_seconds", Integer),
    )
    metadata.create_all(engine)
    with engine.begin() as connection:
        at = [now + timedelta(hours=hours) for hours in (-2, -1, 1)]
        ends = [{"sid": f"s{n}", "expires_ms": int(a.timestamp() * 1000)} for n, a in enumerate(at)]
        connection.execute(insert(sessions), ends)
        connection.execute(insert(log), [{"created_at": now - timedelta(days=n)} for n in (1, 99)])
        took = [{"name": "x", "acquired_at": int(now.timestamp() * 1000), "ttl_seconds": 60}]
        connection.execute(insert(locks), took)


def typed(line: str, folder: Path, **environment: str) -> str:
    """Type a line into a terminal in a folder, and return what the screen shows."""
    program, *words = shlex.split(line)
    assert program == "ttl-odm"
    inside = f"cd {shlex.quote(str(folder))} && exec {shlex.join(command(*words))}"
    status, screen = on_a_terminal(["sh", "-c", inside], **environment)
    assert status == 0, screen
    assert not PYTHON.search(screen), screen
    return screen


def lines_to_type(screen: str) -> list[str]:
    return [line for line in screen.splitlines() if line.startswith("ttl-odm ")]


@pytest.mark.slow
@pytest.mark.databases("sqlite", "postgres")
def test_the_screen_leads_from_a_database_to_a_dry_run(engine: Engine, tmp_path: Path) -> None:
    fill(engine)
    url = engine.url.render_as_string(hide_password=False)

    first = typed(f"ttl-odm inspect {url}", tmp_path)
    assert "[tool.ttl_odm.tables]\n" in first
    assert 'sessions = \'ExpireAt("expires_ms", unit="ms")\'' in first
    assert '# audit_log = \'ExpireAfter("created_at", "90d")\'' in first
    assert '# locks = \'TTL(-1, last_modified="acquired_at", override="ttl_seconds", ' in first
    assert not (tmp_path / "ttl.toml").exists()

    write, _, plan = lines_to_type(first)
    assert write.endswith("--write ttl.toml")
    assert "2 of 3 rows" in typed(plan, tmp_path) or "now            2" in typed(plan, tmp_path)
    written = typed(write, tmp_path)
    assert (tmp_path / "ttl.toml").read_text() in first

    plan, sweep = lines_to_type(written)
    assert "in 24 h        3  100.0%" in typed(plan, tmp_path)
    counted = typed(sweep, tmp_path)
    assert "Looked at 1 table" in counted
    assert "2 rows expired." in counted
    with engine.connect() as connection:
        left = connection.exec_driver_sql("SELECT COUNT(*) FROM sessions").scalar()
    assert left == 3


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def called(line: str, **environment: str | None) -> str:
    """Do as `typed` in a pipe, which is faster."""
    words = shlex.split(line)[1:]
    environment = {"DATABASE_URL": None, "TTL_ODM_URL": None, **environment}
    finished = CliRunner().invoke(cli, words, env=environment)
    assert finished.exit_code == 0, finished.output
    return finished.stdout


def sqlite_file(folder: Path, statements: str) -> None:
    with closing(sqlite3.connect(folder / "a.db")) as connection:
        connection.executescript(statements)


def test_a_guess_becomes_a_policy_by_an_editor(folder: Path) -> None:
    sqlite_file(
        folder,
        "CREATE TABLE audit_log (id INTEGER PRIMARY KEY, created_at DATETIME);"
        "INSERT INTO audit_log VALUES (1, '2020-01-01 00:00:00');",
    )
    written = called("ttl-odm inspect sqlite:///a.db --write ttl.toml")
    choose = written.index("in ttl.toml, remove the # before each policy that is right")
    assert choose < written.index("Then count what a sweep would delete:")
    plan, sweep = lines_to_type(written)
    too_early = CliRunner().invoke(cli, shlex.split(sweep)[1:], env={"TTL_ODM_URL": None})
    assert too_early.exit_code == 2
    assert "in a settings file written by ttl-odm inspect, remove the #" in too_early.stderr
    assert "now" in called(plan)
    file = folder / "ttl.toml"
    file.write_text(file.read_text().replace("# audit_log", "audit_log").replace('"90d"', '"2w"'))
    assert "1 row expired." in called(sweep)


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_what_may_be_a_password_stays_out_of_the_file(engine: Engine, folder: Path) -> None:
    """The screen says which variable to set."""
    fill(engine)
    url = engine.url.set(query={"application_name": "secret"})
    address = url.render_as_string(hide_password=False)
    written = called(f"ttl-odm inspect '{address}' --write ttl.toml")
    assert "export DATABASE_URL=..." in written
    assert "secret" not in written
    assert "secret" not in (folder / "ttl.toml").read_text()
    *_, sweep = lines_to_type(written)
    assert "2 rows expired." in called(sweep, DATABASE_URL=address)


@pytest.mark.parametrize("variable", ["DATABASE_URL", "TTL_ODM_URL"])
def test_a_url_that_a_variable_has_is_written_as_the_variable(folder: Path, variable: str) -> None:
    sqlite_file(folder, "CREATE TABLE s (id INTEGER PRIMARY KEY, expires_at DATETIME);")
    url = "sqlite:///a.db"
    words = "ttl-odm inspect sqlite:///a.db"
    shown = called(words, **{variable: url})
    assert f'ttl-odm inspect "${variable}" --write ttl.toml' in shown
    written = called(f"{words} --write ttl.toml", **{variable: url})
    assert "export" not in written
    assert f'url = "${variable}"  # from this' in (folder / "ttl.toml").read_text()
    *_, sweep = lines_to_type(written)
    assert "0 rows expired." in called(sweep, **{variable: url})


def test_the_schema_that_was_typed_is_typed_again(folder: Path) -> None:
    sqlite_file(folder, "CREATE TABLE s (id INTEGER PRIMARY KEY, expires_at DATETIME);")
    shown = called("ttl-odm inspect sqlite:///a.db --schema main")
    assert "ttl-odm inspect --schema main sqlite:///a.db --write ttl.toml" in shown
    assert "main.s = " in shown or '"main.s" = ' in shown


def test_a_relative_file_is_beside_the_settings_that_name_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cron and systemd start elsewhere."""
    sqlite_file(
        folder,
        "CREATE TABLE s (id INTEGER PRIMARY KEY, expires_at DATETIME);"
        "INSERT INTO s VALUES (1, '2020-01-01 00:00:00');",
    )
    called("ttl-odm inspect sqlite:///a.db --write ttl.toml")
    assert 'url = "sqlite:///a.db"' in (folder / "ttl.toml").read_text()
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for file in ("../ttl.toml", str(folder / "ttl.toml")):
        assert "1 row expired." in called(f"ttl-odm sweep --config {file} --dry-run")


@pytest.mark.parametrize("driver", ["sqlite", "sqlite+aiosqlite"])
def test_rows_that_others_refer_to_stay_on_sqlite_too(folder: Path, driver: str) -> None:
    sqlite_file(
        folder,
        "CREATE TABLE carts (id INTEGER PRIMARY KEY, updated_at DATETIME);"
        "CREATE TABLE items (id INTEGER PRIMARY KEY, cart_id INTEGER REFERENCES carts (id));"
        "CREATE INDEX ix_items_cart_id ON items (cart_id);"
        "INSERT INTO carts VALUES (1, '2020-01-01 00:00:00'), (2, '2020-01-01 00:00:00');"
        "INSERT INTO items VALUES (1, 2);",
    )
    policy = """'ExpireAfter("updated_at", "30d")'"""
    swept = called(f"ttl-odm sweep --url {driver}:///a.db --table carts --policy {policy}")
    assert "1 row deleted." in swept
    assert "carts: skipped 1 row kept by a foreign key" in swept
    with closing(sqlite3.connect(folder / "a.db")) as connection:
        assert connection.execute("SELECT id FROM carts").fetchall() == [(2,)]
        assert not connection.execute("PRAGMA foreign_key_check").fetchall()
