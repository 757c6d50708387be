"""`ttl-odm check`: what it finds, and that what it says fixes it."""

from __future__ import annotations

import json
import re
import shlex
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
import time_machine
from sqlalchemy import Column, Integer, MetaData, Table, text
from sqlalchemy.orm import declarative_base

from tests.cli import shop
from tests.cli.documents import Letter
from tests.cli.running import CliRunner, run
from tests.cli.test_policy_command import Base as StoredDefaults
from tests.migrations.projects import is_mysql
from ttl_odm import ExpireAt
from ttl_odm.beanie.policy.bindings import declared_policy
from ttl_odm.beanie.policy.sources import outline
from ttl_odm.beanie.policy.ttl_indexes import mongodb_indexes
from ttl_odm.beanie.sweep.store import MongoStore
from ttl_odm.cli import checked_table, checks_rows
from ttl_odm.cli.commands import cli
from ttl_odm.sqlalchemy import TTLMixin, disable, enable
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper.findings import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

sqlite = pytest.mark.databases("sqlite")


@pytest.fixture
def app(engine: Engine) -> list[str]:
    shop.fill(engine)
    url = engine.url.render_as_string(hide_password=False)
    return ["--app", "tests.cli.shop:Base", "--url", url]


def found(app: list[str], *options: str, status: int) -> dict[tuple[str, str | None], Any]:
    """The findings by code and target."""
    finished = CliRunner().invoke(cli, ["check", *app, *options, "--json"])
    assert finished.exit_code == status, finished.output
    listed = json.loads(finished.stdout)["findings"]
    assert all(each["fix"] for each in listed)
    return {(each["code"], each["target"]): each for each in listed}


@pytest.mark.slow
def test_all_is_well_after_a_sweep(app: list[str]) -> None:
    assert found(app, status=0).keys() == {("never-swept", None)}
    assert CliRunner().invoke(cli, ["sweep", *app]).exit_code == 0
    assert found(app, "--strict", status=0) == {}


def dropped_check(engine: Engine) -> str:
    """How a database drops the CHECK of carts."""
    if engine.dialect.name == "postgresql":
        return "DROP CONSTRAINT ck_carts_ttl"
    return "DROP CHECK carts_chk_1" if is_mysql(engine) else "MODIFY ttl INT"


@pytest.mark.slow
def test_what_is_wrong_is_found_and_what_it_says_mends_it(engine: Engine, app: list[str]) -> None:
    is_of_mysql = engine.dialect.name == "mysql"
    second = clock_of(engine.dialect).second
    columns = {"__tablename__": "notes", "__ttl__": 60, "id": Column(Integer, primary_key=True)}
    elsewhere = type("Note", (TTLMixin, declarative_base()), columns)  # of another database
    with engine.begin() as connection:
        for statement in (
            f"DROP INDEX ix_carts_ttl_own{' ON carts' if is_of_mysql else ''}",
            f"DROP INDEX ix_web_sessions_ttl_inherited{' ON web_sessions' if is_of_mysql else ''}",
            "DROP TABLE wishes",
            "CREATE TABLE notes (id INTEGER PRIMARY KEY, cart INTEGER)",
            "ALTER TABLE notes ADD FOREIGN KEY (cart) REFERENCES carts (id)",
            f"UPDATE carts SET _ts = _ts + 1000000 * {second} WHERE id < 2",  # noqa: S608
        ):
            if "FOREIGN" not in statement or engine.dialect.name != "sqlite":
                connection.execute(text(statement))
        if engine.dialect.name != "sqlite":  # which can drop no CHECK
            connection.execute(text(f"ALTER TABLE carts {dropped_check(engine)}"))
            connection.execute(text("UPDATE carts SET ttl = -2 WHERE id IN (10, 11)"))
    codes = found(app, "--max-age", "600", status=1)

    expected = {
        ("missing-index", "carts"),
        ("missing-index", "web_sessions"),
        ("missing-table", "wishes"),
        ("overdue", "carts"),
        ("overdue", "web_sessions"),
        ("future-rows", "carts"),
        ("never-swept", None),
    }
    if engine.dialect.name != "sqlite":
        expected |= {("invalid-ttl", "carts"), ("restricting-key", "carts")}
        expected.add(("missing-check", "carts"))
    if engine.dialect.name == "postgresql":
        expected.add(("missing-fk-index", "carts"))
    assert codes.keys() == expected
    assert codes["missing-index", "carts"]["severity"] == "error"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for (code, _), each in codes.items():
            if code not in (
                *("missing-table", "missing-check", "restricting-key"),
                *("overdue", "never-swept"),
            ):
                connection.execute(text(each["fix"]))
        shop.Base.metadata.create_all(connection)
    left = found(app, "--max-age", "600", status=1)
    assert left.keys() <= {
        ("overdue", "carts"),
        ("overdue", "web_sessions"),
        ("missing-check", "carts"),
        ("restricting-key", "carts"),
        ("never-swept", None),
    }
    assert ("overdue", "web_sessions") in left
    fix = left["overdue", "web_sessions"]["fix"]
    assert fix.startswith("ttl-odm sweep --app tests.cli.shop:Base --url ")
    assert fix.endswith(" --model WebSession")
    assert elsewhere.__tablename__ == "notes"  # and was there all the time


