"""The page of stored defaults in Flask: guarded, previewed, confirmed, safe, and readable."""

from __future__ import annotations

import html
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask, Response, abort, redirect, request
from sqlalchemy import Integer, String
from sqlalchemy.orm import Session
from werkzeug.serving import make_server

from tests.browsers import faint_text, in_venv_only, launched, program, violations
from tests.clocks import age
from tests.guard import GUARD
from tests.integrations.test_flask_policies import BAD_TEXTS
from tests.sql.models import web_session
from tests.sql.test_stored_scopes import message
from ttl_odm import Stored
from ttl_odm.integrations.flask.policies import policies
from ttl_odm.sqlalchemy import policy_changes, set_policy, stored_policies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flask.testing import FlaskClient
    from playwright.sync_api import Browser, Page
    from sqlalchemy import Engine
    from werkzeug.test import TestResponse

HOUR, DAY = 3600, 86_400
PHONE = {"width": 390, "height": 844}
CHANGE = "/ttl/page/change"
SESSIONS = {"table": "web_sessions", "ttl": "1m"}


def app_of(engine: Engine, *models: Any, **guards: Any) -> Flask:
    """An application that lets people in by a header."""
    app = Flask("shop")
    app.secret_key = "ours"
    app.config["PROPAGATE_EXCEPTIONS"] = False  # an error is a 500
    guards.setdefault("allowed", lambda: request.headers.get("X-User") in ("ann", "bob"))
    guards.setdefault("who", lambda: request.headers["X-User"])
    made = policies(lambda: engine, models, page=True, **guards)
    app.register_blueprint(made, url_prefix="/ttl")
    return app


@pytest.fixture
def sessions(engine: Engine) -> Any:
    """Two rows of an hour: one of this moment, one of 100 seconds."""
    model = web_session(Stored(HOUR, least=60))
    model.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([model(id="old"), model(id="new")])
        session.flush()
        age(session.connection(), "web_sessions", "old", 100)
        session.commit()
    return model


class Operator:
    """Somebody whom the application lets in, and what the pages say."""

    def __init__(self, app: Flask, name: str = "ann") -> None:
        self.client: FlaskClient = app.test_client()
        self.headers = {"X-User": name}

    def open(self, path: str = "/ttl/page/") -> TestResponse:
        return self.client.get(path, headers=self.headers)

    def send(self, fields: dict[str, Any], **headers: str) -> TestResponse:
        return self.client.post(CHANGE, data=fields, headers={**self.headers, **headers})

    def confirmed(self, fields: dict[str, Any]) -> TestResponse:
        """Preview a change, and send its form."""
        return self.send(form_of(self.send(fields)))


def form_of(answer: TestResponse) -> dict[str, str]:
    """The hidden fields of a preview."""
    assert answer.status_code == 200, answer.text
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', answer.text)
    return {name: html.unescape(value) for name, value in found}


def problem_of(answer: TestResponse) -> str:
    """The sentence that says what is wrong."""
    assert answer.mimetype == "text/html"
    (said,) = re.findall(r'<p class="problem" role="alert">(.*?)</p>', answer.text)
    return html.unescape(said)


def rows_of(answer: TestResponse) -> list[list[str]]:
    """The rows of the page's tables, as text."""
    rows = re.findall(r"<tr>(.*?)</tr>", answer.text, re.DOTALL)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in rows]
    return [[html.unescape(re.sub("<[^>]+>", "", cell)) for cell in row] for row in cells if row]


# --- a change


def test_a_change_is_previewed_confirmed_and_listed(engine: Engine, sessions: Any) -> None:
    ann = Operator(app_of(engine, sessions))
    assert [row[:3] for row in rows_of(ann.open())] == [["web_sessions", "all", "1h"]]
    assert "No default has been changed yet." in ann.open().text

    seen = ann.send({**SESSIONS, "ttl": " 1m ", "reason": "the audit\r\nof May"})

    assert "web_sessions: 1h → 1m" in seen.text
    assert "the change would expire at most 2 rows at once." in seen.text
    assert "! Live rows that would be expired at once" in seen.text
    with engine.connect() as connection:
        assert policy_changes(connection) == []
    made = ann.send(form_of(seen))
    assert made.status_code == 303
    shown = ann.open(made.location)
    assert "web_sessions: the default ttl is now 1m." in shown.text
    stored, change = rows_of(shown)
    assert stored[2] == "1m"
    assert change[1:] == ["web_sessions", "all", "1h", "1m", "ann", "the audit\nof May"]
    with engine.connect() as connection:
        (row,) = policy_changes(connection)
    assert (row.ttl_after, row.changed_by, row.reason) == (60, "ann", "the audit\nof May")


