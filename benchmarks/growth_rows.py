"""Tables that differ in their rows, or in their tenants, and what is timed on each of them.

This module as a program is the process of a sitting, as `benchmarks.workers` has them.
"""

from __future__ import annotations

import random
from datetime import datetime, timezone
from functools import cache
from itertools import cycle
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import String, bindparam, create_engine, func, insert, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from benchmarks.exponents import Curve
from benchmarks.harness import rotated, timed
from benchmarks.sql_models import analyze
from benchmarks.sql_samples import reading
from benchmarks.sweeping_tables import insert_rows
from benchmarks.workers import serve
from ttl_odm import Stored
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.stored.sqlalchemy.tables import tables_of
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Engine, Executable

    from benchmarks.bench import Sizes
    from benchmarks.harness import Sample

    Timed = Callable[[Engine, Any, int], Sample]
    """Times something of a model with so many rows, by an engine of its own."""

DAY: Final = 86_400
LONGEST: Final = 30 * DAY
"""The default of the tables with tenants, in seconds; that of a tenant may be some days less."""

FEW: Final = 2
"""Rounds of a count in a sitting: it reads the whole table each time."""

_LIST: Final = 100
_KEYS: Final = 1_000

ROWS: Final = "rows"
TENANTS: Final = "tenants"

COUNT: Final = Curve("count", ROWS, 1, "ms")
PLAIN_COUNT: Final = Curve("count without TTL", ROWS, None, "ms")
COUNTS: Final = (COUNT, PLAIN_COUNT)
SWEEP: Final = Curve("sweep, per row", ROWS, 0)
PLAIN_SWEEP: Final = Curve("sweep, per row without TTL", ROWS, None)
"""One DELETE, as somebody sends who has no sweeper."""

_UNDOABLE: Final = 3
"""Sizes at which one DELETE leaves room for its undo log: up to a million rows."""

SWEEPS: Final = (SWEEP, PLAIN_SWEEP)
CURVES: Final = (
    Curve("read by key", ROWS, 0),
    Curve("list of 100", ROWS, 0),
    Curve("idle sweep", ROWS, 0),
    *COUNTS,
    Curve("read by key", TENANTS, 0),
    Curve("list of 100", TENANTS, 0),
    Curve("idle sweep", TENANTS, 1),
)
"""What is timed in a process of its own."""


class Base(DeclarativeBase):
    """The models with a default in the code."""


class StoredBase(DeclarativeBase):
    """The models with stored ones."""


class _Columns:
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    payload: Mapped[str] = mapped_column(String(100))


@cache
def model_of(over: str, size: int) -> Any:
    """The model of a size.

    Args:
        over: what there is so much of.
        size: how many rows, or tenants.
    """
    names = {"__module__": __name__, "__tablename__": f"{over}_{size}"}
    if over == ROWS:
        return type(f"Rows{size}", (TTLMixin, _Columns, Base), {**names, "__ttl__": DAY})
    members = {
        **names,
        "__ttl__": Stored(LONGEST, by="tenant_id", least=DAY, most=LONGEST),
        "__annotations__": {"tenant_id": Mapped[int]},
    }
    return type(f"Tenants{size}", (TTLMixin, _Columns, StoredBase), members)


def sizes_of(curve: Curve, sizes: Sizes) -> Sequence[int]:
    """The sizes at which a curve is measured.

    Args:
        curve: one of those above.
        sizes: all that there are.
    """
    if curve in SWEEPS:
        return sizes.swept if curve == SWEEP else sizes.swept[:_UNDOABLE]
    return sizes.rows if curve.over == ROWS else sizes.tenants


def sizes_in(number: int, curve: Curve, sizes: Sequence[int]) -> Sequence[int]:
    """The sizes at which a sitting measures a curve, one after the other.

    Args:
        number: the sitting.
        curve: the curve; the largest sweep and the largest count take minutes, and are measured in
            the first sitting only.
        sizes: all that there are.
    """
    is_long = curve == SWEEP or curve in COUNTS
    return rotated(sizes[:-1] if is_long and number else sizes, number)


