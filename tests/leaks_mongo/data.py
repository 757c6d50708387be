"""The documents that the paths read, each with its lifetime and, by hand, whether it is live.

The worlds put these documents into their collections; the world without expired documents leaves
out those that this table says have expired. No predicate is asked. `Life` and `Row` are those of
the SQL half; for `ExpireAfter` and `ExpireAt`, the end stands in the document's own values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bson import Int64

from tests.leaks.data import ALWAYS, ENDLESS, FRESH, LONG, SHORT, STALE, Life, Row

HOUR = 3600

NULL = object()
"""A ttl that is stored, and null."""


def _odd(age: int, ttl: Any, *, live: bool) -> Life:
    """A lifetime whose ttl is not an int."""
    return Life(age, ttl, live)


MINUTES = HOUR // 6

# Values that are not a ttl have no effect: the default of an hour counts.
TEXT_YOUNG = _odd(MINUTES, "60", live=True)
ZERO_YOUNG = _odd(MINUTES, 0, live=True)
FRACTION_OLD = _odd(2 * HOUR, 86400.5, live=False)
NULL_OLD = _odd(2 * HOUR, NULL, live=False)
# Whole doubles and longs count.
DOUBLE_SHORT = _odd(MINUTES, 60.0, live=False)
INT64_LONG = _odd(2 * HOUR, Int64(24 * HOUR), live=True)
# Another program's document: without `_ts` it never expires.
UNSTAMPED = Life(age=-1, ttl=None, live=True)
# Where the default is -1, age alone ends nothing; where TTL is off, nothing does.
OLD = Life(2 * HOUR, None, live=True)
SHORT_BUT_OFF = Life(MINUTES, 60, live=True)
# Where the document's own date decides.
LIVE_BY_DATE = Life(age=0, ttl=None, live=True)
DEAD_BY_DATE = Life(age=0, ttl=None, live=False)


@dataclass(frozen=True)
class Ago:
    """A date of so many seconds ago, by the server's clock, when the world is made."""

    seconds: int


@dataclass(frozen=True)
class To:
    """A reference, as Beanie stores a `Link`."""

    model: str
    key: int


def _rows(model: str, columns: str, *rows: tuple[Any, ...]) -> list[Row]:
    """Documents of a class; of each tuple, the first part is the lifetime."""
    names = ["_id", *columns.split()]
    return [Row(model, life, dict(zip(names, values, strict=True))) for life, *values in rows]


def _point(longitude: float) -> dict[str, Any]:
    return {"type": "Point", "coordinates": [longitude, 0.0]}


HERE = _point(0.0)

