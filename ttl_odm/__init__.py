"""Cosmos-DB-style time-to-live for SQLAlchemy and Beanie.

This package's root holds the names that every database shares: what a policy is, the value that
means "never", and the errors. It imports the standard library and nothing else, so that a model
module which only declares ``__ttl__`` costs milliseconds; the adapters (`ttl_odm.sqlalchemy`,
`ttl_odm.beanie`, ...) are imported by those who use them, and so are the extensions: `Follows`,
`Partitions` and `Stored` are imported when a module asks for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from ttl_odm.core.policy import TTL, ExpireAfter, ExpireAt
from ttl_odm.core.values import NEVER
from ttl_odm.errors import ExpiredError, InvalidTTL, TTLConfigurationError, TTLError

if TYPE_CHECKING:
    from ttl_odm.follows import Follows
    from ttl_odm.partitions import Partitions
    from ttl_odm.stored import Stored

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


_EXTENSIONS: Final = {
    "Follows": "ttl_odm.follows",
    "Partitions": "ttl_odm.partitions",
    "Stored": "ttl_odm.stored",
}


def __getattr__(name: str) -> object:
    if name in _EXTENSIONS:
        return getattr(import_module(_EXTENSIONS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
