"""A stored default is changed as its preview said: by functions, the command, and in the admin."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import Client, override_settings
from django.utils.functional import lazy

from tests.django_app.data import kill, raw
from tests.django_app.stored import DAY, HOUR, stored_models
from tests.guard import GUARD
from tests.terminals import END_OF_INPUT, at_a_terminal
from ttl_odm import TTLConfigurationError
from ttl_odm.django import DjangoStore, policy_changes, set_policy, stored_policies
from ttl_odm.forecast.django_change import NotApprovedError, approve_policy, preview_policy
from ttl_odm.sweeper import Sweeper
from ttl_odm.sweeper.command_line import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import SimpleNamespace

    from tests.backends import Backend

CHANGES = "/admin/ttl_odm_policies/policychange/"


@pytest.fixture
def made(backend: Backend) -> Iterator[SimpleNamespace]:
    with stored_models() as found:
        yield found


@pytest.fixture
def cart(made: SimpleNamespace) -> Any:
    """Two rows of 100 seconds, one that has a ttl of its own, and one of this moment."""
    for key in range(4):
        made.Cart.objects.create(pk=key, ttl=-1 if key == 2 else None)
    kill(made.Cart, range(3), 100)
    return made.Cart


def test_a_preview_counts_what_would_expire(cart: Any) -> None:
    seen = preview_policy(cart, 60)
    assert (seen.name, seen.scope, seen.before, seen.after) == ("stored_carts", None, HOUR, 60)
    assert (seen.forecast.lost.rows, seen.at_most) == (2, 3)
    assert preview_policy(cart, 50, deep=True).token != seen.token
    assert {stored.ttl for stored in stored_policies(cart)} == {HOUR}
    approve_policy(cart, 60, token=seen.token, by="ann", reason="the audit")
    assert set(cart.objects.values_list("pk", flat=True)) == {2, 3}
    (change,) = policy_changes(cart)
    assert (change.changed_by, change.reason, change.ttl_after) == ("ann", "the audit", 60)
    assert preview_policy(cart, HOUR).forecast.revived.rows == 2


def test_what_was_not_approved_is_not_made(cart: Any) -> None:
    seen = preview_policy(cart, 60)
    for key in range(10, 13):
        cart.objects.create(pk=key)
    with pytest.raises(NotApprovedError, match="is not for this change"):
        approve_policy(cart, 50, token=seen.token, by="ann")
    kill(cart, range(10, 13), 100)
    with pytest.raises(NotApprovedError, match="more than the 3 rows"):
        approve_policy(cart, 60, token=seen.token, by="ann")
    seen = preview_policy(cart, 60)
    set_policy(cart, 70, by="eve")
    with pytest.raises(NotApprovedError, match="the default has changed since"):
        approve_policy(cart, 60, token=seen.token, by="ann")
    assert [change.changed_by for change in policy_changes(cart)] == ["eve"]


def test_a_token_is_used_once(made: SimpleNamespace) -> None:
    for scope, back in ((None, HOUR), ("acme", "default")):
        token = preview_policy(made.Message, 60, scope=scope).token
        approve_policy(made.Message, 60, token=token, scope=scope, by="ann")
        set_policy(made.Message, back, scope=scope, by="bob")
        with pytest.raises(NotApprovedError, match="by this token or otherwise"):
            approve_policy(made.Message, 60, token=token, scope=scope, by="ann")


@pytest.mark.databases("sqlite")
def test_tokens_are_signed_with_the_secret_key(cart: Any) -> None:
    with override_settings(SECRET_KEY="one", SECRET_KEY_FALLBACKS=[]):
        token = preview_policy(cart, 60).token
    with override_settings(SECRET_KEY="two", SECRET_KEY_FALLBACKS=[]):
        assert preview_policy(cart, 60).token != token
        with pytest.raises(NotApprovedError, match="is not for this change"):
            approve_policy(cart, 60, token=token, by="ann")
    read_later = lazy(lambda: "one", str)()
    with override_settings(SECRET_KEY="two", SECRET_KEY_FALLBACKS=[read_later]):
        assert preview_policy(cart, 60).token != token
        approve_policy(cart, 60, token=token, by="ann")
    with override_settings(SECRET_KEY=read_later, SECRET_KEY_FALLBACKS=[]):
        assert preview_policy(cart, 30).token


@pytest.mark.parametrize("scope", [None, "acme"])
@pytest.mark.parametrize("begun", [True, False])
def test_of_many_approvals_at_once_one_wins(
    made: SimpleNamespace, scope: str | None, *, begun: bool
) -> None:
    if not begun:
        raw("DELETE FROM ttl_odm_policies")
    tokens = {ttl: preview_policy(made.Message, ttl, scope=scope).token for ttl in range(60, 68)}
    barrier = threading.Barrier(len(tokens))

    def approve(ttl: int) -> int | Exception:
        try:
            if connections["default"].vendor == "sqlite":
                raw(f"PRAGMA busy_timeout = {GUARD * 1_000}")
            barrier.wait(GUARD)
            approve_policy(made.Message, ttl, token=tokens[ttl], scope=scope, by="ann")
        except Exception as error:  # noqa: BLE001 (which are then looked at)
            return error
        finally:
            connections.close_all()
        return ttl

    with ThreadPoolExecutor(len(tokens)) as pool:
        outcomes = list(pool.map(approve, tokens))
    winners = [ttl for ttl in outcomes if isinstance(ttl, int)]
    losers = {type(error) for error in outcomes if isinstance(error, Exception)}
    assert (len(winners), losers) == (1, {NotApprovedError}), outcomes
    assert {row.scope: row.ttl for row in stored_policies(made.Message)}[scope] == winners[0]


def test_a_preview_of_a_tenant_counts_its_rows(made: SimpleNamespace) -> None:
    message = made.Message
    for key, tenant in enumerate(("acme", "acme", "Acme", "50%", None)):
        message.objects.create(pk=key, tenant=tenant)
    kill(message, range(5), 100)
    for scope, rows in {"acme": 2, "Acme": 1, "50%": 1, "nobody": 0, None: 5}.items():
        assert preview_policy(message, 60, scope=scope).at_most == rows
    seen = preview_policy(message, 60, scope="acme")
    approve_policy(message, 60, token=seen.token, scope="acme", by="ann")
    assert preview_policy(message, 60).at_most == 3
    seen = preview_policy(message, 60, scope="50%")
    approve_policy(message, 60, token=seen.token, scope="50%", by="ann")
    assert set(message.objects.values_list("pk", flat=True)) == {2, 4}


def test_numbers_tell_rows_apart_too(made: SimpleNamespace) -> None:
    for key in range(3):
        made.Visit.objects.create(pk=key, site=min(key, 1))
    kill(made.Visit, range(3), 100)
    assert preview_policy(made.Visit, 60, scope=1).at_most == 2
    assert preview_policy(made.Visit, -1, scope="1").at_most == 0
    assert preview_policy(made.Visit, 60).at_most == 3


def run(*words: str) -> str:
    said = StringIO()
    call_command("ttl_policy", *words, stdout=said)
    return said.getvalue()


def test_the_command_shows_a_change_and_makes_it(cart: Any) -> None:
    said = run("set", "shop.Cart", "60")
    assert "stored_carts: 1h -> 1m" in said
    assert "the change would expire at most 3 rows at once." in said
    assert "Nothing was changed. To make the change, add:\n--approve 3-" in said
    token = said.split("--approve ")[1].strip()
    assert json.loads(run("set", "shop.Cart", "60", "--json"))["token"] == token
    assert set(cart.objects.values_list("pk", flat=True)) == {0, 1, 2, 3}
    words = ("--approve", token, "--by", "ann", "--reason", "the audit")
    assert run("set", "shop.Cart", "60", *words) == "Changed: shop.Cart 60.\n"
    assert set(cart.objects.values_list("pk", flat=True)) == {2, 3}
    assert "the audit" in run("show", "shop.Cart")
    (shown,) = json.loads(run("show", "shop.Cart", "--json"))
    assert (shown["ttl"], shown["changed_by"]) == (60, "ann")
    (change,) = json.loads(run("history", "--json"))
    assert (change["ttl_before"], change["ttl_after"]) == (HOUR, 60)
    assert run("history").split("\n")[0].split() == [
        "changed",
        "table",
        "rows",
        "from",
        "to",
        "by",
        "reason",
    ]


COMMAND = """
import sys
import tests.django_app.project as project
project.set_up()
from django.core.management import execute_from_command_line
from tests.django_app.stored import declared
project.point_at("default", eval(sys.argv[1]))
declared()
execute_from_command_line(["manage.py", *sys.argv[2:]])
"""


@pytest.mark.parametrize("words", [("show",), ("set", "shop.Cart", "60")])
def test_without_its_tables_the_command_names_the_error(cart: Any, words: tuple[str, ...]) -> None:
    renaming = "ALTER TABLE {} RENAME TO {}"
    raw(renaming.format("ttl_odm_policies", "elsewhere"))
    try:
        with pytest.raises(CommandError, match=r"^default: .*ttl_odm_policies") as refused:
            run(*words)
    finally:
        raw(renaming.format("elsewhere", "ttl_odm_policies"))
    assert refused.value.returncode == Status.FAILED


def at_the_prompt(answer: Callable[[str], str]) -> tuple[int, str]:
    settings = repr(connections.settings["default"])
    words = [sys.executable, "-c", COMMAND, settings, "ttl_policy", "set", "shop.Cart", "60"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    return at_a_terminal([*words, "--by", "ann"], environment, "type its token: ", answer)


@pytest.mark.slow
def test_at_a_terminal_a_change_is_made_by_the_token_that_is_shown(cart: Any) -> None:
    status, screen = at_the_prompt(
        lambda shown: re.findall(r"The token of this change: (\S+)", shown)[0] + "\n"
    )
    assert status == 0, screen
    assert screen.endswith("Changed: shop.Cart 60.\n")
    assert [change.changed_by for change in policy_changes(cart)] == ["ann"]


@pytest.mark.slow
@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("answer", ["\n", "yes\n", END_OF_INPUT])
def test_at_a_terminal_any_other_answer_changes_nothing(cart: Any, answer: str) -> None:
    status, screen = at_the_prompt(lambda _: answer)
    assert status == 1, screen
    assert ("That is not the token." in screen) is (answer != END_OF_INPUT)
    assert "Nothing was changed." in screen
    assert policy_changes(cart) == []


def test_the_command_of_a_tenant(made: SimpleNamespace) -> None:
    token = json.loads(run("set", "stored_messages", "tenant=acme", "2h", "--json"))["token"]
    run("set", "stored_messages", "tenant=acme", "2h", "--approve", token, "--by", "ann")
    assert {row.scope: row.ttl for row in stored_policies(made.Message)} == {
        None: HOUR,
        "acme": 2 * HOUR,
    }


def test_the_command_removes_one_of_a_tenant(made: SimpleNamespace) -> None:
    set_policy(made.Message, 10, scope="acme", by="ann")
    made.Message.objects.create(pk=1, tenant="acme")
    kill(made.Message, range(2), 100)
    seen = json.loads(run("set", "stored_messages", "tenant=acme", "default", "--json"))
    assert (seen["before"], seen["after"]) == (10, 0)
    assert seen["forecast"]["planned"]["visible_again"] == 1
    said = run("set", "stored_messages", "tenant=acme", "default")
    assert "stored_messages, acme: 10 -> default" in said
    run("set", "stored_messages", "tenant=acme", "default", "--approve", seen["token"])
    assert [row.scope for row in stored_policies(made.Message)] == [None]
    assert made.Message.objects.filter(pk=1).exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("set", "shop.Cart", "soon"), "soon"),
        (("set", "shop.Session", "60"), "is not a model whose default is stored"),
        (("set", "shop.Cart", "tenant=acme", "60"), "its rows have one default"),
        (("set", "shop.Message", "acme", "60"), "give tenant=VALUE"),
        (("set", "shop.Message", "5"), "the least is 10 seconds"),
        (("set", "shop.Message", "default"), "is only for a single value"),
        (("set", "shop.Cart", "60", "--approve", "0-nonsense"), "not for this change"),
    ],
)
@pytest.mark.databases("sqlite")
def test_the_command_refuses(made: SimpleNamespace, words: Any, message: str) -> None:
    with pytest.raises(CommandError, match=message) as caught:
        run(*words)
    assert caught.value.returncode == Status.USAGE


def test_nothing_to_show(cart: Any) -> None:
    raw("DELETE FROM ttl_odm_policies")
    assert run("show", "shop.Cart").startswith("No default is stored:")
    said = StringIO()
    with pytest.raises(SystemExit):
        call_command("ttl_check", "--model", "shop.Cart", "--json", stdout=said)
    assert "its default isn't stored" in said.getvalue()
    assert cart.objects.count() == 4


# --- the admin ------------------------------------------------------------------------------------


def signed_in(*permissions: str) -> Client:
    """A client of a new member of the staff."""
    user = User.objects.create_user(f"staff{User.objects.count()}", is_staff=True)
    for name in permissions:
        user.user_permissions.add(
            Permission.objects.get(content_type__app_label="ttl_odm_policies", codename=name)
        )
    client = Client()
    client.force_login(user)
    return client


def test_the_admin_shows_a_change_before_it_makes_it(cart: Any) -> None:
    client = signed_in("change_policy")
    page = client.get(CHANGES).content.decode()
    assert "stored_carts" in page
    assert "model=shop.Cart" in page
    asked = {"model": "shop.Cart", "scope": "", "ttl": "60", "reason": "the audit"}
    assert 'value="shop.Cart" selected' in (
        client.get(f"{CHANGES}set/?model=shop.Cart").content.decode()
    )
    shown = client.post(f"{CHANGES}set/", asked).content.decode()
    token = preview_policy(cart, 60).token
    assert f'name="token" value="{token}"' in shown
    assert "the change would expire at most 3 rows at once." in shown
    assert policy_changes(cart) == []
    assert client.post(f"{CHANGES}set/", {**asked, "token": token}).status_code == 302
    (change,) = policy_changes(cart)
    assert (change.ttl_after, change.changed_by, change.reason) == (60, "staff0", "the audit")
    assert set(cart.objects.values_list("pk", flat=True)) == {2, 3}
    page = client.get(CHANGES).content.decode()
    assert "the audit" in page
    ((key,),) = raw("SELECT id FROM ttl_odm_policy_changes")
    detail = client.get(f"{CHANGES}{key}/change/")
    assert detail.status_code == 200
    assert "_save" not in detail.content.decode()
    assert client.post(f"{CHANGES}{key}/change/", {"reason": "none"}).status_code == 403
    assert client.post(f"{CHANGES}{key}/delete/", {"post": "yes"}).status_code == 403


@pytest.mark.databases("sqlite")
def test_the_admin_lists_what_is_stored_in_its_content_above_the_history(cart: Any) -> None:
    page = signed_in("change_policy").get(CHANGES).content.decode()
    assert "<title>Stored defaults" in page
    _, content = page.split('<div class="results">', 1)
    assert "object-tools" not in page  # which Django 6.1 has beside the title
    assert content.index("stored_carts") < content.index("<h2>History</h2>")
    assert CHANGES in signed_in("change_policy").get(f"{CHANGES}set/").content.decode()


def test_the_admin_says_what_is_wrong(cart: Any) -> None:
    client = signed_in("change_policy")
    for given, is_wrong in {"soon": True, "0": True, "1h": False}.items():
        asked = {"model": "shop.Cart", "ttl": given}
        page = client.post(f"{CHANGES}set/", asked).content.decode()
        assert ("errorlist" in page) == is_wrong
    asked = {"model": "shop.Cart", "ttl": "60", "token": "0-nonsense"}
    assert "is not for this change" in client.post(f"{CHANGES}set/", asked).content.decode()
    asked = {"model": "shop.Cart", "ttl": "60", "scope": "acme"}
    page = client.post(f"{CHANGES}set/", asked).content.decode()
    assert "one default for all rows" in page
    assert policy_changes(cart) == []


def test_the_admin_takes_a_tenant_as_it_is_typed(made: SimpleNamespace) -> None:
    client = signed_in("change_policy")
    set_policy(made.Message, 60, scope="acme", by="ann")
    asked = {"model": "shop.Message", "scope": " acme", "ttl": "2h"}
    shown = client.post(f"{CHANGES}set/", asked).content.decode()
    assert "&#x27; acme&#x27;" in shown  # the blank can be seen
    token = preview_policy(made.Message, 2 * HOUR, scope=" acme").token
    assert client.post(f"{CHANGES}set/", {**asked, "token": token}).status_code == 302
    stored = {row.scope: row.ttl for row in stored_policies(made.Message)}
    assert stored == {None: HOUR, "acme": 60, " acme": 2 * HOUR}


@pytest.mark.parametrize("scope", ["1", "001", 1, 1.0])
def test_a_number_has_one_form(made: SimpleNamespace, scope: Any) -> None:
    made.Visit.objects.create(pk=1, site=1)
    kill(made.Visit, [1], 2 * HOUR)
    set_policy(made.Visit, 60, by="ann")
    set_policy(made.Visit, -1, scope=scope, by="ann")
    assert [row.scope for row in stored_policies(made.Visit)] == [None, "1"]
    assert made.Visit.objects.exists()


def test_a_scope_that_no_row_can_have_is_rejected(made: SimpleNamespace) -> None:
    of_visits: list[Any] = ["abc", "", True, 1.5, 2**70, [1]]
    of_messages: list[Any] = [7, True, "", "x" * 21, "a\0", "\ud800"]
    reason = r"the column holds|a scope has 1 to 20 characters"
    for model, scopes in ((made.Visit, of_visits), (made.Message, of_messages)):
        for scope in scopes:
            with pytest.raises(TTLConfigurationError, match=reason):
                set_policy(model, 60, scope=scope, by="ann")
            with pytest.raises(TTLConfigurationError, match=reason):
                preview_policy(model, 60, scope=scope)
        assert [row.scope for row in stored_policies(model)] == [None]
    with pytest.raises(CommandError, match="the column holds whole numbers"):
        run("set", "stored_visits", "site=abc", "60")


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.parametrize("pads", [True, False])
def test_blanks_behind_count_as_in_the_tenants_column(
    made: SimpleNamespace, backend: Backend, *, pads: bool
) -> None:
    unpadded = {"mariadb": "utf8mb4_nopad_bin", "mysql": "utf8mb4_0900_bin"}[backend.database]
    collation = "utf8mb4_bin" if pads else unpadded
    raw(f"ALTER TABLE stored_messages MODIFY tenant VARCHAR(20) COLLATE {collation}")
    with pytest.raises(TTLConfigurationError, match="treats it as 'acme'"):
        set_policy(made.Message, 60, scope="acme ", by="ann")
    tenants = ["acme", "acme "]
    for key, tenant in enumerate(tenants):
        made.Message.objects.create(pk=key, tenant=tenant)
    kill(made.Message, range(2), 100)
    live = set() if pads else {1}
    assert preview_policy(made.Message, 60, scope="acme").at_most == 2 - len(live)
    set_policy(made.Message, 60, scope="acme", by="ann")
    for rows in (made.Message.objects.all(), made.Message.objects.filter(tenant__in=tenants)):
        assert set(rows.values_list("pk", flat=True)) == live
    sweeper = Sweeper(DjangoStore("default", made.Message), lease=False)
    assert sweeper.run_once().deleted == 2 - len(live)


def test_only_who_may_change_policies_changes_one(cart: Any) -> None:
    asked = {"model": "shop.Cart", "ttl": "60", "token": preview_policy(cart, 60).token}
    assert signed_in().get(CHANGES).status_code == 403
    for client in (signed_in(), signed_in("view_policy"), signed_in("view_policychange")):
        assert client.get(f"{CHANGES}set/").status_code == 403
        assert client.post(f"{CHANGES}set/", asked).status_code == 403
    page = signed_in("view_policy").get(CHANGES).content.decode()
    assert "stored_carts" in page
    assert "Change a stored default" not in page
    assert Client().post(f"{CHANGES}set/", asked).status_code == 302  # to sign in
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.create_superuser("root"))
    assert strict.post(f"{CHANGES}set/", asked).status_code == 403
    assert policy_changes(cart) == []


def test_a_plan_names_the_tenants(
    made: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    for key, tenant in enumerate(("acme", "acme", "initech", "initech", "initech", None, "new")):
        made.Message.objects.create(pk=key, tenant=tenant)
    kill(made.Message, range(7), 100)
    for tenant, ttl in (("acme", 50), ("initech", DAY)):
        set_policy(made.Message, ttl, scope=tenant, by="ann")
    capsys.readouterr()
    call_command("ttl_plan", "shop.Message", "--json")
    current = json.loads(capsys.readouterr().out)["current"]
    found = {
        scope: [count["rows"] for count in counts] for scope, counts in current["by_scope"].items()
    }
    assert found == {"initech": [0, 0, 3, 3, 3], "acme": [2, 2, 2, 2, 2], "": [0, 2, 2, 2, 2]}
    call_command("ttl_plan", "shop.Message")
    assert "all others" in capsys.readouterr().out
