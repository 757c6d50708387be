"""Links and back links: fetched by `$lookup` in both of its forms, or one by one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from beanie import BackLink, Document, Link, WriteRules
from pydantic import BaseModel

from tests.leaks_mongo.registry import keys, path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.leaks_mongo.worlds import World

NOT_FOR_BACK_LINKS = {"1.30": "fetch_link() leaves a BackLink as it is"}


def shape(value: Any) -> Any:
    """What a document has at the ends of its links, all the way down."""
    if isinstance(value, list):
        return sorted((shape(each) for each in value), key=repr)
    if isinstance(value, Document):
        links = value.get_link_fields() or {}
        ends = {name: shape(getattr(value, name, None)) for name in links}
        return value.id, {name: end for name, end in ends.items() if end}
    if isinstance(value, Link):
        return f"-> {value.ref.id}"
    return "<-" if isinstance(value, BackLink) else None


@contextmanager
def before_mongodb_5(model: Any) -> Iterator[None]:
    """Have Beanie write its `$lookup` stages as for MongoDB 4: with let, and no fields."""
    version = model._database_major_version
    model._database_major_version = 4
    try:
        yield
    finally:
        model._database_major_version = version


class DoorColor(BaseModel):
    color: Any = None

    class Settings:
        """Beanie's."""

        projection = {"color": "$door.color"}


@path("find(fetch_links=True): from a collection with a ttl")
async def _(w: World) -> Any:
    return shape(await w.House.find(fetch_links=True).to_list())


@path("find(fetch_links=True): from a plain collection")
async def _(w: World) -> Any:
    return shape(await w.Street.find(fetch_links=True).to_list())


@path("find(fetch_links=True): back links")
async def _(w: World) -> Any:
    return shape(await w.Lamp.find(fetch_links=True).to_list())


@path("find(fetch_links=True): from a collection with a ttl, by let")
async def _(w: World) -> Any:
    with before_mongodb_5(w.House):
        return shape(await w.House.find(fetch_links=True).to_list())


@path("find(fetch_links=True): from a plain collection, by let")
async def _(w: World) -> Any:
    with before_mongodb_5(w.Street):
        depths = {"first": 3, "houses": 2, "lamps": 0, "mayor": 1}  # lamps have no list of streets
        found = w.Street.find(fetch_links=True, nesting_depths_per_field=depths)
        return shape(await found.to_list())


@path("find(fetch_links=True): back links, by let")
async def _(w: World) -> Any:
    with before_mongodb_5(w.Lamp):
        return shape(await w.Lamp.find(fetch_links=True, nesting_depth=1).to_list())


@path("find(fetch_links=True) by a field of the linked document")
async def _(w: World) -> Any:
    return keys(await w.House.find(w.House.door.color == "blue", fetch_links=True).to_list())


@path("find(fetch_links=True) by a field in a list of linked documents")
async def _(w: World) -> Any:
    return keys(await w.House.find({"windows.width": {"$gte": 20}}, fetch_links=True).to_list())


@path("find(fetch_links=True) with nesting_depth=1")
async def _(w: World) -> Any:
    return shape(await w.House.find(fetch_links=True, nesting_depth=1).to_list())


@path("find(fetch_links=True) with nesting_depth=2")
async def _(w: World) -> Any:
    return shape(await w.Street.find(fetch_links=True, nesting_depth=2).to_list())


@path("find(fetch_links=True) with a depth per field")
async def _(w: World) -> Any:
    depths = {"first": 0, "houses": 1, "lamps": 2, "mayor": 1}
    return shape(await w.Street.find(fetch_links=True, nesting_depths_per_field=depths).to_list())


@path("find(fetch_links=True) with limit and sort")
async def _(w: World) -> Any:
    return shape(await w.House.find(fetch_links=True).sort("-name").limit(2).to_list())


@path("find(fetch_links=True) with a projection")
async def _(w: World) -> Any:
    found = await w.House.find(fetch_links=True).project(DoorColor).to_list()
    return sorted(str(each.color) for each in found)


@path("find(fetch_links=True), iterated")
async def _(w: World) -> Any:
    return shape([each async for each in w.Door.find(fetch_links=True)])


@path("find(fetch_links=True), counted")
async def _(w: World) -> Any:
    return await w.House.find(w.House.door.color == "red", fetch_links=True).count()


