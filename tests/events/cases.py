"""The contract of events as cases, which each adapter runs on each database."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tests.events.subject import BEFORE, HOUR
from ttl_odm.events.intervals import SETTLING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.events.subject import EventSubject

CASES: Final[dict[str, Callable[[EventSubject], None]]] = {}

OLD = HOUR + 60
LATE = HOUR - BEFORE.total_seconds() + 60
"""The age of a row that is warned of, and lives."""


def case(check: Callable[[EventSubject], None]) -> Callable[[EventSubject], None]:
    """Put a function into the table of cases."""
    CASES[check.__name__] = check
    return check


@case
def a_row_that_expires_has_one_event(s: EventSubject) -> None:
    began = s.put(1, OLD)
    s.put(2, HOUR // 4)
    s.work()
    (event,) = s.got
    assert (event.kind, event.key, event.row[s.named]) == ("expired", (1,), "ann")
    assert event.last_modified == began
    assert event.expires_at == began + timedelta(seconds=HOUR)
    assert event.delivery == 1
    assert s.keys() == {2}
    s.work()
    assert len(s.got) == 1


@case
def it_expires_at_its_own_ttl(s: EventSubject) -> None:
    began = s.put(1, 20, ttl=10)
    s.put(2, OLD, ttl=-1)
    s.put(3, OLD, ttl=2 * HOUR)
    s.work()
    (event,) = [one for one in s.got if one.kind == "expired"]
    assert (event.key, event.expires_at) == ((1,), began + timedelta(seconds=10))


@case
def any_sweeper_records_it(s: EventSubject) -> None:
    s.put(1, OLD)
    assert s.sweep() == 1
    assert s.told() == []
    s.work()
    assert s.told() == [("expired", 1)]


@case
def so_does_a_write_that_takes_the_key(s: EventSubject) -> None:
    s.put(1, OLD)
    s.insert(1, "bob")
    s.work()
    (event,) = s.got
    assert (event.key, event.row[s.named]) == ((1,), "ann")
    assert s.keys() == {1}


@case
def a_write_that_is_rolled_back_records_nothing(s: EventSubject) -> None:
    s.put(1, OLD)
    s.insert(1, "bob", fails=True)
    assert list(s.read("audit")) == []
    s.work()
    assert s.told() == [("expired", 1)]


@case
def a_row_that_is_renewed_or_deleted_has_none(s: EventSubject) -> None:
    s.put(1, HOUR // 2)
    s.put(2, HOUR // 2)
    s.renew(1)
    s.delete(2)
    s.pass_time(HOUR // 2)
    s.work()
    assert s.told() == []


@case
def each_life_of_a_key_has_its_own(s: EventSubject) -> None:
    s.put(1, OLD)
    s.work()
    s.put(1, OLD + 1, person="bob")
    s.work()
    first, second = s.got
    assert first.id != second.id
    assert (first.row[s.named], second.row[s.named]) == ("ann", "bob")


@case
def a_handler_that_fails_gets_it_again(s: EventSubject) -> None:
    s.put(1, OLD)
    s.failures = 2
    for _ in range(4):
        s.work()
        s.pass_time(5)
    assert [event.delivery for event in s.got] == [1, 2, 3]
    assert len({event.id for event in s.got}) == 1


@case
def a_reader_gets_what_is_kept_once(s: EventSubject) -> None:
    s.put(1, OLD)
    s.put(2, OLD)
    s.work()
    assert sorted(event.key for event in s.read("audit")) == [(1,), (2,)]
    assert list(s.read("audit")) == []
    s.put(3, OLD)
    s.work()
    assert [event.key for event in s.read("audit")] == [(3,)]


@case
def a_consumer_that_comes_while_an_event_is_recorded_gets_it_once(s: EventSubject) -> None:
    s.put(1, OLD + 1)
    assert s.sweep() == 1
    s.put(2, OLD)
    assert s.sweep_while_comes("audit") is not s.has_one_writer
    assert s.keys() == set()
    assert [event.key for event in s.read("audit")] == [(1,), (2,)]
    assert list(s.read("audit")) == []
    for _ in range(2):
        s.pass_time(2 * SETTLING.total_seconds())
        assert list(s.read("audit")) == []


@case
def it_does_if_it_looks_again_long_after_that(s: EventSubject) -> None:
    s.put(1, OLD + 1)
    assert s.sweep() == 1
    s.put(2, OLD)
    s.sweep_while_comes("audit")
    s.pass_time(24 * HOUR)
    assert [event.key for event in s.read("audit")] == [(1,), (2,)]
    assert list(s.read("audit")) == []


@case
def a_row_that_is_about_to_expire_is_warned_of_once(s: EventSubject) -> None:
    began = s.put(1, LATE)
    s.put(2, HOUR // 4)
    s.work()
    (event,) = s.got
    assert (event.kind, event.key, event.row[s.named]) == ("expiring", (1,), "ann")
    assert (event.before, event.expires_at) == (BEFORE, began + timedelta(seconds=HOUR))
    assert s.keys() == {1, 2}
    s.work()
    assert s.told() == [("expiring", 1)]
    s.pass_time(BEFORE.total_seconds())
    s.work()
    assert s.told() == [("expired", 1)]


@case
def a_warning_comes_when_so_much_is_left(s: EventSubject) -> None:
    s.put(1, LATE - 120)
    s.work()
    assert s.told() == []
    s.pass_time(60)
    s.work()
    assert s.told() == [("expiring", 1)]


@case
def a_row_that_is_renewed_is_warned_of_again(s: EventSubject) -> None:
    s.put(1, LATE)
    s.work()
    assert s.told() == [("expiring", 1)]
    s.renew(1)
    s.work()
    assert s.told() == []
    s.pass_time(LATE)
    s.work()
    assert s.told() == [("expiring", 1)]


@case
def a_warning_that_is_outdated_is_not_delivered(s: EventSubject) -> None:
    for key in (1, 2, 3, 4):
        s.put(key, LATE)
    s.failures = 4
    s.work()
    assert sorted(s.told()) == [("expiring", key) for key in (1, 2, 3, 4)]
    s.renew(1)
    s.set_ttl(2, 2 * HOUR)
    s.delete(3)
    s.pass_time(5)
    s.work()
    assert s.told() == [("expiring", 4)]
    s.pass_time(HOUR)
    s.work()
    assert sorted(s.told()) == [("expired", 1), ("expired", 4), ("expiring", 2)]


@case
def a_row_that_never_expires_is_not_warned_of(s: EventSubject) -> None:
    s.put(1, 10 * HOUR, ttl=-1)
    s.work()
    s.pass_time(10 * HOUR)
    s.work()
    assert s.told() == []


@case
def a_short_life_is_warned_of_at_once(s: EventSubject) -> None:
    s.work()
    s.put(1, 0, ttl=30)
    s.pass_time(20)
    s.work()
    assert s.told() == [("expiring", 1)]
