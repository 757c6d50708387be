"""The rows that the paths read, each with its lifetime and, written by hand, whether it is live.

The worlds put these rows into their tables; the world without expired rows leaves out those that
this table says have expired. No predicate is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

DAY = 86400


@dataclass(frozen=True)
class Life:
    """How old a row is and what it has to say about its end.

    Attributes:
        age: seconds since it was last written.
        ttl: its own ttl.
        live: whether it still exists, by the contract.
    """

    age: int
    ttl: int | None
    live: bool


# The default ttl is a day: no run takes so long that a live row expires in it.
FRESH = Life(age=0, ttl=None, live=True)
LONG = Life(age=2 * DAY, ttl=24 * DAY, live=True)  # the default would have ended it
ENDLESS = Life(age=2 * DAY, ttl=-1, live=True)
STALE = Life(age=2 * DAY, ttl=None, live=False)
SHORT = Life(age=DAY // 6, ttl=60, live=False)  # the default would have kept it

# Where a subclass has a default of its own, age decides otherwise.
OLD = Life(age=2 * DAY, ttl=None, live=True)
SIXTEEN_HOURS = Life(age=2 * DAY // 3, ttl=None, live=True)
SIXTEEN_HOURS_TOO_OLD = replace(SIXTEEN_HOURS, live=False)

ALWAYS = Life(age=0, ttl=None, live=True)  # in tables without a ttl


@dataclass(frozen=True)
class Row:
    """One row (of all the tables that its class is mapped to).

    Attributes:
        model: the name of the class.
        life: its lifetime.
        values: its columns, by name.
    """

    model: str
    life: Life
    values: dict[str, Any]


def _rows(model: str, columns: str, *rows: tuple[Any, ...]) -> list[Row]:
    """Rows of a class; of each tuple, the first part is the lifetime."""
    names = columns.split()
    return [Row(model, life, dict(zip(names, values, strict=True))) for life, *values in rows]


ROWS: list[Row] = [
    *_rows(
        "Region",
        "id name",
        (ALWAYS, 1, "north"),
        (ALWAYS, 2, "south"),
        (ALWAYS, 3, "west"),  # all its customers have expired
    ),
    *_rows(
        "Customer",
        "id name region_id referrer_id",
        (FRESH, 1, "ann", 1, None),
        (LONG, 2, "bob", 1, 1),
        (ENDLESS, 3, "cid", 2, 4),  # referred by an expired customer
        (STALE, 4, "dan", 1, 1),
        (SHORT, 5, "eve", 3, 2),
        (FRESH, 6, "fay", None, 5),  # without orders
    ),
    *_rows(
        "Order",
        "id number total customer_id",
        (FRESH, 1, "o1", 10, 1),
        (STALE, 2, "o2", 20, 1),
        (STALE, 3, "o3", 30, 2),  # bob's only one
        (FRESH, 4, "o4", 40, 4),  # live, of an expired customer
        (ENDLESS, 5, "o5", 50, 3),
        (STALE, 6, "o6", 60, 5),
        (LONG, 7, "o7", 70, 3),
        (FRESH, 8, "o8", 80, None),
        (SHORT, 9, "o9", 90, 3),
    ),
    *_rows(
        "Item",
        "id sku quantity order_id",
        (FRESH, 1, "apple", 1, 1),
        (STALE, 2, "bread", 2, 1),
        (FRESH, 3, "chalk", 3, 2),  # live, of an expired order of a live customer
        (FRESH, 4, "dates", 4, 4),  # live, of a live order of an expired customer
        (SHORT, 5, "eraser", 5, 5),
        (ENDLESS, 6, "figs", 6, 5),
        (STALE, 7, "glue", 7, 3),
        (FRESH, 8, "apple", 8, 7),
    ),
    *_rows(
        "Profile",
        "id bio customer_id",
        (FRESH, 1, "likes tea", 1),
        (STALE, 2, "likes rain", 2),
        (FRESH, 3, "likes jazz", 4),  # live, of an expired customer
        (ENDLESS, 4, "likes snow", 3),
    ),
    *_rows("Tag", "id label", (FRESH, 1, "red"), (STALE, 2, "blue"), (ENDLESS, 3, "green")),
    *_rows("Club", "id name", (ALWAYS, 1, "chess"), (ALWAYS, 2, "rowing"), (ALWAYS, 3, "choir")),
    *_rows(
        "Membership",
        "id customer_id club_id",
        (FRESH, 1, 1, 1),
        (STALE, 2, 1, 2),
        (FRESH, 3, 2, 2),
        (FRESH, 4, 4, 1),  # live, of an expired customer
        (SHORT, 5, 3, 1),
        (STALE, 6, 6, 3),  # the choir's only one
    ),
    *_rows(
        "Category",
        "id name parent_id",
        (FRESH, 1, "all", None),
        (FRESH, 2, "food", 1),
        (STALE, 3, "tools", 1),
        (FRESH, 4, "fruit", 2),
        (FRESH, 5, "hammers", 3),  # live, under an expired one
        (SHORT, 6, "bread", 2),
        (ENDLESS, 7, "apples", 4),
        (STALE, 8, "sorts", 7),
    ),
    *_rows(
        "Document",
        "id title customer_id",
        (ENDLESS, 1, "map", 1),
        (SHORT, 2, "memo", 1),
    ),
    *_rows(
        "Invoice",
        "id title customer_id amount",
        (FRESH, 3, "bill", 1, 100),
        (STALE, 4, "old bill", 1, 200),
        (LONG, 5, "rent", 2, 300),
    ),
    *_rows(
        "CreditNote",
        "id note_id title customer_id amount reason",
        (FRESH, 6, 6, "refund", 3, 400, "broken"),
        (STALE, 7, 7, "old refund", 3, 500, "late"),
    ),
    *_rows(
        "Estimate",
        "id title customer_id amount",
        (FRESH, 8, "offer", 2, 600),
        (STALE, 9, "old offer", 2, 700),
    ),
    *_rows(
        "Letter",
        "id title customer_id body",
        (FRESH, 10, "thanks", 3, "dear bob"),
        (SHORT, 11, "warning", 3, "dear dan"),
    ),
    *_rows(
        "Line",
        "id text invoice_id",
        (ALWAYS, 1, "one lamp", 3),
        (ALWAYS, 2, "two lamps", 4),  # of an expired invoice
        (ALWAYS, 3, "a lamp back", 6),
        (ALWAYS, 4, "two lamps back", 7),  # of an expired credit note
    ),
    *_rows("Event", "id name", (FRESH, 1, "start"), (STALE, 2, "boot"), (SIXTEEN_HOURS, 3, "tick")),
    *_rows("Login", "id name", (FRESH, 4, "ann in"), (STALE, 5, "bob in")),
    *_rows("Audit", "id name", (OLD, 6, "grant"), (SHORT, 7, "revoke")),
    *_rows(
        "Debug",
        "id name",
        (FRESH, 8, "probe"),
        (SIXTEEN_HOURS_TOO_OLD, 9, "old probe"),
        (LONG, 10, "kept probe"),
    ),
    *_rows("Trace", "id name", (FRESH, 11, "step"), (SIXTEEN_HOURS_TOO_OLD, 12, "old step")),
    *_rows(
        "SlowTrace",
        "id name",
        (OLD, 13, "slow step"),
        (Life(age=11 * DAY, ttl=None, live=False), 14, "slowest step"),
    ),
    *_rows("Asset", "id name", (FRESH, 1, "desk"), (STALE, 2, "chair")),
    *_rows("Car", "id name seats", (FRESH, 3, "coupe", 2), (SHORT, 4, "wagon", 5)),
    *_rows("Truck", "id name tons", (ENDLESS, 5, "tipper", 8), (STALE, 6, "tanker", 9)),
    *_rows(
        "Guest",
        "id first last x y luggage",
        (FRESH, 1, "gil", "hay", 1, 1, ["bag"]),
        (STALE, 2, "hal", "ivy", 1, 1, ["bag"]),
        (ENDLESS, 3, "ida", "joy", 3, 4, None),
        (SHORT, 4, "jo", "kay", 3, 4, ["hat"]),
    ),
    *_rows(
        "Wish",
        "id guest_id place what",
        (FRESH, 1, 1, 0, "tea"),
        (STALE, 2, 1, 1, "cake"),
        (FRESH, 3, 1, 2, "milk"),
        (STALE, 4, 3, 0, "quiet"),
    ),
    *_rows(
        "Room",
        "id floor number free head_id",
        (FRESH, 1, 1, 1, False, 1),
        (STALE, 2, 1, 2, True, 1),
        (LONG, 3, 2, 1, True, 2),  # its head has expired
        (SHORT, 4, 2, 2, False, 3),
        (FRESH, 5, 3, 1, True, None),
    ),
    *_rows(
        "Stay",
        "id guest_id room_id nights",
        (FRESH, 1, 1, 1, 1),
        (STALE, 2, 1, 3, 2),
        (FRESH, 3, 2, 1, 2),  # of an expired guest
        (ENDLESS, 4, 3, 3, 4),
        (FRESH, 5, 3, 2, 5),  # in an expired room
        (SHORT, 6, 3, 1, 7),
    ),
    *_rows("Stage", "id size", (ALWAYS, 1, 3), (ALWAYS, 2, 2)),
    *_rows(
        "Seat",
        "id number stage_id place holder",
        (FRESH, 1, 1, 1, 1, "ann"),
        (STALE, 2, 2, 1, 2, "bob"),
        (FRESH, 3, 3, 1, 3, "cid"),
        (SHORT, 4, 4, 2, 1, "dan"),
        (ENDLESS, 5, 7, 2, 5, "eve"),
    ),
    *_rows(
        "Voucher",
        "id holder code tenant used",
        (FRESH, 1, "ann", 1, 1, 0),
        (STALE, 2, "bob", 2, 1, 0),
        (FRESH, 3, "cid", 3, 2, 0),
        (SHORT, 4, "dan", 4, 2, 0),
        (ENDLESS, 5, "eve", 7, 1, 0),
    ),
    *_rows(
        "Setting",
        "id name code item",
        (FRESH, 1, "live", "live", "live"),
        (STALE, 2, "old", "old", "old"),
        (SHORT, 3, "short", "short", "short"),
    ),
    *_rows(
        "Arrival",
        "id seat pass",
        (FRESH, 1, "live", "live"),
        (STALE, 2, "old", "old"),
        (SHORT, 3, "short", "short"),
    ),
    *_rows(
        "Mailbox",
        "id email nick mark sign",
        (FRESH, 1, "Live", "live", None, None),
        (STALE, 2, "Old", "old", "touched", "x"),
        (SHORT, 3, "Short", "short", "x", "signed"),
    ),
]

TAGS_OF_CUSTOMERS: list[tuple[int, int]] = [
    (1, 1),
    (1, 2),  # an expired tag
    (2, 2),
    (3, 3),
    (3, 2),
    (4, 1),  # an expired customer
    (4, 3),
    (6, 3),
]

# Rows whose foreign keys are enforced: live ones refer to nothing that has expired.
ROWS += [
    *_rows(
        "Firm",
        "id code",
        (ALWAYS, 1, "visited"),
        (ALWAYS, 2, "badged"),
        (ALWAYS, 3, "host"),
        (ALWAYS, 4, "branched"),
        (ALWAYS, 5, "ticketed"),
        (ALWAYS, 6, "permitted"),
        (ALWAYS, 7, "alone"),
        (ALWAYS, 8, "busy"),  # live rows refer to it
    ),
    *_rows("Visit", "id firm_id", (STALE, 1, 1), (SHORT, 2, 1), (STALE, 3, 8), (FRESH, 4, 8)),
    *_rows("Badge", "id firm_code", (STALE, 1, "badged"), (SHORT, 2, "badged"), (LONG, 3, "busy")),
    *_rows(
        "Caller",
        "id host_id name",
        (STALE, 1, 3, "ann"),
        (SHORT, 2, 3, "bob"),
        (FRESH, 3, 8, "cid"),
        (STALE, 4, None, "dan"),
    ),
    *_rows("Meal", "id caller_id", (STALE, 1, 1), (STALE, 2, 4), (FRESH, 3, 3)),
    *_rows("Branch", "id firm_id", (ALWAYS, 1, 4), (ALWAYS, 2, 4), (ALWAYS, 3, 8)),
    *_rows("Desk", "id branch_id", (STALE, 1, 1), (SHORT, 2, 2), (FRESH, 3, 3)),
    *_rows("Ticket", "id firm_id", (FRESH, 1, 5), (STALE, 2, 5), (FRESH, 3, 8)),
    *_rows(
        "Reply",
        "id ticket_id reply_id",
        (STALE, 1, 1, None),
        (STALE, 2, 1, 1),
        (STALE, 3, 2, None),
        (FRESH, 4, 3, None),
    ),
    *_rows("Permit", "id firm_id", (STALE, 1, 6), (FRESH, 2, 8)),
    *_rows(
        "Folder",
        "id parent_id",
        (ALWAYS, 1, None),
        (ALWAYS, 2, 1),
        (ALWAYS, 3, 2),
        (ALWAYS, 4, None),
    ),
    *_rows("Paper", "id folder_id", (STALE, 1, 3), (SHORT, 2, 2), (FRESH, 3, 4)),
    *_rows("Hall", "house number", (ALWAYS, 1, 1), (ALWAYS, 1, 2), (ALWAYS, 2, 1)),
    *_rows("Booking", "id house number", (STALE, 1, 1, 1), (STALE, 2, 1, 2), (FRESH, 3, 2, 1)),
    *_rows("Album", "id", (FRESH, 1), (STALE, 2), (FRESH, 3)),
    *_rows("Photo", "id album_id", (FRESH, 1, 1), (STALE, 2, 2), (FRESH, 3, 3)),
]
