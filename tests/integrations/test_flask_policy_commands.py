"""``flask ttl policy``: stored defaults are shown, previewed and changed as by `ttl-odm policy`."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import Mapped, mapped_column

from tests.guard import GUARD
from tests.integrations.flask_stored import DAY, HOUR, Base, Basket, Note, create_app
from tests.sql.sweeping import add
from tests.terminals import END_OF_INPUT, at_a_terminal
from ttl_odm import Stored
from ttl_odm.cli.commands import cli
from ttl_odm.forecast.change import preview_policy
from ttl_odm.integrations.flask import TTL
from ttl_odm.sqlalchemy import TTLMixin, policy_changes, set_policy, stored_policies
from ttl_odm.testing import InMemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from click.testing import Result
    from sqlalchemy import Engine


@pytest.fixture
def shop(engine: Engine) -> Iterator[Flask]:
    """Three baskets of two hours, whose default is a day."""
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        add(connection, "baskets", [(key, None, 2 * HOUR) for key in range(3)])
    app = create_app(engine.url.render_as_string(hide_password=False))
    yield app
    for application in app.extensions["ttl_odm"].applications().values():
        application.engine.dispose()


def run(app: Flask, *words: str) -> Result:
    return app.test_cli_runner().invoke(args=["ttl", "policy", *words])


def answered(app: Flask, *words: str) -> Any:
    finished = run(app, *words, "--json")
    assert finished.exit_code == 0, finished.output
    return json.loads(finished.output)


def defaults(app: Flask) -> dict[tuple[str, str | None], int | None]:
    return {(row["name"], row["scope"]): row["ttl"] for row in answered(app, "show")}


def test_a_change_is_previewed_made_and_listed(shop: Flask) -> None:
    seen = run(shop, "set", "Basket", "1h")
    assert seen.exit_code == 0, seen.output
    assert "baskets: 1d -> 1h" in seen.output
    assert "expired at once, and deleted by the next sweep: 3." in seen.output
    assert "Nothing was changed. To make the change, add:\n--approve 3-" in seen.output
    assert defaults(shop) == {("baskets", None): DAY, ("notes", None): 30 * DAY}
    token = answered(shop, "set", "Basket", "1h")["token"]
    assert f"--approve {token}\n" in seen.output

    made = run(shop, "set", "Basket", "1h", "--approve", token, "--reason", "the audit")

    assert (made.exit_code, made.output) == (0, "Changed: Basket 1h.\n")
    assert defaults(shop)["baskets", None] == HOUR
    (change,) = answered(shop, "history", "Basket")
    assert (change["bind"], change["ttl_before"], change["ttl_after"]) == ("default", DAY, HOUR)
    assert (change["changed_by"], change["reason"]) == (getpass.getuser(), "the audit")
    head, line = run(shop, "history").output.splitlines()
    assert head.split() == ["changed", "table", "rows", "from", "to", "by", "reason"]
    assert line.split()[2:6] == ["baskets", "all", "1d", "1h"]
    assert [line.split()[0] for line in run(shop, "show").output.splitlines()] == [
        *("table", "baskets", "notes")
    ]
    assert "baskets" not in run(shop, "show", "Note").output


def test_a_tenant_gets_a_default_of_its_own_and_loses_it(shop: Flask) -> None:
    for ttl in ("90d", "default"):
        words = ("set", "notes", "tenant_id=007", ttl)
        token = answered(shop, *words)["token"]
        made = answered(shop, *words, "--approve", token, "--by", "ann")
        assert made["by"] == "ann"
    changes = [(row["scope"], row["ttl_after"]) for row in answered(shop, "history")]
    assert changes == [("7", 0), ("7", 90 * DAY)]


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("ttl", ["-1", "off"])
def test_a_default_is_set_to_never_and_to_off(shop: Flask, ttl: str) -> None:
    token = answered(shop, "set", "Basket", ttl)["token"]
    assert run(shop, "set", "Basket", ttl, "--approve", token).exit_code == 0
    assert defaults(shop)["baskets", None] == (-1 if ttl == "-1" else None)


@pytest.mark.databases("sqlite")
def test_tokens_are_signed_with_the_secret_key(shop: Flask, engine: Engine) -> None:
    with engine.connect() as connection:
        plain = preview_policy(connection, Basket, HOUR).token
        signed = preview_policy(connection, Basket, HOUR, secret="a secret").token
    assert answered(shop, "set", "Basket", "1h")["token"] == signed
    refused = run(shop, "set", "Basket", "1h", "--approve", plain)
    assert refused.exit_code == 1
    assert "Preview it again." in refused.output
    assert defaults(shop)["baskets", None] == DAY
    shop.secret_key = None
    assert answered(shop, "set", "Basket", "1h")["token"] == plain


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "Basket", "soon"), "TTL 'soon': give whole seconds from 1 to"),
        (("set", "Basket", "1s"), "Basket.__ttl__ = 1: the least is 60 seconds."),
        (("set", "Basket", "tenant_id=7", "1h"), "its rows have one default"),
        (("set", "Note", "tenant=7", "1h"), "give tenant_id=VALUE"),
        (("set", "Note", "tenant_id=x", "1h"), "no row can have this value"),
        (("set", "Note", "tenant_id=7", "1h", "2h"), "give [FIELD=VALUE] TTL"),
        (("set", "Visit", "1h"), "isn't stored in the database"),
        (("set", "Baskt", "1h"), "did you mean 'Basket'?"),
        (("show", "Baskt"), "did you mean 'Basket'?"),
        (("history", "Visit"), "isn't stored in the database"),
    ],
)
def test_what_is_wrong_is_said(shop: Flask, words: tuple[str, ...], said: str) -> None:
    finished = run(shop, *words)
    assert finished.exit_code in (1, 2)
    assert said in finished.output.replace("\n", " ")
    assert defaults(shop) == {("baskets", None): DAY, ("notes", None): 30 * DAY}


@pytest.mark.databases("sqlite")
def test_it_takes_what_ttl_odm_policy_takes(shop: Flask) -> None:
    ours: Any = shop.cli.commands["ttl"]
    theirs: Any = cli.commands["policy"]
    names = {"show", "set", "history"}
    assert set(ours.commands["policy"].commands) == set(theirs.commands) == names
    for name in names:
        own, other = (group.commands[name] for group in (ours.commands["policy"], theirs))
        options = {option.name for option in other.params} - {"app", "config", "url"}
        assert {option.name for option in own.params} == options
        assert own.help == other.help


@pytest.mark.databases("sqlite")
def test_without_stored_defaults_it_says_how_to_get_one(engine: Engine) -> None:
    app = Flask("shop")
    TTL(app, InMemoryStore(), None)
    assert run(app, "show").output.startswith("No default is stored:")
    assert answered(app, "history") == []
    finished = run(app, "set", "Basket", "1h")
    assert finished.exit_code == 2
    assert "no such model" in finished.output


# --- at a terminal


def at_the_prompt(engine: Engine, answer: Callable[[str], str]) -> tuple[int, str]:
    words = [sys.executable, "-m", "flask", "--app", "tests.integrations.flask_stored", "ttl"]
    environment = {
        **os.environ,
        "TERM": "xterm",
        "COLUMNS": "100",
        "SHOP_URL": engine.url.render_as_string(hide_password=False),
    }
    words += ["policy", "set", "Basket", "1h", "--by", "ann"]
    return at_a_terminal(words, environment, "type its token: ", answer)


@pytest.mark.slow
def test_at_a_terminal_a_change_is_made_by_the_token_that_is_shown(
    shop: Flask, engine: Engine
) -> None:
    status, screen = at_the_prompt(
        engine, lambda shown: re.findall(r"The token of this change: (\S+)", shown)[0] + "\n"
    )
    assert status == 0, screen
    assert "baskets: 1d -> 1h" in screen
    assert screen.endswith("Changed: Basket 1h.\n")
    with engine.connect() as connection:
        (change,) = policy_changes(connection, Basket)
    assert (change.changed_by, change.ttl_after) == ("ann", HOUR)


@pytest.mark.slow
@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("answer", ["\n", "yes\n", END_OF_INPUT])
def test_at_a_terminal_any_other_answer_changes_nothing(
    shop: Flask, engine: Engine, answer: str
) -> None:
    status, screen = at_the_prompt(engine, lambda _: answer)
    assert status == 1, screen
    assert ("That is not the token. Nothing was changed." in screen) is (answer != END_OF_INPUT)
    with engine.connect() as connection:
        assert policy_changes(connection, Basket) == []


# --- several databases


@pytest.fixture
def binds(tmp_path: Path) -> Iterator[Flask]:
    """Carts in one database, letters of tenants in another."""
    app = Flask("shop")
    app.config.update(
        SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path / 'carts.sqlite3'}",
        SQLALCHEMY_BINDS={"post": f"sqlite:///{tmp_path / 'post.sqlite3'}"},
    )
    db: Any = SQLAlchemy()

    class Cart(TTLMixin, db.Model):
        __tablename__ = "carts"
        __ttl__ = Stored(HOUR)

        id: Mapped[int] = mapped_column(primary_key=True)

    class Letter(TTLMixin, db.Model):
        __tablename__ = "letters"
        __bind_key__ = "post"
        __ttl__ = Stored(DAY)

        id: Mapped[int] = mapped_column(primary_key=True)

    db.init_app(app)
    TTL(app, db)
    with app.app_context():
        db.create_all()
        with db.engines["post"].connect() as connection:
            set_policy(connection, Letter, 2 * DAY, by="ann")
        yield app
        for engine in db.engines.values():
            engine.dispose()


@pytest.mark.databases("sqlite")
def test_each_database_is_shown_under_its_name(binds: Flask) -> None:
    lines = run(binds, "show").output.splitlines()
    assert [line.split()[0] for line in lines] == [
        *("default:", "table", "carts", "post:", "table", "letters")
    ]
    assert [(row["bind"], row["name"]) for row in answered(binds, "show")] == [
        ("default", "carts"),
        ("post", "letters"),
    ]
    assert [line.split()[0] for line in run(binds, "history").output.splitlines()[:2]] == [
        *("post:", "changed")
    ]
    assert [row["name"] for row in answered(binds, "show", "letters")] == ["letters"]
    token = answered(binds, "set", "Letter", "1h")["token"]
    assert run(binds, "set", "Letter", "1h", "--approve", token).exit_code == 0
    assert answered(binds, "history")[0]["ttl_after"] == HOUR


# --- a user without a name

NAMELESS = """
import os, sys
for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
    os.environ.pop(name, None)
os.getuid = lambda: 2_000_000_011  # as in a container that runs under any number
from flask.cli import main
sys.argv[0] = "flask"
main()
"""


@pytest.mark.slow
@pytest.mark.databases("sqlite")
def test_a_user_without_a_name_is_asked_for_one(shop: Flask, engine: Engine) -> None:
    token = answered(shop, "set", "Basket", "1h")["token"]
    words = [sys.executable, "-c", NAMELESS, "--app", "tests.integrations.flask_stored", "ttl"]
    words += ["policy", "set", "Basket", "1h", "--approve", token]
    url = engine.url.render_as_string(hide_password=False)
    environment = {**os.environ, "SHOP_URL": url, "COLUMNS": "100"}
    for more, status in (([], 2), (["--by", "ann"], 0)):
        finished = subprocess.run(
            [*words, *more],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=GUARD,
        )
        assert finished.returncode == status, finished.stderr
        assert ("give --by NAME." in finished.stderr) is (status == 2)
    with engine.connect() as connection:
        assert [row.changed_by for row in stored_policies(connection, Basket)] == ["ann"]
        assert stored_policies(connection, Note)[0].changed_by is None
