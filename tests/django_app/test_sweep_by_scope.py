"""What a sweep says of the scopes of a stored default, on Django."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, models

from tests.django_app.data import kill, raw
from tests.django_app.stored import DAY, HOUR, stored_models
from ttl_odm.django import DjangoStore, set_policy
from ttl_odm.sweeper import FuseError, Hook, Progress, Purged, Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import SimpleNamespace

    from django.test.utils import CaptureQueriesContext

    from ttl_odm.sweeper import TargetReport

pytestmark = pytest.mark.usefixtures("backend")

ROWS: tuple[tuple[Any, int | None, int], ...] = (
    ("acme", None, 100),
    ("acme", 30, 100),
    ("acme", -1, 100),
    ("acme", None, 10),
    ("Acme", None, HOUR),
    ("Acme", 30, 100),
    (None, None, HOUR),
    (None, None, 100),
)
"""The tenants of messages, their own ttl, and for how many seconds they are there."""

EXPECTED = {"acme": 2, "Acme": 1, "": 1}
"""How many have expired, where acme has a minute, Acme a day, and all others an hour."""


@pytest.fixture
def made() -> Iterator[SimpleNamespace]:
    with stored_models() as found:
        yield found


@pytest.fixture
def message(made: SimpleNamespace) -> Any:
    for key, (tenant, ttl, age) in enumerate(ROWS):
        made.Message.objects.create(pk=key, tenant=tenant, ttl=ttl)
        kill(made.Message, [key], age)
    set_policy(made.Message, 60, scope="acme", by="ann")
    set_policy(made.Message, DAY, scope="Acme", by="ann")
    return made.Message


def sweep(*swept: Any, **options: Any) -> TargetReport:
    sweeper = Sweeper(DjangoStore("default", swept), lease=False, **options)
    (target,) = sweeper.run_once().targets
    return target


@pytest.mark.databases("postgres")
def test_intervals_may_have_any_style(message: Any) -> None:
    raw("SET intervalstyle = iso_8601")
    try:
        assert sweep(message).deleted_by_scope == EXPECTED
    finally:
        raw("RESET intervalstyle")


@pytest.mark.parametrize("by", ["index", "scan"])
def test_a_dry_run_and_a_sweep_name_the_scopes(message: Any, by: str) -> None:
    binding = DjangoStore("default", message)._bindings()[0]
    binding.sweep = by  # type: ignore[assignment]
    target = sweep(message, dry_run=True)
    assert (target.due, target.due_by_scope, target.deleted_by_scope) == (4, EXPECTED, {})
    batches: list[Progress] = []
    target = sweep(message, on_progress=batches.append, batch_size=2)
    assert (target.deleted, target.deleted_by_scope) == (4, EXPECTED)
    assert sum(batch.by_scope.get("acme", 0) for batch in batches) == 2
    assert sweep(message).deleted_by_scope == {}


def test_rows_that_hooks_hear_of_are_counted(message: Any) -> None:
    told: list[Purged] = []
    target = sweep(message, on_purged=Hook(told.append, rows=True))
    assert (target.error, target.deleted_by_scope) == (None, EXPECTED)
    rows = [row for purged in told for row in purged.rows or ()]
    assert len(rows) == 4
    assert all(set(row) == {"id", "tenant", "_ts", "ttl"} for row in rows)


def test_rows_that_signals_hear_of_are_counted(message: Any) -> None:
    told: list[Any] = []

    def receive(instance: Any, **_: Any) -> None:
        told.append(instance.pk)

    models.signals.post_delete.connect(receive, sender=message)
    try:
        target = sweep(message)
    finally:
        models.signals.post_delete.disconnect(receive, sender=message)
    assert (len(told), target.deleted_by_scope) == (4, EXPECTED)


def test_scopes_may_be_numbers(made: SimpleNamespace) -> None:
    for key in range(3):
        made.Visit.objects.create(pk=key, site=key)
    kill(made.Visit, range(3), 100)
    set_policy(made.Visit, 60, scope=1, by="ann")
    assert sweep(made.Visit, dry_run=True).due_by_scope == {"1": 1}
    target = sweep(made.Visit)
    assert (target.error, target.deleted_by_scope) == (None, {"1": 1})


def test_rows_that_refer_to_others_are_counted_with_them(made: SimpleNamespace) -> None:
    post = made.Post
    parent = None
    for number in range(6):
        parent = post.objects.create(name=str(number), scope="acme", parent=parent)
    kill(post, map(str, range(6)), 100)
    kill(post, ["0"], 200)
    set_policy(post, 60, scope="acme", by="ann")
    set_policy(post, 60, scope="globex", by="ann")
    assert sweep(post, dry_run=True).due_by_scope == {"acme": 6}
    target = sweep(post, batch_size=1)
    assert (target.deleted, target.deleted_by_scope) == (6, {"acme": 6})


@pytest.mark.slow
def test_the_fuse_says_whose_rows_they_are(made: SimpleNamespace) -> None:
    message = made.Message
    message.objects.bulk_create(message(pk=key, tenant="acme") for key in range(1_001))
    raw("UPDATE stored_messages SET ttl = NULL")
    kill(message, range(1_001), 100)
    set_policy(message, 60, scope="acme", by="ann")
    target = sweep(message, max_fraction=0.5)
    assert isinstance(target.error, FuseError)
    assert target.error.by_scope == {"acme": 1_001}


def test_rows_that_are_spared_are_not_counted(message: Any) -> None:
    """Somebody raises the default between the look at the scopes and the DELETE."""
    raised = []

    def act(execute: Any, statement: str, *rest: Any) -> Any:
        is_purge = "DELETE " in statement and "stored_messages" in statement
        if is_purge and "1 = 0" not in statement and not raised:
            raised.append(raw("UPDATE ttl_odm_policies SET ttl = 3600 WHERE ttl = 60"))
        return execute(statement, *rest)

    with connections["default"].execute_wrapper(act):
        target = sweep(message)
    assert raised
    assert (target.deleted, target.deleted_by_scope) == (3, {"acme": 1, "Acme": 1, "": 1})


def test_where_no_scope_has_a_default_of_its_own_none_is_looked_up(
    made: SimpleNamespace, django_queries: Callable[[], CaptureQueriesContext]
) -> None:
    for model in (made.Message, made.Cart):
        model.objects.create(pk=1)
        kill(model, [1], HOUR)
        with django_queries() as captured:
            target = sweep(model)
        assert (target.deleted, target.deleted_by_scope) == (1, {})
        assert not [query for query in captured.captured_queries if "ttl_scope" in query["sql"]]
