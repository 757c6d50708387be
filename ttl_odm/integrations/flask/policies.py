"""Stored defaults as JSON, so that an application's page can show, preview and change them.

| | |
|---|---|
| ``GET /`` | the stored defaults and their history |
| ``POST /preview`` | what ``{"table", "ttl", "scope"}`` would do, with a token |
| ``POST /set`` | makes that change, given its ``"token"`` and optionally a ``"reason"`` |

Only JSON bodies are accepted, which a form on another site can't send. Errors are JSON, too:
``{"error": "..."}``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, abort, current_app, jsonify, request
from sqlalchemy import Engine
from werkzeug.exceptions import HTTPException

from ttl_odm.core.values import short_repr
from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.forecast.approval import plain
from ttl_odm.forecast.change import NotApprovedError, approve_policy, preview_policy
from ttl_odm.forecast.parse import parse_stored
from ttl_odm.sqlalchemy.policy.changes import policy_changes, stored_policies
from ttl_odm.sqlalchemy.policy.stored_default import StoredDefault, name_of_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from flask import Response
    from werkzeug.wrappers import Response as AnyResponse

_LONGEST: Final = 10_000
"""Characters of a text in a request: four bytes each still fit MariaDB's and MySQL's TEXT."""

_FORBIDDEN, _CONFLICT, _WRONG = 403, 409, 400


def policies(
    engine: Engine | Callable[[], Engine],
    targets: Collection[Any],
    *,
    allowed: Callable[[], bool],
    who: Callable[[], str],
) -> Blueprint:
    """Return a blueprint that shows stored defaults, and changes them after a preview.

    Args:
        engine: The database's engine, or a function that returns it within a request, such as
            ``lambda: db.engine``.
        targets: The models whose defaults are stored.
        allowed: Called in each request; returns whether the sender may see and change the
            defaults. Others get status 403. The application decides; there is no default.
        who: Called for each change; returns the name for the history.

    Raises:
        TTLConfigurationError: An argument has the wrong type, or the default of a target isn't
            stored.
    """
    guards: tuple[object, ...] = (allowed, who)
    if not all(map(callable, guards)):
        raise TTLConfigurationError(
            "policies(): give allowed=, a function that returns whether the sender of a request "
            "may change defaults, and who=, one that returns the sender's name."
        )
    by_name = {name_of_stored(target): target for target in targets}
    blueprint = Blueprint("ttl_odm_policies", __name__)

    def database() -> Engine:
        return engine if isinstance(engine, Engine) else engine()

    @blueprint.before_request
    def check() -> None:
        if allowed() is not True:
            abort(_FORBIDDEN)

    blueprint.register_error_handler(TTLError, _wrong)
    blueprint.register_error_handler(HTTPException, _failed)

    @blueprint.get("/")
    def show() -> Response:
        with database().connect() as connection:
            stored = stored_policies(connection, *by_name.values()) if by_name else []
            changes = policy_changes(connection, *by_name.values()) if by_name else []
        return jsonify(
            policies=[_json(plain(row)) for row in stored],
            changes=[_json(plain(row)) for row in changes],
        )

    @blueprint.post("/preview")
    def preview() -> Response:
        change = _change(by_name)
        with database().connect() as connection:
            seen = preview_policy(connection, **change, secret=current_app.secret_key)
            return jsonify(seen.to_dict())

    @blueprint.post("/set")
    def make() -> Response:
        change, given = _change(by_name), _body()
        reason = given.get("reason")
        if not isinstance(reason, str | None):
            raise TTLConfigurationError(f"reason = {short_repr(reason)}: give a text, or null.")
        with database().connect() as connection:
            approve_policy(
                connection,
                **change,
                token=str(given.get("token")),
                by=who(),
                reason=reason,
                secret=current_app.secret_key,
            )
            scope = StoredDefault.of(change["target"], change["scope"], connection.dialect).scope
        return jsonify(table=given["table"], scope=scope, ttl=change["ttl"])

    return blueprint


def _wrong(error: TTLError) -> tuple[Response, int]:
    status = _CONFLICT if isinstance(error, NotApprovedError) else _WRONG
    return jsonify(error=str(error)), status


def _failed(error: HTTPException) -> AnyResponse:
    response = error.get_response()
    if error.response is None:  # or the application has written it
        response.data = json.dumps({"error": error.description})
        response.content_type = "application/json"
    return response


def _change(by_name: dict[str, Any]) -> dict[str, Any]:
    """What the request asks for, as arguments."""
    given = _body()
    table = given.get("table")
    if "ttl" not in given or not isinstance(table, str) or table not in by_name:
        raise TTLConfigurationError(
            f'Give {{"table": ..., "ttl": ...}}; the tables are {", ".join(by_name) or "none"}.'
        )
    ttl, scope = given["ttl"], given.get("scope")
    return {
        "target": by_name[table],
        "ttl": None if ttl is None else parse_stored(str(ttl), where=f"ttl {ttl!r}"),
        "scope": None if scope == "" else scope,
    }


def _body() -> dict[str, Any]:
    """The object in the body of the request, whose texts a database can store."""
    try:
        given = request.get_json()
    except RecursionError:
        abort(_WRONG, "The JSON is nested too deeply.")
    if not isinstance(given, dict):
        raise TTLConfigurationError("Give a JSON object.")
    for name, value in given.items():
        problem = _unstorable(value) if isinstance(value, str) else None
        if problem is not None:
            raise TTLConfigurationError(f"{short_repr(name)} = {short_repr(value)}: {problem}.")
    return given


def _unstorable(text: str) -> str | None:
    """Say why a database can't store a text; None if it can."""
    if "\0" in text:
        return "a text can't have NUL in it"
    if len(text) > _LONGEST:
        return f"a text has {_LONGEST:,} characters at most"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "it isn't Unicode: half of a surrogate pair is missing"
    return None


def _json(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "changed_at": row["changed_at"].isoformat()}
