"""Defaults that the database stores, on Django."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, OperationalError, connections, models, transaction
from django.test import modify_settings
from sqlalchemy import BigInteger, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.django_app.data import forget, kill, raw
from tests.django_app.shop import models as shop
from tests.django_app.stored import DAY, HOUR, stored_models
from tests.guard import GUARD
from ttl_odm import InvalidTTL, Stored, TTLConfigurationError, sqlalchemy
from ttl_odm.django import (
    DjangoStore,
    ExpiredError,
    TTLModel,
    begin_policies,
    include_expired,
    only_expired,
    policy_changes,
    set_policy,
    stored_policies,
)
from ttl_odm.django.checks import check_policies
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import SimpleNamespace

    from tests.backends import Backend

OWN = {1: None, 2: -1, 3: 50, 4: 200}
"""Rows that are 100 seconds old, by their own ttl."""

EXPECTED: dict[int | None, set[int]] = {
    None: {1, 2, 3, 4},
    -1: {1, 2, 4},
    60: {2, 4},
    HOUR: {1, 2, 4},
}


@pytest.fixture
def made(backend: Backend) -> Iterator[SimpleNamespace]:
    with stored_models() as found:
        yield found


@pytest.fixture
def cart(made: SimpleNamespace) -> Any:
    for key, own in OWN.items():
        made.Cart.objects.create(pk=key, ttl=own)
    kill(made.Cart, OWN, 100)
    return made.Cart


def keys(queryset: Any) -> set[int]:
    return set(queryset.values_list("pk", flat=True))


def sweep(*models: Any) -> int:
    return Sweeper(DjangoStore("default", models), lease=False).run_once().deleted


@pytest.mark.parametrize("ttl", EXPECTED)
def test_each_default_means_what_it_means_in_the_code(cart: Any, ttl: int | None) -> None:
    set_policy(cart, ttl, by="ann")
    expected = EXPECTED[ttl]
    assert keys(cart.objects) == expected
    assert keys(only_expired(cart.objects.all())) == set(OWN) - expected
    for row in include_expired(cart.objects.all()):
        assert row.is_expired == (row.pk not in expected)
        is_endless = ttl is None or row.pk == 2 or (ttl == -1 and row.pk == 1)
        assert (row.expires_at is None) == is_endless
    status = DjangoStore("default", cart).count("stored_carts")
    assert (status.rows, status.due) == (4, 4 - len(expected))
    assert cart.objects.update(views=1) == len(expected)
    kill(cart, OWN, 100)
    assert sweep(cart) == 4 - len(expected)
    assert {key for (key,) in raw("SELECT id FROM stored_carts")} == expected
    assert cart.objects.all().delete()[0] == len(expected)


def test_where_nothing_is_stored_no_row_expires(cart: Any) -> None:
    raw("DELETE FROM ttl_odm_policies")
    assert keys(cart.objects) == EXPECTED[None]
    assert sweep(cart) == 0
    assert set_policy(cart, 60, by="ann") is None
    assert keys(cart.objects) == EXPECTED[60]


def test_the_starting_row_is_made_once(cart: Any) -> None:
    (stored,) = stored_policies(cart)
    assert (stored.name, stored.scope, stored.ttl) == ("stored_carts", None, HOUR)
    assert (stored.changed_by, stored.reason) == (None, None)
    assert stored.changed_at.tzinfo is not None
    set_policy(cart, 60, by="ann")
    begin_policies()
    assert [stored.ttl for stored in stored_policies(cart)] == [60]


@pytest.mark.slow
def test_migrate_makes_it(cart: Any) -> None:
    raw("DELETE FROM ttl_odm_policies")
    call_command("migrate", verbosity=0, interactive=False, run_syncdb=True)
    assert [stored.ttl for stored in stored_policies(cart)] == [HOUR]


def test_changes_are_written_down(cart: Any) -> None:
    assert set_policy(cart, 60, by="ann", reason="the audit") == HOUR
    assert set_policy(cart, None, by="bob") == 60
    with transaction.atomic():
        assert set_policy(cart, -1, by="eve") is None
        assert {row.ttl for row in stored_policies(cart)} == {-1}
        transaction.set_rollback(True)
    last, first = policy_changes(cart)
    (stored,) = stored_policies(cart)
    assert (first.ttl_before, first.ttl_after, first.changed_by) == (HOUR, 60, "ann")
    assert (first.reason, first.name, first.scope) == ("the audit", "stored_carts", None)
    assert (last.ttl_before, last.ttl_after, last.changed_by) == (60, None, "bob")
    assert (stored.ttl, stored.changed_by, stored.reason) == (None, "bob", None)
    assert first.changed_at <= last.changed_at == stored.changed_at
    assert policy_changes() == [last, first]


def test_what_a_model_doesnt_allow_is_not_stored(made: SimpleNamespace) -> None:
    message = made.Message
    for ttl in (9, DAY + 1, None, -1, 0, "60"):
        with pytest.raises(InvalidTTL, match=r"^shop\.Message\.__ttl__ = "):
            set_policy(message, ttl, by="ann")  # type: ignore[arg-type]
    with pytest.raises(TTLConfigurationError, match="one default for all rows"):
        set_policy(made.Cart, HOUR, scope="acme", by="ann")
    with pytest.raises(TTLConfigurationError, match="isn't stored in the database"):
        set_policy(shop.Session, HOUR, by="ann")
    with pytest.raises(TTLConfigurationError, match="1 to 20 characters"):
        set_policy(message, HOUR, scope="", by="ann")
    assert policy_changes() == []


def test_a_model_that_takes_it_back_is_refused(cart: Any) -> None:
    cart.__ttl__ = 60
    with pytest.raises(TTLConfigurationError, match="whether the database stores the default"):
        keys(cart.objects)
    cart.__ttl__ = Stored(60)
    assert keys(cart.objects) == EXPECTED[HOUR]


def test_rows_of_a_subclass_live_by_the_root(made: SimpleNamespace) -> None:
    for key, own in OWN.items():
        made.Basket.objects.create(pk=key, ttl=own, note="old")
    for ttl, expected in EXPECTED.items():
        set_policy(made.Cart, ttl, by="ann")
        kill(made.Cart, OWN, 100)
        assert keys(made.Basket.objects) == expected
        assert made.Basket.objects.filter(note="old").count() == len(expected)
    assert made.Basket.objects.update(note="new") == len(EXPECTED[HOUR])


def test_a_missing_row_is_written_anew_while_ttl_is_off(cart: Any) -> None:
    """As without a policy: Django's save() inserts what isn't there."""
    set_policy(cart, None, by="ann")
    row = cart.objects.get(pk=1)
    raw("DELETE FROM stored_carts")
    row.save()
    raw("DELETE FROM stored_carts")
    set_policy(cart, HOUR, by="ann")
    with pytest.raises(ExpiredError):
        row.save()


@pytest.mark.parametrize("ttl", EXPECTED)
def test_a_touch_judges_by_what_is_stored(cart: Any, ttl: int | None) -> None:
    set_policy(cart, ttl, by="ann")
    ends = {key for key in EXPECTED[ttl] if cart.objects.get(pk=key).expires_at is not None}
    touched = {row.pk for row in cart.objects.all() if row.touch(only_if="has_ttl")}
    assert touched == ends
    others = {row.pk for row in cart.objects.all() if row.touch(only_if="no_ttl")}
    assert others == EXPECTED[ttl] - ends


# --- a default for each scope ---------------------------------------------------------------------


@pytest.fixture
def message(made: SimpleNamespace) -> Any:
    for key, tenant in enumerate(("acme", "Acme", "other", None)):
        made.Message.objects.create(pk=key, tenant=tenant)
        made.Message.objects.create(pk=key + 10, tenant=tenant, ttl=-1)
    kill(made.Message, range(4), 100)
    return made.Message


def test_tenants_have_their_own(message: Any) -> None:
    endless = {10, 11, 12, 13}
    set_policy(message, 60, scope="acme", by="ann")
    assert keys(message.objects) == {1, 2, 3, *endless}
    set_policy(message, 60, by="ann")
    set_policy(message, HOUR, scope="acme", by="ann")
    assert keys(message.objects) == {0, *endless}
    assert keys(only_expired(message.objects.all())) == {1, 2, 3}
    ends = {row.pk: row.is_expired for row in include_expired(message.objects.filter(pk__lt=4))}
    assert ends == {0: False, 1: True, 2: True, 3: True}
    assert {stored.scope: stored.ttl for stored in stored_policies(message)} == {
        None: 60,
        "acme": HOUR,
    }
    assert message.objects.filter(pk__lt=4).update(tenant="acme") == 1
    assert sweep(message) == 3
    assert {key for (key,) in raw("SELECT id FROM stored_messages")} == {0, *endless}


def test_a_default_of_ones_own_can_be_removed(message: Any) -> None:
    assert set_policy(message, 60, scope="acme", by="ann") == 0
    assert keys(message.objects.filter(pk__lt=4)) == {1, 2, 3}
    assert set_policy(message, "default", scope="acme", by="bob") == 60
    assert keys(message.objects.filter(pk__lt=4)) == {0, 1, 2, 3}
    assert [stored.scope for stored in stored_policies(message)] == [None]
    changes = policy_changes(message)
    assert [(change.ttl_before, change.ttl_after) for change in changes] == [(60, 0), (0, 60)]
    # There is nothing to remove, and nothing to write down.
    assert set_policy(message, "default", scope="acme", by="bob") == 0
    assert policy_changes(message) == changes
    with pytest.raises(InvalidTTL, match="is only for a single value"):
        set_policy(message, "default", by="ann")


def test_ttl_is_off_for_one_tenant(message: Any) -> None:
    set_policy(message, 60, by="ann")
    assert keys(message.objects.filter(pk__lt=4)) == set()
    raw(
        "INSERT INTO ttl_odm_policies (name, scope, ttl, changed_at) "
        "SELECT name, 'acme', NULL, changed_at FROM ttl_odm_policies WHERE name = %s",
        ["stored_messages"],
    )
    assert keys(message.objects.filter(pk__lt=4)) == {0}
    assert message.objects.get(pk=0).expires_at is None
    assert sweep(message) == 3


def test_columns_of_ones_own_by_numbers(made: SimpleNamespace) -> None:
    visit = made.Visit
    rows = {1: (7, None), 2: (8, None), 3: (7, -1), 4: (8, 200), 5: (7, 50)}
    for key, (site, life) in rows.items():
        visit.objects.create(pk=key, site=site, life=life)
    kill(visit, rows, 100)
    set_policy(visit, 60, scope=7, by="ann")
    assert keys(visit.objects) == {2, 3, 4}
    set_policy(visit, -1, by="ann")
    set_policy(visit, -1, scope=7, by="ann")
    assert keys(visit.objects) == {1, 2, 3, 4}
    set_policy(visit, None, scope=7, by="ann")
    assert keys(visit.objects) == {1, 2, 3, 4, 5}
    assert sweep(visit) == 0
    set_policy(visit, 60, by="ann")
    assert keys(visit.objects) == {1, 3, 4, 5}
    assert visit.objects.update(site=9) == 4
    kill(visit, rows, 100)
    assert keys(visit.objects) == {3, 4}
    assert sweep(visit) == 3


# --- programs that share a table ------------------------------------------------------------------

PROCESS = """
import os
from django.conf import settings
import tests.django_app.project as project
project.set_up()
from django.db import connections
from tests.backends import Backend
from tests.django_app.stored import declared
import sys
project.point_at("default", eval(sys.argv[1]))
Cart = declared().Cart
for line in sys.stdin:
    print(*sorted(Cart.objects.values_list("pk", flat=True)), flush=True)
