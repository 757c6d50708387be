"""Mutants made by hand: mistakes that tests once didn't notice. Each of them must be caught."""

from __future__ import annotations

from typing import Final

_DISPLACE: Final = "ttl_odm/sqlalchemy/keys/displace.py"
_REMOVAL: Final = "ttl_odm/follows/sqlalchemy/removal.py"
_PARENTS: Final = "ttl_odm/follows/sqlalchemy/parents.py"
_LEASES: Final = "ttl_odm/{}/sweep/leases.py"
_WALK: Final = "ttl_odm/sqlalchemy/sweep/table_walk.py"
_MYSQL: Final = "ttl_odm/dialects/mysql.py"
_LOCKED: Final = "rows.with_for_update(read=True) if self.current else rows"
_HELD: Final = "and_(c.holder == lease.holder, c.token == lease.token)"

KNOWN: Final = (
    # Locks dropped.
    (
        _DISPLACE,
        "rows = SweepSelect(*columns).where(expired)\n        return " + _LOCKED,
        "rows = SweepSelect(*columns).where(expired)\n        return rows",
    ),
    (
        _DISPLACE,
        "rows: Select[Any] = SweepSelect(*columns)\n            rows = " + _LOCKED,
        "rows: Select[Any] = SweepSelect(*columns)\n            rows = rows",
    ),
    (_REMOVAL, "roots = roots.with_for_update()", "roots = roots"),
    (
        _PARENTS,
        "live = live.with_for_update(read=True, key_share=True, of=links.parent)",
        "live = live",
    ),
    # A lease taken from a living holder.
    (_LEASES.format("sqlalchemy"), "[] if seizes else [is_free]", "[]"),
    (_LEASES.format("beanie"), '{"_id": name, "$expr": _IS_FREE}', '{"_id": name}'),
    (_LEASES.format("django"), "filter(free, name=name)", "filter(name=name)"),
    # A lease's token not compared: an earlier lease of the same holder would count.
    (_LEASES.format("sqlalchemy"), _HELD, "c.holder == lease.holder"),
    (
        _LEASES.format("beanie"),
        '"holder": lease.holder, "token": lease.token}',
        '"holder": lease.holder}',
    ),
    (
        _LEASES.format("django"),
        "holder=lease.holder, token=lease.token)",
        "holder=lease.holder)",
    ),
    # A lease's holder not compared.
    (_LEASES.format("sqlalchemy"), _HELD, "c.token == lease.token"),
    (
        _LEASES.format("beanie"),
        '"holder": lease.holder, "token": lease.token}',
        '"token": lease.token}',
    ),
    (
        _LEASES.format("django"),
        "holder=lease.holder, token=lease.token)",
        "token=lease.token)",
    ),
    # A range of keys that begins where the one before ended, and one that begins at the beginning.
    (
        _WALK,
        "compared(in_order(columns, dialect), gt, gt, resume, clock)",
        "compared(in_order(columns, dialect), gt, lambda a, b: a >= b, resume, clock)",
    ),
    (_WALK, "resume=None if last is None else tuple(last)", "resume=resume"),
    (_WALK, "resume=(end, pages) if end < pages", "resume=(first, pages) if end < pages"),
    # Zero dates on MySQL.
    (_MYSQL, '{column} <=> NULL"', '{column} IS NULL"'),
    (_MYSQL, "({column} > TIMESTAMP'0001-01-01 00:00:00' AND {day})", "({day})"),
    (_MYSQL, " AND DAYOFMONTH({column}) > 0", ""),
    (_MYSQL, "MONTH({column}) > 0 AND ", ""),
    # SQLite's order of conditions.
    (
        "ttl_odm/django/policy/predicate.py",
        'if self._connection.vendor == "sqlite" and self._binding.is_strict:',
        "if False:",
    ),
)
"""Module, text, and what replaces it."""
