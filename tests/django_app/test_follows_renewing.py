"""A write to a row with ``renews=True`` restarts the lifetime of its parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.django_app.data import kill
from tests.django_app.family.models import Message, Reply, Thread
from ttl_odm.django import ExpiredError, keep_last_modified

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.backends import Backend

OLD = 1800


def fill() -> None:
    for number in (1, 2, 3):
        Thread.objects.create(pk=number)
        Message.objects.create(pk=number, thread_id=number)
        Reply.objects.create(pk=number, message_id=number)
    kill(Thread, [1, 2], OLD)
    kill(Thread, [3], 2 * 3600)


def young() -> list[int]:
    """The threads that were written a moment ago."""
    ends = {thread.pk: thread.time_left for thread in Thread.objects.all()}
    return sorted(key for key, left in ends.items() if left.total_seconds() > 2 * OLD - 600)


WRITES: dict[str, tuple[Callable[[], Any], list[int]]] = {
    "create": (lambda: Message.objects.create(pk=9, thread_id=1), [1]),
    "bulk_create": (
        lambda: Message.objects.bulk_create([Message(pk=8 + n, thread_id=1 + n) for n in (0, 1)]),
        [1, 2],
    ),
    "a conflict": (
        lambda: Message.objects.bulk_create([Message(pk=1, thread_id=1)], ignore_conflicts=True),
        [],
    ),
    "a conflict of some": (
        lambda: Message.objects.bulk_create(
            [Message(pk=1, thread_id=1), Message(pk=8, thread_id=2), Message(pk=8, thread_id=1)],
            ignore_conflicts=True,
        ),
        [2],
    ),
    "an ignored conflict with an expired row": (
        lambda: Message.objects.bulk_create([Message(pk=3, thread_id=1)], ignore_conflicts=True),
        [1],
    ),
    "save": (lambda: Message.objects.get(pk=1).save(), [1]),
    "move": (lambda: Message.objects.filter(pk=1).update(thread=2), [1, 2]),
    "update": (lambda: Message.objects.filter(pk__gt=1).update(text="a"), [2]),
    "bulk_update": (
        lambda: Message.objects.bulk_update([Message(pk=n, text="b") for n in (1, 2, 3)], ["text"]),
        [1, 2],
    ),
    "delete": (lambda: Reply.objects.get(pk=2).delete(), [2]),
    "delete many": (lambda: Reply.objects.filter(pk__gt=0).delete(), [1, 2]),
    "a grandchild": (lambda: Reply.objects.create(pk=9, message_id=2), [2]),
    "none": (lambda: Message.objects.filter(pk=3).update(text="a"), []),
    "kept": (lambda: keep_last_modified(Message.objects.all()).update(text="a"), []),
    "a read": (lambda: list(Message.objects.all()), []),
}


@pytest.mark.parametrize("way", WRITES)
def test_a_write_restarts_the_lifetime_of_the_row_at_the_end(backend: Backend, way: str) -> None:
    fill()
    write, renewed = WRITES[way]
    assert young() == []
    write()
    assert young() == renewed


def test_an_expired_parent_is_not_renewed(backend: Backend) -> None:
    fill()
    with pytest.raises(ExpiredError):
        Message.objects.create(pk=9, thread_id=3)
    assert not Thread.objects.filter(pk=3).exists()


def stamping(queries: Any) -> int:
    return sum(query["sql"].startswith('UPDATE "family_thread"') for query in queries)


@pytest.mark.databases("sqlite", "postgres")
def test_of_several_statements_of_a_call_one_renews_a_parent(
    backend: Backend, django_queries: Any
) -> None:
    fill()
    with django_queries() as queries:
        Message.objects.bulk_create(
            [Message(pk=10 + n, thread_id=1) for n in range(6)], batch_size=2
        )
    assert stamping(queries) == 1
    with django_queries() as queries:
        rows = [Message(pk=10 + n, text="c") for n in range(6)]
        Message.objects.bulk_update(rows, ["text"], batch_size=2)
    assert stamping(queries) == 1


def test_rows_that_may_conflict_cost_no_statement_each(
    backend: Backend, django_queries: Any
) -> None:
    fill()
    numbers = []
    for keys in ([8], [9, 10, 11]):
        with django_queries() as queries:
            Message.objects.bulk_create(
                [Message(pk=key, thread_id=1) for key in keys], ignore_conflicts=True
            )
        numbers.append(len(queries))
    assert numbers[0] == numbers[1]


def test_a_parent_that_was_written_lately_is_left_alone(backend: Backend) -> None:
    fill()
    kill(Thread, [1], 30)
    stamp = Thread.objects.get(pk=1).last_modified
    Reply.objects.create(pk=9, message_id=1)
    assert Thread.objects.get(pk=1).last_modified == stamp
    Message.objects.create(pk=9, thread_id=1)
    assert Thread.objects.get(pk=1).last_modified > stamp


def test_a_parent_is_deleted_with_those_that_would_renew_it(backend: Backend) -> None:
    fill()
    assert Thread.objects.get(pk=1).delete()[0] == 3
    assert not Reply.objects.filter(pk=1).exists()
