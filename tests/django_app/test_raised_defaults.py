"""A raised default is final on Django too: what is live once `set_policy` has returned stays."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from django.db import DatabaseError, connections, transaction
from django.db.models.signals import pre_delete
from django.test.utils import CaptureQueriesContext
from sqlalchemy import create_engine

from tests.django_app.data import kill, raw
from tests.django_app.stored import DAY, HOUR, stored_models
from tests.sql.raising import Raise
from ttl_odm.django import DjangoStore, only_expired, set_policy
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import SimpleNamespace

    from sqlalchemy import Engine

    from tests.backends import Backend

pytestmark = pytest.mark.databases("postgres", "mariadb", "mysql")

RAISES: dict[str, tuple[int, dict[str, int], dict[str, Any]]] = {
    # The table's default and those of scopes before; and the change.
    "of the table": (HOUR, {}, {"ttl": DAY}),
    "of a scope without its own": (HOUR, {}, {"ttl": DAY, "scope": "acme"}),
    "of a scope with its own": (HOUR, {"acme": 60}, {"ttl": DAY, "scope": "acme"}),
    "by removing a scope's own": (DAY, {"acme": 60}, {"ttl": "default", "scope": "acme"}),
}


@pytest.fixture
def made(backend: Backend) -> Iterator[SimpleNamespace]:
    with stored_models() as found:
        yield found


@pytest.fixture
def watching(backend: Backend) -> Iterator[Engine]:
    """An engine that looks who waits for a lock."""
    assert backend.sync_url is not None
    engine = create_engine(backend.sync_url)
    yield engine
    engine.dispose()


def prepare(message: Any, whole: int, own: dict[str, int]) -> None:
    raw("DELETE FROM stored_messages")
    raw("DELETE FROM ttl_odm_policies WHERE scope <> ''")
    set_policy(message, whole, by="ann")
    for scope, ttl in own.items():
        set_policy(message, ttl, scope=scope, by="ann")
    for key, tenant in {1: "acme", 2: "globex"}.items():
        message.objects.create(pk=key, tenant=tenant)
    kill(message, [1, 2], 2 * HOUR)


def contents(model: Any) -> set[tuple[Any, ...]]:
    return set(model.objects.values_list("pk", "tenant"))


def of_all() -> set[tuple[Any, ...]]:
    return set(map(tuple, raw("SELECT id, tenant FROM stored_messages")))


def raised_by(engine: Engine, model: Any, **change: Any) -> Raise:
    def make() -> None:
        set_policy(model, by="ann", **change)

    def live() -> set[tuple[Any, ...]]:
        try:
            return contents(model)
        finally:
            connections.close_all()  # of this thread

    return Raise(engine, make, live)


@contextmanager
def before_commit(act: Callable[[], object]) -> Iterator[list[str]]:
    """Act before the COMMIT behind a deletion from the table; yields what was sent."""
    connection, sent = connections["default"], []
    commit = connection._commit

    def execute(run: Any, sql: str, *rest: Any) -> Any:
        sent.append(sql)
        return run(sql, *rest)

    def committing() -> None:
        if any("DELETE" in sql and "stored_messages" in sql for sql in sent):
            sent.clear()
            act()
        commit()

    connection._commit = committing  # type: ignore[method-assign]
    try:
        with connection.execute_wrapper(execute):
            yield sent
    finally:
        connection._commit = commit  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", RAISES)
def test_a_sweep_deletes_no_row_that_a_raise_has_made_live(
    made: SimpleNamespace, watching: Engine, kind: str
) -> None:
    whole, own, change = RAISES[kind]
    prepare(made.Message, whole, own)
    with (
        raised_by(watching, made.Message, **change) as operator,
        before_commit(operator.begin),
    ):
        Sweeper(DjangoStore("default", made.Message), lease=False).run_once()
        assert operator.has_begun
        assert operator.seen() <= of_all()


@pytest.mark.parametrize("kind", RAISES)
def test_a_write_displaces_no_row_that_a_raise_has_made_live(
    made: SimpleNamespace, watching: Engine, kind: str
) -> None:
    whole, own, change = RAISES[kind]
    prepare(made.Message, whole, own)
    with raised_by(watching, made.Message, **change) as operator:
        with transaction.atomic():
            made.Message.objects.create(pk=1, tenant="globex")
            operator.begin()
        assert operator.seen() <= of_all()


@pytest.mark.parametrize("kind", RAISES)
def test_a_write_with_an_old_snapshot_displaces_no_live_row(
    made: SimpleNamespace, watching: Engine, kind: str
) -> None:
    whole, own, change = RAISES[kind]
    prepare(made.Message, whole, own)
    connection = connections["default"]
    with raised_by(watching, made.Message, **change) as operator:
        try:
            with repeatable(), transaction.atomic():
                contents(made.Message)
                operator.begin()
                made.Message.objects.create(pk=1, tenant="globex")
        except DatabaseError:
            connection.close()
        assert operator.seen() <= of_all()


@pytest.mark.parametrize("kind", RAISES)
def test_a_row_that_goes_as_an_object_is_judged_by_the_raised_default(
    made: SimpleNamespace, watching: Engine, kind: str
) -> None:
    whole, own, change = RAISES[kind]
    prepare(made.Message, whole, own)
    heard: list[Any] = []

    def receive(instance: Any, **_: object) -> None:
        heard.append(instance.pk)

    pre_delete.connect(receive, sender=made.Message)
    try:
        with raised_by(watching, made.Message, **change) as operator:
            with suppress(DatabaseError), repeatable(), transaction.atomic():
                contents(made.Message)
                operator.begin()
                made.Message.objects.create(pk=1, tenant="globex")
            connections["default"].close()
            assert operator.seen() <= of_all()
    finally:
        pre_delete.disconnect(receive, sender=made.Message)
    assert heard == []


def choosing(sql: str) -> bool:
    return sql.endswith("FOR UPDATE") and "stored_posts" in sql


def test_rows_are_chosen_by_defaults_that_are_locked_and_read_by_others(
    made: SimpleNamespace,
) -> None:
    made.Post.objects.create(name="first", scope="acme")
    made.Post.objects.create(name="second", scope="globex", parent_id="first")
    kill(made.Post, ["first", "second"], 2 * HOUR)
    share = {"postgresql": "FOR SHARE", "mysql": "LOCK IN SHARE MODE"}
    locks = share[connections["default"].vendor]

    for _ in range(2):
        expired = only_expired(made.Post.objects.all())
        with CaptureQueriesContext(connections["default"]) as read:
            expired.count()
        with CaptureQueriesContext(connections["default"]) as written, transaction.atomic():
            made.Post.objects.create(name="first", scope="acme")
            transaction.set_rollback(True)

        assert not any(locks in query["sql"] for query in read)
        chosen = [query["sql"] for query in written if choosing(query["sql"])]
        assert len(chosen) == 3  # the row in the way, what refers to it, and what to that
        assert all(sql.count(locks) == 4 for sql in chosen)


@contextmanager
def repeatable() -> Iterator[None]:
    """Let the transactions of this session read from one snapshot."""
    level = "SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL"
    if connections["default"].vendor == "mysql":
        level = "SESSION TRANSACTION ISOLATION LEVEL"
    raw(f"SET {level} REPEATABLE READ")
    try:
        yield
    finally:
        connections["default"].close()
