"""Readers, writers and sweepers of families at once: nobody sees a part of one, or what has ended.

Each cart has a name that no other one has, and what belongs to it bears that name. The test knows
which carts have ended: who begins to read after that must not see the name any more, and who begins
to write under it must be refused. The library pauses at random after its commands, so that others
get in between.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import InsertOne
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure
from pymongo.monitoring import CommandListener
from pymongo.read_concern import ReadConcern

from tests.interleavings import STATEMENTS, Interleavings
from tests.mongo.following import LONG_AGO, Cart, Item, Note, families, ref, transaction
from tests.mongo.models import collection_of
from ttl_odm.beanie import ExpiredError
from ttl_odm.beanie.policy.commands import RawCollection
from ttl_odm.beanie.purge.errors import is_passing
from ttl_odm.follows.beanie.methods import FollowersMethods
from ttl_odm.follows.beanie.parents import Parents
from ttl_odm.sweeper import AsyncSweeper, TransientStoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable

    from tests.mongo.models import World
    from ttl_odm.sweeper import SweepReport

CARTS = 4
SIZE = 3
"""Items that a cart is put with, each with a note."""
LATER = 1_000
"""From this key on items come later, to a cart that is there."""
STRAY = 2_000
"""From this key on nobody asks whether there is a cart."""

WORKERS = 6
SEEDS = 2

_DUPLICATE = 11_000


class Commands(CommandListener):
    """Counts those that are sent, as many as the test wants."""

    def __init__(self) -> None:
        self.sent = Interleavings(STATEMENTS // SEEDS)

    def started(self, event: object) -> None:
        self.sent.note(event)

    def succeeded(self, event: object) -> None:
        """Nothing: it is counted already."""

    def failed(self, event: object) -> None:
        """Nothing: it is counted already."""


@pytest.fixture
def commands() -> Commands:
    return Commands()


@pytest.fixture
async def world(mongodb_url: str, commands: Commands) -> AsyncIterator[World]:
    """Give empty collections."""
    async with families(mongodb_url, listeners=[commands]) as made:
        for name in ("carts", "items", "notes"):  # they exist in each snapshot
            made.raw[name].insert_one({"_id": 0})
            made.raw[name].delete_one({"_id": 0})
        yield made


def pause_after_commands(monkeypatch: pytest.MonkeyPatch, random: Random) -> None:
    """Let others get in between the commands that make up one call."""

    def pausing(method: Any) -> Any:
        async def call_and_pause(*arguments: Any, **options: Any) -> Any:
            result = await method(*arguments, **options)
            if (chance := random.random()) < 0.3:  # and now and then for as long as a sweep takes
                await asyncio.sleep(random.uniform(0, 0.2 if chance < 0.02 else 0.02))
            return result

        return call_and_pause

    for owner, name in ((Parents, "_lives"), (FollowersMethods, "_choose"), (RawCollection, "run")):
        monkeypatch.setattr(owner, name, pausing(getattr(owner, name)))


@dataclass
class Truth:
    """What has become of the carts.

    Attributes:
        names: The last cart that was put, by its key.
        whole: Carts that nobody may see without all of their items.
        ended: Carts that have expired.
        ends: How often the cart of a key was made to expire, or is about to be.
        ends_done: The same without what is about to be.
        ends_before: What that was when a cart was put, by its name.
        tries: How often somebody began or ended to put a cart of a key.
        putting: Keys for which a cart is being put.
        writing: How many are writing under the cart of a key.
        puts: How many carts there were.
    """

    names: dict[int, str] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    ends: Counter[int] = field(default_factory=Counter)
    ends_done: Counter[int] = field(default_factory=Counter)
    ends_before: dict[str, int] = field(default_factory=dict)
    tries: Counter[int] = field(default_factory=Counter)
    putting: set[int] = field(default_factory=set)
    writing: Counter[int] = field(default_factory=Counter)
    puts: int = 0

    def new_name(self, key: int) -> str:
        """Name a cart that is about to be put."""
        self.puts += 1
        name = f"{key}.{self.puts}"
        self.ends_before[name] = self.ends_done[key]
        return name

    def is_being_put(self, name: str, tries: Counter[int]) -> bool:
        """Say whether another cart of a key was put after its tries were so many."""
        key = int(name.partition(".")[0])
        return key in self.putting or self.tries[key] != tries[key]

    def may_have_ended(self, key: int, name: str) -> bool:
        """Say whether somebody has made a cart expire, or was about to."""
        return self.ends[key] > self.ends_before[name]


@dataclass
class Worker:
    """One that does at random what readers, writers and sweepers do."""

    world: World
    truth: Truth
    random: Random

    async def run(self, sent: Interleavings) -> Counter[str]:
        """Return how many steps went through, by what they did.

        The others met somebody else's transaction, a key that is taken, or a cart that had expired.
        """
        actions: Any = (
            *(self.read_at_one_instant, self.read_as_anybody, self.put, self.put, self.end),
            *(self.add, self.add, self.move, self.move, self.touch, self.stray, self.sweep),
        )
        done: Counter[str] = Counter()
        while not sent.are_enough:
            action = self.random.choice(actions)
            try:
                is_done = await action()
            except BulkWriteError as error:
                codes = {one["code"] for one in (error.details or {})["writeErrors"]}
                assert codes == {_DUPLICATE}
            except DuplicateKeyError:
                pass
            except OperationFailure as error:
                if not is_passing(error):
                    raise
            else:
                done[action.__name__] += is_done is not False
            await asyncio.sleep(0)
        return done

    def some_cart(self) -> int:
        return self.random.randrange(CARTS)

    # Reading

    async def read_at_one_instant(self) -> None:
        """Each snapshot has whole families alone."""
        ended, whole = {*self.truth.ended}, {*self.truth.whole}
        async with transaction(self.world, read_concern=ReadConcern("snapshot")) as session:
            carts, items, notes = [await stored(model, session) for model in (Cart, Item, Note)]
            there = [await stored(model, session, expired=True) for model in (Cart, Item, Note)]
        check_families(carts, items, notes)
        assert {cart["name"] for cart in carts}.isdisjoint(ended)
        firsts = Counter(item["name"] for item in items if item["_id"] < LATER)
        of_notes = Counter(note["text"] for note in notes if note["_id"] < LATER)
        for name in {cart["name"] for cart in carts} & whole:
            assert (firsts[name], of_notes[name]) == (SIZE, SIZE), name
        # What has expired is there without its parent just as little, whoever may see it.
        check_families(*there, only=whole)

    async def read_as_anybody(self) -> None:
        """Without a snapshot, nobody sees what had ended before.

        But a pipeline reads one collection after the other. Where a cart takes the key of an
        expired one between the two, what it has read of the old one has a parent that lives.
        """
        ended, tries = {*self.truth.ended}, Counter(self.truth.tries)
        read: Callable[[], Awaitable[Iterable[str]]] = self.random.choice(
            (self._find, self._fetch, self._distinct, self._look_up, self._find_notes)
        )
        seen = {name for name in await read() if name in ended}
        assert not [name for name in seen if not self.truth.is_being_put(name, tries)], read

    async def _find(self) -> Iterable[str]:
        return [item.name for item in await Item.find().to_list()]

    async def _fetch(self) -> Iterable[str]:
        found: Any = await Item.find(fetch_links=True).to_list()
        # A cart that ends between the two lookups of the pipeline isn't fetched any more.
        carts = [item.cart.name for item in found if isinstance(item.cart, Cart)]
        return [*carts, *(item.name for item in found)]

    async def _distinct(self) -> Iterable[str]:
        names: list[str] = await collection_of(Item).distinct("name")
        return names

    async def _look_up(self) -> Iterable[str]:
        look: Any = {"from": "items", "localField": "_id", "foreignField": "cart.$id", "as": "all"}
        carts = await rows(collection_of(Cart).aggregate([{"$lookup": look}]))
        return [one["name"] for cart in carts for one in (cart, *cart["all"])]

    async def _find_notes(self) -> Iterable[str]:
        return [note.text for note in await Note.find().to_list()]

    # Writing

    async def put(self) -> bool:
        """Put a cart with all that belongs to it, where there is none or an expired one."""
        key, truth = self.some_cart(), self.truth
        if key in truth.putting or truth.writing[key]:
            return False
        name = truth.new_name(key)
        truth.putting.add(key)
        truth.tries[key] += 1
        try:
            if self.random.random() < 0.5:
                await self._put_at_once(key, name)
            else:
                await self._put_one_by_one(key, name)
            truth.whole.add(name)
        except ExpiredError:
            assert truth.may_have_ended(key, name)
            return False
        finally:
            truth.putting.remove(key)
            truth.tries[key] += 1
        return True

    async def _put_at_once(self, key: int, name: str) -> None:
        self.truth.whole.add(name)
        async with transaction(self.world) as session:
            await Cart(id=key, name=name).insert(session=session)
            items, notes = family(key, name)
            await Item.insert_many(items, session=session)
            await Note.insert_many(notes, session=session)
        self.truth.names[key] = name

    async def _put_one_by_one(self, key: int, name: str) -> None:
        await Cart(id=key, name=name).insert()
        self.truth.names[key] = name
        for item, note in zip(*family(key, name), strict=True):
            await item.insert()
            await note.insert()

    async def add(self) -> bool:
        """Put one item more under a cart; and one goes."""
        key, item = self.some_cart(), LATER + self.random.randrange(4)
        await collection_of(Item).delete_one({"_id": item})

        async def insert(name: str) -> bool:
            items = collection_of(Item)
            document = {"_id": item, "cart": ref(key), "name": name}
            change = {"$set": {"cart": ref(key), "name": name}}
            way = self.random.randrange(5)
            if way == 0:
                await Item(id=item, cart=ref(key), name=name).insert()
            elif way == 1:
                await items.insert_many([document])
            elif way == 2:
                await items.bulk_write([InsertOne(document)])
            elif way == 3:
                await items.update_one({"_id": item}, change, upsert=True)
            else:
                await items.find_one_and_replace({"_id": item}, document, upsert=True)
            return True

        return await self._write_under(key, insert)

    async def move(self) -> bool:
        """Move an item to another cart."""
        key, item = self.some_cart(), LATER + self.random.randrange(4)

        async def change(name: str) -> bool:
            items, fields = collection_of(Item), {"cart": ref(key), "name": name}
            way = self.random.randrange(4)
            if way == 0:
                return bool((await items.update_one({"_id": item}, {"$set": fields})).matched_count)
            if way == 1:
                many = {"_id": {"$gte": LATER, "$lte": item}}
                return bool((await items.update_many(many, {"$set": fields})).matched_count)
            if way == 2:
                return bool((await items.replace_one({"_id": item}, fields)).matched_count)
            return await items.find_one_and_update({"_id": item}, {"$set": fields}) is not None

        return await self._write_under(key, change)

    async def touch(self) -> bool:
        """Restart the life of a cart."""
        key = self.some_cart()

        async def change(_: str) -> bool:
            result = await collection_of(Cart).update_one({"_id": key}, {"$set": {"touched": 1}})
            return bool(result.matched_count)

        return await self._write_under(key, change)

    async def _write_under(self, key: int, write: Callable[[str], Awaitable[bool]]) -> bool:
        """See that a write succeeds only where the cart had not ended, and always where it lives.

        Nobody puts another cart in its place meanwhile: under that the item would be right.
        """
        truth, name = self.truth, self.truth.names.get(key)
        if name is None or key in truth.putting:
            return False
        had_ended = name in truth.ended
        truth.writing[key] += 1
        try:
            is_done = await write(name)
        except ExpiredError:
            assert truth.may_have_ended(key, name)
            return False
        finally:
            truth.writing[key] -= 1
        assert not (is_done and had_ended), name
        return is_done

    async def stray(self) -> None:
        """Have an item without a cart, or with one, as another program would."""
        item = STRAY + self.random.randrange(CARTS)
        raw = self.world.raw
        document = {"_id": item, "cart": ref(item - STRAY), "name": "stray"}
        note = {"_id": item, "item": item, "text": "stray"}
        await asyncio.to_thread(raw["items"].insert_one, document)
        await asyncio.to_thread(raw["notes"].insert_one, note)

    # What time and sweepers do

    async def end(self, key: int | None = None) -> None:
        key = self.some_cart() if key is None else key
        self.truth.ends[key] += 1
        carts, expired = self.world.raw["carts"], {"$set": {"_ts": LONG_AGO}}
        cart = await asyncio.to_thread(carts.find_one_and_update, {"_id": key}, expired)
        if cart is not None:
            self.truth.ended.add(cart["name"])
        self.truth.ends_done[key] += 1

    async def sweep(self) -> bool:
        size = self.random.choice([1, 2, 5, 100])
        return was_clean(await sweeper(self.world, batch_size=size, max_rows=50).run_once())


def family(key: int, name: str) -> tuple[list[Item], list[Note]]:
    """Return what belongs to a new cart."""
    numbers = range(key * 100, key * 100 + SIZE)
    items = [Item(id=number, cart=ref(key), name=name) for number in numbers]
    return items, [Note(id=number, item_id=number, text=name) for number in numbers]


async def rows(cursor: Any) -> list[Any]:
    """Read a cursor, which PyMongo has to be awaited for."""
    found: list[Any] = await (await cursor if inspect.isawaitable(cursor) else cursor).to_list(None)
    return found


async def stored(model: Any, session: Any, *, expired: bool = False) -> list[Any]:
    """Return what a snapshot has; with what has expired, if that is wanted."""
    return await rows(collection_of(model).find({}, session=session, include_expired=expired))


def check_families(
    carts: list[Any], items: list[Any], notes: list[Any], *, only: Container[str] | None = None
) -> None:
    """See that everything has the parent that it was made for; or only what is of some carts."""
    names = {cart["_id"]: cart["name"] for cart in carts}
    of_items = {item["_id"]: item["name"] for item in items}
    for item in items:
        if item["_id"] < STRAY and (only is None or (item["_id"] < LATER and item["name"] in only)):
            assert names.get(item["cart"].id) == item["name"], (item, names)
    for note in notes:
        if only is None or note["text"] in only:
            assert of_items.get(note["item"]) == note["text"], (note, of_items)


def sweeper(world: World, **options: Any) -> AsyncSweeper:
    return AsyncSweeper(world.database, [Cart, Item, Note], lease=False, **options)


def was_clean(report: SweepReport) -> bool:
    """Say whether a sweep met nobody else; whatever else goes wrong is an error."""
    errors = [report.error, *(target.error for target in report.targets)]
    for error in errors:
        if error is not None and not isinstance(error, TransientStoreError):
            raise error
    return not any(errors)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_no_reader_sees_part_of_a_family(
    world: World, commands: Commands, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    randoms = [Random(f"{seed}-{number}") for number in range(WORKERS + 1)]  # noqa: S311
    pause_after_commands(monkeypatch, randoms.pop())
    workers = [Worker(world, truth, random) for truth in [Truth()] for random in randoms]
    running = [asyncio.ensure_future(worker.run(commands.sent)) for worker in workers]
    try:
        done = sum(await asyncio.gather(*running), Counter())
    finally:
        for task in running:  # one has failed: no transaction of the others is to stay open
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    assert done
    for key in range(CARTS):
        await workers[0].end(key)
    assert was_clean(await sweeper(world).run_once())
    left = [world.raw[name].count_documents({}) for name in ("carts", "items", "notes")]
    assert left == [0, 0, 0]
