"""`ExpiredError` as Beanie's users know it, and which errors of MongoDB are transient.

The sweeper tries again after a `TransientStoreError`, and gives up a collection after any other
error. Drivers distinguish the two by classes, labels and codes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from beanie.exceptions import DocumentNotFound
from bson.errors import BSONError
from pymongo.errors import (
    ConnectionFailure,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
    WaitQueueTimeoutError,
)

from ttl_odm import errors
from ttl_odm.sweeper.store import kind_of_error

if TYPE_CHECKING:
    from collections.abc import Iterator

WRITE_CONFLICT: Final = 112

_PASSING: Final = frozenset(
    {
        6,  # HostUnreachable
        7,  # HostNotFound
        24,  # LockTimeout
        43,  # CursorNotFound
        46,  # LockBusy
        50,  # MaxTimeMSExpired
        63,  # StaleShardVersion
        64,  # WriteConcernFailed (a majority took too long)
        89,  # NetworkTimeout
        91,  # ShutdownInProgress
        WRITE_CONFLICT,
        133,  # FailedToSatisfyReadPreference
        134,  # ReadConcernMajorityNotAvailableYet
        175,  # QueryPlanKilled (an index was dropped meanwhile)
        189,  # PrimarySteppedDown
        202,  # NetworkInterfaceExceededTimeLimit
        225,  # TransactionTooOld
        246,  # SnapshotUnavailable
        251,  # NoSuchTransaction
        262,  # ExceededTimeLimit
        290,  # TransactionExceededLifetimeLimitSeconds
        314,  # ObjectIsBusy
        317,  # ConnectionPoolExpired
        388,  # TransactionTooLargeForCache
        9001,  # SocketException
        10107,  # NotWritablePrimary
        11600,  # InterruptedAtShutdown
        11601,  # Interrupted (killOp)
        11602,  # InterruptedDueToReplStateChange
        13388,  # StaleConfig
        13435,  # NotPrimaryNoSecondaryOk
        13436,  # NotPrimaryOrSecondary
    }
)
_AWAY: Final = frozenset({6, 7, 89, 91, 189, 9001, 10107, 11600, 11602, 13435, 13436})
"""Codes of `_PASSING` by which there is no server, or none that accepts writes yet."""

_SECONDARY: Final = frozenset({10107, 13435})

_LABELS: Final = (
    "TransientTransactionError",
    "UnknownTransactionCommitResult",
    "RetryableWriteError",
)


class ExpiredError(errors.ExpiredError, DocumentNotFound):
    """The document has expired, so it no longer exists."""


@contextmanager
def store_errors() -> Iterator[None]:
    """Raise the sweeper's errors in place of the driver's, which become their cause."""
    try:
        yield
    except (PyMongoError, BSONError) as error:
        kind = kind_of_error(
            is_standby=is_secondary(error), is_away=is_away(error), is_passing=is_passing(error)
        )
        raise kind(in_short(error)) from error


def is_secondary(error: BaseException) -> bool:
    """Return whether the server rejects writes because it isn't the primary."""
    details = error.details if isinstance(error, (NotPrimaryError, OperationFailure)) else None
    return isinstance(details, Mapping) and details.get("code") in _SECONDARY


def is_away(error: BaseException) -> bool:
    """Return whether the server was lost, or can't be reached."""
    return isinstance(error, ConnectionFailure) or (
        isinstance(error, OperationFailure) and error.code in _AWAY
    )


def is_passing(error: BaseException | None) -> bool:
    """Return whether trying again may help."""
    if isinstance(error, (ConnectionFailure, WaitQueueTimeoutError)):
        return True
    if not isinstance(error, PyMongoError):
        return False
    if any(error.has_error_label(label) for label in _LABELS):
        return True
    return isinstance(error, OperationFailure) and error.code in _PASSING


def is_conflict(error: BaseException) -> bool:
    """Return whether a transaction was aborted because another one holds a document."""
    return isinstance(error, OperationFailure) and error.code == WRITE_CONFLICT


def in_short(error: BaseException) -> str:
    """Return the server's message in one line, without details, which hold values of documents."""
    details = error.details if isinstance(error, OperationFailure) else None
    if details and details.get("writeErrors"):
        details = details["writeErrors"][0]
    text = str((details or {}).get("errmsg") or error)
    # Cut off the key of a duplicate, and what a client reports about its servers after a timeout.
    text = re.split(r" dup key:|, Topology Description|, full error:", text, maxsplit=1)[0]
    return text.split("\n", 1)[0]
