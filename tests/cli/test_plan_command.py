"""`ttl-odm plan`: what expires when, by the policy as it is and as it is planned."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pymongo import MongoClient
from sqlalchemy import String, insert, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.browsers import in_venv_only, launched, program
from tests.cli import legacy, shop
from tests.cli.running import CliRunner, run
from tests.migrations.projects import is_mysql
from tests.sql.sweeping import HOUR, add
from ttl_odm.cli import plan_page
from ttl_odm.cli.commands import cli
from ttl_odm.cli.connect import connect
from ttl_odm.cli.source import Source
from ttl_odm.core import TTL
from ttl_odm.forecast import Drawn, Estimate, Measured, parse_policy
from ttl_odm.forecast.sql import measure
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

FACTORY = ["--app", "tests.cli.shop:tabled"]
sqlite = pytest.mark.databases("sqlite")


@pytest.fixture
def app(engine: Engine) -> list[str]:
    """Sessions (default: an hour) that are 30 min, 2 h, 30 h and 300 h old; own ttls."""
    shop.Base.metadata.create_all(engine)
    rows = [(1, None, HOUR // 2), (2, None, 2 * HOUR), (3, None, 30 * HOUR), (4, None, 300 * HOUR)]
    with engine.begin() as connection:
        add(connection, "web_sessions", [*rows, (5, 3 * HOUR, 2 * HOUR), (6, -1, 9 * HOUR)])
    url = engine.url.render_as_string(hide_password=False)
    return ["--app", "tests.cli.shop:Base", "--url", url]


def planned(app: list[str], *options: str, model: str = "WebSession") -> dict[str, Any]:
    finished = CliRunner().invoke(cli, ["plan", model, *app, *options, "--json"])
    assert finished.exit_code == 0, finished.output
    forecast: dict[str, Any] = json.loads(finished.stdout)
    return forecast


@sqlite
@pytest.mark.parametrize("default", ["2w", "14d", "336h", str(14 * 24 * HOUR)])
def test_a_default_may_be_typed_as_a_duration(app: list[str], default: str) -> None:
    policy = planned(app, "--default-ttl", default)["planned"]["policy"]
    assert policy == "TTL(1209600)"


@sqlite
def test_a_table_may_stand_for_its_model(app: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    url = app[-1]
    monkeypatch.setenv("SHOP_URL", url)
    for words in (["--app", "tests.cli.shop:WebSession.__table__", "--url", url], FACTORY):
        assert planned(words, model="web_sessions")["rows"] == 6


def numbers(counts: list[dict[str, Any]]) -> list[int]:
    return [count["rows"] for count in counts]


def test_it_counts_now_and_later_by_the_policy_as_it_is(app: list[str]) -> None:
    forecast = planned(app)
    assert (forecast["rows"], forecast["own_ttl"], forecast["planned"]) == (6, 2, None)
    assert forecast["current"]["policy"] == "TTL(3600)"
    # now: 2, 3, 4; in an hour: 1 as well, and 5; 6 never
    assert numbers(forecast["current"]["expired"]) == [3, 5, 5, 5, 5]
    ages = {bar["label"]: bar["rows"] for bar in forecast["ages"]}
    assert ages == {
        "10 min to 1 h": 1,
        "1 h to 6 h": 2,
        "6 h to 1 d": 1,
        "1 d to 7 d": 1,
        "7 d to 30 d": 1,
    }


@pytest.mark.parametrize(
    ("default", "expired", "lost", "revived"),
    [
        ("86400", [2, 3, 5, 5, 5], 0, 1),
        ("1000", [4, 5, 5, 5, 5], 1, 0),
        ("-1", [0, 1, 1, 1, 1], 0, 3),
        ("off", [0, 0, 0, 0, 0], 0, 3),
    ],
)
def test_another_default_is_tried_before_it_is_declared(
    app: list[str], default: str, expired: list[int], lost: int, revived: int
) -> None:
    forecast = planned(app, "--default-ttl", default)["planned"]
    assert numbers(forecast["expired"]) == expired
    assert (forecast["expired_at_once"], forecast["visible_again"]) == (lost, revived)
    assert shop.WebSession.__ttl__ == HOUR


@sqlite
def test_it_changes_nothing(engine: Engine, app: list[str]) -> None:
    planned(app, "--default-ttl", "1")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM web_sessions")).scalar_one() == 6


@pytest.mark.slow
@sqlite
def test_people_get_a_table_and_bars_and_a_page_to_mail(app: list[str], tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    finished = run("plan", "web_sessions", *app, "--default-ttl", "1000", "--html", str(page))
    assert (finished.returncode, finished.stderr) == (0, "")
    lines = finished.stdout.splitlines()
    assert "now            3        4  66.7%" in lines
    assert "! Live rows that would be expired at once, and deleted by the next sweep: 1." in lines
    assert "   1 h to 6 h  2  ████████████████████████████████████████" in lines
    content = page.read_text()
    seen = _Tags()
    seen.feed(content)
    assert seen.open == []
    assert "deleted by the next sweep: 1." in content
    assert "src=" not in content
    assert "href=" not in content


@sqlite
@pytest.mark.parametrize("options", [[], ["--policy", 'TTL(60, last_modified="_ts")']])
def test_a_misspelt_table_is_answered_by_the_one_that_was_meant(
    engine: Engine, app: list[str], options: list[str]
) -> None:
    url = engine.url.render_as_string(hide_password=False)
    finished = CliRunner().invoke(cli, ["plan", "web_session", "--url", url, *options])
    assert finished.exit_code == 2
    missing = "MODEL 'web_session': the database has no table 'web_session'"
    assert f"{missing}; did you mean 'web_sessions'?" in finished.stderr
    finished = CliRunner().invoke(cli, ["plan", "nothing.alike", "--url", url, *options])
    assert "the database has no table 'nothing.alike'." in finished.stderr
    finished = CliRunner().invoke(cli, ["plan", "WebSesion", *app])
    assert "did you mean 'WebSession'?" in finished.stderr


def test_so_is_a_misspelt_collection(mongodb_url: str) -> None:
    name = f"ttl_odm_{uuid4().hex}"
    client: MongoClient[Any] = MongoClient(mongodb_url)
    try:
        client[name]["logins"].insert_one({"at": datetime.now(timezone.utc)})
        url = mongodb_url.replace("/?", f"/{name}?")
        words = ["plan", "login", "--url", url, "--policy", 'ExpireAt("at")']
        finished = CliRunner().invoke(cli, words)
        assert finished.exit_code == 2, finished.output
        assert "no collection 'login'; did you mean 'logins'?" in finished.stderr
        words[1] = "logins"
        assert CliRunner().invoke(cli, words).exit_code == 0
    finally:
        client.drop_database(name)
        client.close()


@pytest.mark.parametrize(
    ("words", "meant"), [(["swep"], "sweep"), (["policy", "histry"], "history"), (["zzz"], None)]
)
def test_so_is_a_misspelt_command(words: list[str], meant: str | None) -> None:
    finished = CliRunner().invoke(cli, words)
    assert finished.exit_code == 2
    assert f"No such command '{words[-1]}'" in finished.stderr
    assert (f"did you mean '{meant}'?" in finished.stderr) is (meant is not None)


@pytest.mark.slow
@in_venv_only
def test_a_plot_can_be_read_on_a_phone_and_on_a_laptop() -> None:
    label, most = "expired already, or without a last change", Estimate(123_456_789, 1_234_567)
    bars = [("now", Estimate(5)), ("in 1 h", Estimate(61_728_394)), (label, most)]
    plot = plan_page._bars([bars], 123_456_789)
    with launched(program()) as browser:
        page = browser.new_page()
        page.set_content(f"<!doctype html><style>{plan_page._STYLE}</style>{plot}")
        for width in (390, 1440):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            sizes = page.locator(".bars p, .bars span").evaluate_all(
                "(texts) => texts.map((text) => [parseFloat(getComputedStyle(text).fontSize),"
                " text.scrollWidth - text.clientWidth])"
            )
            assert len(sizes) == 6
            assert min(font for font, _ in sizes) >= 12
            assert max(hidden for _, hidden in sizes) <= 0
            drawn = page.locator(".bars b").evaluate_all(
                "(bars) => bars.map((bar) => bar.getBoundingClientRect().width)"
            )
            assert drawn[0] < 1
            assert drawn[1] == pytest.approx(drawn[2] / 2, abs=1)
        assert drawn[2] > 300


class _Tags(HTMLParser):
    """Checks that every element is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "meta":
            assert self.open.pop() == tag