def run_sql(engine: Engine, *statements: str) -> None:
    """Run statements, each by itself."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for each in statements:
            connection.exec_driver_sql(each)


@pytest.mark.slow
def test_second_tables_that_do_not_get_the_policy_are_found(
    app: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = MetaData()
    Table("carts", metadata, Column("id", Integer, primary_key=True))
    Table("wishes", MetaData(info={"ttl_odm": None}), Column("id", Integer, primary_key=True))
    monkeypatch.setattr(shop, "warehouse", metadata, raising=False)
    finding = found(app, status=0)["second-table", "carts"]
    assert finding["message"].startswith(
        "a Table in a MetaData of its own is another Table object for Cart's table and has no "
        "column _ts and ttl"
    )
    assert finding["fix"].startswith("use Cart, ")
    assert found(app, "--strict", status=1).keys() == {
        ("second-table", "carts"),
        ("never-swept", None),
    }
    again = declarative_base()
    type(
        "Basket",
        (TTLMixin, again),
        {"__tablename__": "carts", "__ttl__": 5, "id": Column(Integer, primary_key=True)},
    )
    twin = shop.Base.metadata.tables["carts"].to_metadata(metadata := MetaData())
    del twin.info["ttl_odm"]
    monkeypatch.setattr(shop, "warehouse", metadata, raising=False)
    finding = found(app, status=0)["ambiguous-table", "carts"]
    assert "Cart and " in finding["message"]
    assert "Basket have different policies" in finding["message"]


@pytest.mark.slow
def test_models_that_agree_on_a_second_table_are_nothing_to_report(
    app: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hope = type(
        "Hope",
        (TTLMixin, declarative_base()),
        {
            "__tablename__": "wishes",
            "__ttl__": shop.Wish.__ttl__,
            "id": Column(Integer, primary_key=True),
        },
    )
    twin = shop.Base.metadata.tables["wishes"].to_metadata(metadata := MetaData())
    del twin.info["ttl_odm"]
    monkeypatch.setattr(shop, "warehouse", metadata, raising=False)
    assert found(app, status=0).keys() == {("never-swept", None)}
    assert hope.__table__ is not twin


@pytest.mark.slow
def test_an_index_that_is_called_like_ours_and_is_another_is_found(
    engine: Engine, app: list[str]
) -> None:
    name = "ix_carts_ttl_inherited"
    on_carts = " ON carts" if engine.dialect.name == "mysql" else ""
    run_sql(engine, f"DROP INDEX {name}{on_carts}", f"CREATE INDEX {name} ON carts (id)")
    finding = found(app, "--model", "Cart", status=1)["wrong-index", "carts"]
    run_sql(engine, *finding["fix"].split("; "))
    assert found(app, "--model", "Cart", status=0).keys() == {("never-swept", None)}


@pytest.mark.databases("sqlite")
def test_sqlites_check_of_an_earlier_release_and_what_it_let_in_are_found(
    engine: Engine, app: list[str]
) -> None:
    condition = (
        "ttl IS NULL OR (typeof(ttl) = 'integer' AND (ttl = -1 OR ttl BETWEEN 1 AND 2147483647))"
    )
    old = condition.replace("'", "''")
    run_sql(
        engine,
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_master SET sql = replace(sql, '{old}', 'ttl IS NULL OR ttl > 0')",  # noqa: S608
        "PRAGMA writable_schema = RESET",
        "UPDATE carts SET ttl = 'x' WHERE id = 10",
        "UPDATE carts SET ttl = 20.5 WHERE id = 11",
    )
    findings = found(app, "--model", "Cart", status=1)
    assert "earlier release" in findings["missing-check", "carts"]["message"]
    invalid = findings["invalid-ttl", "carts"]
    assert invalid["message"].endswith("to which the default applies: 2")
    run_sql(engine, invalid["fix"])
    left = found(app, "--model", "Cart", status=0)
    assert left.keys() == {("missing-check", "carts"), ("never-swept", None)}


@pytest.fixture
def hotel(engine: Engine) -> list[str]:
    """A table that expires by a column of its own, in which are datetimes without a zone."""
    kind = {"postgresql": "timestamp", "mysql": "datetime(6)"}.get(engine.dialect.name, "DATETIME")
    run_sql(
        engine,
        f"CREATE TABLE bookings (id INTEGER PRIMARY KEY, made_at {kind})",
        "CREATE INDEX ix_bookings_made_at ON bookings (made_at)",
    )
    url = engine.url.render_as_string(hide_password=False)
    return ["--app", "tests.cli.hotel:Base", "--url", url]


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_column_that_holds_something_else_than_is_declared_is_found(
    engine: Engine, hotel: list[str]
) -> None:
    assert found(hotel, status=0).keys() == {("never-swept", None)}
    change = (
        "MODIFY made_at timestamp"
        if engine.dialect.name == "mysql"
        else ("ALTER COLUMN made_at TYPE timestamptz")
    )
    run_sql(engine, f"ALTER TABLE bookings {change}")
    finding = found(hotel, status=1)["wrong-type", "bookings"]
    assert "its values are misread" in finding["message"]


@pytest.mark.slow
def test_rows_of_the_future_are_found_by_columns_that_are_not_ours(
    engine: Engine, hotel: list[str]
) -> None:
    ahead = datetime.now(timezone.utc).replace(tzinfo=None) + timedelta(hours=2)
    past = ahead - timedelta(hours=2, minutes=5)
    with engine.begin() as connection:
        rows = [{"id": 1, "at": f"{ahead}"}, {"id": 2, "at": f"{past}"}, {"id": 3, "at": None}]
        connection.execute(text("INSERT INTO bookings VALUES (:id, :at)"), rows)
    finding = found(hotel, status=0)["future-rows", "bookings"]
    assert finding["message"].startswith("rows whose made_at is more than an hour in the future")
    assert finding["message"].endswith("longer: 1")
    doubt, _, statement = finding["fix"].partition("; or ")
    assert doubt == "declare timezone= if these are local times"
    with engine.begin() as connection:
        assert connection.exec_driver_sql(statement).rowcount == 1
    assert found(hotel, status=0).keys() == {("never-swept", None), ("undated", "bookings")}


@pytest.mark.databases("postgres")
def test_an_index_that_failed_to_be_built_is_found(engine: Engine, app: list[str]) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE pg_index SET indisvalid = false "
                "WHERE indexrelid = 'ix_carts_ttl_own'::regclass"
            )
        )
    finding = found(app, "--model", "Cart", status=1)["invalid-index", "carts"]
    assert finding["fix"].startswith("DROP INDEX CONCURRENTLY ix_carts_ttl_own; CREATE INDEX")


@pytest.mark.slow
@sqlite
def test_a_pause_and_an_old_sweep_are_found(engine: Engine, app: list[str]) -> None:
    assert CliRunner().invoke(cli, ["sweep", *app]).exit_code == 0
    SQLAlchemyStore(engine, shop.Base).leases.set_paused("ttl_odm", paused=True)
    with engine.begin() as connection:
        connection.execute(text("UPDATE ttl_odm_lease SET recorded_at = recorded_at - 90000000"))
    codes = found(app, status=1)
    assert codes.keys() == {("paused", None), ("not-swept", None)}
    fix = shlex.split(codes["paused", None]["fix"])
    assert CliRunner().invoke(cli, fix[1:]).stdout == "Resumed: the sweepers continue.\n"
    assert found(app, status=1).keys() == {("not-swept", None)}


@pytest.mark.slow
@sqlite
def test_fixes_repeat_what_was_typed(app: list[str]) -> None:
    environment = {"TTL_ODM_APP": app[1], "TTL_ODM_URL": app[3]}

    def fixes(*options: str) -> set[str]:
        finished = CliRunner().invoke(cli, ["check", *options, "--json"], env=environment)
        return {finding["fix"] for finding in json.loads(finished.stdout)["findings"]}

    assert fixes() == {"ttl-odm run"}
    assert fixes(*app) == {f"ttl-odm run --app {app[1]} --url {app[3]}"}
    assert fixes("--lease-name", "the night's") == {"ttl-odm run --lease-name 'the night'\"'\"'s'"}


@pytest.mark.databases("postgres")
def test_fixes_repeat_no_password(engine: Engine, app: list[str]) -> None:
    # The tests' own server asks for none.
    url = engine.url.set(password=engine.url.password or "secret")
    app[3] = url.render_as_string(hide_password=False)

    codes = found(app, status=0)

    fix = codes["never-swept", None]["fix"]
    assert fix == "ttl-odm run --app tests.cli.shop:Base --url ..."


@sqlite
def test_github_shows_findings_as_annotations(engine: Engine, app: list[str]) -> None:
    with engine.begin() as connection:
        connection.execute(text("DROP INDEX ix_carts_ttl_own"))
    finished = CliRunner().invoke(cli, ["check", *app], env={"GITHUB_ACTIONS": "true"})
    assert finished.exit_code == 1
    first, *_ = finished.stdout.splitlines()
    assert first.startswith("::error title=ttl-odm%3A missing-index in carts::index ix_carts")
    assert "%0AFix it with: CREATE INDEX" in first


def test_annotations_keep_to_one_line() -> None:
    finding = Finding(Severity.WARNING, "x", None, "50 %\nof", None)
    assert finding.annotation == "::warning title=ttl-odm%3A x::50 %25%0Aof"


@pytest.mark.slow
@sqlite
def test_people_see_what_and_how_to_mend_it(engine: Engine, app: list[str]) -> None:
    with engine.begin() as connection:
        connection.execute(text("DROP INDEX ix_carts_ttl_own"))
    finished = run("check", *app, GITHUB_ACTIONS="")
    assert finished.returncode == 1
    assert finished.stdout.splitlines() == [
        "error missing-index",
        "  carts: index ix_carts_ttl_own is missing, and the sweeper needs it",
        "  > CREATE INDEX ix_carts_ttl_own ON carts ((_ts + ttl * 1000)) WHERE ttl > 0",
        "warning never-swept",
        "  no sweep has been recorded in this database",
        f"  > ttl-odm run --app {app[1]} --url {app[3]}",
        "3 targets checked: 1 error, 1 warning.",
    ]


def differing(app: list[str], monkeypatch: pytest.MonkeyPatch, *, status: int = 0) -> str:
    """What is found when this host's clock, and nothing else, is five minutes ahead.

    Both clocks stand still meanwhile: else the answer's way would count.
    """
    assert ("clock", None) not in found(app, status=status)
    moments: list[datetime] = []
    now, now_async = SQLAlchemyStore.now, MongoStore.now

    def stopped(store: Any) -> datetime:
        moments.append(now(store))
        return moments[0]

    async def stopped_async(store: Any) -> datetime:
        moments.append(await now_async(store))
        return moments[0]

    monkeypatch.setattr(SQLAlchemyStore, "now", stopped)
    monkeypatch.setattr(MongoStore, "now", stopped_async)
    found(app, status=status)
    with time_machine.travel(moments[0] + timedelta(minutes=5), tick=False):
        message: str = found(app, status=status)["clock", None]["message"]
    return message


@pytest.mark.slow
def test_a_clock_that_is_off_from_the_databases_is_told(
    app: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "differ by 300 s" in differing(app, monkeypatch)


@pytest.mark.slow
def test_a_clock_that_is_off_from_mongodbs_is_told(
    mongodb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = mongodb
    app = ["--app", "tests.cli.documents:MODELS", "--url", url]
    # It has no indexes either.
    assert "differ by 300 s" in differing(app, monkeypatch, status=1)


def test_documents_are_checked_against_their_indexes_and_for_strays(mongodb: Any) -> None:
    url, database = mongodb
    born = datetime.now(timezone.utc) - timedelta(minutes=2)
    database["events"].insert_many(
        [
            {"_id": 1},
            {"_id": 2, "_ts": born, "ttl": 7200},
            {"_id": 3, "_ts": born, "ttl": "20"},
            {"_id": 4, "_ts": born + timedelta(hours=2)},
        ]
    )
    app = ["--app", "tests.cli.documents:MODELS", "--url", url]
    codes = found(app, status=1)
    strays = {"undated", "too-late", "invalid-ttl", "future-rows"}
    assert {code for code, _ in codes} == {"missing-index", *strays}
    assert codes["missing-index", "events"]["fix"] == "await ensure_indexes(Event)"
    assert codes["too-late", "events"]["fix"] == "await repair_strays(Event)"
    for code in ("undated", "invalid-ttl", "future-rows"):
        run_in_mongosh(database, codes[code, "events"]["fix"])
    assert {code for code, _ in found(app, status=1)} == {"missing-index", "too-late"}


def test_forgotten_ttl_indexes_of_mongodb_are_errors(mongodb: Any) -> None:
    url, database = mongodb
    for name in ("crates", "lids", "old_crates"):
        database[name].create_index("created_at", expireAfterSeconds=60)
    arguments = ["check", "--app", "tests.cli.documents:FAMILY", "--url", url, "--json"]

    finished = CliRunner().invoke(cli, arguments)

    assert finished.exit_code == 1
    listed = json.loads(finished.stdout)["findings"]
    wrong = [finding for finding in listed if finding["code"] == "wrong-index"]
    assert {finding["severity"] for finding in wrong} == {"error"}
    assert len(wrong) == 3
    for finding, name, model in zip(
        wrong, ("old_crates", "crates", "lids"), ("Crate", "Crate", "Lid"), strict=True
    ):
        assert f"'created_at_1' of {name!r}" in finding["message"]
        assert finding["fix"] == f"drop or declare it; then await ensure_indexes({model})"


@pytest.mark.slow
def test_an_index_that_its_scopes_do_not_lead_is_found(mongodb: Any) -> None:
    url, database = mongodb
    indexes = mongodb_indexes(outline(declared_policy(Letter)), "sweeper")
    made = [index.document() for index in indexes]
    database.command({"createIndexes": "letters", "indexes": made})
    row = {"_id": {"name": "letters", "scope": ""}, "ttl": 3600, "changed_by": None}
    database["ttl_odm_policies"].insert_one(row)
    app = ["--app", "tests.cli.documents:STORED", "--url", url, "--model", "Letter"]

    finding = found(app, status=1)["wrong-index", "letters"]

    assert "__ttl_sweep_default doesn't begin with tenant_id" in finding["message"]
    assert finding["fix"] == "await ensure_indexes(Letter, rebuild=True)"
    database["letters"].drop_index("__ttl_sweep_default")
    led = mongodb_indexes(outline(declared_policy(Letter)), "sweeper", "tenant_id")[0]
    database.command({"createIndexes": "letters", "indexes": [led.document()]})
    assert not [code for code, _ in found(app, status=0) if "index" in code]


def test_collections_whose_documents_expire_without_a_class_here_are_named(mongodb: Any) -> None:
    url, database = mongodb
    database["sessions"].create_index("_ts", name="__ttl_default", expireAfterSeconds=60)
    database["left_out_events"].insert_one({})
    database["others"].create_index("_ts", expireAfterSeconds=60)
    database.command({"create": "seen", "viewOn": "sessions", "pipeline": []})

    codes = found(["--app", "tests.cli.documents:MODELS", "--url", url], status=1)

    forgotten = {name: finding for (code, name), finding in codes.items() if "forgotten" in code}
    assert forgotten.keys() == {"sessions", "left_out_events"}
    assert forgotten["sessions"]["message"].endswith("has __ttl_default")
    assert "tests.cli.documents.Left was not" in forgotten["left_out_events"]["message"]
    assert {finding["severity"] for finding in forgotten.values()} == {"warning"}


def run_in_mongosh(database: Any, line: str) -> None:
    """Run ``db['events'].updateMany(filter, update)``: what is JSON but for its quotes."""
    head = "db['events'].updateMany("
    assert line.startswith(head)
    given = re.sub(r"(?<=[{ ])([$\w]+)(?=: )", r'"\1"', line[len(head) : -1].replace("'", '"'))
    chosen, update = json.loads(f"[{given}]")
    assert database["events"].update_many(chosen, update).modified_count == 1


@pytest.fixture
def logins(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    """A table of others, of which rows have been expired for 34 days."""
    metadata = MetaData()
    table = Table(
        "checked_logins", metadata, Column("id", Integer, primary_key=True), Column("ends", Integer)
    )
    metadata.create_all(engine)
    enable(table, ExpireAt("ends", unit="s"))
    ago = int(datetime.now(timezone.utc).timestamp()) - 34 * 86_400 - 60
    with engine.begin() as connection:
        rows = [{"id": number, "ends": ago + number} for number in range(1, 51)]
        connection.execute(table.insert(), rows)
    monkeypatch.setattr(shop, "logins", table, raising=False)
    yield table
    disable(table)


@pytest.mark.slow
def test_rows_that_wait_in_a_table_without_an_index_are_reported(
    engine: Engine, logins: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = engine.url.render_as_string(hide_password=False)
    app = ["--app", "tests.cli.shop:logins", "--url", url]
    name = logins.name

    def codes(*options: str, status: int) -> dict[str, Any]:
        found_ = found(app, *options, status=status)
        return {code: finding for (code, target), finding in found_.items() if target == name}

    overdue = codes(status=1)
    assert overdue.keys() == {"overdue"}  # the table is small, so nobody needs an index
    assert "the oldest for 34 d" in overdue["overdue"]["message"]
    status = CliRunner().invoke(cli, ["status", *app])
    assert "34 d 00 h" in status.stdout

    monkeypatch.setattr(checked_table, "SMALL", 10)
    monkeypatch.setattr(checks_rows, "SMALL", 10)
    big = codes(status=1)
    assert {code: finding["severity"] for code, finding in big.items()} == {
        "missing-index": "warning",
        "overdue": "error",  # told by the first rows
    }
    doubtful = codes("--max-age", "9999999", status=0)["overdue"]
    assert doubtful["severity"] == "skipped"
    assert "only 10 rows were checked" in doubtful["message"]
    assert "--deep" in doubtful["fix"]
    assert codes("--deep", status=1)["overdue"]["severity"] == "error"
    run_sql(engine, big["missing-index"]["fix"])
    assert codes(status=1).keys() == {"overdue"}
    assert CliRunner().invoke(cli, ["sweep", *app]).exit_code == 0
    assert codes("--strict", status=0) == {}


def test_a_table_without_expired_rows_has_no_oldest_one(engine: Engine, logins: Table) -> None:
    run_sql(engine, f"UPDATE {logins.name} SET ends = 2147483647")  # noqa: S608 (a table of ours)
    url = engine.url.render_as_string(hide_password=False)
    status = CliRunner().invoke(cli, ["status", "--app", "tests.cli.shop:logins", "--url", url])
    (row,) = (line for line in status.stdout.splitlines() if line.startswith(logins.name))
    assert row.split()[-6:-2] == ["50", "50", "0", "-"]


def deep(app: list[str], *, status: int) -> dict[str, Any]:
    listed = found(app, "--deep", status=status)
    return {code: finding for (code, target), finding in listed.items() if target == "carts"}


@pytest.mark.slow
def test_a_ttl_that_came_past_the_check_is_found(engine: Engine, app: list[str]) -> None:
    old = f"_ts = _ts - 90000 * {clock_of(engine.dialect).second}"
    wrong = f"UPDATE carts SET {old}, ttl = (id - 10) * -2 WHERE id IN (10, 11)"  # noqa: S608
    unchecked = "SET check_constraint_checks = 0"
    if is_mysql(engine):
        unchecked = "ALTER TABLE carts ALTER CHECK carts_chk_1 NOT ENFORCED"
    past = {
        "sqlite": ("PRAGMA ignore_check_constraints = ON", wrong),
        "mysql": (unchecked, wrong),
        "postgresql": (
            "ALTER TABLE carts DROP CONSTRAINT ck_carts_ttl",
            wrong,
            "ALTER TABLE carts ADD CONSTRAINT ck_carts_ttl CHECK (ttl <> 0 AND ttl > -2) NOT VALID",
        ),
    }[engine.dialect.name]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in past:
            connection.exec_driver_sql(statement)
        connection.invalidate()
    assert CliRunner().invoke(cli, ["sweep", *app]).exit_code == 0
    findings = deep(app, status=1)
    finding = findings.pop("invalid-ttl")
    assert finding["message"].endswith("not found by sweeping with an index: 2")
    run_sql(engine, finding["fix"])
    if is_mysql(engine):
        unenforced = findings.pop("missing-check")
        assert unenforced["severity"] == "warning"
        assert "NOT ENFORCED" in unenforced["message"]
        run_sql(engine, unenforced["fix"])
    assert findings == {}
    assert "2 rows deleted" in CliRunner().invoke(cli, ["sweep", *app]).stdout
    assert deep(app, status=0) == {}


@pytest.mark.slow
def test_rows_without_their_instant_are_found(engine: Engine, app: list[str]) -> None:
    if engine.dialect.name == "sqlite":
        query = "SELECT sql FROM sqlite_master WHERE tbl_name = 'carts' AND sql <> ''"
        with engine.begin() as connection:
            table, *indexes = connection.scalars(text(query)).all()
        nullable = re.sub(r"(_ts [^\n]*) NOT NULL", r"\1", table)
        statements = ["DROP TABLE carts", nullable, *indexes]
    else:
        kind = {"postgresql": "ALTER COLUMN _ts DROP NOT NULL", "mysql": "MODIFY _ts BIGINT NULL"}
        statements = [f"ALTER TABLE carts {kind[engine.dialect.name]}"]
    run_sql(engine, *statements, "INSERT INTO carts (id, _ts) VALUES (777, NULL)")
    findings = deep(app, status=1)
    assert findings["undated"]["message"].endswith("no sweep finds: 1")
    assert findings["nullable-column"]["severity"] == "warning"
    run_sql(engine, findings["undated"]["fix"])
    assert "undated" not in deep(app, status=0)
    if engine.dialect.name != "sqlite":
        run_sql(engine, findings["nullable-column"]["fix"])
        assert "nullable-column" not in deep(app, status=0)


@pytest.mark.slow
def test_the_index_that_a_sweep_by_scopes_wants_is_named(engine: Engine) -> None:
    name = "ix_jottings_ttl_inherited"
    app = ["--app", "tests.cli.test_policy_command:Base"]
    app += ["--url", engine.url.render_as_string(hide_password=False)]
    StoredDefaults.metadata.create_all(engine)
    on_table, end, where = "", "_ts", " WHERE ttl IS NULL"
    if engine.dialect.name == "mysql":
        on_table, end, where = " ON jottings", "_ttl_inh", ""
    assert found(app, status=0).keys() == {("never-swept", None)}
    old = f"CREATE INDEX {name} ON jottings ({end}){where}"
    run_sql(engine, f"DROP INDEX {name}{on_table}", old)
    finding = found(app, "--model", "Jotting", status=1)["wrong-index", "jottings"]
    run_sql(engine, *finding["fix"].split("; "))
    assert found(app, status=0).keys() == {("never-swept", None)}
