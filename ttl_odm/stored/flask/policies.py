"""Stored defaults as JSON, and as a page, for an application's operators.

| | |
|---|---|
| ``GET /`` | returns the stored defaults and their history |
| ``POST /preview`` | previews the change ``{"table", "ttl", "scope"}``, with a token |
| ``POST /set`` | makes that change, given its ``"token"`` and optionally a ``"reason"`` |
| ``GET /page/`` | shows HTML, with ``policies(..., page=True)``: see `policies_page` |

Only JSON bodies are accepted, which a form on another site can't send. Errors are JSON too:
``{"error": "..."}``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from flask import Blueprint, abort, current_app, jsonify, request
from werkzeug.exceptions import HTTPException

from ttl_odm.core.values import short_repr
from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.stored.approval import NotApprovedError, plain
from ttl_odm.stored.flask.stored_defaults import (
    CONFLICT,
    FORBIDDEN,
    WRONG,
    StoredDefaults,
    as_text,
    check_text,
)
from ttl_odm.stored.sqlalchemy.stored_default import name_of_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from flask import Response
    from sqlalchemy import Engine
    from werkzeug.wrappers import Response as AnyResponse

    from ttl_odm.stored.flask.stored_defaults import Change


def policies(
    engine: Engine | Callable[[], Engine],
    targets: Collection[Any],
    *,
    allowed: Callable[[], bool],
    who: Callable[[], str],
    page: bool = False,
) -> Blueprint:
    """Return a blueprint that shows stored defaults, and changes them after a preview.

    Args:
        engine: The database's engine, or a function that returns it within a request, such as
            ``lambda: db.engine``.
        targets: The models whose defaults are stored.
        allowed: Called in each request; returns whether the sender may see and change the
            defaults. Others get status 403. The application decides; there is no default.
        who: Called for each change, and for each preview on the page; returns the name for the
            history.
        page: Whether ``/page/`` shows the same as HTML, to the same people.

    Raises:
        TTLConfigurationError: An argument has the wrong type, or the default of a target isn't
            stored.
    """
    guards: tuple[object, ...] = (allowed, who)
    if not all(map(callable, guards)):
        raise TTLConfigurationError(
            "policies(): pass allowed=, a function that returns whether the sender of a request "
            "may change defaults, and who=, a function that returns the sender's name."
        )
    defaults = StoredDefaults(engine, {name_of_stored(target): target for target in targets}, who)
    blueprint = Blueprint("ttl_odm_policies", __name__)

    @blueprint.before_request
    def check() -> None:  # also before requests for the page, whose blueprint is nested
        if allowed() is not True:
            abort(FORBIDDEN)

    blueprint.register_error_handler(TTLError, _wrong)
    blueprint.register_error_handler(HTTPException, _failed)
    _add_views(blueprint, defaults)
    if page:
        from ttl_odm.stored.flask.policies_page import page_of  # noqa: PLC0415 (on demand)

        blueprint.register_blueprint(page_of(defaults), url_prefix="/page")
    return blueprint


def _add_views(blueprint: Blueprint, defaults: StoredDefaults) -> None:
    @blueprint.get("/")
    def show() -> Response:
        stored, changes = defaults.read()
        return jsonify(
            policies=[_json(plain(row)) for row in stored],
            changes=[_json(plain(row)) for row in changes],
        )

    @blueprint.post("/preview")
    def preview() -> Response:
        change = _change(defaults, _body())
        return jsonify(defaults.preview(change, current_app.secret_key).to_dict())

    @blueprint.post("/set")
    def make() -> Response:
        body = _body()
        change, reason = _change(defaults, body), body.get("reason")
        if not isinstance(reason, str | None):
            raise TTLConfigurationError(f"reason = {short_repr(reason)}: give a string, or null.")
        token = as_text(body.get("token"))
        scope = defaults.approve(change, token, reason, current_app.secret_key)
        return jsonify(table=body["table"], scope=scope, ttl=change["ttl"])


def _wrong(error: TTLError) -> tuple[Response, int]:
    status = CONFLICT if isinstance(error, NotApprovedError) else WRONG
    return jsonify(error=str(error)), status


def _failed(error: HTTPException) -> AnyResponse:
    response = error.get_response()
    if error.response is None:  # otherwise the application has written the response
        response.data = json.dumps({"error": error.description})
        response.content_type = "application/json"
    return response


def _change(defaults: StoredDefaults, body: dict[str, Any]) -> Change:
    if "table" not in body or "ttl" not in body:
        raise TTLConfigurationError(
            'Give {"table": ..., "ttl": ...}; the tables are '
            f"{', '.join(defaults.targets) or 'none'}."
        )
    return defaults.change(body["table"], body["ttl"], body.get("scope"))


def _body() -> dict[str, Any]:
    """The JSON object in the body of the request; its texts were checked for the database."""
    try:
        body = request.get_json()
    except RecursionError:
        abort(WRONG, "The JSON is nested too deeply.")
    if not isinstance(body, dict):
        raise TTLConfigurationError("Give a JSON object.")
    for name, value in body.items():
        if isinstance(value, str):
            check_text(name, value)
    return body


def _json(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "changed_at": row["changed_at"].isoformat()}
