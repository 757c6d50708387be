"""``include_expired`` and ``keep_last_modified``: the two ways around the contract.

Both are execution options, so they reach every kind of statement; they act through bound
values (see `ttl_odm.sqlalchemy.gate.context`), because SQLAlchemy's statement cache doesn't know
execution options. `include_expired` exists as a loader option too: that one is part of the
cache key, takes the predicate out of the SQL, and travels with the loaded objects into their
lazy loads.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy.orm import UserDefinedOption

INCLUDE_EXPIRED: Final = "include_expired"
KEEP_LAST_MODIFIED: Final = "keep_last_modified"


class IncludeExpired(UserDefinedOption):
    """The loader option behind `include_expired`."""

    propagate_to_loaders = True

    # Without it SQLAlchemy leaves the option out of the key, and the statement would share its
    # cached SQL with the same statement that has no such option.
    _is_has_cache_key = True

    def _gen_cache_key(self, *_: Any) -> tuple[type[IncludeExpired]]:
        return (IncludeExpired,)


_OPTION: Final = IncludeExpired()


def include_expired() -> IncludeExpired:
    """Read expired rows too: ``select(Model).options(include_expired())``.

    Covers the whole statement and everything that is lazily loaded from its results. It
    affects reads only: UPDATE and DELETE never see an expired row.
    """
    return _OPTION


def includes_expired(statement: Any) -> bool:
    """Whether a SELECT carries the option."""
    return any(isinstance(option, IncludeExpired) for option in statement._with_options)
