"""An estimate of the server's clock, without asking the server for every document.

The contract knows one clock, the database's. Most operations of the gate use it on the server
(``$$NOW``, ``$currentDate``). Where that is impossible (stamps of inserts, ``distinct``, documents
in a cursor's buffer) the server's time is estimated: by one ``hello`` a minute, and the host's
monotonic clock in between. The host's own time never counts.

This module must not know policies or documents.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from bson import DatetimeMS
from bson.codec_options import CodecOptions
from pymongo import ReadPreference

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Database, Document, Filter

# Not under its own name: freezegun replaces `time.monotonic` wherever it finds it.
_monotonic: Final = partial(time.monotonic)
_FRESH_SECONDS: Final = 60
_SHARP_SECONDS: Final = 0.005
_RETRIES: Final = 2
"""How often to ask again if an answer took longer than `_SHARP_SECONDS`."""
_DRIFT: Final = 5e-5
"""The largest error of the host's monotonic clock: 50 microseconds per second."""
_JUMP_SECONDS: Final = 0.5
"""If wall and monotonic clock differ by this much, the machine slept, or its clock was set."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_OPTIONS: Final[CodecOptions[Document]] = CodecOptions(tz_aware=True)


@dataclass(frozen=True, slots=True)
class _Sample:
    """The server's clock, and the host's clock before and after it was read."""

    server: datetime
    sent: float
    received: float
    wall: float

    @property
    def width(self) -> float:
        """The seconds between question and answer, which is the error of the sample."""
        return self.received - self.sent


class ServerClock:
    """An estimate of one server's clock, with bounds."""

    def __init__(self) -> None:
        """Begin without a sample."""
        self._sample: _Sample | None = None

    async def refresh(self, database: Database) -> None:
        """Ask the server through one of its databases, if the last answer is over a minute old."""
        last, now = self._sample, _monotonic()
        is_recent = last is not None and now - last.received <= _FRESH_SECONDS
        if last is not None and is_recent and abs(time.time() - now - last.wall) < _JUMP_SECONDS:
            return
        sample = await _ask(database)
        for _ in range(_RETRIES):
            if sample.width < _SHARP_SECONDS:
                break
            sample = min(sample, await _ask(database), key=lambda answer: answer.width)
        self._sample = sample

    def reached(self) -> datetime:
        """Return an instant that the server has surely reached: aware, whole milliseconds."""
        sample = self._known()
        now = sample.server + timedelta(seconds=_monotonic() - sample.received)
        return now.replace(microsecond=now.microsecond // 1000 * 1000)

    def at_most(self) -> datetime:
        """Return an instant that the server has surely not passed yet: aware."""
        sample = self._known()
        elapsed = _monotonic() - sample.sent
        return sample.server + _MILLISECOND + timedelta(seconds=elapsed * (1 + _DRIFT))

    @property
    def is_known(self) -> bool:
        """Whether the server was asked before."""
        return self._sample is not None

    def _known(self) -> _Sample:
        if self._sample is None:
            raise RuntimeError("The server's clock has not been read yet.")
        return self._sample


def instant_of(hello: Filter) -> DatetimeMS:
    """Return the instant in the reply to a ``hello``, decoded with any options.

    MongoDB sends a date; Azure's gateway to documentdb sends a number of milliseconds.
    """
    instant = hello["localTime"]
    return DatetimeMS(instant if isinstance(instant, datetime) else int(instant))


async def _ask(database: Database) -> _Sample:
    sent = _monotonic()
    reply = await database.command(
        {"hello": 1}, codec_options=_OPTIONS, read_preference=ReadPreference.PRIMARY_PREFERRED
    )
    received = _monotonic()
    instant = instant_of(reply).as_datetime(_OPTIONS)
    return _Sample(instant, sent, received, time.time() - received)
