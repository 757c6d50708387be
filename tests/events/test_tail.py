"""The end of an outbox: what is read of it, look after look."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from ttl_odm.events import Expiry
from ttl_odm.events.outbox import Recorded
from ttl_odm.events.tail import Tail

if TYPE_CHECKING:
    from ttl_odm.events.tail import Look, Question

BEGAN = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


class Outbox:
    """Events by their seconds, and what was asked of them."""

    def __init__(self, *seconds: float) -> None:
        self.recorded = [recorded(number) for number in seconds]
        self.asked: list[Question] = []

    def keys(self, look: Look) -> list[float]:
        """Answer what a look asks; return the keys of what it has found."""
        try:
            question = next(look)
            while True:
                self.asked.append(question)
                question = look.send(self._answer(question))
        except StopIteration as end:
            return [one.event.key[0] for one in end.value]

    def _answer(self, question: Question) -> list[Recorded]:
        since = question.since or BEGAN
        ordered = sorted(self.recorded, key=lambda one: one.at)
        return [one for one in ordered if one.at >= since][-question.limit :]


def recorded(second: float) -> Recorded:
    at = BEGAN + timedelta(seconds=second)
    return Recorded(Expiry.of("seats", [second], {}, last_modified=at, expires_at=at), at)


def test_what_comes_to_an_empty_outbox_is_seen_once() -> None:
    outbox, tail = Outbox(), Tail()
    assert outbox.keys(tail.first(20)) == outbox.keys(tail.further()) == []
    outbox.recorded.append(recorded(1))
    assert outbox.keys(tail.further()) == [1]
    assert outbox.keys(tail.further()) == []


def test_the_first_look_reads_what_the_next_one_will_find_again() -> None:
    outbox, tail = Outbox(0, *range(100, 108)), Tail()
    assert outbox.keys(tail.first(2)) == [106, 107]
    assert [question.limit for question in outbox.asked] == [2, 4, 8, 16]
    outbox.recorded += [recorded(98), recorded(96)]  # the latter has taken too long to commit
    assert outbox.keys(tail.further()) == [98]


def test_no_event_needs_to_be_shown_first() -> None:
    outbox, tail = Outbox(1, 2), Tail()
    assert outbox.keys(tail.first(0)) == []
    outbox.recorded.append(recorded(3))
    assert outbox.keys(tail.further()) == [3]


def test_more_events_may_come_than_are_asked_for_at_once() -> None:
    outbox, tail = Outbox(), Tail()
    outbox.keys(tail.first(1))
    outbox.recorded += [recorded(number / 1000) for number in range(1500)]
    assert outbox.keys(tail.further()) == [number / 1000 for number in range(1500)]
    assert [question.limit for question in outbox.asked[1:]] == [1000, 2000]
