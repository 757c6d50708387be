"""The models of further kinds of documents: soft deletes, unions, caches, migrations and others.

They are made as those of `tests.leaks_mongo.models` are, of which they know nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from beanie import Document, Link, TimeSeriesConfig, View
from pydantic import BaseModel, ConfigDict, Field

from tests.leaks_mongo.data import HOUR

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import Bases

A_DAY = timedelta(days=1)


class Value(BaseModel):
    """A projection."""

    value: int


def make_kinds(bases: Bases) -> SimpleNamespace:
    """Make all models; they are the attributes of what is returned."""
    ttl: Any = bases.timed
    soft: Any = bases.soft
    union: Any = bases.union

    class Memo(*soft):
        __ttl__ = HOUR
        id: int
        name: str
        size: int = 0

        class Settings:
            name = "Memo"

    class Folder(Document):
        id: int
        memos: list[Link[Memo]] = []

        class Settings:
            name = "Folder"

    class Feed(*union):
        class Settings:
            name = "Feed"

    class Post(*ttl):
        __ttl__ = HOUR
        id: int
        title: str

        class Settings:
            union_doc = Feed

    class Advert(*ttl):
        __ttl__ = HOUR
        id: int
        price: int

        class Settings:
            union_doc = Feed

    class Serial(Post):  # a class of the union that inherits from another
        part: int

        class Settings:
            union_doc = Feed

    class Digest(Document):
        id: int
        posts: list[Link[Post]] = []
        adverts: list[Link[Advert]] = []

        class Settings:
            name = "Digest"

    class Reading(*ttl):
        __ttl__ = bases.expire_after("at", HOUR)
        id: int
        at: datetime
        place: str
        value: int

        class Settings:
            name = "Reading"
            timeseries = TimeSeriesConfig(time_field="at", meta_field="place")

    class ReadingView(View):
        id: int = Field(alias="_id")
        value: int

        class Settings:
            source = Reading
            pipeline = [{"$project": {"value": 1}}]

    class Sensor(Document):
        id: int
        place: str
        readings: list[Link[Reading]] = []

        class Settings:
            name = "Sensor"

    class Author(*ttl):
        __ttl__ = HOUR
        id: int
        name: str

        class Settings:
            name = "Author"
            use_cache = True
            cache_expiration_time = A_DAY

    class Quote(*ttl):
        __ttl__ = HOUR
        id: int
        text: str
        author: Link[Author]
        length: int = 0

        class Settings:
            name = "Quote"
            use_cache = True
            cache_expiration_time = A_DAY

    class Meal(*ttl):
        __ttl__ = HOUR
        id: int
        name: str

        class Settings:
            name = "Meal"
            is_root = True
            use_cache = True
            cache_expiration_time = A_DAY

    class Soup(Meal):
        litres: int

    class Excerpt(*ttl):
        __ttl__ = HOUR
        id: int
        text: str

        class Settings:
            name = "Excerpt"
            projection = {"text": 1}
            use_cache = True
            cache_expiration_time = A_DAY

    class Parcel(*ttl):
        model_config = ConfigDict(extra="forbid")
        __ttl__ = HOUR
        id: int
        name: str
        weight: int = 0
        inside: Link[Parcel] | None = None
        relic: bool | None = None  # what the worlds write into what has expired

        class Settings:
            name = "Parcel"
            keep_nulls = False
            max_nesting_depth = 1

    class Crate(Document):
        model_config = ConfigDict(extra="forbid")
        id: int
        first: Link[Parcel] | None = None
        parcels: list[Link[Parcel]] = []

        class Settings:
            name = "Crate"

    class Shelf(*ttl):
        __ttl__ = HOUR
        id: int
        title: str

        class Settings:
            name = "Shelf"

    class NewShelf(*ttl):  # the same, once a migration has renamed its field
        __ttl__ = HOUR
        id: int
        headline: str

        class Settings:
            name = "Shelf"

    Parcel.model_rebuild()  # it names itself

    return SimpleNamespace(**{name: made for name, made in locals().items() if name[0].isupper()})
