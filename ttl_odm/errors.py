"""The errors of ttl_odm, under one root.

They live outside `ttl_odm.core` because everything raises them, the core included, and they know
nothing of any database. Adapters subclass `ExpiredError` together with their own "row is gone"
error (StaleDataError, DocumentNotFound), so that existing ``except`` clauses keep working.
"""

from __future__ import annotations


class TTLError(Exception):
    """A time-to-live operation failed."""

    def __init__(self, message: str | None = None) -> None:
        """Store the message.

        Args:
            message: What happened and what to do; by default, the docstring of the class.
        """
        # `python -OO` strips docstrings; the name is then the best we have.
        super().__init__(message or type(self).__doc__ or type(self).__name__)


class InvalidTTL(TTLError, ValueError):  # noqa: N818 (reads as what it says: an invalid TTL)
    """A ttl must be None, -1 or whole seconds from 1 to 2147483647."""


class TTLConfigurationError(TTLError):
    """A TTL policy is declared in a way that cannot work."""


class ExpiredError(TTLError):
    """The row has expired, so it no longer exists."""

    def __init__(
        self, message: str | None = None, *, model: str | None = None, key: object = None
    ) -> None:
        """Store the message, and identify the row.

        Args:
            message: What happened; by default, built from `model` and `key`.
            model: The model's name.
            key: The row's primary key, as the adapter knows it.
        """
        if message is None and model is not None:
            message = f"{model} {key!r} has expired, so it no longer exists."
        super().__init__(message)
        self.model = model
        self.key = key