@path("find(fetch_links=True).first_or_none()")
async def _(w: World) -> Any:
    return shape(await w.Street.find({"_id": 2}, fetch_links=True).first_or_none())


@path("find_one(fetch_links=True) of an expired document")
async def _(w: World) -> Any:
    return shape(await w.House.find_one({"name": "three"}, fetch_links=True))


@path("find_one(fetch_links=True) with expired ends")
async def _(w: World) -> Any:
    return shape(await w.House.find_one({"name": "four"}, fetch_links=True))


@path("get(fetch_links=True)")
async def _(w: World) -> Any:
    return [shape(await w.House.get(number, fetch_links=True)) for number in range(1, 5)]


@path("get(fetch_links=True) of a plain document")
async def _(w: World) -> Any:
    return [shape(await w.Street.get(number, fetch_links=True)) for number in range(1, 4)]


@path("fetch_link() of a direct link")
async def _(w: World) -> Any:
    house = await w.House.get(4)
    await house.fetch_link("door")
    return shape(house)


@path("fetch_link() of an optional link, from a plain document")
async def _(w: World) -> Any:
    street = await w.Street.get(2)
    await street.fetch_link(w.Street.first)
    return shape(street)


@path("fetch_link() of a list of links")
async def _(w: World) -> Any:
    house = await w.House.get(2)
    await house.fetch_link(w.House.windows)
    return shape(house)


@path("fetch_link() of an optional list of links")
async def _(w: World) -> Any:
    house = await w.House.get(2)
    await house.fetch_link(w.House.porches)
    return shape(house)


@path("fetch_link() of a back link", without=NOT_FOR_BACK_LINKS)
async def _(w: World) -> Any:
    street = await w.Street.get(2)
    await street.fetch_link("mayor")
    return shape(street)


@path("fetch_link() of a list of back links", without=NOT_FOR_BACK_LINKS)
async def _(w: World) -> Any:
    lamp = await w.Lamp.get(4)
    await lamp.fetch_link("bulbs")
    return shape(lamp)


@path("fetch_all_links()")
async def _(w: World) -> Any:
    house = await w.House.get(2)
    await house.fetch_all_links()
    return shape(house)


@path("fetch_all_links() of a plain document", without=NOT_FOR_BACK_LINKS)
async def _(w: World) -> Any:
    street = await w.Street.get(1)
    await street.fetch_all_links()
    return shape(street)


@path("Link.fetch()")
async def _(w: World) -> Any:
    house = await w.House.get(4)
    return shape(await house.door.fetch())


@path("Link.fetch(fetch_links=True)")
async def _(w: World) -> Any:
    house = await w.House.get(2)
    return shape(await house.door.fetch(fetch_links=True))


@path("Link.fetch_one()")
async def _(w: World) -> Any:
    window = await w.Window.get(2)
    return shape(await Link.fetch_one(window.lock))


@path("Link.fetch_list()")
async def _(w: World) -> Any:
    street = await w.Street.get(1)
    return shape(await Link.fetch_list(street.houses))


@path("Link.fetch_many()")
async def _(w: World) -> Any:
    street = await w.Street.get(1)
    return shape(await Link.fetch_many(street.houses))


@path("link_from_id() to an expired document")
async def _(w: World) -> Any:
    return shape(await w.Door.link_from_id(3).fetch())


@path("find() by the key in a link, not fetched")
async def _(w: World) -> Any:
    return keys(await w.House.find({"door.$id": 1}).to_list())


@path("save() with WriteRules.WRITE creates the linked documents")
async def _(w: World) -> Any:
    window = w.Window(id=3, width=1, lock=w.Lock(id=2, code=2))
    await w.House(id=3, name="new", door=w.Door(id=3, color="new"), windows=[window]).save(
        link_rule=WriteRules.WRITE
    )
    return [w.after(model) for model in (w.House, w.Door, w.Window, w.Lock)]


@path("insert() with WriteRules.WRITE creates the linked documents")
async def _(w: World) -> Any:
    await w.Window(id=4, width=1, lock=w.Lock(id=2, code=2)).insert(link_rule=WriteRules.WRITE)
    return [w.after(model) for model in (w.Window, w.Lock)]
