"""How what ttl_odm does on MongoDB grows: as in `benchmarks.growth`, with Beanie.

Collections are filled by the server, from a few documents that it multiplies.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing, contextmanager
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import uuid4

from beanie import Document, init_beanie
from pymongo import AsyncMongoClient, MongoClient
from pymongo.monitoring import CommandListener

from benchmarks import growth_rows, growth_tables
from benchmarks.beanie_overhead import sit_in
from benchmarks.bench import MONGODB, tell
from benchmarks.exponents import Curve, grown
from benchmarks.growth_rows import DAY, LONGEST, ROWS, TENANTS, keys_of
from benchmarks.growth_sweepers import Holders, contests, told
from ttl_odm import Stored
from ttl_odm.beanie import TTLMixin, ensure_indexes, set_policy, ttl_database
from ttl_odm.beanie.sweep.leases import CollectionLeases
from ttl_odm.sweeper import AsyncSweeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from benchmarks.bench import Scale, Sizes
    from benchmarks.findings import Finding
    from benchmarks.growth_tables import Seconds
    from benchmarks.harness import Round
    from ttl_odm.sweeper import Lease

_MULTIPLIED: Final = 1_000
_MOST_TENANTS: Final = 1_000
"""A collection can't have more defaults: all of them are in each filter, which grows with them."""

_BY_TENANT: Final = {"read by key": 1, "list of 100": 1, "idle sweep": 1}
CURVES: Final = tuple(
    curve._replace(designed=_BY_TENANT[curve.what]) if curve.over == TENANTS else curve
    for curve in growth_rows.CURVES
)


@cache
def document_of(over: str, size: int) -> Any:
    """The class of a size.

    Args:
        over: what there is so much of.
        size: how many documents, or tenants.
    """
    stored = Stored(LONGEST, by="tenant_id", least=DAY, most=LONGEST)

    class Grown(TTLMixin, Document):
        __ttl__: ClassVar[Any] = stored if over == TENANTS else DAY
        __ttl_purge__ = "sweeper"

        id: int  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
        payload: str
        tenant_id: int

        class Settings:
            name = f"{over}_{size}"

    return Grown


def measure(url: str, scale: Scale) -> Iterator[Finding]:
    """Measure on MongoDB.

    Args:
        url: the server's.
        scale: how much.
    """
    tell(f"  {MONGODB}: documents and tenants")
    yield from _documents(url, scale)


@contextmanager
def database_of(url: str) -> Iterator[str]:
    """A new database, as a word with the server's URL and the database's name.

    Args:
        url: the server's.
    """
    name = f"ttl_odm_{uuid4().hex[:16]}"
    with MongoClient[Any](url) as client:
        yield f"{url} {name}"
        client.drop_database(name)


@asynccontextmanager
async def _opened(words: str, models: Sequence[Any]) -> AsyncIterator[Any]:
    """A database with these classes."""
    url, name = words.split(" ")
    async with AsyncMongoClient[Any](url, w=1, journal=False) as client:
        database = ttl_database(client[name])
        await init_beanie(database=database, document_models=[*models])
        yield database


def _documents(url: str, scale: Scale) -> Iterator[Finding]:
    """What grows with the documents, and with the tenants who have a default of their own."""
    sizes = scale.sizes
    found: dict[Curve, list[list[Round]]] = {curve: [] for curve in (*CURVES, growth_rows.SWEEP)}
    models = {(over, size): document_of(over, size) for over, size in _collections(sizes)}
    swept = document_of("swept", 0)
    with database_of(url) as words:
        asyncio.run(_fill(words, models, sizes))
        for number in range(scale.sittings):
            _sit(words, models, scale, number, found)
            deleted = growth_rows.sizes_in(number, growth_rows.SWEEP, sizes.swept)
            taken = asyncio.run(_swept(words, swept, deleted))
            found[growth_rows.SWEEP].append([taken])
    for curve, sittings in found.items():
        yield from grown(curve, MONGODB, _sizes_of(curve, sizes), sittings)


def _sizes_of(curve: Curve, sizes: Sizes) -> Sequence[int]:
    if curve.over == TENANTS:
        return sorted({min(size, _MOST_TENANTS) for size in sizes.tenants})
    return growth_rows.sizes_of(curve, sizes)


