"""Stored defaults as pages: a list with its history, a form, and a preview to confirm.

`policies` nests them in its blueprint, whose guard is theirs, too. They need no JavaScript. Another
site can't make a change, for these reasons, each of which would do:

- The form that makes it carries the token of its preview, signed with the application's secret key
  and for the person who has seen the preview. Another site can't read it, and can't make one.
- Browsers say where a form comes from (``Sec-Fetch-Site``), and those of others are rejected.

Nor can it show these pages in a frame, where an operator might click without knowing.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, abort, current_app, redirect, render_template, request, url_for
from werkzeug.exceptions import HTTPException

from ttl_odm.errors import TTLError
from ttl_odm.stored.approval import (
    NotApprovedError,
    said_rows,
    said_scope,
    said_ttl,
    with_scopes,
)
from ttl_odm.stored.flask.stored_defaults import CONFLICT, FORBIDDEN, WRONG, check_text
from ttl_odm.sweeper.text import visible, without_controls

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as AnyResponse

    from ttl_odm.stored.approval import PolicyPreview
    from ttl_odm.stored.flask.stored_defaults import StoredDefaults
    from ttl_odm.stored.rows import PolicyChange, StoredPolicy

_FIELDS: Final = ("table", "scope", "ttl", "reason", "token")
_MOST: Final = 200
"""Stored defaults and changes that are listed: of tenants there may be thousands."""

_WIDTH: Final = 46
"""Columns of a preview's tables: as many as a phone shows."""

_OURS: Final = ("same-origin", "none")
"""Where a browser says that our own forms come from; none: the person's own doing."""

_ELSEWHERE: Final = "This form was sent from another site. Open the page itself and try again."
_UNSIGNED: Final = (
    "To change defaults on this page, set the application's SECRET_KEY, which signs the tokens "
    "of previews."
)
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""The application may set others, in its own ``after_request``."""


def page_of(defaults: StoredDefaults) -> Blueprint:
    """Return the pages as a blueprint to nest in one that guards them."""
    blueprint = Blueprint("page", __name__, template_folder="templates", static_folder="static")
    blueprint.register_error_handler(HTTPException, _failed)
    blueprint.after_request(_with_headers)

    @blueprint.before_request
    def check() -> None:
        if request.method == "POST":
            if request.headers.get("Sec-Fetch-Site", "none") not in _OURS:
                abort(FORBIDDEN, _ELSEWHERE)
            if not current_app.secret_key:
                abort(FORBIDDEN, _UNSIGNED)

    @blueprint.get("/")
    def index() -> str:
        stored, changes = defaults.read()
        scoped = with_scopes([*stored, *changes])
        return render_template(
            "ttl_odm_policies/index.html",
            policies=[_policy_cells(row, scoped) for row in stored[:_MOST]],
            more_policies=max(len(stored) - _MOST, 0),
            changes=[_change_cells(row, scoped) for row in changes[:_MOST]],
            more_changes=max(len(changes) - _MOST, 0),
            changed=_changed(defaults, stored, scoped),
            problem="" if current_app.secret_key else _UNSIGNED,
        )

    @blueprint.get("/change")
    def form() -> str:
        return _form(defaults, {name: request.args.get(name, "") for name in _FIELDS})

    @blueprint.post("/change")
    def change() -> AnyResponse | tuple[str, int] | str:
        given = {name: request.form.get(name, "") for name in _FIELDS}
        given["ttl"] = given["ttl"].strip()
        given["reason"] = given["reason"].replace("\r\n", "\n").strip()
        if "back" in request.form:
            return _form(defaults, given)
        try:
            return _changed_or_previewed(defaults, given)
        except TTLError as error:
            status = CONFLICT if isinstance(error, NotApprovedError) else WRONG
            return _form(defaults, given, visible(str(error))), status

    return blueprint


def _changed_or_previewed(defaults: StoredDefaults, given: dict[str, str]) -> AnyResponse | str:
    """Preview a change; with a token make it."""
    for name, value in given.items():
        check_text(name, value)
    change = defaults.change(given["table"], given["ttl"], given["scope"])
    secret = _secret(defaults.who())
    if not given["token"]:
        seen = defaults.preview(change, secret)
        return render_template(
            "ttl_odm_policies/preview.html",
            given={**given, "token": seen.token},
            title=_title(seen),
            seen=seen,
            paragraphs=[
                said._replace(text=without_controls(str(said)))
                for said in seen.forecast.paragraphs(_WIDTH, "")
                if said.text
            ],
        )
    scope = defaults.approve(change, given["token"], given["reason"] or None, secret)
    return redirect(url_for(".index", table=given["table"], scope=scope or ""), 303)


def _form(defaults: StoredDefaults, given: dict[str, str], problem: str = "") -> str:
    return render_template(
        "ttl_odm_policies/change.html",
        given=given,
        tables=list(defaults.targets),
        fields=defaults.fields,
        problem=problem or ("" if current_app.secret_key else _UNSIGNED),
    )


def _failed(error: HTTPException) -> AnyResponse:
    response = error.get_response()
    if error.response is None:  # or the application has written it
        response.data = render_template("ttl_odm_policies/error.html", error=error)
        response.content_type = "text/html; charset=utf-8"
    return response


def _with_headers(response: Response) -> Response:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _secret(who: object) -> bytes:
    """What a person's tokens are signed with: nobody else can be made to send them."""
    key = current_app.secret_key or b""  # there is one: see `page_of`
    key = key.encode() if isinstance(key, str) else key
    return hmac.new(key, b"ttl_odm.page:" + str(who).encode(errors="replace"), sha256).digest()


def _changed(defaults: StoredDefaults, stored: list[StoredPolicy], scoped: set[str]) -> str:
    """Say what is stored of the default that has just been changed; nothing if none was."""
    name, scope = request.args.get("table", ""), request.args.get("scope") or None
    if name not in defaults.targets:
        return ""
    rows = visible(said_rows(name, scope, name in scoped))
    for row in stored:
        if (row.name, row.scope) == (name, scope):
            return f"{rows}: the default ttl is now {said_ttl(row.ttl)}."
    return f"{rows}: the default of its own was removed."


def _title(seen: PolicyPreview) -> str:
    change = f"{said_ttl(seen.before)} → {said_ttl(seen.after)}"
    return f"{visible(said_rows(seen.name, seen.scope, seen.has_scopes))}: {change}"


def _policy_cells(row: StoredPolicy, scoped: set[str]) -> dict[str, Any]:
    scope = row.scope or ""
    return {
        **_common_cells(row, scoped),
        "ttl": said_ttl(row.ttl),
        # A field of a form can't hold a line break, and would name other rows without it.
        "link": None if {*"\r\n"} & {*scope} else {"table": row.name, "scope": scope},
    }


def _change_cells(row: PolicyChange, scoped: set[str]) -> dict[str, Any]:
    before, after = said_ttl(row.ttl_before), said_ttl(row.ttl_after)
    return {**_common_cells(row, scoped), "before": before, "after": after}


def _common_cells(row: StoredPolicy | PolicyChange, scoped: set[str]) -> dict[str, Any]:
    return {
        "table": visible(row.name),
        "rows": visible(said_scope(row.scope, row.name in scoped)),
        "changed_at": row.changed_at,
        "by": visible(row.changed_by or "-"),
        "reason": without_controls(row.reason or "-"),
    }