def test_a_tenant_gets_a_default_of_its_own_and_loses_it(engine: Engine) -> None:
    model = message(String(40), Stored(HOUR, by="tenant"))
    model.metadata.create_all(engine)
    ann = Operator(app_of(engine, model))
    assert "A value of tenant." in ann.open(CHANGE).text
    for ttl, said in (("90d", "is now 90d."), ("default", "the default of its own was removed.")):
        made = ann.confirmed({"table": "messages", "scope": "acme & sons", "ttl": ttl})
        assert f"messages, acme &amp; sons: {'the default ttl ' * (ttl == '90d')}{said}" in (
            ann.open(made.location).text
        )
    with engine.connect() as connection:
        changes = [(row.scope, row.ttl_after) for row in policy_changes(connection)]
    assert changes == [("acme & sons", 0), ("acme & sons", 90 * DAY)]


def test_a_scope_has_one_form(engine: Engine) -> None:
    model = message(Integer(), Stored(HOUR, by="tenant"))
    model.metadata.create_all(engine)
    ann = Operator(app_of(engine, model))
    made = ann.confirmed({"table": "messages", "scope": "042", "ttl": "60"})
    assert made.location.endswith("?table=messages&scope=42")
    with engine.connect() as connection:
        assert [row.scope for row in stored_policies(connection, model)] == [None, "42"]


@pytest.mark.databases("sqlite")
def test_the_form_keeps_what_was_typed(engine: Engine, sessions: Any) -> None:
    ann = Operator(app_of(engine, sessions))
    typed = {**SESSIONS, "reason": "a < b\nand & so"}
    back = ann.send({**form_of(ann.send(typed)), "back": "1"})
    wrong = ann.send({**typed, "ttl": "5"})
    assert (back.status_code, wrong.status_code) == (200, 400)
    assert problem_of(wrong) == "WebSession.__ttl__ = 5: the least is 60 seconds."
    for answer in (back, wrong):
        assert '<option value="web_sessions" selected>' in answer.text
        assert "a &lt; b\nand &amp; so</textarea>" in answer.text
        assert 'name="token"' not in answer.text
    assert 'value="1m"' in back.text


@pytest.mark.databases("sqlite")
def test_what_is_wrong_is_a_sentence(engine: Engine, sessions: Any) -> None:
    ann = Operator(app_of(engine, sessions))
    for fields, status, said in (
        ({**SESSIONS, "ttl": "soon"}, 400, "ttl 'soon': give whole seconds from 1 to"),
        ({**SESSIONS, "ttl": "default"}, 400, "is only for a single value"),
        ({**SESSIONS, "scope": "acme"}, 400, "one default for all rows"),
        ({**SESSIONS, "table": "others"}, 400, "the tables are web_sessions."),
        ({}, 400, "the tables are web_sessions."),
        ({**SESSIONS, "token": "2-nonsense"}, 409, "is not for this change"),
    ):
        answer = ann.send(fields)
        assert answer.status_code == status
        assert said in problem_of(answer)
    with engine.connect() as connection:
        assert policy_changes(connection) == []


# --- who may, and what is proof


def test_the_page_lets_in_whom_the_json_lets_in(engine: Engine, sessions: Any) -> None:
    eve, nobody = Operator(app_of(engine, sessions), "eve"), Operator(app_of(engine, sessions))
    nobody.headers = {}
    for person in (eve, nobody):
        for answer in (
            *map(person.open, ("/ttl/page/", CHANGE, "/ttl/page/static/policies.css")),
            person.send(SESSIONS),
        ):
            assert (answer.status_code, answer.mimetype) == (403, "text/html")
            assert "web_sessions" not in answer.text
        assert person.open("/ttl/").is_json


@pytest.mark.databases("sqlite")
def test_a_guard_may_send_people_elsewhere(engine: Engine, sessions: Any) -> None:
    def to_login() -> bool:
        abort(redirect("/login"))

    def busy() -> bool:
        abort(Response("later", 503, {"Retry-After": "9"}))

    answer = Operator(app_of(engine, sessions, allowed=to_login)).open()
    assert (answer.status_code, answer.location) == (302, "/login")
    answer = Operator(app_of(engine, sessions, allowed=busy)).open()
    assert (answer.status_code, answer.text, answer.headers["Retry-After"]) == (503, "later", "9")
    assert Operator(app_of(engine, sessions, allowed=lambda: "yes")).open().status_code == 403


