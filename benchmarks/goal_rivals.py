"""The rival of each goal that has one: the figure that stands beside ours where ours misses it.

The headings and lines are those of the benchmarks, which nothing here imports: they import goals,
and a report is written without what they need. A test finds each of them in a report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.findings import Rival
from benchmarks.goals import (
    BY_HAND,
    BYSTANDER,
    CONDITION,
    COUNT,
    DJANGO_TENANT_KEY,
    DJANGO_TENANT_LIST,
    DJANGO_TENANT_SCAN,
    DOCUMENTS,
    FLUSH,
    FLUSH_ALONE,
    FOREGROUND,
    GENTLE,
    GENTLE_MYSQL,
    IMPORT,
    LINEAR,
    ONE_TENANT_KEY,
    ONE_TENANT_LIST,
    ONE_TENANT_SCAN,
    PARTITIONS_TIME,
    RENEWAL,
    STORED_KEY,
    STORED_LIST,
    STORED_SCAN,
    TENANTS_KEY,
    TENANTS_LIST,
    TENANTS_SCAN,
    TOUCH,
    TOUCH_ALONE,
    UNFILTERED,
    delayed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.findings import Goal

_READ: Final = "SQLAlchemy: a read with the gate / with a hand-written WHERE"
_RENEW: Final = "SQLAlchemy: renewing a row, with TTL / without"
_FLUSH: Final = "SQLAlchemy: a flush UPDATE of a model without TTL / an UPDATE by hand"
_COUNT: Final = "SQLAlchemy: a count of 100,000 rows / without a condition"
_FIND: Final = "Beanie: reads and touches through the gate / with a hand-written condition"
_MEANWHILE: Final = "Sweeping, somebody's statements: meanwhile / when all is idle"
_DISTANT: Final = "With a round trip of 0.5 ms"

_CHANGE: Final = "flush UPDATE of one column and commit"
_WHERE: Final = "{work}; by hand as expressions"
_CORE: Final = "SQLAlchemy's own Core UPDATE"
_NO_TTL: Final = "SQLAlchemy's flush without TTL"
_CONDITION: Final = "the condition by hand"

_FAR_FLUSH: Final = f"SQLAlchemy: {_CHANGE}, without TTL / an UPDATE by hand"
_GUARDED: Final = "a listener that adds the condition"
_NEAR_GUARDED: Final = Rival(_GUARDED, _RENEW, "{work}, guarded by hand; {rest}")
_FAR_GUARDED: Final = Rival(_GUARDED, _DISTANT, "{work}, guarded by hand / {rest}")
_GENTLE: Final = Rival("find keys, delete these", _MEANWHILE, "find keys, delete these, p99")
_LOOKUP: Final = "a lookup by hand"
_FAR_CONDITION: Final = Rival(
    _CONDITION, _DISTANT, "{work} / a condition by hand", is_below_ours=True
)

_LOOKED_UP: Final = {
    "SQLAlchemy: a stored default": (STORED_KEY, STORED_LIST, STORED_SCAN),
    "SQLAlchemy: stored defaults of 10,000 tenants": (TENANTS_KEY, TENANTS_LIST, TENANTS_SCAN),
    "SQLAlchemy: one tenant's rows, of 10,000 stored defaults": (
        ONE_TENANT_KEY,
        ONE_TENANT_LIST,
        ONE_TENANT_SCAN,
    ),
    "Django: one of 10,000 tenants with stored defaults": (
        DJANGO_TENANT_KEY,
        DJANGO_TENANT_LIST,
        DJANGO_TENANT_SCAN,
    ),
}

RIVALS: Final[Mapping[Goal, Rival]] = {
    BY_HAND: Rival("expressions by hand / literal SQL", _READ, _WHERE, is_below_ours=True),
    UNFILTERED: Rival("a WHERE by hand", _READ, _WHERE, is_below_ours=True),
    RENEWAL: Rival(_NO_TTL, _FLUSH, _CHANGE),
    delayed(RENEWAL): Rival(_NO_TTL, _DISTANT, _FAR_FLUSH),
    FLUSH: _NEAR_GUARDED,
    FLUSH_ALONE: _NEAR_GUARDED,
    delayed(FLUSH): _FAR_GUARDED,
    delayed(FLUSH_ALONE): _FAR_GUARDED,
    TOUCH: Rival(_CORE, _RENEW, f"{_CORE} and commit; an UPDATE by hand"),
    TOUCH_ALONE: Rival(_CORE, _RENEW, f"{_CORE}; an UPDATE by hand"),
    delayed(TOUCH): Rival(_CORE, _DISTANT, f"SQLAlchemy: {_CORE} and commit / an UPDATE by hand"),
    delayed(TOUCH_ALONE): Rival(_CORE, _DISTANT, f"SQLAlchemy: {_CORE} / an UPDATE by hand"),
    BYSTANDER: Rival(
        "two processes without ttl_odm",
        "Noise: a model without TTL, ttl_odm not imported, in two processes",
        "{what}",
    ),
    CONDITION: Rival("a date column", _COUNT, "a date column by hand; {rest}"),
    **{
        goal: Rival(_LOOKUP, f"{of} / a bound value", "{what}; looked up by hand")
        for of, goals in _LOOKED_UP.items()
        for goal in goals
    },
    DOCUMENTS: Rival(_CONDITION, _FIND, "{what}", is_below_ours=True),
    delayed(DOCUMENTS): _FAR_CONDITION,
    COUNT: Rival(_CONDITION, _FIND, "{what}", is_below_ours=True),
    delayed(COUNT): _FAR_CONDITION,
    FOREGROUND: Rival("one DELETE", _MEANWHILE, "one DELETE, p99"),
    GENTLE: _GENTLE,
    GENTLE_MYSQL: _GENTLE,
    PARTITIONS_TIME: Rival(
        "a script that drops the same partitions",
        "Expiry by partition: the time / of dropping the same partitions by hand",
        "{what}",
        is_below_ours=True,
    ),
    IMPORT: Rival(
        "the standard library's modules that it needs",
        "`import ttl_odm`",
        "time of the standard library's modules that it needs",
    ),
    LINEAR: Rival(
        "the same without TTL",
        "Growth: the exponent where it is steepest",
        "{work} without TTL; {rest}",
    ),
}
