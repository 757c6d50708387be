"""`ttl-odm policy`: stored defaults are shown, previewed, changed, and their history is kept."""

from __future__ import annotations

import getpass
import json
import os
import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.cli.running import CliRunner, command, variables
from tests.sql.sweeping import HOUR, add
from tests.terminals import END_OF_INPUT, at_a_terminal
from ttl_odm import Stored
from ttl_odm.cli.commands import cli
from ttl_odm.sqlalchemy import TTLMixin, set_policy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result
    from sqlalchemy import Engine

DAY = 24 * HOUR


class Base(DeclarativeBase):
    pass


class Basket(TTLMixin, Base):
    __tablename__ = "baskets"
    __ttl__ = Stored(DAY, least=60)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Jotting(TTLMixin, Base):
    __tablename__ = "jottings"
    __ttl__ = Stored(30 * DAY, by="tenant_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tenant_id: Mapped[int] = mapped_column(default=7)


class Visit(TTLMixin, Base):
    __tablename__ = "visits"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


@pytest.fixture
def app(engine: Engine) -> list[str]:
    """Baskets of two hours; jottings of two hours of tenant 7."""
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        add(connection, "baskets", [(key, None, 2 * HOUR) for key in range(3)])
        connection.execute(Jotting.__table__.insert(), [{"id": key, "ttl": -1} for key in range(2)])
    url = engine.url.render_as_string(hide_password=False)
    return ["--app", f"{__name__}:Base", "--url", url]


def run(app: list[str], *words: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["policy", *words[:1], *app, *words[1:]], input=typed)


def answered(app: list[str], *words: str) -> Any:
    finished = run(app, *words, "--json")
    assert finished.exit_code == 0, finished.output
    return json.loads(finished.stdout)


def defaults(app: list[str]) -> dict[tuple[str, str | None], int | None]:
    return {(row["name"], row["scope"]): row["ttl"] for row in answered(app, "show")}


def test_show_lists_what_is_stored(app: list[str]) -> None:
    lines = [line.split() for line in run(app, "show").stdout.splitlines()]
    assert lines[0][:3] == ["table", "rows", "default"]
    assert [line[0] for line in lines[1:]] == ["baskets", "jottings"]
    assert "1d" in lines[1]
    assert run(app, "show", "jottings").stdout.count("jottings") == 1
    assert "baskets" not in run(app, "show", "jottings").stdout


def test_set_shows_a_preview_and_changes_nothing(app: list[str]) -> None:
    before = defaults(app)
    finished = run(app, "set", "Basket", "1h")
    assert finished.exit_code == 0
    assert "baskets: 1d -> 1h" in finished.stdout
    assert "expired at once, and deleted by the next sweep: 3." in finished.stdout
    assert "Nothing was changed." in finished.stdout
    assert "--approve 3-" in finished.stdout
    assert defaults(app) == before


def test_set_makes_the_change_that_is_approved(app: list[str]) -> None:
    preview = answered(app, "set", "Basket", "3600")
    assert (preview["before"], preview["after"], preview["at_most"]) == (DAY, HOUR, 3)
    made = run(app, "set", "Basket", "3600", "--approve", preview["token"], "--reason", "audit")
    assert made.exit_code == 0, made.output
    assert made.stdout == "Changed: Basket 3600.\n"
    assert defaults(app)["baskets", None] == HOUR
    (change,) = answered(app, "history", "Basket")
    assert (change["ttl_before"], change["ttl_after"], change["reason"]) == (DAY, HOUR, "audit")
    assert change["changed_by"] == getpass.getuser()
    shown = run(app, "history").stdout.splitlines()
    assert shown[1].split()[2:] == [
        "baskets",
        "all",
        "1d",
        "1h",
        change["changed_by"],
        "audit",
    ]


def at_the_prompt(app: list[str], answer: Callable[[str], str]) -> tuple[int, str]:
    words = command("policy", "set", *app, "Basket", "1h", "--by", "ann")
    environment = variables(TERM="xterm", COLUMNS="100", PYTHONPATH=os.getcwd())  # noqa: PTH109
    return at_a_terminal(words, environment, "type its token: ", answer)


def shown_token(screen: str) -> str:
    (token,) = re.findall(r"^The token of this change: (\S+)\s*$", screen, re.MULTILINE)
    return f"{token}\n"


@pytest.mark.slow
def test_at_a_terminal_a_change_is_made_by_the_token_that_is_shown(app: list[str]) -> None:
    status, screen = at_the_prompt(app, shown_token)
    assert status == 0, screen
    assert "baskets: 1d -> 1h" in screen
    assert "Changed: Basket 1h." in screen
    assert defaults(app)["baskets", None] == HOUR
    (change,) = answered(app, "history", "Basket")
    assert change["changed_by"] == "ann"


@pytest.mark.slow
@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("answer", ["\n", "y\n", "3-0000000000\n"])
def test_at_a_terminal_any_other_answer_changes_nothing(app: list[str], answer: str) -> None:
    status, screen = at_the_prompt(app, lambda _: answer)
    assert status == 1, screen
    assert "That is not the token. Nothing was changed." in screen
    assert defaults(app)["baskets", None] == DAY


@pytest.mark.slow
@pytest.mark.databases("sqlite")
def test_at_a_terminal_no_answer_changes_nothing(app: list[str]) -> None:
    status, screen = at_the_prompt(app, lambda _: END_OF_INPUT)
    assert (status, screen.split("type its token: ")[1].strip()) == (1, "Aborted!")
    assert defaults(app)["baskets", None] == DAY


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("is_named", [True, False])
def test_each_subcommand_reads_the_settings_file(
    app: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_named: bool
) -> None:
    _, base, _, url = app
    file = tmp_path / ("ours.toml" if is_named else "pyproject.toml")
    file.write_text(
        f'[tool.ttl_odm]\napp = "{base}"\nurl = "$SHOP_URL"\n'
        '[tool.ttl_odm.policy]\nreason = "as in the file"\n'
    )
    monkeypatch.setenv("SHOP_URL", url)
    if not is_named:
        monkeypatch.chdir(tmp_path)
    start = ["--config", str(file), "policy"] if is_named else ["policy"]

    def answer(*words: str) -> Any:
        finished = CliRunner().invoke(cli, [*start, *words])
        assert finished.exit_code == 0, finished.output
        return json.loads(finished.stdout)

    assert {row["name"] for row in answer("show", "--json")} == {"baskets", "jottings"}
    token = answer("set", "Basket", "1h", "--json")["token"]
    monkeypatch.setenv("TTL_ODM_POLICY_SET_BY", "the environment")
    answer("set", "Basket", "1h", "--approve", token, "--json")
    (change,) = answer("history", "--json")
    assert (change["reason"], change["changed_by"]) == ("as in the file", "the environment")
    monkeypatch.setenv("TTL_ODM_POLICY_SET_RAISON", "a typo")
    finished = CliRunner().invoke(cli, [*start, "show"])
    assert finished.exit_code == 2
    assert "unknown key 'TTL_ODM_POLICY_SET_RAISON'" in " ".join(finished.stderr.split())


def test_set_of_a_tenant(app: list[str]) -> None:
    preview = answered(app, "set", "jottings", "tenant_id=7", "90d")
    assert (preview["scope"], preview["forecast"]["rows"]) == ("7", 2)
    run(app, "set", "jottings", "tenant_id=7", "90d", "--approve", preview["token"], "--by", "bob")
    assert defaults(app)["jottings", "7"] == 90 * DAY
    assert answered(app, "history")[0]["changed_by"] == "bob"


def test_one_of_a_tenant_is_removed(app: list[str]) -> None:
    for ttl in ("90d", "default"):
        preview = answered(app, "set", "jottings", "tenant_id=7", ttl)
        run(app, "set", "jottings", "tenant_id=7", ttl, "--approve", preview["token"])
    assert ("jottings", "7") not in defaults(app)
    changes = [(row["ttl_before"], row["ttl_after"]) for row in answered(app, "history")]
    assert changes == [(90 * DAY, 0), (0, 90 * DAY)]
    assert "90d      default" in run(app, "history").output


def numbers(counts: list[dict[str, Any]]) -> list[int]:
    return [count["rows"] for count in counts]


@pytest.mark.slow
@pytest.mark.parametrize("small", [0, 100_000], ids=["sampled", "counted"])
def test_a_plan_names_the_tenants(
    app: list[str],
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    small: int,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("ttl_odm.cli.plan.SMALL", small)
    with engine.connect() as connection:
        for scope, ttl in (("7", HOUR), ("8", 10 * DAY), ("9", -1)):
            set_policy(connection, Jotting, ttl, scope=scope, by="ann")
        rows = [
            {"id": key, "tenant_id": tenant, "ttl": None}
            for key, tenant in enumerate([7, 7, 8, 8, 8, 9, 9, 5, 6], start=10)
        ]
        connection.execute(Jotting.__table__.insert(), rows)
        connection.commit()
        older = {"sqlite": "7200000", "postgresql": "interval '2 hours'"}
        span = older.get(engine.dialect.name, "7200000000")
        connection.execute(text(f"UPDATE jottings SET _ts = _ts - {span} WHERE id >= 10"))  # noqa: S608
        connection.commit()
    finished = CliRunner().invoke(cli, ["plan", "Jotting", *app, "--json"])
    assert finished.exit_code == 0, finished.output
    forecast = json.loads(finished.stdout)
    by_scope = {scope: numbers(at) for scope, at in forecast["current"]["by_scope"].items()}
    assert numbers(forecast["current"]["expired"]) == [2, 2, 2, 2, 7]
    assert by_scope == {"8": [0, 0, 0, 0, 3], "7": [2, 2, 2, 2, 2], "": [0, 0, 0, 0, 2]}

    html = tmp_path / "plan.html"
    said = (
        CliRunner().invoke(cli, ["plan", "Jotting", *app, "--html", str(html)]).stdout.splitlines()
    )
    (head,) = (place for place, line in enumerate(said) if line.startswith("scope "))
    rows = [line.split() for line in said[head : head + 4]]
    assert rows[1][0] == "8"
    assert rows[3][:2] == ["all", "others"]
    assert "<h2>Expired rows by scope</h2>" in html.read_text()

    both = ["plan", "Jotting", *app, "--default-ttl", "1h", "--json"]
    planned = json.loads(CliRunner().invoke(cli, both).stdout)["planned"]["by_scope"]
    assert numbers(planned["9"]) == [2, 2, 2, 2, 2]


@pytest.mark.parametrize("ttl", ["-1", "off"])
def test_set_to_never_and_off(app: list[str], ttl: str) -> None:
    preview = answered(app, "set", "Jotting", ttl)
    assert run(app, "set", "Jotting", ttl, "--approve", preview["token"]).exit_code == 0
    assert defaults(app)["jottings", None] == (-1 if ttl == "-1" else None)


def test_a_tenant_in_another_spelling_is_the_same(app: list[str]) -> None:
    preview = answered(app, "set", "Jotting", "tenant_id=007", "10s")
    assert preview["scope"] == "7"
    finished = run(app, "set", "Jotting", "tenant_id=abc", "10s")
    assert finished.exit_code == 2
    said = " ".join(finished.stderr.split())
    assert "Jotting.tenant_id = 'abc': no row can have this value" in said


def test_a_wrong_token_changes_nothing(app: list[str]) -> None:
    before = defaults(app)
    finished = run(app, "set", "Basket", "1h", "--approve", "3-0123456789")
    assert finished.exit_code == 1
    assert "Preview it again." in finished.stderr
    assert defaults(app) == before


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "Basket", "soon"), "TTL 'soon': give whole seconds from 1 to"),
        (("set", "Basket", "1s"), "Basket.__ttl__ = 1: the least is 60 seconds."),
        (("set", "Basket", "tenant_id=7", "1h"), "its rows have one default"),
        (("set", "Jotting", "tenant=7", "1h"), "give tenant_id=VALUE"),
        (("set", "Jotting", "tenant_id=7", "1h", "2h"), "give [FIELD=VALUE] TTL"),
        (("set", "Visit", "1h"), "isn't stored in the database"),
        (("set", "Vist", "1h"), "no such model"),
        (("show", "Vist"), "no such model"),
    ],
)
def test_what_is_wrong_is_said(app: list[str], words: tuple[str, ...], said: str) -> None:
    finished = run(app, *words)
    assert finished.exit_code == 2
    assert said in finished.stderr.replace("\n", " ")