ROWS: list[Row] = [
    *_rows(
        "Event",
        "name kind score tags place words",
        (FRESH, 1, "ann", "a", 10, ["x"], _point(1), "red apple"),
        (LONG, 2, "bob", "a", 20, ["x", "y"], _point(2), "green apple"),
        (ENDLESS, 3, "cid", "b", 30, ["z"], _point(3), "red plum"),
        (STALE, 4, "dan", "b", 1, ["x", "w"], _point(0.5), "apple red red red"),  # the nearest
        (SHORT, 5, "eve", "c", 50, ["v"], _point(1.5), "blue apple"),  # the only one of its kind
        (TEXT_YOUNG, 6, "fay", "a", 60, ["y"], _point(4), "plum"),
        (FRACTION_OLD, 7, "gus", "b", 70, ["x"], _point(3.5), "apple"),
        (DOUBLE_SHORT, 8, "hal", "a", 90, ["u"], _point(2.5), "apple plum"),
        (UNSTAMPED, 9, "ivy", "d", 5, [], _point(5), "pear"),
        (INT64_LONG, 10, "joe", "d", 80, ["z"], _point(6), "pear apple"),
        (NULL_OLD, 11, "kim", "a", 100, ["x"], _point(0.6), "red pear"),
        (ZERO_YOUNG, 12, "lea", "e", 40, ["y"], _point(7), "red"),
    ),
    *_rows(
        "Journal",
        "event about",
        *[(ALWAYS, number, number, f"event {number}") for number in range(1, 13)],
    ),
    *_rows(
        "Node",
        "parent name",
        (FRESH, 1, None, "root"),
        (FRESH, 2, 1, "left"),
        (STALE, 3, 1, "right"),
        (FRESH, 4, 2, "leaf of left"),
        (FRESH, 5, 3, "leaf of right"),  # its parent has expired
        (SHORT, 6, 4, "leaf of leaf"),
    ),
    *_rows("Lock", "code", (FRESH, 1, 11), (STALE, 2, 22), (ENDLESS, 3, 33)),
    *_rows(
        "Window",
        "width lock",
        (FRESH, 1, 10, To("Lock", 1)),
        (LONG, 2, 20, To("Lock", 2)),
        (STALE, 3, 30, To("Lock", 3)),
        (SHORT, 4, 40, None),
        (FRESH, 5, 50, None),
    ),
    *_rows(
        "Door",
        "color window",
        (FRESH, 1, "red", To("Window", 1)),
        (FRESH, 2, "green", To("Window", 3)),
        (STALE, 3, "blue", To("Window", 2)),
    ),
    *_rows("Roof", "height", (ALWAYS, 1, 100), (ALWAYS, 2, 200)),
    *_rows(
        "House",
        "name door windows porches roof",
        (FRESH, 1, "one", To("Door", 1), [To("Window", 1), To("Window", 3)], [], To("Roof", 1)),
        (
            *(ENDLESS, 2, "two", To("Door", 2), [To("Window", 2), To("Window", 4)]),
            *([To("Window", 4), To("Window", 5)], None),
        ),
        (STALE, 3, "three", To("Door", 1), [To("Window", 5)], [To("Window", 1)], To("Roof", 2)),
        (LONG, 4, "four", To("Door", 3), [To("Window", 3), To("Window", 4)], [], None),
    ),
    *_rows(
        "Street",
        "name first houses",
        (ALWAYS, 1, "main", To("House", 1), [To("House", 1), To("House", 3)]),
        (ALWAYS, 2, "side", To("House", 3), [To("House", 2), To("House", 4)]),
        (ALWAYS, 3, "back", None, [To("House", 3)]),
    ),
    *_rows(
        "Lamp",
        "watts street",
        (FRESH, 1, 10, To("Street", 1)),
        (STALE, 2, 20, To("Street", 1)),
        (SHORT, 3, 30, To("Street", 2)),
        (ENDLESS, 4, 40, To("Street", 2)),
    ),
    *_rows(
        "Bulb",
        "color lamps",
        (FRESH, 1, "warm", [To("Lamp", 1), To("Lamp", 4)]),
        (STALE, 2, "cold", [To("Lamp", 1)]),
        (FRESH, 3, "blue", [To("Lamp", 2)]),  # its lamp has expired
        (SHORT, 4, "pink", [To("Lamp", 4), To("Lamp", 3)]),
    ),
    *_rows(
        "Mayor",
        "name street",
        (FRESH, 1, "may", To("Street", 1)),
        (STALE, 2, "moe", To("Street", 2)),
    ),
    *_rows("Vehicle", "wheels", (FRESH, 1, 3), (STALE, 2, 5), (ENDLESS, 3, 6)),
    *_rows("Car", "wheels seats", (FRESH, 11, 4, 5), (SHORT, 12, 4, 2), (STALE, 13, 4, 4)),
    *_rows("Bus", "wheels seats line", (LONG, 21, 8, 50, "A"), (STALE, 22, 8, 60, "B")),
    *_rows(
        "Garage",
        "vehicles",
        (ALWAYS, 1, [To("Vehicle", 1), To("Vehicle", 12), To("Vehicle", 21)]),
        (ALWAYS, 2, [To("Vehicle", 2), To("Vehicle", 11), To("Vehicle", 22)]),
    ),
    *_rows(
        "Shelf",
        "title",
        (FRESH, 1, "one"),
        (STALE, 2, "two"),
        (LONG, 3, "three"),
        (SHORT, 4, "four"),
        (ENDLESS, 5, "five"),
        (UNSTAMPED, 6, "six"),
    ),
    *_rows("Post", "title", (FRESH, 1, "live post"), (STALE, 2, "dead post")),
    *_rows("Advert", "price", (ENDLESS, 11, 5), (SHORT, 12, 9)),
    *_rows("Serial", "title part", (FRESH, 21, "live serial", 1), (STALE, 22, "dead serial", 2)),
    *_rows("Cached", "name", (FRESH, 1, "one"), (STALE, 2, "two"), (FRESH, 3, "three")),
    *_rows("Tracked", "name size", (FRESH, 1, "one", 1), (STALE, 2, "two", 2)),
    *_rows("Revised", "name", (FRESH, 1, "one"), (STALE, 2, "two")),
    *_rows("Sparse", "name note", (FRESH, 1, "one", "n"), (STALE, 2, "two", "n")),
    *_rows(
        "Badge",
        "site number nick rank email owner codes seat",
        (FRESH, 1, 1, 1, "ann", 11, "ann@x", {"name": "ann"}, [1, 2], "A1"),
        (STALE, 2, 1, 2, "bob", 12, "bob@x", {"name": "bob"}, [3, 4], "A2"),
        (SHORT, 3, 2, 1, "cid", 5, "cid@x", {"name": "cid"}, [5], None),
    ),
    *_rows(
        "Token",
        "user",
        (STALE, "Ann-1", "ann"),  # the first that an expression or a collation finds
        (FRESH, "ann-1", "ann"),
        (SHORT, "bob-1", "bob"),
        (LONG, "bob-2", "bob"),
    ),
    *_rows("Logged", "name", (FRESH, 1, "one"), (STALE, 2, "two"), (SHORT, 3, "three")),
    *_rows("Parked", "name", (OLD, 1, "one"), (SHORT, 2, "two"), (LONG, 3, "three")),
    *_rows("Paused", "name", (OLD, 1, "one"), (SHORT_BUT_OFF, 2, "two")),
    *_rows(
        "Visit",
        "name at",
        (LIVE_BY_DATE, 1, "young", Ago(MINUTES)),
        (DEAD_BY_DATE, 2, "old", Ago(2 * HOUR)),
        (LIVE_BY_DATE, 3, "no date", None),
        (LIVE_BY_DATE, 4, "text", "2001-01-01"),
        (DEAD_BY_DATE, 5, "earliest is old", [Ago(MINUTES), Ago(2 * HOUR)]),
        (LIVE_BY_DATE, 6, "all are young", [Ago(MINUTES), "2001-01-01", Ago(0)]),
    ),
    *_rows(
        "Offer",
        "name ends",
        (LIVE_BY_DATE, 1, "coming", Ago(-HOUR)),
        (DEAD_BY_DATE, 2, "over", Ago(MINUTES)),
        (LIVE_BY_DATE, 3, "no date", None),
        (DEAD_BY_DATE, 4, "one is over", [Ago(-HOUR), Ago(MINUTES)]),
    ),
    *_rows(
        "Voucher",
        "name ends",
        (LIVE_BY_DATE, 1, "coming", Ago(-HOUR)),
        (DEAD_BY_DATE, 2, "over", Ago(MINUTES)),
        (DEAD_BY_DATE, 3, "no date", None),
    ),
    *_rows(
        "Adopted",
        "name changed lasts",
        (LIVE_BY_DATE, 1, "young", Ago(MINUTES), None),
        (DEAD_BY_DATE, 2, "old", Ago(2 * HOUR), None),
        (LIVE_BY_DATE, 3, "never", Ago(2 * HOUR), 0),
        (DEAD_BY_DATE, 4, "short", Ago(MINUTES), 60),
    ),
    *_rows(
        "Memo",
        "name size deleted_at",
        (FRESH, 1, "one", 1, None),
        (STALE, 2, "two", 2, None),
        (FRESH, 3, "three", 4, Ago(MINUTES)),  # deleted softly
        (SHORT, 4, "four", 8, Ago(MINUTES)),  # deleted softly, and expired since
        (ENDLESS, 5, "five", 16, None),
    ),
    *_rows(
        "Folder",
        "memos",
        (ALWAYS, 1, [To("Memo", 1), To("Memo", 2), To("Memo", 4)]),
        (ALWAYS, 2, [To("Memo", 3), To("Memo", 4), To("Memo", 5)]),
    ),
    *_rows(
        "Digest",
        "posts adverts",
        (ALWAYS, 1, [To("Post", 1), To("Post", 2)], [To("Advert", 12)]),
        (ALWAYS, 2, [To("Post", 2)], [To("Advert", 11), To("Advert", 12)]),
    ),
    *_rows(
        "Reading",
        "at place value",
        (LIVE_BY_DATE, 1, Ago(MINUTES), "attic", 10),
        (DEAD_BY_DATE, 2, Ago(2 * HOUR), "attic", 20),
        (LIVE_BY_DATE, 3, Ago(0), "cellar", 30),
        (DEAD_BY_DATE, 4, Ago(3 * HOUR), "cellar", 5),  # the least
        (DEAD_BY_DATE, 5, Ago(2 * HOUR), "garden", 90),  # the only one of its place
        (LIVE_BY_DATE, 6, Ago(MINUTES), "attic", 60),
    ),
    *_rows(
        "Sensor",
        "place readings",
        (ALWAYS, 1, "attic", [To("Reading", 1), To("Reading", 2)]),
        (ALWAYS, 2, "garden", [To("Reading", 5)]),
    ),
    *_rows("Author", "name", (FRESH, 1, "ann"), (STALE, 2, "bob"), (FRESH, 3, "cid")),
    *_rows(
        "Quote",
        "text author length",
        (FRESH, 1, "one", To("Author", 1), 10),
        (STALE, 2, "two", To("Author", 1), 20),
        (FRESH, 3, "three", To("Author", 3), 30),
        (ENDLESS, 4, "four", To("Author", 2), 1),
    ),
    *_rows("Meal", "name", (FRESH, 1, "bread"), (STALE, 2, "rice")),
    *_rows("Soup", "name litres", (ENDLESS, 11, "peas", 1), (FRESH, 13, "beans", 2)),
    *_rows("Excerpt", "text", (FRESH, 1, "one"), (STALE, 2, "two"), (FRESH, 3, "three")),
    *_rows(
        "Parcel",
        "name weight inside",
        (FRESH, 1, "one", 1, None),
        (LONG, 2, "two", 2, To("Parcel", 1)),
        (SHORT, 3, "three", 4, None),
        (STALE, 4, "four", 8, None),
        (INT64_LONG, 5, "five", 16, To("Parcel", 3)),
        (DOUBLE_SHORT, 6, "six", 32, To("Parcel", 2)),
    ),
    *_rows(
        "Crate",
        "first parcels",
        (ALWAYS, 1, To("Parcel", 2), [To("Parcel", 1), To("Parcel", 2), To("Parcel", 3)]),
        (ALWAYS, 2, To("Parcel", 3), [To("Parcel", 4), To("Parcel", 5)]),
    ),
]
