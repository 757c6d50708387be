"""Stored defaults as JSON, so that an application's page can show, preview and change them.

| | |
|---|---|
| ``GET /`` | the stored defaults and their history |
| ``POST /preview`` | what ``{"table", "ttl", "scope"}`` would do, with a token |
| ``POST /set`` | makes that change, given its ``"token"`` and optionally a ``"reason"`` |

Only JSON bodies are accepted, which a form on another site can't send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flask import Blueprint, abort, jsonify, request
from sqlalchemy import Engine

from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.forecast.approval import plain
from ttl_odm.forecast.change import NotApprovedError, approve_policy, preview_policy
from ttl_odm.forecast.parse import parse_stored
from ttl_odm.sqlalchemy.policy.changes import policy_changes, stored_policies
from ttl_odm.sqlalchemy.policy.stored_default import StoredDefault, name_of_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from flask import Response

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

    @blueprint.errorhandler(TTLError)
    def wrong(error: TTLError) -> tuple[Response, int]:
        status = _CONFLICT if isinstance(error, NotApprovedError) else _WRONG
        return jsonify(error=str(error)), status

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
            return jsonify(preview_policy(connection, **change).to_dict())

    @blueprint.post("/set")
    def make() -> Response:
        change, given = _change(by_name), request.get_json()
        reason = given.get("reason")
        with database().connect() as connection:
            approve_policy(
                connection,
                **change,
                token=str(given.get("token")),
                by=who(),
                reason=None if reason is None else str(reason),
            )
            scope = StoredDefault.of(change["target"], change["scope"], connection.dialect).scope
        return jsonify(table=given["table"], scope=scope, ttl=change["ttl"])

    return blueprint


def _change(by_name: dict[str, Any]) -> dict[str, Any]:
    """What the request asks for, as arguments."""
    given = request.get_json()
    if not isinstance(given, dict) or "ttl" not in given or given.get("table") not in by_name:
        raise TTLConfigurationError(
            f'Give {{"table": ..., "ttl": ...}}; the tables are {", ".join(by_name) or "none"}.'
        )
    ttl, scope = given["ttl"], given.get("scope")
    return {
        "target": by_name[given["table"]],
        "ttl": None if ttl is None else parse_stored(str(ttl), where=f"ttl {ttl!r}"),
        "scope": None if scope == "" else scope,
    }


def _json(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "changed_at": row["changed_at"].isoformat()}