# --- MongoDB --------------------------------------------------------------------------------------


@pytest.fixture
def documents(mongodb: Any) -> tuple[list[str], Any]:
    """Baskets of two hours, whose default has begun."""
    url, database = mongodb
    now = datetime.now(timezone.utc)
    database["baskets"].insert_many(
        [{"_id": key, "_ts": now - timedelta(hours=2)} for key in range(3)]
    )
    row = {"ttl": DAY, "changed_at": now, "changed_by": None, "reason": None}
    database["ttl_odm_policies"].insert_one({"_id": {"name": "baskets", "scope": ""}, **row})
    return ["--app", "tests.cli.documents:STORED", "--url", url], database


@pytest.mark.slow
def test_documents_are_previewed_changed_and_have_a_history(
    documents: tuple[list[str], Any],
) -> None:
    app, database = documents
    assert defaults(app) == {("baskets", None): DAY}
    preview = answered(app, "set", "Basket", "3600")
    assert (preview["before"], preview["after"], preview["at_most"]) == (DAY, HOUR, 3)
    assert preview["forecast"]["planned"]["expired_at_once"] == 3
    assert defaults(app) == {("baskets", None): DAY}

    made = run(app, "set", "Basket", "1h", "--approve", preview["token"], "--reason", "audit")

    assert made.exit_code == 0, made.output
    assert defaults(app) == {("baskets", None): HOUR}
    (change,) = answered(app, "history", "Basket")
    assert (change["ttl_before"], change["ttl_after"], change["reason"]) == (DAY, HOUR, "audit")
    indexes = {index["name"]: index for index in database["baskets"].list_indexes()}
    assert indexes["__ttl_default"]["expireAfterSeconds"] == HOUR
    assert "1h" in run(app, "show").stdout