def test_a_change_needs_the_token_of_its_own_preview_once(engine: Engine, sessions: Any) -> None:
    app = app_of(engine, sessions)
    ann, bob = Operator(app), Operator(app, "bob")
    form = form_of(ann.send(SESSIONS))
    theirs = ann.client.post("/ttl/preview", json=SESSIONS, headers=ann.headers).json
    assert theirs is not None
    for answer in (
        ann.send({**form, "ttl": "2m"}),
        ann.send({**form, "token": theirs["token"]}),
        bob.send(form),
    ):
        assert answer.status_code == 409
        assert "Preview it again." in problem_of(answer)
    own = {**SESSIONS, "token": form["token"]}
    assert ann.client.post("/ttl/set", json=own, headers=ann.headers).status_code == 409
    with engine.connect() as connection:
        assert policy_changes(connection) == []
    assert ann.send(form).status_code == 303
    assert ann.send(form).status_code == 409


@pytest.mark.databases("sqlite")
def test_forms_of_other_sites_are_rejected(engine: Engine, sessions: Any) -> None:
    ann = Operator(app_of(engine, sessions))
    form = form_of(ann.send(SESSIONS))
    for site in ("cross-site", "same-site", "nonsense"):
        for fields in (SESSIONS, form):
            answer = ann.send(fields, **{"Sec-Fetch-Site": site})
            assert answer.status_code == 403
            assert "sent from another site" in problem_of(answer)
    assert ann.send(form, **{"Sec-Fetch-Site": "same-origin"}).status_code == 303


@pytest.mark.databases("sqlite")
def test_forms_carry_the_token_of_the_applications_own_csrf_extension(
    engine: Engine, sessions: Any
) -> None:
    app = app_of(engine, sessions)
    app.jinja_env.globals["csrf_token"] = lambda: "theirs <"  # as Flask-WTF does

    @app.before_request
    def protect() -> None:
        if request.method == "POST" and request.form.get("csrf_token") != "theirs <":
            abort(400, "no token")

    ann = Operator(app)
    assert "no token" in problem_of(ann.send(SESSIONS))
    assert ann.confirmed({**SESSIONS, **form_of(ann.open(CHANGE))}).status_code == 303


@pytest.mark.databases("sqlite")
def test_without_a_secret_key_nothing_can_be_changed(engine: Engine, sessions: Any) -> None:
    app = app_of(engine, sessions)
    app.secret_key = None
    ann = Operator(app)
    page = ann.open()
    assert page.status_code == 200
    assert "SECRET_KEY" in problem_of(page)
    assert "/change" not in page.text
    for answer in (ann.send(SESSIONS), ann.send({**SESSIONS, "token": "2-nonsense"})):
        assert answer.status_code == 403
        assert "SECRET_KEY" in problem_of(answer)
    assert ann.client.post("/ttl/preview", json=SESSIONS, headers=ann.headers).status_code == 200


@pytest.mark.databases("sqlite")
def test_pages_are_neither_framed_nor_kept(engine: Engine, sessions: Any) -> None:
    ann = Operator(app_of(engine, sessions))
    for answer in (ann.open(), ann.open(CHANGE), ann.send(SESSIONS), ann.send({})):
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Cache-Control"] == "no-store"
        assert "<script" not in answer.text


# --- odd input


@pytest.mark.parametrize("escapes", [True, False])
def test_everything_that_others_chose_is_escaped(engine: Engine, *, escapes: bool) -> None:
    model = message(String(200), Stored(HOUR, by="tenant"))
    model.metadata.create_all(engine)
    attack, turned = "<script>alert(1)</script>'\"", "acme\u202eemca"
    with engine.connect() as connection:
        for scope in (attack, turned, "a\nb", "&amp;"):
            set_policy(connection, model, 60, scope=scope, by=attack, reason=attack)
    app = app_of(engine, model)
    if not escapes:
        app.select_jinja_autoescape = lambda _: False  # type: ignore[method-assign]
    ann = Operator(app)
    typed = {"table": "messages", "scope": attack, "ttl": "2h", "reason": attack}
    pages = [ann.open(), ann.send(typed), ann.send({**typed, "ttl": attack})]
    pages += [ann.send({**typed, "table": attack}), ann.open(f"{CHANGE}?scope={attack}")]
    for page in pages:
        assert "<script" not in page.text
        assert turned not in page.text
        assert "'\"" not in page.text
    (own,) = [row for row in rows_of(pages[0]) if row[1] == attack and "Change" in row[-1]]
    assert own[4:6] == [attack, attack]
    assert "acme\\u202eemca" in pages[0].text
    assert "acme\\u202eemca: 1m → 2h" in ann.send({**typed, "scope": turned}).text
    assert turned not in problem_of(ann.send({**typed, "ttl": turned}))
    assert ann.send(form_of(pages[1])).status_code == 303
    # A field can't hold a line break, and without it would mean other rows.
    (broken,) = [row for row in rows_of(pages[0])[:5] if row[1] == "a\\x0ab"]
    assert broken[-1] == ""


