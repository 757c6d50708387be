"""Stored defaults as pages: a list with its history, a form, and a preview to confirm.

`policies` nests them in its blueprint, and so guards them. They need no JavaScript. Another site
can't make a change, for two reasons, each of which is sufficient:

- The form that makes the change carries the token of its preview, signed with the application's
  secret key and for the person who has seen the preview. Another site can neither read the token
  nor make one.
- Browsers tell where a form comes from (``Sec-Fetch-Site``), and forms of other sites are rejected.

Another site can't show these pages in a frame either, where an operator might click unknowingly.
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
    rows_label,
    scope_label,
    scoped_tables,
    ttl_label,
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
"""The most stored defaults and changes that are listed: there may be thousands of tenants."""

_WIDTH: Final = 46
"""The width of a preview's tables, in columns: as many as a phone shows."""

_OURS: Final = ("same-origin", "none")
"""The values of ``Sec-Fetch-Site`` for our own forms; none: the person entered the address."""

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
"""Headers of all pages; the application may set others, in its own ``after_request``."""


def page_of(defaults: StoredDefaults) -> Blueprint:
    """Return the pages as a blueprint, to nest in one that guards them."""
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
        scoped = scoped_tables([*stored, *changes])
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
        entered = {name: request.form.get(name, "") for name in _FIELDS}
        entered["ttl"] = entered["ttl"].strip()
        entered["reason"] = entered["reason"].replace("\r\n", "\n").strip()
        if "back" in request.form:
            return _form(defaults, entered)
        try:
            return _preview_or_change(defaults, entered)
        except TTLError as error:
            status = CONFLICT if isinstance(error, NotApprovedError) else WRONG
            return _form(defaults, entered, visible(str(error))), status

    return blueprint


def _preview_or_change(defaults: StoredDefaults, entered: dict[str, str]) -> AnyResponse | str:
    """Preview a change; make it if the form has a token."""
    for name, value in entered.items():
        check_text(name, value)
    change = defaults.change(entered["table"], entered["ttl"], entered["scope"])
    secret = _secret(defaults.who())
    if not entered["token"]:
        preview = defaults.preview(change, secret)
        return render_template(
            "ttl_odm_policies/preview.html",
            entered={**entered, "token": preview.token},
            title=_title(preview),
            preview=preview,
            paragraphs=[
                paragraph._replace(text=without_controls(str(paragraph)))
                for paragraph in preview.forecast.paragraphs(_WIDTH, "")
                if paragraph.text
            ],
        )
    scope = defaults.approve(change, entered["token"], entered["reason"] or None, secret)
    return redirect(url_for(".index", table=entered["table"], scope=scope or ""), 303)


def _form(defaults: StoredDefaults, entered: dict[str, str], problem: str = "") -> str:
    return render_template(
        "ttl_odm_policies/change.html",
        entered=entered,
        tables=list(defaults.targets),
        fields=defaults.fields,
        problem=problem or ("" if current_app.secret_key else _UNSIGNED),
    )


def _failed(error: HTTPException) -> AnyResponse:
    response = error.get_response()
    if error.response is None:  # otherwise the application has written the response
        response.data = render_template("ttl_odm_policies/error.html", error=error)
        response.content_type = "text/html; charset=utf-8"
    return response


def _with_headers(response: Response) -> Response:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _secret(who: object) -> bytes:
    """The key for a person's tokens, so that nobody can make another person send them."""
    key = current_app.secret_key or b""  # `page_of` has checked that there is one
    key = key.encode() if isinstance(key, str) else key
    return hmac.new(key, b"ttl_odm.page:" + str(who).encode(errors="replace"), sha256).digest()


def _changed(defaults: StoredDefaults, stored: list[StoredPolicy], scoped: set[str]) -> str:
    """The sentence on the default that has just been changed; empty if none was."""
    name, scope = request.args.get("table", ""), request.args.get("scope") or None
    if name not in defaults.targets:
        return ""
    rows = visible(rows_label(name, scope, name in scoped))
    for row in stored:
        if (row.name, row.scope) == (name, scope):
            return f"{rows}: the default ttl is now {ttl_label(row.ttl)}."
    return f"{rows}: the default of its own was removed."


def _title(preview: PolicyPreview) -> str:
    change = f"{ttl_label(preview.before)} → {ttl_label(preview.after)}"
    return f"{visible(rows_label(preview.name, preview.scope, preview.has_scopes))}: {change}"


def _policy_cells(row: StoredPolicy, scoped: set[str]) -> dict[str, Any]:
    scope = row.scope or ""
    return {
        **_common_cells(row, scoped),
        "ttl": ttl_label(row.ttl),
        # A field of a form can't hold a line break, and without it would name other rows.
        "link": None if {*"\r\n"} & {*scope} else {"table": row.name, "scope": scope},
    }


def _change_cells(row: PolicyChange, scoped: set[str]) -> dict[str, Any]:
    before, after = ttl_label(row.ttl_before), ttl_label(row.ttl_after)
    return {**_common_cells(row, scoped), "before": before, "after": after}


def _common_cells(row: StoredPolicy | PolicyChange, scoped: set[str]) -> dict[str, Any]:
    return {
        "table": visible(row.name),
        "rows": visible(scope_label(row.scope, row.name in scoped)),
        "changed_at": row.changed_at,
        "by": visible(row.changed_by or "-"),
        "reason": without_controls(row.reason or "-"),
    }
