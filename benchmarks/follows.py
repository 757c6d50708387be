"""What it costs that rows follow a parent: against the EXISTS that somebody writes by hand.

Both models of a table are mapped to it, as in `benchmarks.sql_models`, and by both the same rows
are live: those of carts that are.
"""

from __future__ import annotations

from datetime import datetime, timezone
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    ForeignKey,
    MetaData,
    Result,
    String,
    bindparam,
    exists,
    func,
    insert,
    select,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from benchmarks.goals import FOLLOWS_KEY
from benchmarks.sql_groups import Comparison, Group
from benchmarks.sql_models import DAY, ROWS, ContractColumns, analyze, is_live, item, live_by_hand
from benchmarks.sql_samples import reading
from benchmarks.sql_timing import Operations, measured
from benchmarks.workers import serve
from ttl_odm import Follows
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

    from benchmarks.bench import Bench
    from benchmarks.findings import Finding, Goal
    from benchmarks.harness import Sample

    Add = Callable[[Any], Any]
    """Adds to a SELECT what it says by hand."""

SECTION: Final = "SQLAlchemy: rows that follow a parent / an EXISTS by hand"
OVER_UNFILTERED: Final = "SQLAlchemy: rows that follow a parent / without any filter"

_LINES = 4
"""Of each cart."""

_LIST = 100
_KEYS: Final = [_LINES * cart for cart in range(1, ROWS // _LINES - _LIST, 7) if is_live(cart)]


class Following(DeclarativeBase):
    """Models of which one follows the other."""


class ByHand(DeclarativeBase):
    """The same tables without a policy."""

    metadata = MetaData(info={"ttl_odm": None})


class _LineColumns:
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cart_id: Mapped[int] = mapped_column(ForeignKey("follows_carts.id"), index=True)
    payload: Mapped[str] = mapped_column(String(200))
    amount: Mapped[int]


class Cart(TTLMixin, Following):
    """Parents."""

    __tablename__ = "follows_carts"
    __ttl__ = DAY

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Line(_LineColumns, Following):
    """Rows that live while their parents do."""

    __tablename__ = "follows_lines"
    __ttl__ = Follows("cart_id")


class CartByHand(ContractColumns, ByHand):
    """The same parents."""

    __tablename__ = "follows_carts"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class LineByHand(_LineColumns, ByHand):
    """The same rows."""

    __tablename__ = "follows_lines"


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on every SQL database.

    Args:
        bench: what there is.
    """
    return measured(
        bench, GROUPS, module=__name__, create=_create_tables, rounds=bench.scale.rounds
    )


def _create_tables(engine: Engine) -> None:
    Following.metadata.create_all(engine)
    now = datetime.now(timezone.utc)
    carts = [item(key, now) for key in range(1, ROWS // _LINES + 1)]
    lines = [
        {"id": key, "cart_id": key // _LINES, "payload": f"{key:0>100}", "amount": key}
        for key in range(_LINES, ROWS)
    ]
    with engine.begin() as connection:
        rows = [{name: cart[name] for name in ("id", "_ts", "ttl")} for cart in carts]
        connection.execute(insert(CartByHand), rows)
        connection.execute(insert(LineByHand), lines)
    for table in ("follows_carts", "follows_lines"):
        analyze(engine, table)


def _is_live(dialect: str) -> Any:
    """That the parent of a row is live, as somebody writes it who knows the contract."""
    return exists().where(CartByHand.id == LineByHand.cart_id, live_by_hand(dialect, CartByHand))


def _by_key(engine: Engine, model: Any, add: Add) -> Sample:
    return _reading(engine, add(select(model).where(model.id == bindparam("key"))), Result.one)


def _list(engine: Engine, model: Any, add: Add) -> Sample:
    rows = select(model).where(model.id >= bindparam("key")).order_by(model.id).limit(_LIST)
    return _reading(engine, add(rows), Result.all)


def _scan(engine: Engine, model: Any, add: Add) -> Sample:
    total = select(func.sum(model.amount)).where(model.amount > -bindparam("key"))
    return _reading(engine, add(total), Result.one)


def _get(engine: Engine, model: Any) -> Sample:
    keys = cycle(_KEYS)
    return reading(engine, lambda session: lambda: session.get_one(model, next(keys)))


def _reading(engine: Engine, statement: Any, fetch: Callable[[Any], object]) -> Sample:
    keys = cycle(_KEYS)

    def make(session: Session) -> Callable[[], object]:
        return lambda: fetch(session.execute(statement, {"key": next(keys)}))

    return reading(engine, make)


def _group(what: str, timed: Callable[[Engine, Any, Add], Sample], goal: Goal | None) -> Group:
    def make(new_engine: Callable[[], Engine]) -> dict[str, Sample]:
        by_hand = new_engine()
        condition = _is_live(by_hand.dialect.name)
        return {
            "follower": timed(new_engine(), Line, lambda statement: statement),
            "by hand": timed(by_hand, LineByHand, lambda statement: statement.where(condition)),
        }

    return Group(make, (Comparison(SECTION, what, "follower", "by hand", goal),))


def _gets(new_engine: Callable[[], Engine]) -> dict[str, Sample]:
    # By hand there is nothing to compare it with: it takes no condition.
    return {"follower": _get(new_engine(), Line), "none": _get(new_engine(), LineByHand)}


GROUPS: Final = (
    _group("select by key", _by_key, FOLLOWS_KEY),
    _group("list of 100", _list, None),
    _group("scan of 10,000 rows", _scan, None),
    Group(_gets, (Comparison(OVER_UNFILTERED, "session.get", "follower", "none"),)),
)

if __name__ == "__main__":
    serve(lambda url: Operations(url, GROUPS))
