"""Tables and collections that no model stands for, by a file, or by ``--table``."""

from __future__ import annotations

import importlib
import json
import re
import sqlite3
import sys
from contextlib import closing
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    DateTime,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    func,
    insert,
    select,
    text,
)

from tests.cli import shop
from tests.cli.running import CliRunner, as_json, run
from ttl_odm import ExpireAfter, ExpireAt
from ttl_odm.cli.commands import cli
from ttl_odm.cli.tables import Declared, as_file, of_file
from ttl_odm.inspection import Confidence, Field, Proposal
from ttl_odm.inspection import Table as Seen

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

sqlite = pytest.mark.databases("sqlite")

metadata = MetaData()
login = Table(
    "login",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("expires_at", DateTime),
)
attempts = Table(
    "attempts",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("login_id", ForeignKey("login.id"), index=True),
    Column("created_at", DateTime),
)
old_login = Table(
    "old_login",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("expires_at", DateTime),
    Column("note", String(10)),
)
FILE = """\
[tool.ttl_odm]
url = "$DATABASE_URL"

[tool.ttl_odm.tables]
login = 'ExpireAt("expires_at")'
attempts = 'ExpireAfter("created_at", "90d")'
"""


def url_of(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


@pytest.fixture
def url(engine: Engine) -> str:
    """Three logins of which one has expired, and four attempts, of which two are too old."""
    now = datetime.now(timezone.utc).replace(tzinfo=None, microsecond=0)
    metadata.create_all(engine)
    with engine.begin() as connection:
        ends = (now - timedelta(hours=1), now + timedelta(days=1), None)
        connection.execute(
            insert(login), [{"id": key, "expires_at": end} for key, end in enumerate(ends)]
        )
        ages = ((0, 100), (0, 95), (1, 80), (2, 0))
        connection.execute(
            insert(attempts),
            [
                {"id": key, "login_id": of, "created_at": now - timedelta(days=days)}
                for key, (of, days) in enumerate(ages)
            ],
        )
    return url_of(engine)


@pytest.fixture
def file(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DATABASE_URL", url)
    path = tmp_path / "ttl.toml"
    path.write_text(FILE)
    return path


def called(*words: object) -> Any:
    return CliRunner().invoke(cli, [str(word) for word in words])


def rows(engine: Engine, table: Table) -> list[int]:
    with engine.connect() as connection:
        return list(connection.scalars(select(table.c.id).order_by(table.c.id)))


def test_when_a_command_ends_the_tables_have_no_policy(engine: Engine, file: Path) -> None:
    called("--config", file, "status")
    assert rows(engine, login) == [0, 1, 2]


def test_a_file_says_what_is_swept_and_what_refers_goes_first(engine: Engine, file: Path) -> None:
    report = json.loads(called("--config", file, "sweep", "--json").stdout)
    assert [target["table"] for target in report["targets"]] == ["attempts", "login"]
    assert rows(engine, attempts) == [2, 3]
    assert rows(engine, login) == [1, 2]


@pytest.mark.slow
def test_every_command_knows_the_tables_of_a_file(file: Path) -> None:
    config = ("--config", file)
    seen = json.loads(called(*config, "status", "--json").stdout)
    counts = {each["target"]: (each["model"], each["expired"]) for each in seen["targets"]}
    assert counts == {"login": (None, 1), "attempts": (None, 2)}
    assert json.loads(called(*config, "pause", "--json").stdout)["paused"] is True
    assert called(*config, "sweep", "--model", "login").exit_code == 0
    assert json.loads(called(*config, "resume", "--json").stdout)["paused"] is False
    checked = json.loads(called(*config, "check", "--json").stdout)
    assert checked["checked"] == 2
    forecast = json.loads(called(*config, "plan", "login", "--json").stdout)
    assert (forecast["rows"], forecast["current"]["policy"]) == (3, 'ExpireAt("expires_at")')


def test_a_table_may_be_typed(engine: Engine, url: str) -> None:
    policy = 'ExpireAfter("created_at", "12w")'
    words = ("--url", url, "--table", "attempts", "--policy", policy)
    assert called("sweep", *words).exit_code == 0
    assert (rows(engine, attempts), rows(engine, login)) == ([2, 3], [0, 1, 2])


def test_several_tables_have_a_policy_each(engine: Engine, url: str) -> None:
    words = ("--table", "login", "--policy", 'ExpireAt("expires_at")')
    words += ("--table", "attempts", "--policy", 'ExpireAfter("created_at", "30d")')
    assert called("sweep", "--url", url, *words).exit_code == 0
    assert (rows(engine, attempts), rows(engine, login)) == ([3], [1, 2])


@sqlite
def test_a_table_of_the_file_may_be_named_alone(engine: Engine, file: Path) -> None:
    called("--config", file, "sweep", "--table", "attempts")
    assert (rows(engine, attempts), rows(engine, login)) == ([2, 3], [0, 1, 2])


def test_an_archive_is_a_table_of_the_database(engine: Engine, file: Path) -> None:
    file.write_text(
        '[tool.ttl_odm.tables.attempts]\npolicy = \'ExpireAfter("created_at", "90d")\'\n'
        "[tool.ttl_odm.tables.login]\n"
        'policy = \'ExpireAt("expires_at")\'\narchive = "old_login"\n'
    )
    assert called("--config", file, "sweep", "--url", url_of(engine)).exit_code == 0
    assert rows(engine, old_login) == [0]


@pytest.mark.databases("postgres")
def test_a_name_may_have_a_schema(engine: Engine, url: str) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA auth"))
        connection.execute(text("CREATE TABLE auth.codes (id INT PRIMARY KEY, ends TIMESTAMPTZ)"))
        connection.execute(text("INSERT INTO auth.codes VALUES (1, now() - interval '1 s')"))
    try:
        words = ("--url", url, "--table", "auth.codes", "--policy", 'ExpireAt("ends")')
        report = json.loads(called("sweep", *words, "--json").stdout)
        assert (report["targets"][0]["table"], report["deleted"]) == ("auth.codes", 1)
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP SCHEMA auth CASCADE"))


DRIVERS = {"sqlite": "aiosqlite", "postgresql": "asyncpg", "mysql": "aiomysql"}


def test_an_asynchronous_driver_reads_the_tables_too(engine: Engine, url: str) -> None:
    name = engine.dialect.name
    driver = DRIVERS[name]
    bare = engine.url.set(drivername=f"{name}+{driver}", query={})  # which are the other driver's
    there = bare.render_as_string(hide_password=False)
    words = ("--table", "attempts", "--policy", 'ExpireAfter("created_at", "90d")')
    finished = called("sweep", "--url", there, *words)
    assert finished.exit_code == 0, finished.output
    assert rows(engine, attempts) == [2, 3]


@pytest.mark.slow
def test_models_and_tables_go_together(
    engine: Engine, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.fill(engine)
    monkeypatch.setenv("SHOP_URL", url_of(engine))
    for words in (["--app", "tests.cli.shop:Base"], ["--app", "tests.cli.shop:managed"]):
        report = json.loads(called("--config", file, "status", *words, "--json").stdout)
        names = {each["target"] for each in report["targets"]}
        assert names == {"web_sessions", "carts", "wishes", "login", "attempts"}


@sqlite
@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("login = 3", "give it a policy"),
        ("login = {sweep = 'scan'}", "give it a policy"),
        ("login = 'ExpireAt('", "is not a policy"),
        ('login = \'ExpireAfter("a", "9x")\'', "'9x' is not a duration"),
        ('login = \'ExpireAfter("a", "0d")\'', "declare ExpireAt('a')"),
        ("login = {policy = '90d', sweeps = 'scan'}", "did you mean 'sweep'"),
        ("login = {policy = '90d', sweep = true}", "give a string"),
        ("login = {policy = 'ExpireAt(\"expires_at\")', sweep = 'never'}", "'index' or 'scan'"),
        ("login = {policy = 'ExpireAt(\"expires_at\")', partition = '2 years'}", "'2 years'"),
        ("login = 'ExpireAt(\"ends\")'", "has no column 'ends'"),
        ("logins = 'ExpireAt(\"expires_at\")'", "did you mean 'login'"),
        ("login = {policy = 'ExpireAt(\"expires_at\")', archive = 'none'}", "no table 'none'"),
    ],
)
def test_what_a_file_gets_wrong_is_named(file: Path, section: str, message: str) -> None:
    file.write_text(f'[tool.ttl_odm]\nurl = "$DATABASE_URL"\n[tool.ttl_odm.tables]\n{section}\n')
    finished = called("--config", file, "sweep")
    assert finished.exit_code == 2, finished.output
    assert message in finished.stderr
    assert "login" in finished.stderr


@sqlite
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--table", "login"], "give its policy"),
        (["--policy", "90d"], "one policy for each table"),
        (["--table", "login", "--table", "login", "--policy", "9d", "--policy", "8d"], "for 1"),
        (["--table", "login", "--policy", "nothing"], "is not a policy"),
        (["--app", "tests.cli.shop:Base", "--table", "login", "--policy", "9d"], "give only one"),
    ],
)
def test_what_is_typed_wrong_is_named(url: str, words: list[str], message: str) -> None:
    finished = called("sweep", "--url", url, *words)
    assert finished.exit_code == 2, finished.output
    assert message in finished.stderr


