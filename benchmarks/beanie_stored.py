"""What stored defaults by tenant cost on Beanie: against the same documents with a bound value.

Both classes read one collection, each with a client of its own. Each of 1,000 tenants, the most
that there may be, has a default of its own. The documents are older than the shortest of these.
What was looked up may be used for a minute, so that the lookup itself doesn't count: that is one
more find by key. Needs Beanie 2 (PyMongo).
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import cycle
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from beanie import Document, init_beanie
from pymongo import AsyncMongoClient

from benchmarks.beanie_overhead import live_by_hand, sit_in, sittings
from benchmarks.bench import MONGODB
from benchmarks.findings import ratio
from benchmarks.goals import BEANIE_TENANT_KEY, BEANIE_TENANT_READ
from benchmarks.sql_models import DAY
from ttl_odm import Stored
from ttl_odm.beanie import TTLMixin, ensure_indexes, ttl_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from benchmarks.beanie_overhead import Operation
    from benchmarks.bench import Bench
    from benchmarks.findings import Finding, Goal
    from benchmarks.harness import Round

OVER_BOUND: Final = (
    "Beanie: one tenant's documents, stored defaults of 1,000 tenants / a bound value"
)
NOISE: Final = "Noise: the same with a bound value on MongoDB, twice"

_DOCUMENTS: Final = 10_000
_TENANTS: Final = 1_000
_WITH_DOCUMENTS: Final = 20
_LIST: Final = 100
_EXPIRES_EVERY: Final = 71
_INDEXES: Final = ("tenant",)
_KEYS: Final = [key for key in range(0, _DOCUMENTS, 7) if key % _EXPIRES_EVERY]


class Row(TTLMixin, Document):
    """With the defaults of tenants."""

    __ttl__ = Stored(DAY, by="tenant", max_staleness=60)
    __ttl_purge__ = "sweeper"

    id: int  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    tenant: str
    amount: int

    class Settings:
        """Beanie's settings."""

        name = "rows"
        indexes = _INDEXES


class Bound(TTLMixin, Document):
    """With one default, in code."""

    __ttl__ = 60 * DAY
    __ttl_purge__ = "sweeper"

    id: int  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    tenant: str
    amount: int

    class Settings:
        """Beanie's settings."""

        name = "rows"
        indexes = _INDEXES


class Plain(Document):
    """Without a policy, on the same collection."""

    id: int  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    tenant: str
    amount: int

    class Settings:
        """Beanie's settings."""

        name = "rows"
        indexes = _INDEXES


_looked_up: dict[str, tuple[int, float]] = {}
"""Defaults that were looked up by hand, each with when it has to be looked up again."""


async def _live(tenant: str) -> dict[str, Any]:
    """The filter for what lives of a tenant's, by hand."""
    default, until = _looked_up.get(tenant, (0, 0.0))
    if monotonic() >= until:
        policies = Plain.get_pymongo_collection().database["ttl_odm_policies"]
        policy = await policies.find_one({"_id": {"name": "rows", "scope": tenant}})
        default = DAY if policy is None else int(policy["ttl"])
        _looked_up[tenant] = default, monotonic() + 60
    return live_by_hand(default)


def _tenant(key: int) -> str:
    return f"tenant {key % _WITH_DOCUMENTS}"


def _cases() -> Iterator[tuple[str, Goal, dict[str, Operation]]]:
    """What is compared: reads by a tenant that changes."""
    keys = cycle(_KEYS)

    def ways(read: Any) -> dict[str, Operation]:
        async def by_hand() -> object:
            key = next(keys)
            return await read(Plain, key, **await _live(_tenant(key)))

        return {
            "stored": lambda: read(Row, next(keys)),
            "bound": lambda: read(Bound, next(keys)),
            "again": lambda: read(Bound, next(keys)),
            "by hand": by_hand,
        }

    yield (
        "find_one by key",
        BEANIE_TENANT_KEY,
        ways(
            lambda model, key, **live: model.find_one({"_id": key, "tenant": _tenant(key), **live})
        ),
    )
    yield (
        f"list of {_LIST}",
        BEANIE_TENANT_READ,
        ways(
            lambda model, key, **live: (
                model.find({"tenant": _tenant(key), **live}).limit(_LIST).to_list()
            )
        ),
    )
    yield (
        "scan: a sum",
        BEANIE_TENANT_READ,
        ways(lambda model, key, **live: model.find({"tenant": _tenant(key), **live}).sum("amount")),
    )
    yield (
        "scan: a count",
        BEANIE_TENANT_READ,
        ways(lambda model, key, **live: model.find({"tenant": _tenant(key), **live}).count()),
    )


@asynccontextmanager
async def _filled(url: str) -> AsyncIterator[None]:
    """A new database with the documents, dropped afterwards.

    Each side has a client of its own, for a collection has one policy in each.
    """
    name = f"ttl_odm_{uuid4().hex[:16]}"
    async with (
        AsyncMongoClient[dict[str, Any]](url) as client,
        AsyncMongoClient[dict[str, Any]](url) as other,
        AsyncMongoClient[dict[str, Any]](url) as plain,
    ):
        database = client[name]
        try:
            # Before anything is looked up: that is used for a minute.
            policies, whole = database["ttl_odm_policies"], {"name": "rows", "scope": ""}
            await policies.insert_many(
                {"_id": {**whole, "scope": f"tenant {number}"}, "ttl": (30 + number % 60) * DAY}
                for number in range(_TENANTS)
            )
            await policies.insert_one({"_id": whole, "version": 1})
            _looked_up.clear()
            await init_beanie(database=plain[name], document_models=[Plain])
            await init_beanie(database=ttl_database(other[name]), document_models=[Bound])
            await init_beanie(database=ttl_database(database), document_models=[Row])
            await ensure_indexes(Row)
            now = (await client.admin.command({"hello": 1}))["localTime"]
            born = {True: now - timedelta(days=5), False: now.replace(year=now.year - 30)}
            await database["rows"].insert_many(
                {
                    "_id": key,
                    "tenant": _tenant(key),
                    "amount": key,
                    "_ts": born[key % _EXPIRES_EVERY > 0],
                }
                for key in range(_DOCUMENTS)
            )
            yield
        finally:
            await client.drop_database(database)


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on MongoDB.

    Args:
        bench: what there is; nothing is measured without a MongoDB.
    """
    if bench.mongodb is None:
        return
    url, rounds = bench.mongodb, bench.scale.rounds

    def sit_once(found: dict[str, list[list[Round]]]) -> None:
        sit_in(_filled(url), ((what, ways) for what, _, ways in _cases()), rounds, found)

    found = sittings(bench, sit_once)
    for what, goal, _ in _cases():
        yield ratio(OVER_BOUND, what, MONGODB, found[what], "stored", "bound", goal)
        by_hand = f"{what}; looked up by hand"
        yield ratio(OVER_BOUND, by_hand, MONGODB, found[what], "by hand", "bound")
        yield ratio(NOISE, what, MONGODB, found[what], "again", "bound")