@pytest.mark.slow
def test_no_request_is_an_error_of_the_server(engine: Engine) -> None:
    model = message(Integer(), Stored(HOUR, by="tenant"))
    model.metadata.create_all(engine)
    ann = Operator(app_of(engine, model))
    valid = {"table": "messages", "scope": "42", "ttl": "60"}
    numbers = ("9" * 30, "9" * 5_000, "-1e5", "1.5", "٣", "0x10", "1_0", "nan", "inf", "1\r\n")
    for token in ({}, {"token": "0-nonsense"}):
        for name in ("table", "scope", "ttl", "reason", "token"):
            for bad in BAD_TEXTS.values():
                text = bad.encode("utf-8", "surrogatepass")
                answer = ann.send({**valid, **token, name: text})
                is_fine = answer.status_code == 200 and name in ("reason", "token")
                assert answer.status_code in (400, 409) or is_fine, (name, text[:9])
                assert answer.mimetype == "text/html"
        for name in ("scope", "ttl"):
            for bad in numbers:
                answer = ann.send({**valid, **token, name: bad})
                assert answer.status_code in (200, 400, 409), (name, bad)
    post: Any = ann.client.post
    for odd in (
        {"json": valid},
        {"data": b"\xff\x00%", "content_type": "application/x-www-form-urlencoded"},
        {"data": b"--x\r\n", "content_type": "multipart/form-data; boundary=x"},
        {"data": b"", "content_type": "multipart/form-data"},
        {"data": {"table": (b"x" * 9, "messages")}},
        {"data": {"reason": "x" * 1_000_000}},
        {"data": "table=messages&ttl=60", "content_type": "text/plain"},
    ):
        answer = post(CHANGE, headers=ann.headers, **odd)
        assert 400 <= answer.status_code < 500, odd
        assert answer.mimetype == "text/html"
    for query in ("table=%00&scope=%ff", "table=messages&scope=%00", "table=[]", "ttl=%ed%a0%80"):
        assert ann.open(f"/ttl/page/?{query}").status_code == 200
        assert ann.open(f"{CHANGE}?{query}").status_code == 200
    with engine.connect() as connection:
        assert policy_changes(connection) == []


@pytest.mark.slow
@pytest.mark.databases("sqlite")
def test_long_lists_are_cut(engine: Engine) -> None:
    model = message(Integer(), Stored(HOUR, by="tenant"))
    model.metadata.create_all(engine)
    with engine.connect() as connection:
        for tenant in range(205):
            set_policy(connection, model, 60, scope=tenant, by="ann")
    page = Operator(app_of(engine, model)).open()
    assert len(rows_of(page)) == 400
    assert "And 6 more." in page.text
    assert "And 5 earlier ones." in page.text


# --- what others pay for it

PROBE = """
import sys
from flask import Flask
from sqlalchemy import create_engine
from tests.sql.models import web_session
from ttl_odm import Stored
from ttl_odm.integrations.flask.policies import policies
app = Flask("shop")
app.register_blueprint(policies(create_engine("sqlite://"), [web_session(Stored(60))],
                                allowed=lambda: True, who=str))
print(*[name for name in sys.modules if "policies_page" in name], *app.url_map.iter_rules())
"""


@pytest.mark.slow
@pytest.mark.databases("sqlite")
def test_only_who_asks_for_the_page_has_it(engine: Engine) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True, timeout=GUARD
    )
    assert "page" not in done.stdout


# --- in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched(program()) as made:
        yield made


@contextmanager
def served(app: Flask) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, app)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/ttl/page/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def address(engine: Engine, sessions: Any) -> Iterator[str]:
    """The page of a shop with long names and a history."""
    model = message(String(80), Stored(30 * DAY, by="tenant", least=DAY))
    model.metadata.create_all(engine)
    with engine.connect() as connection:
        for scope in ("acme", "a-tenant-with-a-name-" + "x" * 50):
            reason = "the audit of May " * 5
            set_policy(
                connection, model, 90 * DAY, scope=scope, by="bob@example.org", reason=reason
            )
    app = app_of(engine, sessions, model, allowed=lambda: True, who=lambda: "ann")
    with served(app) as made:
        yield made


