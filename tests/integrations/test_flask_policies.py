"""Stored defaults as a blueprint of Flask: guarded by the application, changed as previewed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask, Response, abort, request
from sqlalchemy import Integer, select
from sqlalchemy.orm import Session

from tests.clocks import age
from tests.sql.models import web_session
from tests.sql.test_stored_scopes import message
from ttl_odm import Stored, TTLConfigurationError, TTLError
from ttl_odm.forecast.change import preview_policy
from ttl_odm.integrations.flask.policies import policies
from ttl_odm.sqlalchemy import policy_changes, stored_policies
from ttl_odm.stored.flask.stored_defaults import StoredDefaults, as_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flask.testing import FlaskClient
    from sqlalchemy import Engine

HOUR = 3600
ADMIN = {"X-User": "ann"}
"""Who the application lets in."""


@pytest.fixture
def model(engine: Engine) -> Any:
    made = web_session(Stored(HOUR, least=60))
    made.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([made(id="old"), made(id="new")])
        session.flush()
        age(session.connection(), "web_sessions", "old", 100)
        session.commit()
    return made


@pytest.fixture
def client(engine: Engine, model: Any) -> Iterator[FlaskClient]:
    def who() -> str:
        return request.headers["X-User"]

    app = Flask("shop")
    made = policies(
        lambda: engine, [model], allowed=lambda: request.headers.get("X-User") == "ann", who=who
    )
    app.register_blueprint(made, url_prefix="/ttl")
    with app.test_client() as client:
        yield client


def test_a_change_is_shown_and_made(client: FlaskClient, engine: Engine, model: Any) -> None:
    asked = {"table": "web_sessions", "ttl": "1m"}
    seen: Any = client.post("/ttl/preview", json=asked, headers=ADMIN).json
    assert (seen["before"], seen["after"], seen["at_most"]) == (HOUR, 60, 2)
    made = {**asked, "token": seen["token"], "reason": "the audit"}
    answer = client.post("/ttl/set", json=made, headers=ADMIN)
    assert answer.json == {"table": "web_sessions", "scope": None, "ttl": 60}
    with engine.connect() as connection:
        assert connection.scalars(select(model.id)).all() == ["new"]
    shown: Any = client.get("/ttl/", headers=ADMIN).json
    assert [(row["ttl"], row["changed_by"]) for row in shown["policies"]] == [(60, "ann")]
    (change,) = shown["changes"]
    assert (change["ttl_before"], change["ttl_after"], change["reason"]) == (HOUR, 60, "the audit")


def test_what_is_wrong_is_said_and_not_made(client: FlaskClient, engine: Engine) -> None:
    asked = {"table": "web_sessions", "ttl": 60}
    for change, status, said in (
        ({"ttl": 5}, 400, "the least is 60"),
        ({"ttl": "soon"}, 400, "soon"),
        ({"table": "others"}, 400, "the tables are web_sessions"),
        ({"scope": "acme"}, 400, "one default for all rows"),
        ({"token": "2-nonsense"}, 409, "is not for this change"),
        ({}, 409, "is not for this change"),
    ):
        answer = client.post("/ttl/set", json={**asked, **change}, headers=ADMIN)
        assert answer.status_code == status
        assert said in answer.json["error"]  # type: ignore[index]
    assert client.post("/ttl/set", data=asked, headers=ADMIN).status_code == 415
    assert client.post("/ttl/preview", json=[1], headers=ADMIN).status_code == 400
    with engine.connect() as connection:
        assert policy_changes(connection) == []


def test_tokens_are_signed_with_the_applications_secret(
    client: FlaskClient, engine: Engine, model: Any
) -> None:
    asked = {"table": "web_sessions", "ttl": 60}
    with engine.connect() as connection:
        forged = preview_policy(connection, model, 60).token
    client.application.secret_key = "ours"
    answer = client.post("/ttl/set", json={**asked, "token": forged}, headers=ADMIN)
    assert answer.status_code == 409
    token = client.post("/ttl/preview", json=asked, headers=ADMIN).json["token"]  # type: ignore[index]
    for status in (200, 409):  # once
        answer = client.post("/ttl/set", json={**asked, "token": token}, headers=ADMIN)
        assert answer.status_code == status


@pytest.mark.parametrize(("scope", "stored"), [(42, "42"), ("042", "42"), (42.0, "42")])
def test_a_scope_has_one_form(engine: Engine, scope: object, stored: str) -> None:
    client, model = client_of_tenants(engine)
    asked = {"table": "messages", "ttl": 60, "scope": scope}
    token = client.post("/preview", json=asked).json["token"]  # type: ignore[index]
    answer = client.post("/set", json={**asked, "token": token}).json
    assert answer == {"table": "messages", "ttl": 60, "scope": stored}
    with engine.connect() as connection:
        assert [row.scope for row in stored_policies(connection, model)] == [None, stored]


def test_a_scope_that_no_row_can_have_is_rejected(engine: Engine) -> None:
    client, model = client_of_tenants(engine)
    for scope in (True, "abc", 4.2, [42], {"a": 1}, " 42"):
        answer = client.post("/preview", json={"table": "messages", "ttl": 60, "scope": scope})
        assert answer.status_code == 400
        assert "the column holds whole numbers" in answer.json["error"]  # type: ignore[index]
    with engine.connect() as connection:
        assert [row.scope for row in stored_policies(connection, model)] == [None]


def client_of_tenants(engine: Engine) -> tuple[FlaskClient, Any]:
    model = message(Integer(), Stored(HOUR, by="tenant"))
    model.metadata.create_all(engine)
    app = Flask("shop")
    app.register_blueprint(policies(engine, [model], allowed=lambda: True, who=lambda: "ann"))
    return app.test_client(), model


BAD_TEXTS = {"nul": "a\0b", "surrogate": "a\ud800", "long": "x" * 70_000}
BAD_BODIES: dict[str, bytes] = {
    "deep list": b"[" * 100_000 + b"]" * 100_000,
    "deep table": b'{"ttl": 60, "table": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "not UTF-8": b'{"ttl": 60, "table": "\xff"}',
    "not JSON": b"{",
    "a digit too many": b'{"ttl": ' + b"9" * 5_000 + b', "table": "web_sessions"}',
    "nothing": b"",
}


@pytest.mark.parametrize("page", ["preview", "set"])
def test_no_request_is_an_error_of_the_server(
    client: FlaskClient, engine: Engine, page: str
) -> None:
    client.application.config["PROPAGATE_EXCEPTIONS"] = False
    valid = {"table": "web_sessions", "ttl": 60, "token": "2-nonsense"}
    changes: list[dict[str, Any]] = [{"table": value} for value in ([], {}, 1, None, [[]])]
    changes += [{"ttl": value} for value in ([], {}, True, 1e300, "\0", "\ud800", -5)]
    changes += [{name: bad} for name in ("scope", "table") for bad in BAD_TEXTS.values()]
    if page == "set":
        changes += [{name: bad} for name in ("reason", "token") for bad in BAD_TEXTS.values()]
        changes += [{"reason": value} for value in ([], {}, 1)]
    for change in changes:
        answer = client.post(f"/ttl/{page}", json={**valid, **change}, headers=ADMIN)
        assert answer.status_code == 400, change
        assert answer.is_json
        assert isinstance(answer.json, dict)
        assert answer.json["error"]
    for name, body in BAD_BODIES.items():
        answer = client.post(
            f"/ttl/{page}", data=body, headers=ADMIN, content_type="application/json"
        )
        assert (answer.status_code, answer.is_json) == (400, True), name
        assert "error" in (answer.json or {})
    with engine.connect() as connection:
        assert policy_changes(connection) == []


@pytest.mark.databases("sqlite")
def test_errors_of_http_are_json_and_keep_their_headers(
    client: FlaskClient, engine: Engine, model: Any
) -> None:
    def busy() -> bool:
        abort(Response("later", 503, {"Retry-After": "9"}))

    for answer, status in (
        (client.post("/ttl/set", data="x=1", headers=ADMIN), 415),
        (client.get("/ttl/"), 403),
    ):
        assert (answer.status_code, answer.is_json) == (status, True)
        assert (answer.json or {})["error"]
    app = Flask("busy")
    app.register_blueprint(policies(engine, [model], allowed=busy, who=str), url_prefix="/ttl")
    answer = app.test_client().get("/ttl/")
    assert (answer.status_code, answer.text) == (503, "later")
    assert answer.headers["Retry-After"] == "9"


def test_nobody_gets_in_whom_the_application_doesnt_let(client: FlaskClient) -> None:
    asked = {"table": "web_sessions", "ttl": 60, "token": "2-nonsense"}
    for headers in ({}, {"X-User": "eve"}):
        assert client.get("/ttl/", headers=headers).status_code == 403
        assert client.post("/ttl/preview", json=asked, headers=headers).status_code == 403
        assert client.post("/ttl/set", json=asked, headers=headers).status_code == 403


def test_what_has_no_guard_is_refused(engine: Engine, model: Any) -> None:
    with pytest.raises(TypeError):
        policies(engine, [model])  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    with pytest.raises(TTLConfigurationError, match="pass allowed="):
        policies(engine, [model], allowed=True, who=str)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(TTLConfigurationError, match="isn't stored in the database"):
        policies(engine, [web_session(HOUR)], allowed=lambda: True, who=str)


@pytest.mark.databases("sqlite")
def test_a_value_too_deep_to_be_printed_is_rejected(engine: Engine, model: Any) -> None:
    deep: Any = []
    for _ in range(100_000):  # as deep as a request can be, and deeper
        deep = {"a": deep}
    defaults = StoredDefaults(engine, {"web_sessions": model}, lambda: "ann")
    asked: dict[str, Any] = {"table": "web_sessions", "ttl": 60, "scope": "acme"}
    for name in asked:
        with pytest.raises(TTLError):
            defaults.preview(defaults.change(**{**asked, name: deep}), None)
    assert as_text(deep) == "<dict>"
