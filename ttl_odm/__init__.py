"""Cosmos-DB-style time-to-live for SQLAlchemy and Beanie.

This package's root holds the names that every database shares: what a policy is, the value that
means "never", and the errors. It imports the standard library and nothing else, so that a model
module which only declares ``__ttl__`` costs milliseconds; the adapters (`ttl_odm.sqlalchemy`,
`ttl_odm.beanie`, ...) are imported by those who use them, and so are the extensions: `Follows` and
`Partitions` are imported when a module asks for them.
"""

from typing import TYPE_CHECKING

from ttl_odm.core.policy import TTL, ExpireAfter, ExpireAt
from ttl_odm.core.stored import Stored
from ttl_odm.core.values import NEVER
from ttl_odm.errors import ExpiredError, InvalidTTL, TTLConfigurationError, TTLError

if TYPE_CHECKING:
    from ttl_odm.follows import Follows
    from ttl_odm.partitions import Partitions

# A literal: importlib.metadata would cost more than all the imports above together.
__version__ = "0.1.0"

__all__ = [
    "NEVER",
    "TTL",
    "ExpireAfter",
    "ExpireAt",
    "ExpiredError",
    "Follows",
    "InvalidTTL",
    "Partitions",
    "Stored",
    "TTLConfigurationError",
    "TTLError",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name == "Follows":
        from ttl_odm.follows import Follows  # noqa: PLC0415 (an extension)

        return Follows
    if name == "Partitions":
        from ttl_odm.partitions import Partitions  # noqa: PLC0415 (an extension)

        return Partitions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