def create_tables(engine: Engine, sizes: Sizes) -> None:
    """Create and fill the tables of all sizes, and store the tenants' defaults.

    Rows of the first kind are younger than their default. Those with tenants are older than the
    shortest, so each read has to look up their tenant's, by which they live.

    Args:
        engine: one that is used for nothing else.
        sizes: of which tables there are.
    """
    models = {size: model_of(ROWS, size) for size in sizes.rows}
    by_tenants = {size: model_of(TENANTS, size) for size in sizes.tenants}
    Base.metadata.create_all(engine)
    StoredBase.metadata.create_all(engine)
    for rows, model in models.items():
        insert_rows(engine, model.__tablename__, rows, age=DAY // 2)
    for tenants, model in by_tenants.items():
        table, of_tenant = model.__tablename__, {"tenant_id": f"i % {tenants}"}
        insert_rows(engine, table, sizes.rows[0], age=2 * DAY, more=of_tenant)
        policies = tables_of(model.__table__).policies
        with engine.begin() as connection:
            connection.execute(insert(policies), [*_defaults(table, tenants)])
        analyze(engine, policies.name)


def _defaults(table: str, tenants: int) -> Iterator[dict[str, Any]]:
    """Each tenant's; the shortest is that of one without rows."""
    now = datetime.now(timezone.utc)
    yield {"name": table, "scope": "-1", "ttl": DAY, "changed_at": now}
    for tenant in range(tenants):
        ttl = LONGEST - tenant % 20 * DAY
        yield {"name": table, "scope": str(tenant), "ttl": ttl, "changed_at": now}


def question(curve: Curve, size: int, sizes: Sizes) -> str:
    """What the process of a sitting is asked for.

    Args:
        curve: what to time.
        size: at which size.
        sizes: all that there are.
    """
    rows = size if curve.over == ROWS else sizes.rows[0]
    return f"{curve.over}/{curve.what}/{size}/{rows}"


def keys_of(rows: int) -> Iterator[int]:
    """Keys from all over a table, behind each of which a list of 100 follows where it has as many.

    Args:
        rows: how many it has, with keys from 1 on.
    """
    chance = random.Random(rows)  # noqa: S311 - keys
    return cycle([chance.randint(1, max(1, rows - _LIST)) for _ in range(_KEYS)])


def _by_key(engine: Engine, model: Any, rows: int) -> Sample:
    statement, keys = select(model).where(model.id == bindparam("key")), keys_of(rows)

    def make(session: Session) -> Callable[[], object]:
        return lambda: session.execute(statement, {"key": next(keys)}).one()

    return reading(engine, make)


def _list(engine: Engine, model: Any, rows: int) -> Sample:
    statement = select(model).where(model.id >= bindparam("key")).order_by(model.id).limit(_LIST)
    keys = keys_of(rows)

    def make(session: Session) -> Callable[[], object]:
        return lambda: session.execute(statement, {"key": next(keys)}).all()

    return reading(engine, make)


def _count(engine: Engine, model: Any, _rows: int) -> Sample:
    return _counting(engine, select(func.count()).select_from(model))


def _plain_count(engine: Engine, model: Any, _rows: int) -> Sample:
    return _counting(engine, text(f"SELECT count(*) FROM {model.__tablename__}"))  # noqa: S608


def _counting(engine: Engine, statement: Executable) -> Sample:
    """Without a lead-in: it may take a second."""

    def sample(count: int) -> float:
        with Session(engine) as session:
            session.execute(text("SELECT 1"))
            begin = perf_counter()
            for _ in range(count):
                session.execute(statement).one()
            return perf_counter() - begin

    return sample


def _idle_sweep(engine: Engine, model: Any, _rows: int) -> Sample:
    return timed(Sweeper(engine, model, lease=False).run_once)


_TIMED: Final[dict[str, Timed]] = {
    "read by key": _by_key,
    "list of 100": _list,
    "count": _count,
    "count without TTL": _plain_count,
    "idle sweep": _idle_sweep,
}


class Operations(dict[str, "Sample"]):
    """All operations on a database, by the question; each with an engine of its own.

    Args:
        url: SQLAlchemy's URL of the database.
    """

    def __init__(self, url: str) -> None:
        """None is prepared yet."""
        super().__init__()
        self._url = url

    def __missing__(self, asked: str) -> Sample:
        """Prepare one."""
        over, what, size, rows = asked.split("/")
        made = _TIMED[what](create_engine(self._url), model_of(over, int(size)), int(rows))
        self[asked] = made
        return made


if __name__ == "__main__":
    serve(Operations)
