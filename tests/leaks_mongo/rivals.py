"""The worlds of two other ways to hide documents, and the verdicts on them and on ours.

| column | world |
|---|---|
| `ours` | `tests.leaks_mongo.living.LivingWorld` |
| `soft` | `SoftWorld`: Beanie's own `DocumentWithSoftDelete` |
| `queries` | `QueriesWorld`: query classes of one's own that add a condition to every filter |

``python -m tests.leaks_mongo.rivals COLUMN`` prints the verdicts as JSON, for the Beanie of the
interpreter and the server in TTL_ODM_TEST_MONGODB_URL. `tools/leaks.py` makes docs/leaks.md of it.
"""

from __future__ import annotations

import asyncio
import json
import platform
import sys
import warnings
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pymongo
from beanie import Document, UnionDoc
from beanie.odm.documents import DocumentWithSoftDelete
from beanie.odm.queries.find import FindMany, FindOne
from pydantic import BaseModel, Field

from tests.backends import server_url
from tests.leaks.registry import Path, Sees
from tests.leaks_mongo.data import HOUR
from tests.leaks_mongo.registry import LINE, all_paths
from tests.leaks_mongo.worlds import Bases, CleanWorld, Raw, TimelessWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.leaks.data import Row

Verdict = Literal["right", "wrong", "raises", "impossible"]

BEANIE_WARNS = (
    "Accessing the 'model_fields' attribute on the instance",
    "This field is deprecated",
)
"""Of what Beanie 1.30 does with each document that it stores, and with each time series."""

NEVER = datetime(9999, 12, 31, tzinfo=timezone.utc)
AN_HOUR = timedelta(seconds=HOUR)


class SoftWorld(TimelessWorld):
    """All documents; those that have expired are marked as deleted, as `delete()` would."""

    bases = Bases(timed=(DocumentWithSoftDelete,))

    def give_lifetime(self, document: Raw, row: Row, now: datetime) -> None:
        """Mark a document that has expired; one that lives may have been deleted softly."""
        if issubclass(getattr(self, row.model), DocumentWithSoftDelete):
            document["deleted_at"] = document.get("deleted_at") if row.life.live else now

    def end(self, model: Any, key: Any) -> None:
        """Mark the document, as a job would that looks for what has expired."""
        change = {"$set": {"deleted_at": self.now()}}
        self.other[model.get_collection_name()].update_one({"_id": key}, change)


def utc_now() -> datetime:
    """This moment, by this host's clock."""
    return datetime.now(timezone.utc)


class LiveQuery:
    """Adds the condition to the one filter that all of Beanie's queries are made from."""

    def get_filter_query(self) -> dict[str, Any]:
        """The filter, and the condition."""
        asked: dict[str, Any] = super().get_filter_query()  # type: ignore[misc]
        live = {"expires_at": {"$gt": utc_now()}}
        return {"$and": [asked, live]} if asked else live


class FindManyLive(LiveQuery, FindMany):  # type: ignore[type-arg]
    """Finds many that live."""


class FindOneLive(LiveQuery, FindOne):  # type: ignore[type-arg]
    """Finds one that lives."""


class Ending(BaseModel):
    """The instant at which a document ends."""

    _find_many_query_class: ClassVar[Any] = FindManyLive
    _find_one_query_class: ClassVar[Any] = FindOneLive
    expires_at: datetime = Field(default_factory=lambda: utc_now() + AN_HOUR)


class Expiring(Ending, Document):
    """A document with the instant of its end."""


class ExpiringOrDeleted(Ending, DocumentWithSoftDelete):
    """One that may be deleted softly, too."""


class ExpiringUnion(UnionDoc):
    """A union of such documents."""

    _find_many_query_class = FindManyLive
    _find_one_query_class = FindOneLive


class QueriesWorld(TimelessWorld):
    """All documents, with the instant of their end, read through query classes of one's own."""

    bases = Bases(timed=(Expiring,), soft=(ExpiringOrDeleted,), union=(ExpiringUnion,))

    def give_lifetime(self, document: Raw, row: Row, now: datetime) -> None:
        """Set the instant of its end."""
        if issubclass(getattr(self, row.model), Ending):
            later = NEVER if row.life.ttl == -1 else now + AN_HOUR
            document["expires_at"] = later if row.life.live else now - AN_HOUR

    def end(self, model: Any, key: Any) -> None:
        """Move the end into the past."""
        self.set_end(model, key, self.now() - AN_HOUR)

    def set_end(self, model: Any, key: Any, moment: datetime) -> bool:
        """Set the end."""
        change = {"$set": {"expires_at": moment}}
        self.other[model.get_collection_name()].update_one({"_id": key}, change)
        return True


def _living() -> type[TimelessWorld]:
    from tests.leaks_mongo.living import LivingWorld

    return LivingWorld


COLUMNS: dict[str, Callable[[], type[TimelessWorld]]] = {
    "ours": _living,
    "soft": lambda: SoftWorld,
    "queries": lambda: QueriesWorld,
}


def compared_paths() -> list[Path]:
    """The paths that can be compared: not those about ttl_odm's own options."""
    return [path for path in all_paths(without=("escapes", "include_expired")) if not path.own]


async def verdict(world: TimelessWorld, path: Path, clean: CleanWorld) -> Verdict:
    """Judge one path.

    Where the matrix allows that everything is seen, because nothing could filter there, the right
    answer here is still that of a world without the expired documents.
    """
    if LINE in path.without:
        return "impossible"
    right = await clean.answer(path) if isinstance(path.answer, Sees) else path.answer
    try:
        return "right" if await world.answer(path) == right else "wrong"
    except Exception:  # noqa: BLE001 - whatever it is
        return "raises"


async def measure(column: str) -> dict[str, Any]:
    """Judge every path of one column.

    Returns:
        The verdicts as ``[theme, path, verdict]``, what the themes are, and the versions.
    """
    url = server_url("mongodb")
    paths = compared_paths()
    # A warning in ours is a mistake; others may have theirs.
    warnings.simplefilter("error" if column == "ours" else "ignore")
    for message in BEANIE_WARNS:
        warnings.filterwarnings("ignore", message)
    async with CleanWorld.opened(url) as clean, COLUMNS[column]().opened(url) as world:
        verdicts = [(path.theme, path.name, await verdict(world, path, clean)) for path in paths]
        server = world.other.client.server_info()["version"]
    return {
        "verdicts": verdicts,
        "themes": {path.theme: _first_line(sys.modules[path.run.__module__]) for path in paths},
        "impossible": {path.name: path.without[LINE] for path in paths if LINE in path.without},
        "python": platform.python_version(),
        "beanie": version("beanie"),
        "driver": f"Motor {version('motor')}" if LINE != "2" else f"PyMongo {pymongo.version}",
        "server": server,
    }


def _first_line(module: Any) -> str:
    return str(module.__doc__).partition("\n")[0]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1]))))  # noqa: T201 - it is what the process is for