@sqlite
def test_a_table_with_a_model_has_its_policy_there(engine: Engine, file: Path) -> None:
    shop.fill(engine)
    file.write_text(FILE + "carts = '90d'\n")
    words = ("--app", "tests.cli.shop:Base", "--url", url_of(engine))
    finished = called("--config", file, "sweep", *words)
    assert finished.exit_code == 2
    assert "has a model for this table, Cart" in finished.stderr


@sqlite
def test_without_a_url_nothing_is_swept() -> None:
    finished = called("sweep", "--table", "login", "--policy", "90d")
    assert finished.exit_code == 2
    assert "Nothing says where the database is" in finished.stderr


@pytest.mark.slow
@sqlite
def test_what_check_proposes_can_be_pasted(file: Path, url: str) -> None:
    def fixes(*words: object) -> list[str]:
        found = json.loads(called(*words, "check", "--json", "--max-age", "1m").stdout)["findings"]
        return [each["fix"] for each in found if each["code"] == "overdue"]

    assert f"ttl-odm --config {file} sweep --model login" in fixes("--config", file)
    words = ["check", "--url", url, "--table", "login", "--policy", 'ExpireAt("expires_at")']
    found = json.loads(called(*words, "--json", "--max-age", "1m").stdout)["findings"]
    (fix,) = [each["fix"] for each in found if each["code"] == "overdue"]
    typed = "--table login --policy 'ExpireAt(\"expires_at\")'"
    assert fix == f"ttl-odm sweep {typed} --url {url} --model login"


