"""The models of the matrix, made anew for each world: a Beanie class has one collection.

`make_models` must not know what hides expired documents: it is given the base classes, and
``__ttl__`` does nothing in classes that don't look at it.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - pydantic reads it
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import pymongo
from beanie import BackLink, Document, Indexed, Link, View
from pydantic import BaseModel, Field
from pymongo import IndexModel
from pymongo.collation import Collation

from tests.leaks_mongo.data import HOUR

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import Bases


IGNORING_CASE = Collation(locale="en", strength=2)


class Name(BaseModel):
    """A projection."""

    name: str


class Doubled(BaseModel):
    """A projection that computes."""

    name: str
    double: int

    class Settings:
        """Beanie's."""

        projection = {"name": 1, "double": {"$multiply": ["$score", 2]}}


class FirstTag(BaseModel):
    """A projection of the element of an array that the filter matched."""

    tags: list[str]

    class Settings:
        """Beanie's."""

        projection = {"tags.$": 1}


class Place(BaseModel):
    type: str
    coordinates: list[float]


def make_models(bases: Bases) -> SimpleNamespace:
    """Make all models; they are the attributes of what is returned."""
    ttl: Any = bases.timed

    class Event(*ttl):
        __ttl__ = HOUR
        __ttl_purge__ = "sweeper"  # its default gets longer without ensure_indexes()
        id: int
        name: Annotated[str, Indexed(unique=True)]
        kind: str = "a"
        score: int = 0
        tags: list[str] = []
        place: Place | None = None
        words: str = ""

        class Settings:
            name = "Event"
            indexes = [[("words", pymongo.TEXT)], [("place", pymongo.GEOSPHERE)]]

    class Journal(Document):
        id: int
        event: int
        about: str = ""

        class Settings:
            name = "Journal"

    class Node(*ttl):
        __ttl__ = HOUR
        id: int
        parent: int | None = None
        name: str

        class Settings:
            name = "Node"

    class Lock(*ttl):
        __ttl__ = HOUR
        id: int
        code: int

        class Settings:
            name = "Lock"

    class Window(*ttl):
        __ttl__ = HOUR
        id: int
        width: int
        lock: Link[Lock] | None = None

        class Settings:
            name = "Window"

    class Door(*ttl):
        __ttl__ = HOUR
        __ttl_purge__ = "sweeper"  # the same
        id: int
        color: str
        window: Link[Window] | None = None

        class Settings:
            name = "Door"

    class Roof(Document):
        id: int
        height: int

        class Settings:
            name = "Roof"

    class House(*ttl):
        __ttl__ = HOUR
        id: int
        name: str
        door: Link[Door]
        windows: list[Link[Window]] = []
        porches: list[Link[Window]] | None = None
        roof: Link[Roof] | None = None

        class Settings:
            name = "House"

    class Street(Document):
        id: int
        name: str
        first: Link[House] | None = None
        houses: list[Link[House]] = []
        lamps: list[BackLink[Lamp]] = Field(
            default=[], json_schema_extra={"original_field": "street"}
        )
        mayor: BackLink[Mayor] | None = Field(
            default=None, json_schema_extra={"original_field": "street"}
        )

        class Settings:
            name = "Street"

    class Lamp(*ttl):
        __ttl__ = HOUR
        id: int
        watts: int
        street: Link[Street]
        bulbs: list[BackLink[Bulb]] | None = Field(
            default=None, json_schema_extra={"original_field": "lamps"}
        )

        class Settings:
            name = "Lamp"

    class Bulb(*ttl):
        __ttl__ = HOUR
        id: int
        color: str
        lamps: list[Link[Lamp]]

        class Settings:
            name = "Bulb"

    class Mayor(*ttl):
        __ttl__ = HOUR
        id: int
        name: str
        street: Link[Street]

        class Settings:
            name = "Mayor"

    for model in (Street, Lamp):  # they name classes that came after them
        model.model_rebuild()

    class Vehicle(*ttl):
        __ttl__ = HOUR
        id: int
        wheels: int

        class Settings:
            name = "Vehicle"
            is_root = True

    class Car(Vehicle):
        seats: int

    class Bus(Car):
        line: str

    class Garage(Document):
        id: int
        vehicles: list[Link[Vehicle]] = []

        class Settings:
            name = "Garage"

    class Cached(*ttl):
        __ttl__ = HOUR
        id: int
        name: str

        class Settings:
            name = "Cached"
            use_cache = True

    class Tracked(*ttl):
        __ttl__ = HOUR
        id: int
        name: str
        size: int

        class Settings:
            name = "Tracked"
            use_state_management = True

    class Revised(*ttl):
        __ttl__ = HOUR
        id: int
        name: str

        class Settings:
            name = "Revised"
            use_revision = True

    class Sparse(*ttl):
        __ttl__ = HOUR
        id: int
        name: str
        note: str | None = None

        class Settings:
            name = "Sparse"
            keep_nulls = False

    class Badge(*ttl):
        __ttl__ = HOUR
        id: int
        site: int = 0
        number: int
        nick: str | None = None
        rank: int | None = None
        email: str
        owner: dict[str, str] | None = None
        codes: list[int]
        seat: str | None = None

        class Settings:
            name = "Badge"
            keep_nulls = False
            indexes = [
                IndexModel([("site", 1), ("number", 1)], unique=True),
                IndexModel("nick", unique=True, sparse=True),
                IndexModel("rank", unique=True, partialFilterExpression={"rank": {"$gt": 10}}),
                IndexModel("email", unique=True, collation=IGNORING_CASE),
                IndexModel("owner.name", unique=True, sparse=True),
                IndexModel("codes", unique=True),
                IndexModel("seat", unique=True),  # null, or nothing, is a value too
            ]

    class Token(*ttl):
        __ttl__ = HOUR
        id: str
        user: str

        class Settings:
            name = "Token"

    class Logged(*ttl):
        id: int
        name: str

        class Settings:
            name = "Logged"
            ttl = HOUR

    class Parked(*ttl):
        __ttl__ = -1
        id: int
        name: str

        class Settings:
            name = "Parked"

    class Paused(*ttl):
        __ttl__ = None
        id: int
        name: str

        class Settings:
            name = "Paused"

    class Visit(*ttl):
        __ttl__ = bases.expire_after("at", HOUR)
        id: int
        name: str
        at: Any = None

        class Settings:
            name = "Visit"

    class Offer(*ttl):
        __ttl__ = bases.expire_at("ends")
        id: int
        name: str
        ends: Any = None

        class Settings:
            name = "Offer"

    class Voucher(*ttl):
        __ttl__ = bases.expire_at("ends", null="expired")
        id: int
        name: str
        ends: Any = None

        class Settings:
            name = "Voucher"

    class Adopted(*ttl):
        __ttl__ = bases.ttl(HOUR, last_modified="changed", override="lasts", never=(0,))
        id: int
        name: str
        changed: datetime | None = None
        lasts: int | None = None

        class Settings:
            name = "Adopted"

    class EventView(View):
        id: int = Field(alias="_id")
        name: str
        kind: str

        class Settings:
            source = Event
            pipeline = [{"$project": {"name": 1, "kind": 1}}]

    class KindView(View):
        id: str = Field(alias="_id")
        number: int

        class Settings:
            source = Event
            pipeline = [{"$group": {"_id": "$kind", "number": {"$sum": 1}}}]

    class JournalView(View):
        id: int = Field(alias="_id")
        found: list[str]

        class Settings:
            source = Journal
            pipeline = [
                {
                    "$lookup": {
                        "from": "Event",
                        "localField": "event",
                        "foreignField": "_id",
                        "as": "events",
                    }
                },
                {"$project": {"found": "$events.name"}},
            ]

    return SimpleNamespace(**{name: made for name, made in locals().items() if name[0].isupper()})