@contextmanager
def opened(browser: Browser, address: str, **settings: Any) -> Iterator[Page]:
    context = browser.new_context(**settings)
    context.set_default_timeout(GUARD * 1000)
    try:
        page = context.new_page()
        page.goto(address)
        yield page
    finally:
        context.close()


@pytest.mark.slow
@in_venv_only
@pytest.mark.databases("sqlite")
def test_an_operator_changes_a_default_on_a_phone_without_javascript(
    engine: Engine, sessions: Any, address: str, browser: Browser
) -> None:
    with opened(browser, address, viewport=PHONE, java_script_enabled=False) as page:
        page.get_by_role("link", name="Change the default of web_sessions, all").click()
        assert page.get_by_label("Table").input_value() == "web_sessions"
        page.get_by_label("Default ttl").fill("5")
        page.get_by_label("Reason").fill("the audit")
        page.get_by_role("button", name="Show what it would do").click()
        assert "the least is 60 seconds" in page.get_by_role("alert").inner_text()
        page.get_by_label("Default ttl").fill("2m")
        page.get_by_role("button", name="Show what it would do").click()
        page.get_by_role("button", name="Back").click()
        assert page.get_by_label("Reason").input_value() == "the audit"
        page.get_by_label("Default ttl").fill("1m")
        page.get_by_role("button", name="Show what it would do").click()
        page.get_by_role("heading", name="web_sessions: 1h → 1m").wait_for()
        with engine.connect() as connection:
            assert [row.ttl for row in stored_policies(connection, sessions)] == [HOUR]
        page.get_by_role("button", name="Make this change").click()
        assert page.get_by_role("status").inner_text() == (
            "web_sessions: the default ttl is now 1m."
        )
        page.reload()
    with engine.connect() as connection:
        (change,) = policy_changes(connection, sessions)
    assert (change.ttl_after, change.changed_by, change.reason) == (60, "ann", "the audit")


WIDE = """() => [...document.querySelectorAll("body *")].filter((element) =>
  element.getBoundingClientRect().right > innerWidth + 1).map((element) => element.outerHTML)"""
ATTACK = """<form method="post" action="%s"><input name="table" value="web_sessions">
<input name="ttl" value="1m"><button>Win a prize</button></form><iframe src="%s"></iframe>"""


@pytest.mark.slow
@in_venv_only
@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_each_page_can_be_read_on_a_phone_and_by_everybody(
    address: str, browser: Browser, mode: Any
) -> None:
    settings = {"viewport": PHONE, "color_scheme": mode, "bypass_csp": True}
    with opened(browser, address, **settings) as page:

        def look(title: str) -> None:
            page.get_by_role("heading", level=1, name=title).wait_for()
            page.wait_for_load_state()
            for width in (PHONE["width"], 1200):
                page.set_viewport_size({"width": width, "height": PHONE["height"]})
                assert page.evaluate(WIDE) == []
                assert page.evaluate("document.documentElement.scrollWidth") == width
                assert violations(page) == []
                assert faint_text(page) == []

        look("Stored defaults")
        page.get_by_role("link", name="Change a stored default").click()
        look("Change a stored default")
        page.get_by_label("Table").select_option("messages")
        page.get_by_label("Rows").fill("acme")
        page.get_by_label("Default ttl").fill("5")
        page.get_by_role("button", name="Show what it would do").click()
        page.get_by_role("alert").wait_for()
        look("Change a stored default")
        page.get_by_label("Default ttl").fill("10d")
        page.get_by_role("button", name="Show what it would do").click()
        look("messages, acme: 90d → 10d")
        page.set_viewport_size(PHONE)
        cut = "(boxes) => boxes.filter((box) => box.scrollWidth > box.clientWidth).length"
        assert page.locator("pre").count() > 0
        assert page.locator("pre").evaluate_all(cut) == 0
        page.get_by_role("button", name="Make this change").click()
        look("Stored defaults")


@pytest.mark.slow
@in_venv_only
@pytest.mark.databases("sqlite")
def test_another_site_can_neither_send_a_form_nor_frame_the_page(
    engine: Engine, sessions: Any, address: str, browser: Browser
) -> None:
    shop = Flask("another")
    shop.add_url_rule(
        "/ttl/page/", view_func=lambda: ATTACK % (address + "change", address), endpoint="attack"
    )
    with served(shop) as other, opened(browser, other.replace("127.0.0.1", "localhost")) as page:
        frame = page.frames[1]
        assert frame.get_by_text("Stored defaults").count() == 0
        page.get_by_role("button", name="Win a prize").click()
        page.wait_for_url(f"{address}change")
        assert "sent from another site" in page.get_by_role("alert").inner_text()
    with engine.connect() as connection:
        assert policy_changes(connection, sessions) == []