def _collections(sizes: Sizes) -> Iterator[tuple[str, int]]:
    for curve in CURVES:
        for size in _sizes_of(curve, sizes):
            yield curve.over, size


async def _fill(words: str, models: dict[tuple[str, int], Any], sizes: Sizes) -> None:
    async with _opened(words, list(models.values())) as database:
        for (over, size), model in models.items():
            if over == ROWS:
                await _multiply(database, f"{over}_{size}", size, age=DAY // 2, tenants=1)
                await ensure_indexes(model)
                continue
            await _multiply(database, f"{over}_{size}", sizes.rows[0], age=2 * DAY, tenants=size)
            await ensure_indexes(model)
            for tenant in range(1, size):  # with the one below there are so many
                ttl = LONGEST - tenant % 20 * DAY
                await set_policy(model, ttl, scope=tenant, by="the benchmark")
            await set_policy(model, DAY, scope=-1, by="the benchmark")


async def _multiply(database: Any, name: str, rows: int, *, age: int, tenants: int) -> None:
    """Fill a collection with documents that were written some time ago, one after the other."""
    plain, seeds = database.client[database.name], f"{name}_seeds"
    await plain.drop_collection(name)
    each = min(rows, _MULTIPLIED)
    await plain[seeds].insert_many([{"_id": number} for number in range(-(-rows // each))])
    number = {"$add": [{"$multiply": ["$_id", each]}, "$n", 1]}
    milliseconds = {"$subtract": [age * 1000, {"$multiply": ["$_id", 3_600_000 / rows]}]}
    stages: list[dict[str, Any]] = [
        {"$project": {"n": {"$range": [0, each]}}},
        {"$unwind": "$n"},
        {"$project": {"_id": number}},
        {"$match": {"_id": {"$lte": rows}}},
        {
            "$project": {
                "payload": "some payload " * 8,
                "tenant_id": {"$mod": ["$_id", tenants]},
                "_ts": {"$subtract": ["$$NOW", {"$toLong": milliseconds}]},
            }
        },
        {"$out": name},
    ]
    cursor = await plain[seeds].aggregate(stages)
    await cursor.to_list()
    await plain.drop_collection(seeds)


def _sit(
    words: str,
    models: dict[tuple[str, int], Any],
    scale: Scale,
    number: int,
    found: dict[Curve, list[list[Round]]],
) -> None:
    """Measure all curves once."""
    for curve in CURVES:
        sizes = growth_rows.sizes_in(number, curve, _sizes_of(curve, scale.sizes))
        ways = {str(size): _operation(curve, models[curve.over, size], size) for size in sizes}
        taken: dict[str, list[list[Round]]] = {}
        opened = _opened(words, list(models.values()))
        if curve in growth_rows.COUNTS:  # which may take twenty seconds
            few = min(scale.rounds, growth_rows.FEW)
            sit_in(opened, [(curve.line, ways)], few, taken, lead_in=0)
        else:
            sit_in(opened, [(curve.line, ways)], scale.rounds, taken)
        found[curve] += taken[curve.line]


def _operation(curve: Curve, model: Any, size: int) -> Callable[[], Any]:
    """What is timed."""
    keys = keys_of(size if curve.over == ROWS else 1)
    operations: dict[str, Callable[[], Any]] = {
        "read by key": lambda: model.find_one({"_id": next(keys)}),
        "list of 100": lambda: model.find({"_id": {"$gte": next(keys)}}).limit(100).to_list(),
        "count": lambda: model.find({}).count(),
        "count without TTL": lambda: _plain(model).count_documents({}),
        "idle sweep": lambda: _sweep(model),
    }
    return operations[curve.what]


def _plain(model: Any) -> Any:
    """The collection of a class, ungated."""
    database = model.get_pymongo_collection().database
    return database.client[database.name][model.Settings.name]


async def _sweep(model: Any) -> int:
    database = model.get_pymongo_collection().database
    report = await AsyncSweeper(database, model, lease=False).run_once()
    report.raise_for_failures()
    return report.deleted


async def _swept(words: str, model: Any, sizes: Sequence[int]) -> Round:
    """The seconds per document of sweeps that delete so many."""
    found = {}
    async with _opened(words, [model]) as database:
        for size in sizes:
            await _multiply(database, model.Settings.name, size, age=2 * DAY, tenants=1)
            await ensure_indexes(model)
            begin = perf_counter()
            deleted = await _sweep(model)
            found[str(size)] = (perf_counter() - begin) / deleted
    return found


def document_steps(words: str, size: int, *, is_plain: bool) -> Seconds:
    """What `benchmarks.growth_tables` times, with collections.

    Args:
        words: what `database_of` gave.
        size: how many collections.
        is_plain: whether they have no TTL.
    """
    return asyncio.run(_steps(words, size, is_plain=is_plain))


async def _steps(words: str, size: int, *, is_plain: bool) -> Seconds:
    url, name = words.split(" ")
    took = growth_tables.Steps()
    async with AsyncMongoClient[Any](url, w=1, journal=False) as client:
        await client.admin.command("ping")
        database = client[name] if is_plain else ttl_database(client[name])
        bases = (Document,) if is_plain else (TTLMixin, Document)
        took.begin()
        models: list[Any] = [
            type(
                f"Model{number}",
                bases,
                {
                    "__module__": __name__,
                    "__ttl__": DAY,
                    "__ttl_purge__": "sweeper",
                    "__annotations__": {"payload": str},
                },
            )
            for number in range(size)
        ]
        await init_beanie(database=database, document_models=models)
        took.end(growth_tables.MAPPING)
        for model in models:
            await (
                client[name].create_collection(model.__name__)
                if is_plain
                else ensure_indexes(model)
            )
        took.end(growth_tables.CREATING)
        await models[-1].find({}).to_list()
        took.end(growth_tables.FIRST)
        for step in () if is_plain else (growth_tables.FIRST_SWEEP, growth_tables.SWEEP):
            sweeper = AsyncSweeper(database, models, lease=False)
            took.begin()
            (await sweeper.run_once()).raise_for_failures()
            took.end(step)
    return took.seconds


class _Watched(CollectionLeases):
    """The leases of a database, and who holds one."""

    def __init__(self, database: Any, holders: Holders) -> None:
        super().__init__(database)
        self._holders = holders

    async def acquire(self, name: str, holder: str, duration: float) -> Lease | None:
        lease = await super().acquire(name, holder, duration)
        if lease is not None:
            self._holders.add(1)
        return lease

    async def release(self, lease: Lease) -> None:
        self._holders.add(-1)
        await super().release(lease)

    async def finish(self, lease: Lease, history: str) -> bool:
        self._holders.add(-1)
        return await super().finish(lease, history)


class _Commands(CommandListener):
    """Counts commands."""

    def __init__(self) -> None:
        self.number = 0

    def started(self, event: Any) -> None:  # noqa: ARG002 (PyMongo's)
        self.number += 1

    def succeeded(self, event: Any) -> None:
        """It was counted already."""

    def failed(self, event: Any) -> None:
        """The same."""


def sweepers(url: str, scale: Scale) -> Iterator[Finding]:
    """Let many sweepers begin at once.

    Args:
        url: the server's.
        scale: how much.
    """
    holders, model, commands = Holders(), document_of(ROWS, 0), _Commands()
    with database_of(url) as words, closing(asyncio.new_event_loop()) as loop:
        client = AsyncMongoClient[Any](url, event_listeners=[commands])
        database = ttl_database(client[words.split(" ")[1]])
        loop.run_until_complete(init_beanie(database=database, document_models=[model]))
        loop.run_until_complete(ensure_indexes(model))

        async def contest(size: int) -> None:
            await asyncio.gather(*[sweep() for _ in range(size)])

        async def sweep() -> None:
            leases = _Watched(database, holders)
            (await AsyncSweeper(database, model, lease=leases).run_once()).raise_for_failures()

        def once(size: int) -> tuple[float, float]:
            before, begin = commands.number, perf_counter()
            loop.run_until_complete(contest(size))
            return perf_counter() - begin, (commands.number - before) / size

        once(max(scale.sizes.sweepers))  # all connect
        times, counts = contests(once, scale)
        loop.run_until_complete(client.close())
    yield from told(MONGODB, scale, times, counts, holders)
