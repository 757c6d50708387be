"""The session store, through its own pages."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Flask
    from flask.testing import FlaskClient

EXAMPLE = Path(__file__).parents[2] / "examples" / "flask_sessions" / "app.py"


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("flask_sessions", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # SQLAlchemy looks its annotations up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def app(example: Any, tmp_path: Path) -> Iterator[Flask]:
    made: Flask = example.create_app(f"sqlite:///{tmp_path / 's.sqlite3'}", TTL_SWEEP_INTERVAL=None)
    yield made
    with made.app_context():
        example.db.engine.dispose()


@pytest.fixture
def laptop(app: Flask) -> FlaskClient:
    return browser(app, "Laptop")


def browser(app: Flask, name: str) -> FlaskClient:
    client = app.test_client()
    client.environ_base["HTTP_USER_AGENT"] = name
    return client


def log_in(client: FlaskClient, user: str = "ann", **form: str) -> str:
    return client.post("/login", data={"user": user, **form}, follow_redirects=True).text


def pass_by(app: Flask, seconds: float) -> None:
    """Let time pass for everything that is stored."""
    engine = app.extensions["sqlalchemy"]
    with app.app_context(), engine.engine.begin() as connection:
        connection.execute(
            text("UPDATE example_flask_sessions SET _ts = _ts - :ms"), {"ms": seconds * 1000}
        )


def stored(app: Flask) -> list[Any]:
    with app.app_context(), app.extensions["sqlalchemy"].engine.connect() as connection:
        return list(connection.execute(text("SELECT * FROM example_flask_sessions")))


def test_a_session_lasts_from_request_to_request(laptop: FlaskClient, app: Flask) -> None:
    assert "Log in" in laptop.get("/").text
    assert stored(app) == []  # whoever only looks has no session
    assert "Hello, ann" in log_in(laptop)
    for visit in (2, 3, 4):
        pass_by(app, 1700)
        assert f"seen this page {visit} times" in laptop.get("/").text


def test_a_session_that_nobody_used_for_half_an_hour_is_over(
    laptop: FlaskClient, app: Flask
) -> None:
    log_in(laptop)
    pass_by(app, 1800)
    answer = laptop.get("/")
    assert "Your name" in answer.text
    assert "1 row deleted" in app.test_cli_runner().invoke(args=["ttl", "sweep"]).output
    assert stored(app) == []


def test_who_wants_to_be_remembered_stays_for_30_days(laptop: FlaskClient, app: Flask) -> None:
    answer = log_in(laptop, remember="on")
    assert "30 days" in answer
    pass_by(app, 29 * 86_400)
    assert "Hello, ann" in laptop.get("/").text
    pass_by(app, 30 * 86_400)
    assert "Your name" in laptop.get("/").text


def test_an_expired_session_is_in_no_list_and_no_write_brings_it_back(
    laptop: FlaskClient, app: Flask
) -> None:
    log_in(laptop)
    pass_by(app, 1800)
    phone = browser(app, "Phone")
    answer = log_in(phone)
    assert "Phone (this one)" in answer
    assert "Laptop" not in answer
    laptop.post("/logout/everywhere")  # by nobody, since its own session is over
    assert "Hello, ann" in phone.get("/").text


def test_a_session_that_ends_while_a_request_is_served_stays_ended(
    laptop: FlaskClient, app: Flask, example: Any
) -> None:
    log_in(laptop)

    def slow() -> str:
        from flask import session

        session["visits"] = 99
        pass_by(app, 1800)
        return "done"

    app.view_functions["home"] = slow
    answer = laptop.get("/")
    assert answer.text == "done"
    assert answer.headers["Set-Cookie"].startswith("session=;")
    app.view_functions["home"] = example.home
    assert "Your name" in laptop.get("/").text


def test_one_can_end_a_session_from_elsewhere(laptop: FlaskClient, app: Flask) -> None:
    phone, stranger = browser(app, "Phone"), browser(app, "Stranger")
    log_in(laptop)
    page = log_in(phone)
    (theirs,) = {
        part.partition("/end")[0] for part in page.split("/sessions/")[1:]
    } - {row.id for row in stored(app) if row.browser == "Phone"}  # fmt: skip
    log_in(stranger, "eve")
    stranger.post(f"/sessions/{theirs}/end")  # not hers
    assert "Hello, ann" in laptop.get("/").text
    phone.post(f"/sessions/{theirs}/end")
    assert "Your name" in laptop.get("/").text
    assert "Hello, ann" in phone.get("/").text


def test_logging_out_ends_one_session_or_all(laptop: FlaskClient, app: Flask) -> None:
    phone = browser(app, "Phone")
    log_in(laptop)
    log_in(phone)
    assert "Your name" in laptop.post("/logout", follow_redirects=True).text
    assert "Hello, ann" in phone.get("/").text
    log_in(laptop)
    assert "Your name" in phone.post("/logout/everywhere", follow_redirects=True).text
    assert "Your name" in laptop.get("/").text
    assert stored(app) == []


def test_a_login_changes_the_cookie_and_the_table_does_not_tell_it(
    laptop: FlaskClient, app: Flask
) -> None:
    tokens = []
    for _ in range(2):
        log_in(laptop)
        cookie = laptop.get_cookie("session")
        assert cookie is not None
        assert cookie.http_only
        tokens.append(cookie.value)
    assert tokens[0] != tokens[1]
    (row,) = stored(app)
    assert not set(tokens) & set(row)


def test_a_request_that_changes_nothing_writes_nothing_as_long_as_much_time_is_left(
    laptop: FlaskClient, app: Flask
) -> None:
    app.add_url_rule("/quiet", view_func=lambda: "quiet")
    log_in(laptop)
    before = stored(app)
    pass_by(app, 100)
    laptop.get("/quiet")
    (row,), (old,) = stored(app), before
    assert row._ts == old._ts - 100_000
    pass_by(app, 100)
    (old,) = stored(app)
    laptop.get("/quiet")
    assert stored(app)[0]._ts > old._ts
