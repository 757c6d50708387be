"""What the tests of the sweeper on MongoDB share: a collection to sweep, and a look at commands."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from beanie import Document, init_beanie
from bson import DatetimeMS
from bson.codec_options import CodecOptions
from pymongo.monitoring import CommandListener

from tests.mongo.scratch import scratch
from ttl_odm.beanie import TTLMixin, ensure_indexes, ttl_database
from ttl_odm.sweeper import AsyncSweeper, Pace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from pymongo.collection import Collection

    from ttl_odm.sweeper import SweepReport

    Raw = dict[str, Any]

_AWARE: CodecOptions[Any] = CodecOptions(tz_aware=True)
SCHEMA = {"collMod", "create", "createIndexes", "drop", "dropIndexes"}
"""The commands by which ttl_odm changes a schema."""
HOUR = 3_600
DAY = 86_400


class Commands(CommandListener):
    """The commands that were sent, and something to do before some of them."""

    def __init__(self) -> None:
        self.sent: list[Raw] = []
        self.before: dict[str, list[Callable[[], object]]] = {}

    def started(self, event: Any) -> None:
        self.sent.append(dict(event.command))
        if self.before.get(event.command_name):
            self.before[event.command_name].pop()()

    def succeeded(self, event: Any) -> None: ...

    def failed(self, event: Any) -> None: ...

    def of(self, name: str) -> list[Raw]:
        """Return the commands of a name."""
        return [each for each in self.sent if name in each]


def declared(
    ttl: Any = HOUR, purge: str = "sweeper", sweep: str = "index", **attributes: Any
) -> Any:
    """Declare a document class on the collection ``documents``."""

    class Cart(TTLMixin, Document):
        __ttl__: ClassVar[Any] = ttl
        __ttl_purge__ = purge
        __ttl_sweep__ = sweep

        id: object  # type: ignore[assignment]

        class Settings:
            name = "documents"

    for name, value in attributes.items():
        setattr(Cart, f"__ttl_{name}__", value)
    return Cart


def fixed(size: int) -> Pace:
    """Return a pace of batches that are all equal."""
    return Pace(start=size, lowest=size, highest=size, target=10)


@dataclass(frozen=True)
class Swept:
    """A collection with a policy.

    Attributes:
        database: What an application has; gated.
        model: The class.
        raw: The collection, for a test or another program.
        commands: What the application has sent.
    """

    database: Any
    model: Any
    raw: Collection[Raw]
    commands: Commands

    async def sweep(self, **options: Any) -> SweepReport:
        """Sweep once, without a lease unless one is asked for."""
        options.setdefault("lease", False)
        return await AsyncSweeper(self.database, [self.model], **options).run_once()

    def now(self) -> datetime:
        """Return the server's clock."""
        hello = self.raw.database.client.admin.command("hello")
        # A date; a gateway to documentdb gives a number.
        return DatetimeMS(hello["localTime"]).as_datetime(_AWARE)

    def ago(self, seconds: float) -> datetime:
        """Return an instant before now."""
        return self.now() - timedelta(seconds=seconds)

    def add(self, keys: Iterable[Any], *, age: float, **fields: Any) -> None:
        """Write documents that were last modified so long ago, as another program would."""
        born = self.ago(age)
        self.raw.insert_many([{"_id": key, "_ts": born, **fields} for key in keys])

    def keys(self, collection: str = "documents") -> set[Any]:
        """Return the keys of all documents that are there."""
        found = self.raw.database[collection].find({}, {"_id": 1})
        return {each["_id"] for each in found}


@asynccontextmanager
async def swept(
    url: str, model: Any = None, *, indexed: bool = True, **options: Any
) -> AsyncIterator[Swept]:
    """Give an empty collection, with its indexes.

    Args:
        url: The server's.
        model: Its class; that of `declared` if there is none.
        indexed: Whether it gets indexes.
        options: The asynchronous client's.
    """
    commands = Commands()
    async with scratch(url, event_listeners=[commands], **options) as place:
        database = ttl_database(place.ours.database)
        chosen = declared() if model is None else model
        await init_beanie(database=database, document_models=[chosen])
        if indexed:
            await ensure_indexes(chosen)
        commands.sent.clear()
        yield Swept(database, chosen, place.database[chosen.get_settings().name], commands)