@sqlite
@pytest.mark.parametrize("default", ["0", "x", "-2", "2147483648", "1.5"])
def test_a_default_that_is_none_is_refused(app: list[str], default: str) -> None:
    finished = CliRunner().invoke(cli, ["plan", "Cart", *app, "--default-ttl", default])
    assert finished.exit_code == 2
    assert "give whole seconds from 1 to 2147483647, -1 or off, or as in 90d" in finished.stderr


def fill_carts(engine: Engine, rows: int) -> None:
    """Carts that are two seconds apart, the oldest first: 43,200 are younger than a day."""
    clock = clock_of(engine.dialect)
    counting = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows) "
        "SELECT i FROM n"
    )
    with engine.begin() as connection:
        numbers = {
            "sqlite": counting,
            "postgresql": "SELECT generate_series(1, :rows) AS i",
            "mysql": f"SELECT seq AS i FROM seq_1_to_{rows}",  # noqa: S608 (MariaDB's own)
        }[clock.family]
        if is_mysql(engine):
            connection.execute(text(f"SET cte_max_recursion_depth = {rows}"))
            numbers = counting
        connection.execute(
            text(
                f"INSERT INTO carts (id, _ts) SELECT 7 * i, "  # noqa: S608 (a test's own)
                f"{clock.now} - (:rows - i) * 2 * {clock.second} "
                f"FROM ({numbers}) AS numbers"
            ),
            {"rows": rows},
        )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        table = "TABLE " if clock.family == "mysql" else ""
        connection.execute(text(f"ANALYZE {table}carts"))