def test_a_change_of_documents_that_expires_more_than_its_preview_said_is_refused(
    documents: tuple[list[str], Any],
) -> None:
    app, database = documents
    preview = answered(app, "set", "Basket", "1h")
    two_hours_ago = datetime.now(timezone.utc) - timedelta(hours=2)
    database["baskets"].insert_one({"_id": 9, "_ts": two_hours_ago})
    finished = run(app, "set", "Basket", "1h", "--approve", preview["token"])
    assert finished.exit_code == 1
    assert "more than the 3 rows" in finished.stderr.replace("\n", " ")
    other = run(app, "set", "Basket", "2h", "--approve", preview["token"])
    assert "Preview it again." in other.stderr
    assert defaults(app) == {("baskets", None): DAY}
    assert "__ttl_default" not in {index["name"] for index in database["baskets"].list_indexes()}


def test_what_is_wrong_with_documents_is_said(documents: tuple[list[str], Any]) -> None:
    app, _ = documents
    for words, said in (
        (("set", "Basket", "tenant_id=7", "1h"), "have one default"),
        (("set", "Letter", "tenant=7", "1h"), "give tenant_id=VALUE"),
        (("set", "Letter", "tenant_id=x", "1h"), "no document can have this value"),
        (("set", "Basket", "1s"), "the least is 60 seconds"),
        (("set", "Event", "1h"), "isn't stored in the database"),
    ):
        finished = run(app, *words)
        assert finished.exit_code == 2
        assert said in finished.stderr.replace("\n", " ")


