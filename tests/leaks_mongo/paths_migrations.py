"""Migrations of Beanie's: by the application's classes, or by plain ones that keep lifetimes.

All rename the field `title` of `Shelf`, of whose documents 2 and 4 have expired. What plain classes
write by `beanie migrate` has the lifetimes that it had; nothing is hidden from these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beanie import Document, free_fall_migration, init_beanie, iterative_migration

from tests.leaks_mongo.registry import key, keys, path

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World


def renaming(before: Any, after: Any, **options: Any) -> Any:
    """An iterative migration from one class to another."""

    async def renamed(input_document: Any, output_document: Any) -> None:
        old, new = (("title", "headline"), ("headline", "title"))["headline" in before.model_fields]
        setattr(output_document, new, getattr(input_document, old))

    renamed.__annotations__ |= {"input_document": before, "output_document": after}
    return iterative_migration(**options)(renamed)


def plain_classes() -> tuple[type[Document], type[Document]]:
    """Two classes as Beanie's documentation has them, before and after."""

    class OldTitle(Document):
        id: int
        title: str

        class Settings:
            name = "Shelf"

    class NewTitle(Document):
        id: int
        headline: str

        class Settings:
            name = "Shelf"

    return OldTitle, NewTitle


async def migrated(w: World) -> None:
    """Rename the field by plain classes."""
    async with w.migrated(w.Shelf) as database:
        old, new = plain_classes()
        await init_beanie(database=database, document_models=[old, new])
        await renaming(old, new).run(session=None)


def shown(documents: list[Any]) -> list[Any]:
    """Keys and headlines."""
    return sorted((each.id, each.headline) for each in documents)


@path("migrations: an iterative one by the application's classes")
async def _(w: World) -> Any:
    await renaming(w.Shelf, w.NewShelf).run(session=None)
    return w.after(w.NewShelf), shown(await w.NewShelf.find_all().to_list())


@path("migrations: an iterative one that writes each document by itself")
async def _(w: World) -> Any:
    await renaming(w.Shelf, w.NewShelf, batch_size=1).run(session=None)
    return w.after(w.NewShelf), await w.NewShelf.count()


@path("migrations: an iterative one in a transaction")
async def _(w: World) -> Any:
    async with w.transaction() as session:
        await renaming(w.Shelf, w.NewShelf).run(session=session)
    return w.after(w.NewShelf), shown(await w.NewShelf.find_all().to_list())


@path("migrations: forward and back")
async def _(w: World) -> Any:
    await renaming(w.Shelf, w.NewShelf).run(session=None)
    await renaming(w.NewShelf, w.Shelf).run(session=None)
    found = await w.Shelf.find_all().to_list()
    return w.after(w.Shelf), sorted((each.id, each.title) for each in found)


@path("migrations: a free one")
async def _(w: World) -> Any:
    async def free(session: Any) -> None:
        await w.Shelf.find(w.Shelf.title > "p", session=session).update({"$set": {"title": "z"}})
        async for shelf in w.Shelf.find_all(session=session):
            shelf.title += "!"
            await shelf.save(session=session)
        await w.Shelf(id=2, title="again").insert(session=session)

    async with w.session() as session:
        await free_fall_migration(document_models=[w.Shelf])(free).run(session=session)
    return w.after(w.Shelf)


@path("migrations: what find(), get() and find_one() show after one by plain classes")
async def _(w: World) -> Any:
    await migrated(w)
    found = [await w.NewShelf.get(number) for number in range(1, 7)]
    one = await w.NewShelf.find_one({"headline": "two"})
    return shown(await w.NewShelf.find_all().to_list()), [key(each) for each in found], key(one)


@path("migrations: what count(), distinct() and aggregate() show after one by plain classes")
async def _(w: World) -> Any:
    await migrated(w)
    headlines = sorted(await w.NewShelf.distinct("headline"))
    longer = await w.NewShelf.aggregate([{"$match": {"headline": {"$gt": "o"}}}]).to_list()
    return await w.NewShelf.count(), headlines, keys(longer)


@path("migrations: an insert with the key of an expired document after one by plain classes")
async def _(w: World) -> Any:
    await migrated(w)
    await w.NewShelf(id=2, headline="again").insert()
    return shown(await w.NewShelf.find_all().to_list())


@path("migrations: updates and deletes after one by plain classes")
async def _(w: World) -> Any:
    await migrated(w)
    updated = await w.NewShelf.find_all().update({"$set": {"headline": "new"}})
    deleted = await w.NewShelf.find({"_id": {"$gt": 3}}).delete()
    left = shown(await w.NewShelf.find_all().to_list())
    return updated.modified_count, deleted.deleted_count, left


@path("migrations: plain classes there and back")
async def _(w: World) -> Any:
    await migrated(w)
    async with w.migrated(w.Shelf) as database:
        old, new = plain_classes()
        await init_beanie(database=database, document_models=[old, new])
        await renaming(new, old).run(session=None)
    found = await w.Shelf.find_all().to_list()
    return sorted((each.id, each.title) for each in found)