@pytest.mark.slow
def test_a_big_table_is_sampled_and_the_error_is_told(engine: Engine, app: list[str]) -> None:
    rows = 120_000
    fill_carts(engine, rows)
    forecast = planned(app, "--default-ttl", str(36 * HOUR), model="Cart")
    assert 25_000 < forecast["sampled_rows"] < rows
    assert abs(forecast["rows"] - rows) < rows / 50
    for scenario, young in (("current", 12 * HOUR), ("planned", 18 * HOUR)):
        now = forecast[scenario]["expired"][0]
        assert 0 < now["margin"] < rows / 50
        assert abs(now["rows"] - (rows - young)) <= 3 * now["margin"]
    assert planned(app, "--deep", model="Cart")["sampled_rows"] is None


@pytest.mark.slow
@sqlite
@pytest.mark.parametrize("keys", ["VARCHAR(20)", "INTEGER"])
def test_where_keys_make_no_sample_rows_are_drawn_one_by_one(
    engine: Engine, keys: str, app: list[str]
) -> None:
    rows = 120_000
    fill_carts(engine, rows)
    with engine.begin() as connection:  # without a rowid, or with one row far from all others
        without = "WITHOUT ROWID" if keys != "INTEGER" else ""
        connection.execute(
            text(f"CREATE TABLE other (id {keys} NOT NULL PRIMARY KEY, at INTEGER) {without}")
        )
        connection.execute(text("INSERT INTO other SELECT id, _ts FROM carts"))
        connection.execute(text("INSERT INTO other VALUES (9000000000000000000, 0)"))
    policy = 'ExpireAfter("at", 86400, unit="ms")'
    with engine.connect() as connection:
        measured = measure(connection, "other", parse_policy(policy))
    assert (measured.drawn, measured.total) == (Drawn.SINGLY, rows + 1)
    expired = measured.estimate("planned 0")
    assert abs(expired.rows - (rows - 12 * HOUR)) <= 3 * expired.margin