def test_documents_are_planned_by_what_is_stored(documents: tuple[list[str], Any]) -> None:
    app, _ = documents
    finished = CliRunner().invoke(cli, ["plan", *app, "Basket", "--default-ttl", "1h", "--json"])
    assert finished.exit_code == 0, finished.output
    forecast = json.loads(finished.stdout)
    assert forecast["current"]["expired"][0]["rows"] == 0
    assert forecast["planned"]["expired_at_once"] == 3


def test_a_default_that_has_not_begun_is_found(documents: tuple[list[str], Any]) -> None:
    app, database = documents

    def codes() -> set[str]:
        finished = CliRunner().invoke(cli, ["check", *app, "--model", "Basket", "--json"])
        return {found["code"] for found in json.loads(finished.stdout)["findings"]}

    assert "no-stored-default" not in codes()
    assert "missing-index" in codes()
    database["ttl_odm_policies"].delete_many({})
    assert "no-stored-default" in codes()


def test_status_counts_by_what_is_stored(documents: tuple[list[str], Any]) -> None:
    app, database = documents

    def expired() -> int:
        finished = CliRunner().invoke(cli, ["status", *app, "--json"])
        assert finished.exit_code in (0, 1), finished.output
        (target,) = (t for t in json.loads(finished.stdout)["targets"] if t["target"] == "baskets")
        return int(target["expired"])

    assert expired() == 0
    database["ttl_odm_policies"].update_one({}, {"$set": {"ttl": HOUR}})
    assert expired() == 3


