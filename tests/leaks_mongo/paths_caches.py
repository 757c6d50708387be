"""Caches: answers that Beanie keeps for a day, of documents that expire before that.

The third of `Quote` expires while its answers are kept, or the third of `Author`, who wrote it;
then the same is asked again. There are more paths through caches in `passing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from tests.leaks_mongo.paths_passing import twice
from tests.leaks_mongo.registry import key, keys, path

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World

LAST = 3
AUTHORS = {"from": "Author", "localField": "author.$id", "foreignField": "_id", "as": "by"}


class Text(BaseModel):
    """A projection that doesn't say when a quote expires."""

    text: str


def shape(quotes: list[Any]) -> list[Any]:
    """The keys of quotes, and what their authors are."""
    return sorted((each.id, getattr(each.author, "name", "->")) for each in quotes)


@path("caches: find() with a sort, a skip and a limit", answer=([1, 3], [1]))
async def _(w: World) -> Any:
    async def ask() -> Any:
        query = w.Quote.find(w.Quote.length > 1).sort("length").skip(0).limit(2)
        return keys(await query.to_list())

    return await twice(w, ask, w.Quote)


@path("caches: find_all(), all() and async for", answer=([[1, 3, 4]] * 3, [[1, 4]] * 3))
async def _(w: World) -> Any:
    async def ask() -> Any:
        read = [keys(await w.Quote.find_all().to_list()), keys(await w.Quote.all().to_list())]
        return [*read, sorted([key(each) async for each in w.Quote.find()])]

    return await twice(w, ask, w.Quote)


@path("caches: first_or_none()", answer=(3, 1))
async def _(w: World) -> Any:
    async def ask() -> Any:
        return key(await w.Quote.find().sort("-length").first_or_none())

    return await twice(w, ask, w.Quote)


@path("caches: find_one() of the first by a sort", answer=(3, 1))
async def _(w: World) -> Any:
    async def ask() -> Any:
        return key(await w.Quote.find_one({}, sort=[("length", -1)]))

    return await twice(w, ask, w.Quote)


@path("caches: find_one() with a projection model", answer=(("three", "three"), (None, None)))
async def _(w: World) -> Any:
    async def ask() -> Any:
        found = await w.Quote.find_one({"_id": LAST}, projection_model=Text)
        later = await w.Quote.find_one({"_id": LAST}).project(Text)
        return getattr(found, "text", None), getattr(later, "text", None)

    return await twice(w, ask, w.Quote)


@path("caches: find() projected afterwards", answer=(["four", "one", "three"], ["four", "one"]))
async def _(w: World) -> Any:
    async def ask() -> Any:
        return sorted(each.text for each in await w.Quote.find().project(Text).to_list())

    return await twice(w, ask, w.Quote)


@path("caches: find() with lazy_parse", answer=(["four", "one", "three"], ["four", "one"]))
async def _(w: World) -> Any:
    async def ask() -> Any:
        return sorted(each.text for each in await w.Quote.find(lazy_parse=True).to_list())

    return await twice(w, ask, w.Quote)


@path("caches: a class whose settings project it", answer=(([1, 3], 3), ([1], None)))
async def _(w: World) -> Any:
    async def ask() -> Any:
        return keys(await w.Excerpt.find().to_list()), key(await w.Excerpt.get(LAST))

    return await twice(w, ask, w.Excerpt)


@path(
    "caches: a class with its children", answer=(([1, 11, 13], [1], [11, 13]), ([1, 11], [1], [11]))
)
async def _(w: World) -> Any:
    async def ask() -> Any:
        family = await w.Meal.find(with_children=True).to_list()
        alone, children = await w.Meal.find().to_list(), await w.Soup.find().to_list()
        return keys(family), keys(alone), keys(children)

    return await twice(w, ask, w.Soup, 13)


BOTH = [(1, "ann"), (3, "cid"), (4, "->")]


@path("caches: fetched links of what has expired since", answer=(BOTH, [BOTH[0], BOTH[2]]))
async def _(w: World) -> Any:
    async def ask() -> Any:
        return shape(await w.Quote.find(fetch_links=True).to_list())

    return await twice(w, ask, w.Quote)


@path(
    "caches: fetched links to what has expired since", answer=(BOTH, [BOTH[0], (3, "->"), BOTH[2]])
)
async def _(w: World) -> Any:
    async def ask() -> Any:
        return shape(await w.Quote.find(fetch_links=True).to_list())

    return await twice(w, ask, w.Author)


@path("caches: find_one() and get() that fetch links", answer=([BOTH[1]] * 2, [(3, "->")] * 2))
async def _(w: World) -> Any:
    async def ask() -> Any:
        found = await w.Quote.find_one({"text": "three"}, fetch_links=True)
        return shape([found, await w.Quote.get(LAST, fetch_links=True)])

    return await twice(w, ask, w.Author)


@path("caches: fetch_link() and Link.fetch()", answer=(("cid", "Author"), ("->", "Link")))
async def _(w: World) -> Any:
    quote = await w.Quote.get(LAST)

    async def ask() -> Any:
        again = await w.Quote.get(LAST)
        await again.fetch_link("author")
        return shape([again])[0][1], type(await quote.author.fetch()).__name__

    return await twice(w, ask, w.Author)


@path("caches: aggregate() of a query", answer=(["one", "three"], ["one"]))
async def _(w: World) -> Any:
    async def ask() -> Any:
        query = w.Quote.find(w.Quote.length > 1)
        pipeline: list[Any] = [{"$sort": {"text": 1}}]
        return [
            each.text for each in await query.aggregate(pipeline, projection_model=Text).to_list()
        ]

    return await twice(w, ask, w.Quote)


@path("caches: aggregate() with a $lookup of what has expired since", answer=([1, 1, 0], [1, 0, 0]))
async def _(w: World) -> Any:
    async def ask() -> Any:
        found = await w.Quote.aggregate([{"$sort": {"_id": 1}}, {"$lookup": AUTHORS}]).to_list()
        return [len(each["by"]) for each in found]

    return await twice(w, ask, w.Author)


@path("caches: sum() and max() of a query", answer=((41, 30), (11, 10)))
async def _(w: World) -> Any:
    async def ask() -> Any:
        return await w.Quote.find().sum("length"), await w.Quote.find().max("length")

    return await twice(w, ask, w.Quote)


@path("caches: count(), exists() and distinct()", answer=((3, True, 3), (2, False, 2)))
async def _(w: World) -> Any:
    async def ask() -> Any:
        there = await w.Quote.find({"text": "three"}).exists()
        return await w.Quote.count(), there, len(await w.Quote.distinct("text"))

    return await twice(w, ask, w.Quote)


@path("caches: an answer whose document was written since", answer=([1, 3, 4], [1, 3, 4]), own=True)
async def _(w: World) -> Any:
    w.let_end_soon(w.Quote, LAST)
    before = keys(await w.Quote.find({}).to_list())
    await w.Quote.find_one({"_id": LAST}).update({"$set": {"length": 31}})
    w.let_moment_pass(w.Quote, LAST)
    return before, keys(await w.Quote.find({}).to_list())
