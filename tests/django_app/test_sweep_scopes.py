"""A sweep goes from scope to scope, each by its own default, past the rows of long-lived ones."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, models, transaction
from django.db.models.signals import post_delete

from tests.django_app.data import raw, tables_of
from tests.guard import GUARD
from ttl_odm import Stored
from ttl_odm.django import DjangoStore, TTLModel, set_policy
from ttl_odm.stored.django.changes import begin_policies
from ttl_odm.stored.scope_walk import AT_ONCE
from ttl_odm.stored.scopes import due_by_scope
from ttl_odm.sweeper import BatchRequest, BatchResult, Part, Progress, Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.backends import Backend
    from ttl_odm.sweeper import TargetReport

HOUR, DAY = 3600, 86_400
INDEX = "ix_scoped_messages_ttl_inherited"
SECOND = {"postgresql": "interval '1 second'", "sqlite": "1000", "mysql": "1000000"}


def make(column: Any, default: int = 30 * DAY) -> Any:
    """A model of messages whose tenants may have defaults of their own."""

    class Message(TTLModel):
        __ttl__: Any = Stored(default, by="tenant")
        id = models.CharField(max_length=60, primary_key=True)
        tenant = column

        class Meta:
            app_label = "shop"
            db_table = "scoped_messages"

    return Message


def exact() -> Any:
    """A field that tells Acme from acme on every database."""
    collation = "utf8mb4_bin" if connections["default"].vendor == "mysql" else None
    return models.CharField(max_length=40, null=True, db_collation=collation)


@pytest.fixture
def world(backend: Backend) -> Iterator[Callable[..., Any]]:
    """Return what makes the model, its table, and the row that its default begins with."""
    with ExitStack() as stack:

        def made(default: int = 30 * DAY, column: Any = None) -> Any:
            model = make(column or exact(), default)
            stack.enter_context(tables_of(model))
            begin_policies()
            return model

        yield made


def fill(model: Any, *rows: tuple[Any, int, int], start: int = 0) -> None:
    """Add rows: of which tenant, how many, and for how many seconds they are there.

    `start` is another one each time.
    """
    model.objects.bulk_create(
        model(pk=f"{start}.{seconds}-{place}-{number}", tenant=tenant)
        for place, (tenant, count, seconds) in enumerate(rows)
        for number in range(count)
    )
    second = SECOND[connections["default"].vendor]
    for seconds in {seconds for *_, seconds in rows}:
        earlier = f"UPDATE scoped_messages SET _ts = _ts - {seconds} * {second} WHERE id LIKE %s"  # noqa: S608
        raw(earlier, [f"{start}.{seconds}-%"])


def set_default(model: Any, ttl: int | None, *tenants: Any) -> None:
    for tenant in tenants:
        set_policy(model, ttl, scope=tenant, by="ann")


def left() -> dict[Any, int]:
    """How many rows of each tenant there are, expired or not."""
    return Counter(tenant for (tenant,) in raw("SELECT tenant FROM scoped_messages"))


def sweep(model: Any, **options: Any) -> TargetReport:
    sweeper = Sweeper(DjangoStore("default", model), lease=False, **options)
    (target,) = sweeper.run_once().targets
    assert target.error is None
    return target


class Reads:
    """How many rows, and entries of indexes, a database has read; steps of SQLite's machine."""

    def __init__(self) -> None:
        self.steps = 0

    def _step(self) -> int:
        self.steps += 1
        return 0

    def number(self) -> int:
        connection = connections["default"]
        if connection.vendor == "sqlite":
            connection.ensure_connection()
            connection.connection.set_progress_handler(self._step, 1)
            return self.steps
        if connection.vendor == "mysql":
            rows = raw("SHOW GLOBAL STATUS LIKE 'Handler_read%'")
            return sum(int(number) for _, number in rows)
        raw("SELECT pg_stat_force_next_flush()")
        scanned = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables"
        entries = "SELECT SUM(idx_tup_read) FROM pg_stat_user_indexes"
        queries = (f"{query} WHERE relname = 'scoped_messages'" for query in (scanned, entries))
        return sum(int(raw(query)[0][0] or 0) for query in queries)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["statement", "hook", "dry run"])