@pytest.mark.slow
@pytest.mark.databases("postgres")
@pytest.mark.parametrize(("partitions", "width"), [(60, 0), (1, 700)])
def test_pages_make_a_sample_of_many_partitions_and_of_wide_rows(
    engine: Engine, partitions: int, width: int
) -> None:
    rows = 120_000 if partitions > 1 else 60_000
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE other (at timestamptz, body text) PARTITION BY RANGE (at)")
        )
        for number in range(partitions):  # of 10 days each, the youngest first
            start = f"now() - interval '{10 * number + 10} days'"
            connection.execute(
                text(
                    f"DO $$ BEGIN EXECUTE format('CREATE TABLE other_{number} PARTITION OF other "
                    f"FOR VALUES FROM (%L) TO (%L)', date_trunc('hour', {start}), "
                    f"date_trunc('hour', {start} + interval '10 days')); END $$"
                )
            )
        connection.execute(
            text(
                "INSERT INTO other SELECT now() - interval '1 day' - :days * n / :rows * "
                "interval '1 day', repeat('x', :width) FROM generate_series(1, :rows) AS n"
            ),
            {"days": 10 * partitions - 2, "rows": rows, "width": width},
        )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE other"))
    policy = parse_policy(f'ExpireAfter("at", {5 * partitions} * 86400)')
    with engine.connect() as connection:
        measured = measure(connection, "other", policy, big=50_000)
    assert measured.drawn is Drawn.STRETCHES
    assert measured.sampled > 12_500
    expired = measured.estimate("planned 0")
    assert 0 < expired.margin < rows / 10
    assert abs(expired.rows - rows / 2) <= 3 * expired.margin


def test_the_error_is_that_of_how_the_sample_was_drawn() -> None:
    names = ["rows", "hits"]
    clusters = [(100, 100)] * 8 + [(100, 0)] * 8  # rows of one age lie together
    singly = Measured(names, [(1600, 800)], Drawn.SINGLY, 100_000)
    stretches = Measured(names, clusters, Drawn.STRETCHES, 1_000)
    assert singly.estimate("hits") == Estimate(50_000, 2_450)
    assert stretches.estimate("hits") == Estimate(50_000, 8_947)  # each part was met
    assert str(singly.estimate("hits")) == "50,000 ±2,450"
    assert str(Measured(names, clusters).estimate("hits")) == "800"


def test_what_no_sample_has_met_may_be_there_all_the_same() -> None:
    drawn = {"singly": Measured(["rows", "hits"], [(1500, 0)], Drawn.SINGLY, 100_000)}
    drawn["stretches"] = Measured(["rows", "hits"], [(100, 0)] * 30, Drawn.STRETCHES, 1_000)
    assert drawn["singly"].estimate("hits") == Estimate(0, 200)  # 3 in 1500
    assert drawn["stretches"].estimate("hits") == Estimate(0, 10_000)  # 3 in 30
    assert str(drawn["singly"].estimate("hits")) == "< 200"
    seldom = Measured(["rows", "hits"], [(100, 3), *[(100, 0)] * 29], Drawn.STRETCHES, 1_000)
    assert seldom.estimate("hits") == Estimate(100, 13_334)  # there may be more of such places
    assert drawn["stretches"].rows == Estimate(100_000)