def test_inspect_writes_no_file_without_a_proposal(tmp_path: Path) -> None:
    database, written = tmp_path / "a.db", tmp_path / "ttl.toml"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE colours (id INTEGER PRIMARY KEY, name VARCHAR(20))")
    words = ["inspect", f"sqlite:///{database}", "--write", str(written)]
    finished = CliRunner().invoke(cli, words)
    assert finished.exit_code == 0, finished.output
    assert "There is nothing to write, so " in finished.stdout
    assert "ttl-odm --config" not in finished.stdout
    assert not written.exists()
    assert CliRunner().invoke(cli, [*words, "--json"]).exit_code == 0
    assert not written.exists()


@pytest.mark.slow
def test_what_inspect_writes_is_swept_by(engine: Engine, url: str, tmp_path: Path) -> None:
    written = tmp_path / "found.toml"
    finished = run("inspect", url, "--write", str(written), "--json")
    as_json(finished)
    content = written.read_text()
    assert "\nlogin = 'ExpireAt(\"expires_at\")'\n" in content.replace("# login", "\nlogin")
    assert run("inspect", url, "--write", str(written)).returncode == 2
    assert written.read_text() == content, "nothing is written over"
    swept = run("--config", str(written), "sweep", "--json", DATABASE_URL=url)
    assert swept.returncode in (0, 2), swept.stderr  # every proposal may be one to think about


def toml(source: str) -> Any:
    module = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    return module.loads(source)["tool"]["ttl_odm"]["tables"]