def test_no_live_row_of_those_that_live_longer_is_read(world: Any, way: str) -> None:
    model = world()
    options: dict[str, Any] = {} if way == "statement" else {"on_purged": lambda _: None}
    if way == "dry run":
        options = {"dry_run": True}
    set_default(model, DAY, "brief")
    set_default(model, 7 * 365 * DAY, "keeper", "other")
    young = [("brief", 20, 2 * DAY), ("brief", 5, HOUR), ("idle", 5, 2 * DAY), (None, 5, 2 * DAY)]
    fill(model, *young, ("keeper", 5, 20 * DAY), ("other", 5, 100 * DAY))
    sweep(model)  # what is read once is read
    costs, reads = [], Reads()
    for start in (10, 20):
        fill(model, ("brief", 20, 2 * DAY), start=start)
        if connections["default"].vendor == "postgresql":
            raw("VACUUM ANALYZE scoped_messages")
        before = reads.number()
        target = sweep(model, **options)
        costs.append(reads.number() - before)
        if way == "dry run":  # which counts all rows, too
            steps = 2 if connections["default"].vendor == "sqlite" else 1
            costs[-1] -= steps * sum(left().values())
        assert (target.due, target.deleted) == ((20, 0) if way == "dry run" else (None, 20))
        sweep(model)
        more = [("keeper", 6_000, 20 * DAY), ("other", 6_000, 100 * DAY), (None, 6_000, 2 * DAY)]
        fill(model, *more, start=start + 1)
    cost_of_few, cost_of_many = costs
    assert cost_of_many < cost_of_few + 3_000
    assert left() == {"brief": 5, "idle": 5, None: 12_005, "keeper": 12_005, "other": 12_005}


@pytest.fixture
def swept_meanwhile(backend: Backend) -> Iterator[list[str]]:
    """Before each statement that reads the table, another connection deletes a row or two."""
    connection = connections["default"]
    sent: list[str] = []

    def delete() -> None:
        try:
            raw(f"DELETE FROM scoped_messages WHERE id LIKE '%-{len(sent)}'")  # noqa: S608
        finally:
            connections.close_all()

    def act(execute: Any, sql: str, params: Any, many: Any, context: Any) -> Any:
        is_read = sql.startswith(("SELECT", "WITH")) and "scoped_messages" in sql
        if is_read and context["connection"] is connection:
            sent.append(sql)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(delete).result(GUARD)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(act):
        yield sent


@pytest.mark.databases("postgres", "mariadb", "mysql")  # SQLite's readers keep writers out
def test_a_sweep_between_two_statements_makes_nothing_of_the_rest(
    world: Any, swept_meanwhile: list[str]
) -> None:
    model = world()
    set_default(model, DAY, "brief")
    set_default(model, -1, "keeper")
    fill(model, ("brief", 20, 2 * DAY), (None, 20, 31 * DAY), start=1)
    fill(model, ("keeper", 1, 2 * DAY), start=2)
    del swept_meanwhile[:]
    found = DjangoStore("default", model).count("scoped_messages")
    assert len(swept_meanwhile) > 2
    assert found.rows - found.due == 1
    assert sum(left().values()) < found.rows


@pytest.mark.databases("postgres", "mariadb", "mysql")
@pytest.mark.parametrize("way", ["atomic", "no autocommit"])
def test_in_a_transaction_of_the_applications_they_are_counted_too(world: Any, way: str) -> None:
    model, connection = world(), connections["default"]
    set_default(model, DAY, "brief")
    fill(model, ("brief", 5, 2 * DAY), ("keeper", 5, 2 * DAY))
    store = DjangoStore("default", model)
    with ExitStack() as ending:
        if way == "atomic":
            ending.enter_context(transaction.atomic())
        else:
            connection.set_autocommit(False)
            ending.callback(connection.set_autocommit, autocommit=True)
            ending.callback(connection.rollback)
        fill(model, ("brief", 5, 2 * DAY), start=1)
        found = store.count("scoped_messages")
    assert (found.due, found.rows, dict(found.facts)) == (10, 15, due_by_scope({"brief": 10}))


@pytest.mark.parametrize("size", [1, 7, 5_000])
@pytest.mark.parametrize("column", ["exact", "usual"])
def test_each_scope_ends_by_its_own_default(world: Any, size: int, column: str) -> None:
    usual = models.CharField(max_length=40, null=True)
    model = world(10 * DAY, exact() if column == "exact" else usual)
    set_default(model, DAY, "a", "c", "Acme")
    set_default(model, 2 * DAY, "b", "acme")
    set_default(model, -1, "d")
    set_default(model, None, "e")
    tenants = ["a", "b", "c", "d", "e", "f", None, "acme", "Acme", "ACME", "o'neill%"]
    fill(model, *((tenant, 3, days * DAY) for tenant in tenants for days in (0, 1, 2, 20)))
    expired = {"a": 9, "b": 6, "c": 9, "f": 3, None: 3, "acme": 6, "Acme": 9, "ACME": 3}
    expired["o'neill%"] = 3
    named = {scope: expired[scope] for scope in ("a", "b", "c", "acme", "Acme")}
    target = sweep(model, dry_run=True)
    assert (target.due, target.due_by_scope) == (sum(expired.values()), {**named, "": 12})
    assert target.oldest_before == pytest.approx(19 * DAY, abs=60)
    target = sweep(model, batch_size=size)
    assert (target.deleted, target.skipped) == (sum(expired.values()), 0)
    assert target.deleted_by_scope == {**named, "": 12}
    assert left() == {tenant: 12 - expired.get(tenant, 0) for tenant in tenants}
    assert sweep(model).deleted == 0