@pytest.mark.slow
def test_documents_of_a_tenant_have_a_default_of_their_own(
    documents: tuple[list[str], Any],
) -> None:
    app, database = documents
    now = datetime.now(timezone.utc)
    two_hours_ago = now - timedelta(hours=2)
    database["letters"].insert_many(
        [{"_id": key, "_ts": two_hours_ago, "tenant_id": key % 2} for key in range(5)]
    )
    row = {"ttl": DAY, "changed_at": now, "changed_by": None, "reason": None}
    database["ttl_odm_policies"].insert_one({"_id": {"name": "letters", "scope": ""}, **row})

    preview = answered(app, "set", "letters", "tenant_id=1", "1h")
    assert (preview["scope"], preview["before"], preview["at_most"]) == ("1", DAY, 2)
    approved = ["--approve", preview["token"]]
    other = run(app, "set", "letters", "tenant_id=0", "1h", *approved)
    assert "Preview it again." in other.stderr
    made = run(app, "set", "letters", "tenant_id=1", "1h", *approved)

    assert made.exit_code == 0, made.output
    assert defaults(app) == {("baskets", None): DAY, ("letters", None): DAY, ("letters", "1"): HOUR}
    assert answered(app, "history", "Letter")[0]["scope"] == "1"
    finished = CliRunner().invoke(cli, ["plan", "letters", *app, "--json"])
    by_scope = json.loads(finished.stdout)["current"]["by_scope"]
    assert {scope: numbers(at)[-1] for scope, at in by_scope.items()} == {"1": 2, "": 3}
    swept = CliRunner().invoke(cli, ["sweep", *app, "--model", "Letter", "--yes"])
    assert swept.exit_code == 0, swept.output
    assert database["letters"].count_documents({}) == 3
    preview = answered(app, "set", "letters", "tenant_id=1", "default")
    assert (preview["before"], preview["after"]) == (HOUR, 0)
    made = run(app, "set", "letters", "tenant_id=1", "default", "--approve", preview["token"])
    assert made.exit_code == 0, made.output
    assert ("letters", "1") not in defaults(app)
