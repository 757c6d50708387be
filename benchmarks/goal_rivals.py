"""The rival of each goal that has one: the figure that stands beside ours where ours misses it.

The headings and lines are those of the benchmarks, which nothing here imports: they import goals,
and a report is written without what they need. A test finds each of them in a report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.findings import Rival
from benchmarks.goals import (
    BATCH,
    BEANIE_TENANT_KEY,
    BEANIE_TENANT_READ,
    BY_HAND,
    BYSTANDER,
    CONDITION,
    CONSTANT,
    COUNT,
    DJANGO_TENANT_KEY,
    DJANGO_TENANT_LIST,
    DJANGO_TENANT_SCAN,
    DOCUMENTS,
    EXTRA_KEYED,
    FLUSH,
    FLUSH_ALONE,
    FOREGROUND,
    GENTLE,
    GENTLE_MYSQL,
    GET_AND_TOUCH,
    IDLE_TIME,
    IMPORT,
    LINEAR,
    ONE_ROW,
    ONE_ROW_POSTGRES,
    ONE_TENANT_KEY,
    ONE_TENANT_LIST,
    ONE_TENANT_SCAN,
    PARTITIONS_TIME,
    PARTITIONS_WAIT,
    RENEWAL,
    STORED_KEY,
    STORED_LIST,
    STORED_SCAN,
    TENANTS_KEY,
    TENANTS_LIST,
    TENANTS_SCAN,
    TOUCH,
    TOUCH_ALONE,
    TWO_WORKERS,
    UNFILTERED,
    delayed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.findings import Goal

_READ: Final = "SQLAlchemy: a read with the gate / with a hand-written WHERE"
_RENEW: Final = "SQLAlchemy: renewing a row, with TTL / without"
_INSERT: Final = "SQLAlchemy: a flush that inserts rows, with TTL / without"
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
_RETURNING: Final = "UPDATE ... RETURNING by hand"
_FREED: Final = "a DELETE of expired keys by hand"
_BY_SCRIPT: Final = "a script that drops the same partitions"
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
    delayed(UNFILTERED): Rival("a WHERE by hand", _DISTANT, "{work} / a WHERE by hand / {rest}"),
    EXTRA_KEYED: Rival(
        _FREED,
        "SQLAlchemy: extra statements per flush that inserts rows, for each table",
        "{what}; freed by hand",
    ),
    **{
        goal: Rival(_FREED, _INSERT, "{work}, freed by hand; {rest}")
        for goal in (ONE_ROW, ONE_ROW_POSTGRES, BATCH)
    },
    **{
        delayed(goal): Rival(_FREED, _DISTANT, "{work}, freed by hand / {rest}")
        for goal in (ONE_ROW, ONE_ROW_POSTGRES, BATCH)
    },
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
    GET_AND_TOUCH: Rival(_RETURNING, _RENEW, "{work}, by hand; {rest}"),
    delayed(GET_AND_TOUCH): Rival(_RETURNING, _DISTANT, "{work}, by hand / {rest}"),
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
    **{
        goal: Rival(
            _LOOKUP,
            "Beanie: one tenant's documents, stored defaults of 1,000 tenants / a bound value",
            "{what}; looked up by hand",
        )
        for goal in (BEANIE_TENANT_KEY, BEANIE_TENANT_READ)
    },
    DOCUMENTS: Rival(_CONDITION, _FIND, "{what}", is_below_ours=True),
    delayed(DOCUMENTS): _FAR_CONDITION,
    COUNT: Rival(_CONDITION, _FIND, "{what}", is_below_ours=True),
    delayed(COUNT): _FAR_CONDITION,
    FOREGROUND: Rival("one DELETE", _MEANWHILE, "one DELETE, p99"),
    GENTLE: _GENTLE,
    GENTLE_MYSQL: _GENTLE,
    TWO_WORKERS: Rival(
        "two DELETEs at once",
        "Sweeping by workers, rows per second: the sweeper / one DELETE",
        "two DELETEs at once",
    ),
    IDLE_TIME: Rival(
        "a script", "Sweeping a big table of which nothing has expired", "{what}; a script"
    ),
    PARTITIONS_TIME: Rival(
        _BY_SCRIPT,
        "Expiry by partition: the time / of dropping the same partitions by hand",
        "{what}",
        is_below_ours=True,
    ),
    PARTITIONS_WAIT: Rival(
        _BY_SCRIPT,
        "Expiry by partition: the longest of somebody's reads meanwhile",
        "{what}; by hand",
    ),
    IMPORT: Rival(
        "the standard library's modules that it needs",
        "`import ttl_odm`",
        "time of the standard library's modules that it needs",
    ),
    CONSTANT: Rival(
        "one DELETE", "Growth: the exponent of one DELETE where it is steepest", "{what}"
    ),
    LINEAR: Rival(
        "the same without TTL",
        "Growth: the exponent where it is steepest",
        "{work} without TTL; {rest}",
    ),
}
