"""What the condition costs for each row: a count of 100,000 rows, with it and without it.

The count reads the whole table, so nearly all of its time goes by the row. A date that is compared
with the clock is what somebody without ttl_odm would count by.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import DateTime, MetaData, Select, func, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from benchmarks.goals import CONDITION
from benchmarks.sql_groups import Comparison, Group
from benchmarks.sql_models import DAY, ContractColumns, analyze, is_live, item
from benchmarks.sql_samples import reading
from benchmarks.sql_timing import Operations, measured
from benchmarks.workers import serve
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

    from benchmarks.bench import Bench
    from benchmarks.findings import Finding
    from benchmarks.harness import Sample
    from benchmarks.sql_groups import NewEngine, Prepare

COUNTS: Final = "SQLAlchemy: a count of 100,000 rows / without a condition"

ROWS: Final = 100_000
_WRITTEN: Final = 12_500
"""Rows that Python writes; the database copies them."""


class Gated(DeclarativeBase):
    """Models with a TTL."""


class ByHand(DeclarativeBase):
    """Models of the same tables without a policy."""

    metadata = MetaData(info={"ttl_odm": None})


class _Columns:
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    ends_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class Table(NamedTuple):
    """A table, by the model with a policy and by the one without.

    Attributes:
        what: what the report calls it.
        gated: the one with a policy.
        by_hand: the one without.
        has_ttls: whether some rows have a ttl of their own.
    """

    what: str
    gated: Any
    by_hand: Any
    has_ttls: bool


def _table(name: str, what: str, *, has_ttls: bool) -> Table:
    gated = {"__tablename__": name, "__ttl__": DAY}
    return Table(
        what,
        type(f"{name.title()}Gated", (TTLMixin, _Columns, Gated), gated),
        type(f"{name.title()}ByHand", (ContractColumns, _Columns, ByHand), {"__tablename__": name}),
        has_ttls,
    )


TABLES: Final = (
    _table("mixed", "some have their own ttl", has_ttls=True),
    _table("inheriting", "all inherit the default", has_ttls=False),
)


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on every SQL database.

    Args:
        bench: what there is.
    """
    rounds = bench.scale.rounds
    return measured(bench, GROUPS, module=__name__, create=create_tables, rounds=rounds)


def create_tables(engine: Engine) -> None:
    """Create the tables, fill them, and tell the planner.

    Args:
        engine: one that is used for nothing else.
    """
    Gated.metadata.create_all(engine)
    now = datetime.now(timezone.utc)
    for counted in TABLES:
        table: Any = counted.by_hand.__table__
        rows = [_row(key, now, has_ttls=counted.has_ttls) for key in range(1, _WRITTEN + 1)]
        others = [column for column in table.c if column is not table.c.id]
        names = ["id", *(column.name for column in others)]
        with engine.begin() as connection:
            connection.execute(insert(table), rows)
            for written in range(_WRITTEN, ROWS, _WRITTEN):
                copies = select(table.c.id + written, *others).where(table.c.id <= _WRITTEN)
                connection.execute(insert(table).from_select(names, copies))
        analyze(engine, table.name)


def _row(key: int, now: datetime, *, has_ttls: bool) -> dict[str, Any]:
    """A row, whose key decides whether it lives, by its ttl and by its date alike."""
    values = item(key, now)
    return {
        "id": key,
        "_ts": values["_ts"],
        "ttl": values["ttl"] if has_ttls else None,
        "ends_at": now + timedelta(days=2 if is_live(key) else -2),
    }


def _counts(table: Table) -> Prepare:
    def prepare(new_engine: NewEngine) -> Mapping[str, Sample]:
        unfiltered, ends_at = _count(table.by_hand), table.by_hand.ends_at
        return {
            "gate": _timed(new_engine(), _count(table.gated)),
            "date": _timed(new_engine(), unfiltered.where(ends_at > func.now())),
            "none": _timed(new_engine(), unfiltered),
        }

    return prepare


def _count(model: Any) -> Select[Any]:
    return select(func.count()).select_from(model)


def _timed(engine: Engine, statement: Select[Any]) -> Sample:
    def make(session: Session) -> Callable[[], object]:
        return lambda: session.execute(statement).one()

    return reading(engine, make)


GROUPS: Final = tuple(
    Group(
        _counts(table),
        (
            Comparison(COUNTS, f"with TTL; {table.what}", "gate", "none", postgres_goal=CONDITION),
            Comparison(COUNTS, f"a date column by hand; {table.what}", "date", "none"),
        ),
    )
    for table in TABLES
)

if __name__ == "__main__":
    serve(lambda url: Operations(url, GROUPS))
