"""Models whose default is stored, the same with a bound value, their rows, and tenants' defaults.

Both are mapped to one table, as in `benchmarks.sql_models`, and by both the same rows are live.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import MetaData, String, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from benchmarks.sql_models import ROWS, ContractColumns, analyze, is_live
from ttl_odm import Stored
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.stored.sqlalchemy.tables import tables_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

DAY: Final = 86400
LONGEST: Final = 30 * DAY
"""The default of each table, in seconds."""

TENANTS: Final = 10_000

_OWN_TTL_EVERY = 7
_NEVER_EVERY = 20


class InDatabase(DeclarativeBase):
    """Models whose default is stored."""


class InCode(DeclarativeBase):
    """Models of the same tables whose default is a bound value."""


class ByHand(DeclarativeBase):
    """The same tables without a policy, to fill them."""

    metadata = MetaData(info={"ttl_odm": None})


class _Columns:
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tenant_id: Mapped[int]
    payload: Mapped[str] = mapped_column(String(200))
    amount: Mapped[int]


class Variant(NamedTuple):
    """A table, and how its defaults are stored.

    Attributes:
        what: What the report calls it.
        stored: The model whose default is stored.
        bound: The one that has it in the code.
        by_hand: One without a policy.
        tenants: How many of the tenants have a default of their own; None: there are no such.
        old: Whether its rows are older than the shortest default.
        tenant: Whose rows all of them are; None: each is of another tenant.
    """

    what: str
    stored: Any
    bound: Any
    by_hand: Any
    tenants: int | None
    old: bool
    tenant: int | None


def _variant(
    name: str, what: str, tenants: int | None, *, old: bool, tenant: int | None = None
) -> Variant:
    def model(base: Any, columns: Any, **members: object) -> Any:
        members["__tablename__"] = f"stored_{name}"
        return type(f"{name.title()}{base.__name__}", (columns, _Columns, base), members)

    if tenants is None:
        stored = Stored(LONGEST)
    else:
        stored = Stored(LONGEST, by="tenant_id", least=DAY, most=LONGEST)
    models = (
        model(InDatabase, TTLMixin, __ttl__=stored),
        model(InCode, TTLMixin, __ttl__=LONGEST),
        model(ByHand, ContractColumns),
    )
    return Variant(what, *models, tenants=tenants, old=old, tenant=tenant)


ONE: Final = _variant("one", "", None, old=False)
BY_TENANT: Final = tuple(
    _variant(
        f"{amount}_{age}",
        f"{tenants:,} defaults, {age} rows",
        tenants,
        old=age == "old",
    )
    for amount, tenants in (("tenth", TENANTS // 10), ("all", TENANTS))
    for age in ("young", "old")
)
ONE_TENANT: Final = _variant("tenant", "old rows", TENANTS, old=True, tenant=7)
VARIANTS: Final = (ONE, *BY_TENANT, ONE_TENANT)


def create_tables(engine: Engine) -> None:
    """Create all tables, fill them, store the tenants' defaults, and tell the planner.

    Args:
        engine: One that is used for nothing else.
    """
    InDatabase.metadata.create_all(engine)
    now, policies = datetime.now(timezone.utc), tables_of(ONE.stored.__table__).policies
    for variant in VARIANTS:
        table = variant.by_hand.__tablename__
        rows = [_row(key, now, variant) for key in range(1, ROWS + 1)]
        with engine.begin() as connection:
            connection.execute(insert(variant.by_hand), rows)
            if variant.tenants is not None:
                connection.execute(insert(policies), [*_defaults(table, variant.tenants, now)])
        analyze(engine, table)
    analyze(engine, policies.name)


def _row(key: int, now: datetime, variant: Variant) -> dict[str, Any]:
    """A row; whether it lives its key decides."""
    ttl = None
    if is_live(key) and key % _NEVER_EVERY == 0:
        ttl = -1
    elif is_live(key) and key % _OWN_TTL_EVERY == 0:
        ttl = LONGEST // 2
    age = timedelta(seconds=key % 3600, days=2 if variant.old else 0)
    if not is_live(key):
        age = timedelta(seconds=2 * LONGEST)
    tenant = variant.tenant
    return {
        "id": key,
        # Neighbours are of different tenants.
        "tenant_id": key * 7919 % TENANTS if tenant is None else tenant,
        "payload": f"{key:0>100}",
        "amount": key,
        "_ts": now - age,
        "ttl": ttl,
    }


def _defaults(table: str, tenants: int, now: datetime) -> Iterator[dict[str, Any]]:
    """The shortest is that of a tenant without rows, so that the same rows live by all of them."""
    ttls = {-1: DAY}
    for number in range(tenants):
        ttls[number * (TENANTS // tenants)] = LONGEST - number % 20 * DAY
    for tenant, ttl in ttls.items():
        yield {"name": table, "scope": str(tenant), "ttl": ttl, "changed_at": now}