@pytest.mark.slow
def test_scopes_with_few_rows_share_batches(world: Any) -> None:
    model = world()
    names = [f"t{number:04}" for number in range(AT_ONCE + 200)]
    set_default(model, DAY, names[3], names[-1])
    fill(model, *((name, 2, 40 * DAY) for name in names), ("t0500", 1_800, 40 * DAY))
    store = DjangoStore("default", model)
    batches: list[BatchResult] = []
    resume = None
    while not batches or resume is not None:
        batches.append(store.purge(BatchRequest("scoped_messages", Part.INHERITING, 400, resume)))
        resume = batches[-1].resume
    assert sum(batch.deleted for batch in batches) == 2 * len(names) + 1_800
    assert max(batch.deleted for batch in batches) <= 400
    assert len(batches) <= 30
    assert left() == {}


def test_rows_that_signals_hear_of_go_by_scope_too(world: Any) -> None:
    model = world()
    set_default(model, DAY, "brief")
    fill(model, ("brief", 7, 2 * DAY), ("keeper", 5, 2 * DAY), (None, 5, 31 * DAY))
    told: list[str] = []

    def receive(instance: Any, **_: Any) -> None:
        told.append(instance.tenant)

    post_delete.connect(receive, sender=model)
    try:
        target = sweep(model, batch_size=3)
    finally:
        post_delete.disconnect(receive, sender=model)
    assert (target.deleted, target.deleted_by_scope) == (12, {"brief": 7, "": 5})
    assert Counter(told) == {"brief": 7, None: 5}
    assert left() == {"keeper": 5}


def test_a_table_with_the_old_index_is_swept_as_before(world: Any) -> None:
    model = world()
    on_mysql = connections["default"].vendor == "mysql"
    end, where = ("_ttl_inh", "") if on_mysql else ("_ts", "WHERE ttl IS NULL")
    raw(f"DROP INDEX {INDEX}" + " ON scoped_messages" * on_mysql)
    raw(f"CREATE INDEX {INDEX} ON scoped_messages ({end}) {where}")
    set_default(model, DAY, "brief")
    fill(model, ("brief", 5, 2 * DAY), ("keeper", 5, 2 * DAY), (None, 5, 31 * DAY))
    target = sweep(model, dry_run=True)
    assert (target.due, target.due_by_scope) == (10, {"brief": 5, "": 5})
    target = sweep(model, batch_size=3)
    assert (target.deleted, target.deleted_by_scope) == (10, {"brief": 5, "": 5})
    assert left() == {"keeper": 5}


def test_a_default_that_is_raised_meanwhile_spares_the_rows(world: Any) -> None:
    model = world()
    set_default(model, DAY, "a", "b")
    fill(model, ("a", 5, 2 * DAY), ("b", 5, 2 * DAY))

    def raise_it(_: Progress) -> None:
        set_default(model, 100 * DAY, "a", "b")

    target = sweep(model, batch_size=3, on_progress=raise_it)
    assert (target.deleted, sum(left().values())) == (3, 7)


def test_scopes_of_long_text_are_swept_without_them_in_front(world: Any) -> None:
    model = world(column=models.TextField(null=True))
    set_default(model, DAY, "brief")
    fill(model, ("brief", 5, 2 * DAY), ("keeper", 5, 2 * DAY), (None, 5, 31 * DAY))
    target = sweep(model, batch_size=3)
    assert (target.deleted, target.deleted_by_scope) == (10, {"brief": 5, "": 5})
    assert left() == {"keeper": 5}


@pytest.mark.parametrize("kind", [models.IntegerField, models.UUIDField])
def test_scopes_may_be_numbers_or_uuids(world: Any, kind: Any) -> None:
    model = world(column=kind(null=True))
    field = model._meta.get_field("tenant")
    one, other, third = (field.to_python(f"{number:032}") for number in (1, 20, 3))
    set_default(model, DAY, one)
    set_default(model, 3 * DAY, other)
    fill(model, (one, 5, 2 * DAY), (other, 5, 2 * DAY), (third, 3, 31 * DAY), (None, 2, 31 * DAY))
    assert sweep(model, dry_run=True).due == 10
    assert sweep(model, batch_size=4).deleted == 10
    assert sum(left().values()) == 5