"""


@contextmanager
def processes(count: int) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, "-c", PROCESS, repr(connections.settings["default"])]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, **pipes) for _ in range(count)]
    try:
        yield started
    finally:
        for process in started:
            process.communicate(timeout=GUARD)


def asked(process: subprocess.Popen[str]) -> set[int]:
    assert process.stdin is not None
    assert process.stdout is not None
    print("?", file=process.stdin, flush=True)
    return {int(key) for key in process.stdout.readline().split()}


@pytest.mark.slow
def test_three_processes_agree_in_the_statement_after_a_change(cart: Any) -> None:
    with processes(3) as others:
        for ttl in (HOUR, 60, -1, None, 60, HOUR):
            set_policy(cart, ttl, by="ann")
            assert [asked(process) for process in others] == [EXPECTED[ttl]] * 3


def test_a_program_with_sqlalchemy_agrees(cart: Any, backend: Backend) -> None:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "stored_carts"
        __ttl__ = Stored(HOUR)
        id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
        views: Mapped[int]

    assert backend.sync_url is not None
    engine = create_engine(backend.sync_url, isolation_level="AUTOCOMMIT")
    try:
        for turn, ttl in enumerate((HOUR, 60, -1, None, 60)):
            with engine.connect() as connection:
                if turn % 2:
                    sqlalchemy.set_policy(connection, Cart, ttl, by="bob")
                else:
                    set_policy(cart, ttl, by="ann")
                assert set(connection.scalars(select(Cart.id))) == EXPECTED[ttl]
                assert keys(cart.objects) == EXPECTED[ttl]
                assert sqlalchemy.stored_policies(connection, Cart) == stored_policies(cart)
                assert sqlalchemy.policy_changes(connection, Cart) == policy_changes(cart)
            Base.metadata.create_all(engine)  # finds all there
    finally:
        engine.dispose()
    assert [change.changed_by for change in policy_changes(cart)] == [*("ann", "bob") * 2, "ann"]


@pytest.mark.databases("sqlite")
def test_without_the_app_a_model_is_refused(cart: Any) -> None:
    with modify_settings(INSTALLED_APPS={"remove": "ttl_odm.django.policies"}):
        with pytest.raises(TTLConfigurationError, match=r"add 'ttl_odm\.django\.policies' to"):
            cart.objects.only("pk").defer("views").filter(pk=99).exists()
        found = [message.id for message in check_policies() if message.obj is cart]
    assert found == ["ttl_odm.E004"]
    assert "ttl_odm.E004" not in [message.id for message in check_policies()]


@pytest.mark.databases("sqlite")
def test_a_field_that_no_scope_can_be_of_is_refused() -> None:
    class Meta:
        app_label = "shop"

    members = {
        "__module__": __name__,
        "__ttl__": Stored(HOUR, by="at"),
        "at": models.DateTimeField(),
        "Meta": Meta,
    }
    with pytest.raises(TTLConfigurationError, match="by='at' is a DateTimeField"):
        type("Odd", (TTLModel,), members)
    forget("odd")


def test_a_plan_says_what_another_default_would_do(cart: Any) -> None:
    set_policy(cart, 200, by="ann")
    said = StringIO()
    call_command("ttl_plan", "shop.Cart", "--default-ttl", "60", "--json", stdout=said)
    plan = json.loads(said.getvalue())
    assert plan["current"]["expired"][0]["rows"] == 1  # by what is stored
    assert plan["planned"]["expired_at_once"] == 1
    said = StringIO()
    call_command("ttl_plan", "shop.Cart", stdout=said)
    assert "Stored(3600)" in said.getvalue()


def test_a_sweep_looks_at_what_is_stored_when_it_deletes(cart: Any) -> None:
    """Somebody raises the default between the look and the DELETE."""
    set_policy(cart, 60, by="ann")
    raised = []

    def act(execute: Any, statement: str, *rest: Any) -> Any:
        is_purge = "FOR UPDATE" in statement or statement.startswith("DELETE FROM")
        if is_purge and "stored_carts" in statement and "1 = 0" not in statement and not raised:
            raised.append(raw("UPDATE ttl_odm_policies SET ttl = 3600 WHERE ttl = 60"))
        return execute(statement, *rest)

    with connections["default"].execute_wrapper(act):
        sweep(cart)
    assert raised
    assert {key for (key,) in raw("SELECT id FROM stored_carts")} == {1, 2, 4}


def test_what_is_overdue_counts_from_what_is_stored(cart: Any, made: SimpleNamespace) -> None:
    raw("DELETE FROM stored_carts WHERE ttl IS NOT NULL")
    set_policy(cart, 40, by="ann")
    due = DjangoStore("default", cart).due("stored_carts")
    assert due is not None
    assert due.oldest == pytest.approx(60, abs=20)
    set_policy(cart, None, by="ann")
    assert DjangoStore("default", cart).due("stored_carts") is None
    made.Message.objects.create(pk=1, tenant="acme")
    kill(made.Message, [1], 100)
    set_policy(made.Message, 10, scope="other", by="ann")
    due = DjangoStore("default", made.Message).due("stored_messages")
    assert due is not None
    assert due.parts == ()


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_writer_that_takes_its_time_doesnt_fail_a_change(cart: Any) -> None:
    """On MariaDB and MySQL it may have locked the row of the policy."""

    def change() -> None:
        try:
            set_policy(cart, 60, by="ann")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            cart.objects.filter(pk=4).update(views=1)
            changing = pool.submit(change)
            cart.objects.filter(pk=2).update(views=1)
        changing.result(GUARD)
    assert {row.ttl for row in stored_policies(cart)} == {60}


@pytest.mark.slow
@pytest.mark.databases("mariadb", "mysql")
def test_a_change_that_gets_no_lock_in_a_second_tries_again(cart: Any) -> None:
    failed = threading.Event()

    def note(execute: Any, *statement: Any) -> Any:
        try:
            return execute(*statement)
        except OperationalError:
            failed.set()
            raise

    def change() -> None:
        try:
            with connections["default"].execute_wrapper(note):
                set_policy(cart, 60, by="ann")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            raw("SELECT name FROM ttl_odm_policies FOR UPDATE")  # as a sweep does
            changing = pool.submit(change)
            assert failed.wait(GUARD)
        changing.result(GUARD)
    assert {row.ttl for row in stored_policies(cart)} == {60}


def test_the_statement_stays_the_same(cart: Any) -> None:
    """In a statement that stays the same, and isn't there for other models."""
    sql, values = cart.objects.all().query.sql_with_params()
    assert "ttl_odm_policies" in sql
    set_policy(cart, 60, by="ann")
    assert cart.objects.all().query.sql_with_params() == (sql, values)
    assert "ttl_odm" not in str(shop.Session.objects.all().query)


@pytest.mark.databases("mariadb", "mysql")
def test_a_change_that_fails_leaves_the_session_as_it_was(cart: Any) -> None:
    before = raw("SELECT @@innodb_lock_wait_timeout")
    assert before != [(1,)]
    with pytest.raises(DatabaseError):
        set_policy(cart, 60, by="x" * 300)
    with transaction.atomic():
        set_policy(cart, 60, by="ann")
    assert raw("SELECT @@innodb_lock_wait_timeout") == before
