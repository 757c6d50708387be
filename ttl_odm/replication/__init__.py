"""How far replicas are behind, and a sweeper that waits for them.

``Sweeper(engine, Base, throttle="replication")`` asks before each batch how far the replicas are
behind, and waits so that none of them falls back more than a second. `ReplicationLag` makes such a
throttle with another limit, or with replicas that the primary doesn't know.

- `lag`: the arithmetic, whatever the database.
- `families`: the questions to each family of SQL databases, and the meaning of the answers.
- `sqlalchemy`, `django`, `beanie`: the adapters' throttles, which send the questions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.replication.lag import AT_MOST, check_limit

if TYPE_CHECKING:
    from collections.abc import Collection

    from ttl_odm.sweeper.options import Throttle

__all__ = ["ReplicationLag", "throttle"]

_ADAPTERS: Final = {
    "sqlalchemy": "sqlalchemy",
    "django": "django",
    "beanie": "beanie",
    "pymongo": "beanie",
    "motor": "beanie",
}


def ReplicationLag(  # noqa: N802 (a class to its callers)
    engine: object, *, at_most: float = AT_MOST, replicas: Collection[object] = ()
) -> Throttle:
    """Make a throttle that waits while a replica is too far behind.

    Args:
        engine: The engine of the sweeper, which leads to the primary: an `Engine`, an
            `AsyncEngine`, a connection of Django's, a database of PyMongo or Motor, or a store.
        at_most: How many seconds a replica may be behind.
        replicas: An engine for each replica of MariaDB or MySQL, whose primary doesn't know how far
            they are. If empty, the replicas that registered their address at the primary
            (``report_host``) are asked, with the engine's own user.

    Returns:
        A function, or a coroutine function for an asynchronous engine.

    Raises:
        TTLConfigurationError: The engine or the limit can't work.
    """
    check_limit(at_most)
    for cls in type(engine).__mro__:
        package, _, rest = cls.__module__.partition(".")
        name = rest.partition(".")[0] if package == "ttl_odm" else package
        if name in _ADAPTERS:
            module: Any = import_module(f"{__name__}.{_ADAPTERS[name]}")
            made: Throttle = module.throttle_of(engine, at_most, tuple(replicas))
            return made
    raise TTLConfigurationError(
        f"throttle='replication' can't ask {type(engine).__name__} how far its replicas are "
        "behind: pass a function of your own as throttle."
    )


def throttle(engine: object) -> Throttle:
    """Make the throttle ``"replication"``; an entry point of ``ttl_odm.throttles``."""
    return ReplicationLag(engine)