def test_documents_are_planned(mongodb: Any) -> None:
    url, database = mongodb
    now = datetime.now(timezone.utc)
    database["events"].insert_many(
        [
            {"_id": 1, "_ts": now - timedelta(hours=2)},
            {"_id": 2, "_ts": now, "ttl": 7200},
            {"_id": 3, "_ts": now - timedelta(minutes=30)},
            {"_id": 4},
        ]
    )
    app = ["--app", "tests.cli.documents:MODELS", "--url", url]
    forecast = planned(app, "--default-ttl", "60", model="Event")
    assert (forecast["rows"], forecast["own_ttl"]) == (4, 1)
    assert numbers(forecast["current"]["expired"]) == [1, 2, 3, 3, 3]
    assert numbers(forecast["planned"]["expired"]) == [2, 2, 3, 3, 3]
    assert forecast["planned"]["expired_at_once"] == 1
    assert forecast["ages"][-1] == {"label": "no instant", "rows": 1, "margin": 0}


@pytest.mark.slow
async def test_a_big_collection_is_sampled_and_its_expired_documents_count(mongodb: Any) -> None:
    from ttl_odm.forecast import mongodb as counting

    url, database = mongodb
    now, count = datetime.now(timezone.utc), 60_000
    database["events"].insert_many(
        {"_id": key, "_ts": now - timedelta(hours=2 * (key % 2))} for key in range(count)
    )
    database["texts"].insert_many(
        {"_id": str(key), "_ts": now - timedelta(hours=2 * (key % 2))} for key in range(count)
    )
    async with connect(Source("tests.cli.documents:MODELS", url)) as application:
        kinds = {}
        for name in ("events", "texts"):
            measured = await counting.measure(application.engine[name], None, TTL(3600), big=100)
            expired = measured.estimate("planned 0")
            assert abs(expired.rows - count / 2) <= 3 * expired.margin < count / 10
            kinds[name] = measured.drawn
    assert kinds == {"events": Drawn.STRETCHES, "texts": Drawn.SINGLY}


def test_a_policy_is_tried_on_a_table_that_no_model_knows(engine: Engine) -> None:
    with engine.begin() as connection:
        legacy.METADATA.create_all(connection)
        now = connection.execute(text("SELECT CURRENT_TIMESTAMP")).scalar_one()
        now = datetime.fromisoformat(now) if isinstance(now, str) else now
        ends = [now.replace(tzinfo=None) + timedelta(hours=left) for left in (-30, 2, 50)]
        connection.execute(insert(legacy.RESULTS), [{"date_done": end} for end in [*ends, None]])
    url = engine.url.render_as_string(hide_password=False)
    policy = ["--policy", '__ttl__ = ExpireAt("date_done")  # as inspect has it']
    forecast = planned(["--url", url], *policy, model="celery_taskmeta")
    assert forecast["current"] is None
    assert forecast["planned"]["policy"] == 'ExpireAt("date_done")'
    assert numbers(forecast["planned"]["expired"]) == [1, 1, 2, 3, 3]
    assert (forecast["planned"]["expired_at_once"], forecast["planned"]["visible_again"]) == (1, 0)
    assert [bar["label"] for bar in forecast["ages"]] == [
        "in 1 d to 7 d",
        "in 6 h to 1 d",
        "in 1 h to 6 h",
        *("in < 1 h", "< 1 h ago", "1 h to 6 h ago", "6 h to 1 d ago"),
        "1 d to 7 d ago",
        "no instant",
    ]


def test_another_policy_is_tried_on_a_model_that_has_one(app: list[str]) -> None:
    forecast = planned(app, "--policy", 'ExpireAfter("_ts", timedelta(hours=6))')
    assert (forecast["current"]["policy"], forecast["field"]) == ("TTL(3600)", "_ts")
    # Rows of 2 h and 30 min live, and ttls of their own are gone: 6, of 9 h, had none to end it.
    assert numbers(forecast["current"]["expired"]) == [3, 5, 5, 5, 5]
    assert numbers(forecast["planned"]["expired"]) == [3, 3, 6, 6, 6]
    assert (forecast["planned"]["expired_at_once"], forecast["planned"]["visible_again"]) == (1, 1)


