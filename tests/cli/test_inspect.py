"""`ttl-odm inspect` on real databases: what it proposes, and that it only reads."""

from __future__ import annotations

import json
import os
import shlex
import sys
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from sqlalchemy import (
    Column,
    Date,
    DateTime,
    Integer,
    MetaData,
    Table,
    create_engine,
    insert,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import ttl_odm
from tests.cli import legacy
from tests.cli.running import MAIN, CliRunner, as_json, run, run_without
from ttl_odm.cli.commands import cli
from ttl_odm.inspection.readers import sql

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine

    from tests.backends import Backend

DECLARATIONS = {
    "login_sessions": 'ExpireAt("expires_at")',
    "oauth2_token": (
        'TTL(-1, last_modified="issued_at", override="expires_in", never=(0,), unit="s")'
    ),
    "celery_taskmeta": 'ExpireAfter("date_done", 86400)',
    "cache_entries": 'ExpireAt("expiry_ms", unit="ms")',
    "vouchers": 'ExpireAt("valid_until")',
    "magic_links": 'ExpireAt("expires", unit="iso")',
    "holds": 'ExpireAt("expires", unit="s")',
}


@pytest.fixture
def now() -> datetime:
    return datetime.now(timezone.utc)


@pytest.fixture
def filled(engine: Engine, now: datetime) -> Engine:
    legacy.fill(engine, now)
    return engine


def url_of(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


@pytest.mark.slow
@pytest.mark.parametrize("missing", [[], ["sqlalchemy"]])
def test_documents_without_a_url_have_nothing_to_judge(missing: list[str]) -> None:
    """Also where SQLAlchemy isn't installed, as beside Beanie it needn't be."""
    words = ["inspect", "--models", "tests.cli.documents:Plain"]
    finished = run_without(missing, MAIN, *words)
    assert finished.returncode == 2
    assert "give the database URL too" in " ".join(finished.stderr.split())


@pytest.mark.slow
def test_it_proposes_what_the_tables_follow_already_and_changes_nothing(
    filled: Engine, now: datetime
) -> None:
    before = legacy.contents(filled)

    if filled.dialect.name == "sqlite":
        inspected = as_json(run("inspect", url_of(filled), "--json"))
    else:
        finished = CliRunner().invoke(cli, ["inspect", url_of(filled), "--json"])
        inspected = json.loads(finished.stdout)

    tables = {table["table"]: table for table in inspected["tables"]}
    proposals = {name: table["proposal"] for name, table in tables.items() if table["proposal"]}
    declarations = dict(DECLARATIONS)
    if filled.dialect.name == "mysql":  # whose FLOAT has 4 bytes
        del declarations["holds"]
        assert "float of 4 bytes" in tables["holds"]["remarks"][0]
    assert {name: proposal["declaration"] for name, proposal in proposals.items()} == declarations
    for proposal in proposals.values():
        eval(proposal["declaration"], vars(ttl_odm).copy())  # noqa: S307
        assert (proposal["rows"], proposal["looked_at"], proposal["expired"]) == (4, 4, 1)
    assert proposals["login_sessions"]["is_indexed"] is True
    soonest = datetime.fromisoformat(proposals["login_sessions"]["lowest"]).replace(tzinfo=None)
    # In UTC, whatever the session's zone.
    assert abs(soonest - (now.replace(tzinfo=None) - timedelta(hours=1))) <= timedelta(seconds=1)
    assert proposals["cache_entries"]["index"].endswith("ON cache_entries (expiry_ms)")
    assert "password only" in tables["users"]["remarks"][0]
    assert legacy.contents(filled) == before


def test_the_connection_can_only_read(filled: Engine) -> None:
    for statement in (
        "INSERT INTO orders (id) VALUES (99)",
        "DELETE FROM orders",
        "CREATE TABLE other (id INTEGER)",
    ):
        with (
            filled.connect() as connection,
            sql.reading_only(connection),
            pytest.raises(DBAPIError),
        ):
            connection.execute(text(statement))
        filled.dispose()  # what was set for the session is not for anybody else


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_user_that_may_only_read_is_enough(filled: Engine, reader: Engine) -> None:
    finished = CliRunner().invoke(cli, ["inspect", url_of(reader), "--json"])
    assert finished.exit_code == 0, finished.output
    assert '"declaration": "ExpireAt(\\"expires_at\\")"' in finished.stdout


@pytest.fixture
def reader(filled: Engine) -> Iterator[Engine]:
    name = filled.url.database
    is_postgresql = filled.dialect.name == "postgresql"
    who = f'"{name}"' if is_postgresql else f"'{name}'@'%'"
    kind = "ROLE" if is_postgresql else "USER"
    with filled.begin() as connection:
        connection.execute(text(f"CREATE {kind} {who} {'LOGIN' if is_postgresql else ''}"))
        if is_postgresql:
            connection.execute(text(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {who}"))
        else:
            connection.execute(text(f"GRANT SELECT ON {name}.* TO {who}"))
    yield create_engine(filled.url.set(username=name, password=None))
    with filled.begin() as connection:
        if is_postgresql:
            connection.execute(text(f"DROP OWNED BY {who}"))
        connection.execute(text(f"DROP {kind} {who}"))


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_a_big_table_is_estimated_and_sampled(engine: Engine) -> None:
    rows = sql.SMALL + 1
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE web_sessions (id int PRIMARY KEY, expiry timestamptz)")
        )
        insertion = text(
            "INSERT INTO web_sessions SELECT n, CASE WHEN n = 7 THEN 'infinity'::timestamptz "
            "ELSE now() + n * interval '1 s' END FROM generate_series(1, :rows) n"
        )
        connection.execute(insertion, {"rows": rows})
        connection.execute(text("ANALYZE web_sessions"))
    with engine.connect() as connection, sql.reading_only(connection):
        (table,) = sql.tables(connection)
    assert table.rows == rows
    assert table.is_estimated
    assert len(table.sample) == 2 * sql.SAMPLE
    assert len(table.values("expiry")) == 2 * sql.SAMPLE - 1  # infinity is never
    engine.dispose()


def test_an_asynchronous_driver_does_as_well(async_backend: Backend) -> None:
    assert async_backend.async_url is not None
    finished = CliRunner().invoke(cli, ["inspect", async_backend.async_url])
    if async_backend.name == "sqlite":
        assert "There is no SQLite file" in finished.stderr
    else:
        assert finished.stdout == "There are no tables that this user may read.\n"


@pytest.mark.slow
@pytest.mark.databases("sqlite")
def test_the_line_for_plan_can_be_typed(filled: Engine) -> None:
    *_, last = CliRunner().invoke(cli, ["inspect", url_of(filled)]).stdout.splitlines()
    program, *words = shlex.split(last)
    assert program == "ttl-odm"
    assert "would be expired" in CliRunner().invoke(cli, words).stdout


def test_models_are_named_and_are_enough_by_themselves() -> None:
    finished = CliRunner().invoke(cli, ["inspect", "--models", "tests.cli.legacy:METADATA"])
    assert finished.exit_code == 0, finished.output
    assert "from tests.cli.legacy import SESSIONS\n" in finished.stdout
    assert 'enable(SESSIONS, ExpireAt("expires_at"))\n' in finished.stdout
    assert "class LoginSessions" not in finished.stdout
    assert "text, but there are no rows" in finished.stdout


def test_a_table_that_no_module_holds_gets_a_name_and_a_remark(monkeypatch: Any) -> None:
    reflected = MetaData()
    Table("inspected_leases", reflected, Column("expires_at", DateTime))
    monkeypatch.setattr("tests.cli.legacy.METADATA", reflected)
    finished = CliRunner().invoke(cli, ["inspect", "--models", "tests.cli.legacy:METADATA"])
    assert "class InspectedLeases(...):  # your model of table" in finished.stdout
    assert 'enable(InspectedLeases, ExpireAt("expires_at"))  # your class of' in finished.stdout


class Base(DeclarativeBase):
    pass


class Access(Base):
    __tablename__ = "inspected_access"
    id: Mapped[int] = mapped_column(primary_key=True)
    expires_at: Mapped[datetime]


@pytest.mark.databases("sqlite")
def test_the_lines_import_the_classes_and_find_what_refers_to_them(engine: Engine) -> None:
    Access.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(Access).values(expires_at=datetime(2020, 1, 1)))  # noqa: DTZ001
        connection.execute(
            text("CREATE TABLE kept (id INT PRIMARY KEY, access INT REFERENCES inspected_access)")
        )
    inspected = CliRunner().invoke(
        cli, ["inspect", url_of(engine), "--models", f"{__name__}:Access"]
    )
    assert inspected.exit_code == 0, inspected.output
    assert "inspected_access (Access): 1 row - likely" in inspected.stdout
    assert "! kept.access refers to it" in inspected.stdout
    assert "1 of 1 rows (100.0%) would be expired at once" in inspected.stdout
    assert "enable(Access, ExpireAt(" in inspected.stdout
    assert f"from {__name__} import Access" in inspected.stdout


def test_the_share_is_that_of_all_rows_and_never_is_noticed(engine: Engine) -> None:
    """Not of the first and last rows by key, of which none has expired here."""
    rows = [(key, 0 if 600 < key <= 1_800 else 4_000_000_000) for key in range(1, 2_401)]
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE leases (id INT PRIMARY KEY, expires BIGINT)"))
        connection.execute(
            text("INSERT INTO leases VALUES (:id, :end)"), [{"id": i, "end": e} for i, e in rows]
        )
    printed = CliRunner().invoke(cli, ["inspect", url_of(engine)]).stdout
    assert "leases: 2,400 rows - likely" in printed
    assert "1,200 of 2,400 rows (50.0%) would be expired at once" in printed
    assert "! rows with expires in 1970 or before (0, negative numbers): 1,200;" in printed
    planned = ["plan", "leases", "--policy", 'ExpireAt("expires", unit="s")']
    printed = CliRunner().invoke(cli, [*planned, "--url", url_of(engine)]).stdout
    assert "! Rows with expires in 1970 or before, which may mean never: 1,200." in printed


@pytest.mark.parametrize("type_", [DateTime(timezone=True), DateTime(), Date()], ids=str)
def test_ends_in_1970_and_after_2500_are_noticed(engine: Engine, type_: Any) -> None:
    leases = Table("leases", MetaData(), Column("id", Integer, primary_key=True))
    leases.append_column(Column("expires", type_))
    ends = [datetime(year, 1, 1, tzinfo=timezone.utc) for year in (9999, 2050, 1970)]
    with engine.begin() as connection:
        leases.create(connection)
        connection.execute(insert(leases), [{"expires": end} for end in ends])
        connection.execute(insert(leases), {"expires": None})
    inspected = json.loads(CliRunner().invoke(cli, ["inspect", url_of(engine), "--json"]).stdout)
    (table,) = inspected["tables"]
    assert table["proposal"]["expired"] == 1
    assert table["proposal"]["cautions"][0].startswith("rows with expires in 1970 or before")
    assert table["proposal"]["cautions"][1].endswith("may mean never: 1")


@pytest.mark.slow
@pytest.mark.databases("sqlite")
def test_tables_of_django_are_known_by_its_own_table_or_by_its_models(
    engine: Engine,
) -> None:
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE django_content_type (id INT, app_label TEXT, model TEXT)",
            "INSERT INTO django_content_type VALUES (1, 'oauth2_provider', 'accesstoken')",
            "CREATE TABLE oauth2_provider_accesstoken (id INTEGER PRIMARY KEY, expires DATETIME)",
        ):
            connection.execute(text(statement))
    words = ["inspect", url_of(engine)]
    by_its_table = CliRunner().invoke(cli, words).stdout
    assert '    "oauth2_provider.accesstoken": ExpireAt("expires"),' in by_its_table
    assert "enable(" not in by_its_table
    settings = {"DJANGO_SETTINGS_MODULE": "tests.cli.django_settings"}
    by_models = run(*words, "--models", "django.apps:apps", **settings).stdout
    assert '    "oauth2_provider.AccessToken": ExpireAt("expires"),' in by_models
    assert "oauth2_provider_refreshtoken.access_token_id refers to it" in by_models


@pytest.mark.slow
def test_mongodb_is_read_with_its_ttl_indexes(mongodb_url: str) -> None:
    from bson import DBRef
    from pymongo import MongoClient

    name = f"ttl_odm_{uuid4().hex}"
    now = datetime.now(timezone.utc)
    with MongoClient[dict[str, Any]](mongodb_url) as client:
        try:
            database = client[name]
            ends = [{"expiresAt": now + timedelta(hours=hours)} for hours in (-1, 1)]
            database["sessions"].insert_many(ends)
            database["events"].insert_one({"at": now})
            database["events"].create_index("at", expireAfterSeconds=60)
            database["clicks"].insert_one({"at": now})
            database["clicks"].create_index([("at", "hashed")], expireAfterSeconds=60)
            database["orders"].insert_one({"at": now, "meta": {"seen": now}})
            database["orders"].create_index("at", expireAfterSeconds=60)
            database["orders"].create_index("meta.seen", expireAfterSeconds=5)
            database["orders"].create_index(
                [("at", -1)], expireAfterSeconds=0, partialFilterExpression={"kind": "draft"}
            )
            database["drafts"].insert_one({"at": now})
            database["drafts"].create_index(
                "at", expireAfterSeconds=0, partialFilterExpression={"kind": "draft"}
            )
            database["tokens"].insert_one({"exp": int(now.timestamp())})
            database["carts"].insert_one({"session": DBRef("sessions", 1)})
            server = mongodb_url.partition("?")
            url = f"{server[0].rstrip('/')}/{name}?{server[2]}"
            inspected = json.loads(CliRunner().invoke(cli, ["inspect", url, "--json"]).stdout)
        finally:
            client.drop_database(name)
    tables = {table["table"]: table for table in inspected["tables"]}
    assert tables["sessions"]["proposal"]["declaration"] == 'ExpireAt("expiresAt")'
    assert tables["sessions"]["proposal"]["expired"] == 1
    assert tables["sessions"]["proposal"]["cautions"][0].startswith("carts.session refers to it")
    assert tables["events"]["proposal"]["declaration"] == 'ExpireAfter("at", 60)'
    assert tables["events"]["proposal"]["confidence"] == "clear"
    orders = tables["orders"]["proposal"]
    assert (orders["declaration"], orders["confidence"]) == ('ExpireAfter("at", 60)', "likely")
    others = " ".join(orders["cautions"])
    assert "also deletes documents 5 s after meta.seen, by meta.seen_1" in others
    assert "also deletes documents that match {'kind': 'draft'} 0 s after at, by at_-1" in others
    assert tables["drafts"]["proposal"] is None  # it is about some of them only
    assert tables["drafts"]["remarks"][-1].endswith("{'kind': 'draft'} 0 s after at, by at_1")
    assert tables["clicks"]["proposal"] is None  # MongoDB deletes nothing by such an index
    assert "holds no dates" in tables["tokens"]["remarks"][0]


_DOCUMENT = """
from datetime import datetime

class Sessions({bases}):
    expiresAt: datetime
    class Settings:
        name = "sessions"
{declared}
MODELS = [Sessions]
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["in the class", "from outside"])
def test_what_is_printed_for_mongodb_is_what_a_document_class_needs(
    mongodb: Any, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, database = mongodb
    now = datetime.now(timezone.utc)
    ends = [{"expiresAt": now + timedelta(hours=hours)} for hours in (-2, -1, 1)]
    database["sessions"].insert_many(ends)
    own = "from beanie import Document\n" + _DOCUMENT.format(bases="Document", declared="")
    (tmp_path / "plain_models.py").write_text(own)
    monkeypatch.syspath_prepend(tmp_path)
    words = ["inspect", url, "--models", "plain_models:MODELS"]
    printed = CliRunner().invoke(cli, words).stdout
    pasted = printed[printed.index("from beanie import") :]
    pasted, _, _ = pasted.partition("\nBefore you paste one")
    whole, _, outside = pasted.partition("# Or, without touching the models:")
    head = "class Sessions(TTLMixin, Document):  # collection sessions\n"
    if form == "in the class":
        imports, declared = whole.split(head)
        module = imports + _DOCUMENT.format(bases="TTLMixin, Document", declared=declared)
    else:
        imports = "\n".join(whole.splitlines()[:2])
        module = f"{imports}\n{outside}\nMODELS = [Sessions]\n"
    # Else MongoDB's own deletion would be faster than the sweeper, now and then.
    module += "Sessions.__ttl_purge__ = 'sweeper'\n"
    (tmp_path / "pasted_models.py").write_text(module)
    app = ["--app", "pasted_models:MODELS", "--url", url]
    finished = run("sweep", *app, "--json", PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))
    assert as_json(finished)["deleted"] == 2
    assert database["sessions"].count_documents({}) == 1


@pytest.mark.slow
def test_what_has_a_policy_already_gets_no_other(mongodb: Any) -> None:
    url, database = mongodb
    now = datetime.now(timezone.utc)
    database["events"].insert_one({"_ts": now, "ttl": None, "expires_at": now})
    database["sessions"].insert_one({"_ts": now, "ttl": None, "expires_at": now})
    database["sessions"].create_index("_ts", name="__ttl_default", expireAfterSeconds=3600)
    database["Plain"].insert_one({"expires_at": now})

    models = CliRunner().invoke(cli, ["inspect", url, "--models", "tests.cli.documents:MODELS"])
    whole = CliRunner().invoke(cli, ["inspect", url])
    tables = CliRunner().invoke(cli, ["inspect", "--models", "tests.cli.shop:Base"])

    assert "events (Event): 1 row, estimated\n  ! has a policy already" in models.stdout
    assert "1 of 2 collections" in models.stdout
    assert "enable(Plain," in models.stdout
    assert "sessions: 1 row, estimated\n  ! has a policy already" in whole.stdout
    assert "carts (Cart): size unknown\n  ! has a policy already" in tables.stdout


def test_a_field_by_the_name_of_one_of_the_mixins_is_for_enable(mongodb: Any) -> None:
    from beanie import Document

    from ttl_odm.beanie import TTLMixin
    from ttl_odm.inspection.source import _OF_TTL_MIXIN

    url, database = mongodb
    database["sessions"].insert_one({"expires_at": datetime.now(timezone.utc)})
    words = ["inspect", url, "--models", "tests.cli.documents:Passing"]
    printed = CliRunner().invoke(cli, words).stdout

    assert "class Passing" not in printed
    assert 'enable(Passing, ExpireAt("expires_at"))' in printed
    own = {name for name in vars(TTLMixin) if not name.startswith(("_", "model_"))}
    assert own - vars(Document).keys() - {"set_collection", "set_database"} == _OF_TTL_MIXIN


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        ([], 2, "Give something to inspect"),
        (["nonsense"], 2, "'nonsense' is not a database URL"),
        (["oracle9://u:secret@h/d"], 2, "'oracle9://u:***@h/d' is not a database URL"),
        (["sqlite:////no/such.sqlite3"], 2, "There is no SQLite file '/no/such.sqlite3'"),
        (["postgresql://u:secret@127.0.0.1:1/d"], 1, "the database says:"),
        (["mysql+aiomysql://u:secret@127.0.0.1:1/d"], 1, "the database says:"),
        (["postgresql+nodriver://u:sec@ret/secret@h/d"], 2, "u:***@h/d' is not a database URL"),
        (
            ["mongodb://u:secret@127.0.0.1:1"],
            2,
            "mongodb://u:***@127.0.0.1:1: add the name of the database",
        ),
        (["--models", "tests.cli.legacy"], 2, "give MODULE:NAME"),
        (["--models", "tests.cli.nothing:Base"], 2, "there is no module 'tests.cli.nothing'"),
        (["--models", "legacy.py:Base"], 2, "not its file: legacy:Base."),
        (["--models", "./tests/cli/legacy.py:Base"], 2, "not its file: tests.cli.legacy:Base."),
        (["--models", "tests.cli.legacy:SESSION"], 2, "has no 'SESSION' (did you mean SESSIONS"),
        (["--models", "tests.cli.legacy:HOUR"], 2, "has no SQLAlchemy models"),
        (["--models", "tests.cli.legacy:key"], 2, "Error: key has no SQLAlchemy models"),
    ],
)
def test_mistakes_are_told_in_a_line_without_a_password(
    arguments: list[str], status: int, complaint: str
) -> None:
    finished = CliRunner().invoke(cli, ["inspect", *arguments], env={"TTL_ODM_URL": None})
    assert finished.exit_code == status, finished.output
    assert complaint in finished.stderr
    assert "secret" not in finished.output
    assert "Traceback" not in finished.output


@pytest.mark.parametrize("status", [0, 3])
def test_a_module_that_ends_the_program_does_not_choose_the_status(
    tmp_path: Path, monkeypatch: Any, status: int
) -> None:
    (tmp_path / f"ending_{status}.py").write_text(f"raise SystemExit({status})\n")
    monkeypatch.chdir(tmp_path)
    finished = CliRunner().invoke(cli, ["inspect", "--models", f"ending_{status}:Base"])
    assert finished.exit_code == 2
    assert f"importing ending_{status} failed with SystemExit: {status} (" in finished.stderr


def test_a_module_that_fails_is_named_with_the_line(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "broken_models.py").write_text("import os\nos.nothing_there\n")
    monkeypatch.chdir(tmp_path)
    finished = CliRunner().invoke(cli, ["inspect", "--models", "broken_models:Base"])
    assert finished.exit_code == 2
    assert "AttributeError" in finished.stderr
    assert "broken_models.py, line 2" in finished.stderr
