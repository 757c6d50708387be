"""A process that hides expired rows in one way, measured by `benchmarks.rivals`.

Run as ``python -m benchmarks.rival WAY``; see `benchmarks.workers`. Each way has a table of its own
with the columns that it asks for; the rows, and which of them have expired, are the same. Runs
with sqlalchemy-easy-softdelete's own, older SQLAlchemy, too.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta, timezone
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, create_engine, event, insert, inspect, select
from sqlalchemy.orm import DeclarativeBase, Session

from benchmarks.sql_models import (
    DAY,
    ROWS,
    ContractColumns,
    ItemColumns,
    analyze,
    is_live,
    item,
    live_by_hand,
)
from benchmarks.sql_samples import reading
from benchmarks.workers import serve
from tests.leaks.rivals import NEVER, Expiring, hide_expired
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Engine, Select

    from benchmarks.harness import Sample

OURS: Final = "ttl_odm"
BY_HAND: Final = "a WHERE by hand"
RECIPE: Final = "the usual recipe"
EASY: Final = "sqlalchemy-easy-softdelete"
NOTHING: Final = "nothing"

BY_KEY: Final = "select by key"
GET: Final = "session.get"
LIST: Final = "list of 100"
OPERATIONS: Final = (BY_KEY, GET, LIST)
IMPOSSIBLE: Final = {(GET, BY_HAND)}
"""``session.get()`` takes no WHERE."""

_LIST = 100
_STEP = 7
_LONG_AGO = timedelta(days=2)


class Base(DeclarativeBase):
    """The one model's."""


def _bases(way: str) -> tuple[type, ...]:
    """What a model inherits, besides its columns."""
    if way == EASY:
        from sqlalchemy_easy_softdelete.mixin import (  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 # pyright: ignore[reportMissingImports]
            generate_soft_delete_mixin_class,
        )

        return (generate_soft_delete_mixin_class(),)
    if way == RECIPE:
        event.listen(Session, "do_orm_execute", hide_expired)
    return {OURS: (TTLMixin,), BY_HAND: (ContractColumns,), RECIPE: (Expiring,)}.get(way, ())


def _values(way: str, key: int, now: datetime) -> dict[str, Any]:
    """A row's values, in the columns that the way has."""
    values = item(key, now)
    if way in {OURS, BY_HAND}:
        return values
    del values["_ts"], values["ttl"]
    ends = NEVER if is_live(key) else (now - _LONG_AGO).replace(tzinfo=None)
    if way == RECIPE:
        values["expires_at"] = ends
    if way == EASY:
        values["deleted_at"] = None if is_live(key) else now
    return values


def _model(way: str, engine: Engine) -> Any:
    """The model; its table is made and filled the first time."""
    namespace: dict[str, Any] = {
        "__tablename__": f"rows_{way}".lower().replace(" ", "_").replace("-", "_")
    }
    if way == OURS:
        namespace["__ttl__"] = DAY
    model: Any = type("Rival", (*_bases(way), ItemColumns, Base), namespace)
    if not inspect(engine).has_table(model.__tablename__):
        Base.metadata.create_all(engine)
        now = datetime.now(timezone.utc)
        with engine.begin() as connection:
            connection.execute(
                insert(model.__table__), [_values(way, key, now) for key in range(1, ROWS + 1)]
            )
        analyze(engine, model.__tablename__)
    return model


def _open(way: str, url: str) -> Mapping[str, Sample]:
    engine = create_engine(url)
    model = _model(way, engine)
    keys = cycle([key for key in range(1, ROWS - 2 * _LIST, _STEP) if is_live(key)])

    def finished(statement: Select[Any]) -> Select[Any]:
        if way != BY_HAND:
            return statement
        return statement.where(live_by_hand(engine.dialect.name, model))

    by_key = finished(select(model).where(model.id == bindparam("key")))
    hundred = select(model).where(model.id >= bindparam("key")).order_by(model.id).limit(_LIST)
    hundred = finished(hundred)

    def one(session: Session) -> Callable[[], object]:
        return lambda: session.scalars(by_key, {"key": next(keys)}).one()

    def got(session: Session) -> Callable[[], object]:
        return lambda: session.get_one(model, next(keys))

    def listed(session: Session) -> Callable[[], object]:
        return lambda: session.scalars(hundred, {"key": next(keys)}).all()

    return {
        BY_KEY: reading(engine, one),
        GET: reading(engine, got),
        LIST: reading(engine, listed),
    }


if __name__ == "__main__":
    serve(lambda url: _open(sys.argv[1], url))