NAMES = ["login", "auth.codes", 'a "b"', "it's", "x\ny", "\x7f", "ä", "", "a = 1"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("confidence", Confidence)
def test_any_name_can_be_written_and_read(name: str, confidence: Confidence) -> None:
    policy = ExpireAt(name or "at")
    seen = Proposal(Seen(name, ()), policy, confidence, ["so\nit is"], [], Field(name, "x"))
    found = of_file(toml(as_file([seen])), "f")
    if confidence is Confidence.CLEAR:
        assert found == {name: Declared(name, policy, {}, f"f {name!r}")}
    else:
        assert found == {}


def test_an_application_without_a_policy_still_needs_one() -> None:
    assert called("sweep", "--url", "sqlite://").exit_code == 2


@pytest.mark.databases("mongodb")
@pytest.mark.parametrize("is_typed", [True, False])
def test_a_collection_needs_no_class(mongodb: Any, tmp_path: Path, *, is_typed: bool) -> None:
    url, database = mongodb
    now = datetime.now(timezone.utc)
    for key, end in (("a", now - timedelta(hours=1)), (2, now + timedelta(days=1)), ("c", None)):
        database.logins.insert_one({"_id": key, "expires_at": end, "more": {"x": 1}})
    file = tmp_path / "ttl.toml"
    file.write_text("[tool.ttl_odm.tables]\nlogins = 'ExpireAt(\"expires_at\")'\n")
    typed = ("--table", "logins", "--policy", 'ExpireAt("expires_at")')
    config, words = ((), typed) if is_typed else (("--config", file), ())
    seen = json.loads(called(*config, "status", "--url", url, *words, "--json").stdout)
    assert [(each["target"], each["expired"]) for each in seen["targets"]] == [("logins", 1)]
    report = json.loads(called(*config, "sweep", "--url", url, *words, "--json").stdout)
    assert report["deleted"] == 1, report
    assert {each["_id"] for each in database.logins.find()} == {2, "c"}
    assert called(*config, "check", "--url", url, *words).exit_code in (0, 1)


def test_a_default_of_the_contract_may_be_a_duration(engine: Engine, url: str) -> None:
    shop.fill(engine)
    words = ("--url", url, "--table", "web_sessions", "--policy", "1h")
    report = json.loads(called("sweep", *words, "--json").stdout)
    with engine.connect() as connection:
        left = connection.scalar(select(func.count()).select_from(text("web_sessions")))
    assert (report["deleted"], left) == (10, 5)


def test_declared_values_are_the_policies_themselves() -> None:
    found = of_file({"a": {"policy": 'ExpireAfter("x", "2w")', "sweep": "scan"}}, "f")
    assert found["a"].policy == ExpireAfter("x", 14 * 86_400)
    assert found["a"].options == {"sweep": "scan"}


@pytest.mark.slow
def test_a_second_table_object_is_told_from_the_one_with_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where policies.py reflects a table, and the module that --app names does it once more."""
    (tmp_path / "twice_reflected.py").write_text(
        "from sqlalchemy import DateTime, Integer, Column, MetaData, Table\n"
        "from ttl_odm import ExpireAt\n"
        "from ttl_odm.sqlalchemy import enable\n"
        "first, second = (Table('logins', MetaData(), Column('id', Integer, primary_key=True), "
        "Column('expires_at', DateTime)) for _ in range(2))\n"
        "enable(first, ExpireAt('expires_at'))\n"
        "metadata = second.metadata\n"
    )
    monkeypatch.chdir(tmp_path)
    finished = run("sweep", "--app", "twice_reflected:metadata", "--url", "sqlite://")
    assert finished.returncode == 2
    assert "Table 'logins' in it is a second Table object of that name" in finished.stderr
    assert "Point --app at that Table, its model, or its MetaData." in finished.stderr


COMMANDS = [["status"], ["sweep", "--dry-run"], ["check"], ["plan", "login"], ["policy", "show"]]


@sqlite
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_file_may_be_named_after_the_command(file: Path, words: list[str]) -> None:
    first = called("--config", file, *words)
    assert first.exit_code in (0, 1), first.output
    for config in (["--config", file], [f"--config={file}"]):
        for place in range(1, len(words) + 1):
            again = called(*words[:place], *config, *words[place:])
            assert again.exit_code == first.exit_code, again.output
            assert re.sub(r"\d", "", again.stdout) == re.sub(r"\d", "", first.stdout)


@sqlite
def test_the_file_wins_over_a_broken_pyproject_wherever_it_is_named(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ttl_odm]\nsweeep = 1\n")
    monkeypatch.chdir(tmp_path)
    assert called("status").exit_code == 2
    assert called("status", "--config", file).exit_code == 0


@pytest.mark.parametrize("words", [["sweep"], ["plan", "login"], ["policy", "show"]])
def test_a_file_that_is_not_named_or_not_there_is_an_error(words: list[str]) -> None:
    for config, complaint in (
        (["--config"], "'--config' requires an argument"),
        (["--config", "no.toml"], "File 'no.toml' does not exist"),
    ):
        finished = called(*words, *config)
        assert (finished.exit_code, complaint in finished.stderr) == (2, True), finished.output


def test_a_file_can_not_name_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ttl.toml"
    file.write_text('[tool.ttl_odm.sweep]\nconfig = "other.toml"\n')
    assert "unknown key 'config'" in called("sweep", "--config", file).stderr
    monkeypatch.setenv("TTL_ODM_SWEEP_CONFIG", str(file))
    assert "unknown key 'TTL_ODM_SWEEP_CONFIG'" in called("sweep").stderr


def test_the_help_of_every_command_names_the_option() -> None:
    for words in [[name] for name in cli.commands if name not in ("demo", "events", "policy")]:
        assert "--config FILE" in called(*words, "--help").stdout
    for group in (["events", "list"], ["policy", "set"]):
        assert "--config FILE" in called(*group, "--help").stdout