@sqlite
def test_a_policy_is_tried_on_a_model_that_has_none(engine: Engine, app: list[str]) -> None:
    with engine.begin() as connection:
        legacy.METADATA.create_all(connection)
        connection.execute(insert(legacy.TOKENS), [{"issued_at": 1, "expires_in": 0}])
    app = ["--app", "tests.cli.legacy:METADATA", *app[2:]]
    policy = 'TTL(-1, last_modified="issued_at", override="expires_in", never=(0,), unit="s")'
    forecast = planned(app, "--policy", policy, model="oauth2_token")
    assert numbers(forecast["planned"]["expired"]) == [0] * 5
    policy = 'ExpireAfter("issued_at", 30 * 86400, unit="s")'
    forecast = planned(app, "--policy", policy, model="oauth2_token")
    assert numbers(forecast["planned"]["expired"]) == [1] * 5
    assert binding_of(legacy.TOKENS) is None


@sqlite
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["carts"], "carts has no policy yet: give one with --policy"),
        (["carts", "--policy", "ExpireAt(_ts)"], "_ts can't be read"),
        (["carts", "--policy", 'ExpireAt("end")'], "table 'carts' has no column 'end'"),
        (["nothing", "--policy", 'ExpireAt("end")'], "the database has no table 'nothing'"),
        (["carts", "--policy", "3600", "--default-ttl", "1"], "give one of them"),
        (["carts", "--policy", 'ExpireAfter("_ts", -2)'], "not a duration"),
        (["carts", "--policy", 'ExpireAfter("_ts", "0d")'], '0 means "never" in some settings'),
        (["carts", "--policy", 'ExpireAfter("_ts", None)'], "never expire, declare no policy"),
    ],
)
def test_what_can_not_be_planned_is_refused(
    options: list[str], complaint: str, app: list[str]
) -> None:
    finished = CliRunner().invoke(cli, ["plan", *options, *app[2:]])
    assert finished.exit_code == 2, finished.output
    assert complaint in finished.stderr


def test_kinds_of_rows_have_the_one_default_that_is_planned(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Note(TTLMixin, Base):
        __tablename__ = "notes"
        __ttl__ = TTL({"short": 10}, by="kind", other=None)
        id: Mapped[int] = mapped_column(primary_key=True)
        kind: Mapped[str] = mapped_column(String(10))

    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        clock = clock_of(engine.dialect)
        for key, kind in ((1, "short"), (2, "long")):
            connection.execute(
                text(
                    f"INSERT INTO notes (id, kind, _ts) "  # noqa: S608 (a test's own)
                    f"VALUES ({key}, '{kind}', {clock.now} - 60 * {clock.second})"
                )
            )
    table = binding_of(Note.__table__)
    assert table is not None
    for planned_, expired in ((None, 1), (TTL(30), 2), (TTL(86_400), 0)):
        with engine.connect() as connection:
            measured = measure(connection, table.table, planned_)
        scenario = "current" if planned_ is None else "planned"
        assert measured.estimate(f"{scenario} 0") == Estimate(expired)


def test_documents_of_a_collection_without_a_class_are_planned(mongodb: Any) -> None:
    url, database = mongodb
    now = datetime.now(timezone.utc)
    database["hits"].insert_many(
        {"at": now - timedelta(hours=hours)} for hours in (1, 3, 50, 24 * 29)
    )
    forecast = planned(["--url", url], "--policy", 'ExpireAfter("at", 2 * 3600)', model="hits")
    assert numbers(forecast["planned"]["expired"]) == [3, 4, 4, 4, 4]
    finished = CliRunner().invoke(
        cli, ["plan", "nothing", "--url", url, "--policy", 'ExpireAt("at")']
    )
    assert (finished.exit_code, "no collection 'nothing'" in finished.stderr) == (2, True)
