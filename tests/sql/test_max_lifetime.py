"""`TTL.max_lifetime`: an end of life, counted from a row's creation, that no write passes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.orm.exc import StaleDataError

from tests.clocks import stop_clock
from tests.sql.adopted import DAY, KINDS, kinds_of, new_base, table
from ttl_odm import NEVER, TTL, TTLConfigurationError
from ttl_odm.cli.application import Target
from ttl_odm.cli.checks_sql import check
from ttl_odm.core import expires_at as expected_end
from ttl_odm.core import is_expired
from ttl_odm.sqlalchemy import TTLMixin, disable, enable, expired, expires_at, live
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.policy.predicate import include_expired
from ttl_odm.sqlalchemy.sweep.counts import count
from ttl_odm.sqlalchemy.sweep.due import find_due
from ttl_odm.sqlalchemy.sweep.store import whereabouts_of
from ttl_odm.sweeper import Part, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

NOW = datetime(2026, 3, 29, 1, 30, tzinfo=timezone.utc)  # in the hour that spring skips in Europe
TICK = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
LIMIT = 150
MOMENT = KINDS["variant"].type

KEPT: dict[str, Any] = {"execution_options": {"keep_last_modified": True}}
ALL: dict[str, Any] = {"execution_options": {"include_expired": True}}


def web_session(default: Any, **namespace: Any) -> Any:
    """A session that ends after some idle time, and after `LIMIT` seconds at the latest."""

    class Base(DeclarativeBase):
        pass

    attributes = {
        "__tablename__": "web_sessions",
        "__ttl__": TTL(default, max_lifetime=LIMIT, created="created_at"),
        "id": mapped_column(String(40), primary_key=True),
        "views": mapped_column(Integer, default=0),
        "created_at": mapped_column(MOMENT, nullable=True),
    }
    return type("WebSession", (TTLMixin, Base), {**attributes, **namespace})


def around(*seconds: int) -> list[timedelta]:
    return [timedelta(seconds=s) + t for s in seconds for t in (-TICK, timedelta(), TICK)]


OWN = (None, -1, 50, 100, 200)
AGES = around(50, 100, 200)
CREATED: list[timedelta | None] = [None, timedelta(seconds=75), *around(LIMIT), 900 * SECOND]
ROWS = [
    {
        "id": f"{own}/{age.total_seconds()}/{created and created.total_seconds()}",
        "ttl": own,
        "_ts": NOW - age,
        "created_at": created and (NOW - created).replace(tzinfo=None),
        "views": 0,
    }
    for own, age, created in product(OWN, AGES, CREATED)
]


def end_of(model: Any, row: dict[str, Any]) -> datetime | None:
    policy = model.__ttl__
    return expected_end(policy, instant=row["_ts"], own=row["ttl"], created=row["created_at"])


def fill(session: Session, model: Any, rows: list[dict[str, Any]]) -> None:
    session.execute(insert(model.__table__), rows, **KEPT)


@pytest.mark.parametrize("default", [None, -1, 100])
def test_of_live_and_expired_exactly_one_is_true_to_the_millisecond(
    engine: Engine, default: int | None
) -> None:
    model = web_session(default)
    model.metadata.create_all(engine)
    with Session(engine) as session:
        stop_clock(session.connection(), NOW)
        fill(session, model, ROWS)
        ends = {row["id"]: end_of(model, row) for row in ROWS}
        alive = {key for key, end in ends.items() if not is_expired(end, NOW)}
        assert len(alive) == (len(ROWS) if default is None else len(alive))
        assert len(alive) > 0

        verdicts = select(model.id, live(model), expired(model), expires_at(model))
        for key, is_live, is_dead, end in session.execute(verdicts, **ALL):
            assert (bool(is_live), bool(is_dead)) == (key in alive, key not in alive), key
            assert end == ends[key], key
        assert set(session.scalars(select(model.id))) == alive
        assert set(session.connection().scalars(select(model.__table__.c.id))) == alive
        assert session.scalar(select(func.count()).select_from(model)) == len(alive)
        for row in session.scalars(select(model), **ALL):
            assert row.expires_at == ends[row.id], row.id
        updated: Any = session.execute(update(model).values(views=1), **KEPT)
        assert updated.rowcount == len(alive)
        deleted: Any = session.execute(delete(model))
        assert deleted.rowcount == len(alive)
        assert set(session.scalars(select(model.id), **ALL)) == ends.keys() - alive


@pytest.mark.slow
def test_the_creation_may_be_kept_in_every_kind_of_column(engine: Engine) -> None:
    base = new_base()
    kinds = kinds_of(engine.dialect.name)
    limit = 10 * DAY
    models: dict[str, Any] = {
        name: table(
            name,
            TTL(
                NEVER,
                last_modified="written",
                override=None,
                max_lifetime=limit,
                created="at",
                **kind.options,
            ),
            base,
            kind.type,
            written=mapped_column(kind.type, nullable=True),
        )
        for name, kind in kinds.items()
    }
    base.metadata.create_all(engine)
    midnight = datetime(2026, 3, 29, tzinfo=timezone.utc)
    with Session(engine) as session:
        for name, model in models.items():
            kind = kinds[name]
            born = midnight.replace(hour=12) - limit if kind.tick != DAY else midnight - limit
            rows = {"older": born - kind.tick, "same": born, "younger": born + kind.tick}
            values = [{"id": key, "at": kind.value(at), "views": 0} for key, at in rows.items()]
            fill(session, model, [*values, {"id": "null", "at": None, "views": 0}])
        session.commit()
        for name, model in models.items():
            ends = dict(session.execute(select(model.id, expires_at(model)), **ALL).all())
            assert ends.pop("null") is None, name
            rows = session.scalars(select(model).where(model.id != "null"), **ALL)
            if "timestamp" not in name:  # which Python sees in the zone of the session
                assert {row.id: row.expires_at for row in rows} == ends, name
            for key in ("older", "same"):
                for moment, is_alive in ((ends[key] - TICK, True), (ends[key], False)):
                    stop_clock(session.connection(), moment)
                    seen = set(session.scalars(select(model.id)))
                    assert (key in seen) is is_alive, (name, key)
                    assert {"younger", "null"} <= seen, name
                    if engine.dialect.name == "postgresql":
                        session.rollback()


def test_creation_by_date_stands_beside_epochs_of_the_last_modification(engine: Engine) -> None:
    base = new_base()
    policy = TTL(-1, last_modified="at", override=None, unit="s", max_lifetime=60, created="born")
    model = table(
        "mixed", policy, base, KINDS["seconds"].type, born=mapped_column(MOMENT, nullable=True)
    )
    base.metadata.create_all(engine)
    with Session(engine) as session:
        now = datetime.now(timezone.utc).replace(tzinfo=None)
        session.add_all([model(id="old", born=now - DAY), model(id="new", born=now + DAY)])
        session.flush()
        assert list(session.scalars(select(model.id))) == ["new"]


@pytest.mark.parametrize(
    ("type_", "options", "message"),
    [
        (Integer(), {}, "column 'born' is Integer.*unit=None: for epoch numbers"),
        (String(40), {}, "column 'born' is String.*write unit='iso'"),
        (KINDS["seconds"].type, {"created": "nothing"}, "has no column 'nothing'"),
    ],
)
def test_a_column_that_holds_no_instants_is_refused(
    type_: Any, options: dict[str, Any], message: str
) -> None:
    policy = TTL(60, **{"max_lifetime": 60, "created": "born", **options})
    with pytest.raises(TTLConfigurationError, match=message):
        table("refused", policy, new_base(), MOMENT, born=mapped_column(type_))


def test_touching_moves_no_end_past_the_limit(engine: Engine) -> None:
    model = web_session(100)
    model.metadata.create_all(engine)
    with Session(engine) as session:
        born = datetime.now(timezone.utc).replace(tzinfo=None, microsecond=0)
        limit = (born + LIMIT * SECOND - 100 * SECOND).replace(tzinfo=timezone.utc)
        row = model(id="a", created_at=born - 100 * SECOND)
        session.add(row)
        session.commit()
        assert row.expires_at == limit
        assert not row.touch(only_if="longer")
        assert not row.expire_in(1000, only_if="longer")
        assert not row.expire_at(limit + SECOND, only_if="longer")
        assert not row.touch(only_if="no_ttl")
        assert row.touch()
        session.commit()
        assert row.expires_at == limit
        row.persist()
        session.commit()
        assert row.expires_at == limit
        assert row.expire_in(1000)
        session.commit()
        assert row.expires_at == limit
        assert session.scalar(select(model.expires_at)) == limit
        assert row.expire_in(5, only_if="shorter")
        session.commit()
        assert row.expires_at < limit
        assert row.touch(only_if="longer")


def test_an_old_row_is_gone_from_memory_and_its_key_is_free(engine: Engine) -> None:
    model = web_session(NEVER)
    model.metadata.create_all(engine)
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    with Session(engine, expire_on_commit=False) as session:
        fill(
            session,
            model,
            [
                {"id": key, "created_at": now - 2 * DAY, "views": 7, "ttl": ttl}
                for key, ttl in (("a", None), ("b", -1), ("c", 10**9), ("d", None))
            ],
        )
        session.commit()
        held = session.get(model, "a", **ALL)
        assert session.get(model, "a") is None
        held.views = 8
        with pytest.raises(StaleDataError):
            session.flush()
        session.rollback()
        session.expunge_all()
        session.add_all([model(id=key, created_at=now) for key in ("a", "b", "c")])
        session.commit()
        session.merge(model(id="d", created_at=now))
        session.commit()
        assert set(session.execute(select(model.id, model.views)).all()) == {
            (key, 0) for key in "abcd"
        }


def test_the_limit_goes_and_comes_with_ttl_and_kinds_without_ttl_have_none(engine: Engine) -> None:
    policy = TTL(
        {"cart": 100, "order": None}, by="kind", other=-1, max_lifetime=LIMIT, created="created_at"
    )
    model = web_session(None, kind=mapped_column(String(10), nullable=True), __ttl__=policy)
    model.metadata.create_all(engine)
    old = datetime.now(timezone.utc).replace(tzinfo=None) - DAY

    def alive() -> set[str]:
        return set(session.scalars(select(model.id)))

    with Session(engine) as session:
        rows = [("cart", "cart"), ("order", "order"), ("else", "else"), ("null", None)]
        fill(
            session,
            model,
            [{"id": key, "kind": kind, "created_at": old, "views": 0} for key, kind in rows],
        )
        session.commit()
        assert alive() == {"order"}
        model.__ttl__ = TTL(
            {"cart": None, "order": -1}, by="kind", max_lifetime=LIMIT, created="created_at"
        )
        assert alive() == {"cart", "else", "null"}
        other = {"by": "kind", "max_lifetime": LIMIT + 1, "created": "created_at"}
        model.__ttl__ = TTL({"cart": 1, "order": 1}, **other)
        with pytest.raises(TTLConfigurationError, match="only the default ttl can change"):
            alive()


def test_a_number_in_place_of_the_policy_keeps_the_limit(engine: Engine) -> None:
    model = web_session(None)
    model.metadata.create_all(engine)
    old = datetime.now(timezone.utc).replace(tzinfo=None) - DAY
    with Session(engine) as session:
        fill(session, model, [{"id": "a", "created_at": old, "views": 0}])
        assert session.scalars(select(model.id)).all() == ["a"]
        model.__ttl__ = 10**6
        assert session.scalars(select(model.id)).all() == []
        model.__ttl__ = None
        assert session.scalars(select(model.id)).all() == ["a"]


def test_a_joined_subclass_has_the_limit_of_its_base_row(engine: Engine) -> None:
    model = web_session(
        NEVER,
        kind=mapped_column(String(10)),
        __mapper_args__={"polymorphic_on": "kind", "polymorphic_identity": "web"},
    )

    class AppSession(model):  # type: ignore[misc]
        __tablename__ = "app_sessions"
        __mapper_args__ = {"polymorphic_identity": "app"}
        id: Mapped[str] = mapped_column(ForeignKey("web_sessions.id"), primary_key=True)
        device: Mapped[str] = mapped_column(String(10))

    model.metadata.create_all(engine)
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    with Session(engine) as session:
        old = AppSession(id="old", device="x", created_at=now)
        session.add_all([old, AppSession(id="new", device="y", created_at=now)])
        session.flush()
        session.execute(update(model).values(created_at=now - DAY).where(model.id == "old"))
        session.commit()
        assert list(session.scalars(select(AppSession.id))) == ["new"]
        assert list(session.scalars(select(AppSession.__table__.c.device))) == ["y"]


def due_parts(engine: Engine, model: Any) -> tuple[Part, ...]:
    binding = binding_of(model.__table__)
    assert binding is not None
    with engine.connect() as connection:
        due = find_due(connection, binding, whereabouts_of(binding))
        counted = count(connection, binding, whereabouts_of(binding))
        connection.rollback()
    assert due is not None
    if Part.CAPPED in due.parts:
        assert due.oldest is not None
        assert DAY.total_seconds() - LIMIT <= due.oldest < 2 * DAY.total_seconds()
    assert counted.due == 300
    return tuple(due.parts)


@pytest.mark.parametrize("sweep", ["index", "scan"])
@pytest.mark.parametrize("own", ["contract", "none"])
def test_what_is_past_its_limit_is_swept(engine: Engine, sweep: str, own: str) -> None:
    layout: dict[str, Any] = {"__ttl_sweep__": sweep}
    if own == "none":
        layout["__ttl__"] = TTL(10**6, override=None, max_lifetime=LIMIT, created="created_at")
        layout["__table_args__"] = (Index("ix_web_sessions_written", "_ts"),)
    model = web_session(10**6, **layout)
    model.metadata.create_all(engine)
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    ttls: tuple[int | None, ...] = (None, -1, 10**7) if own == "contract" else (None,)
    with Session(engine) as session:
        rows = [
            {
                "id": f"{'dead' if age else 'live'} {n}",
                "created_at": now - age - n // 3 * SECOND,
                "views": 0,
                **({"ttl": ttls[n % 3]} if own == "contract" else {}),
            }
            for n, age in enumerate([*([DAY] * 300), *([timedelta(0)] * 5)])
        ]
        fill(session, model, [*rows, {**rows[0], "id": "live null", "created_at": None}])
        session.commit()
    assert due_parts(engine, model) == ((Part.CAPPED,) if sweep == "index" else (Part.ALL,))
    report = Sweeper(engine, model, batch_size=100).run_once()
    assert report.deleted == 300
    with Session(engine) as session:
        left = set(session.scalars(select(model.id), **ALL))
    assert left == {f"live {n}" for n in range(300, 305)} | {"live null"}
    model.__ttl__ = None
    assert Sweeper(engine, model).run_once().deleted == 0


def codes(engine: Engine, model: Any) -> set[str]:
    """What ``ttl-odm check`` finds."""
    target = Target("web_sessions", "WebSession", model.__table__)
    with engine.connect() as connection:
        return {each.code for each in check(connection, [target], 86_400.0, deep=False)}


@pytest.mark.slow
def test_without_an_index_on_the_creation_the_table_is_walked(engine: Engine) -> None:
    model = web_session(NEVER)
    model.metadata.create_all(engine)
    (index,) = (each for each in model.__table__.indexes if "created_at" in str(each.name))
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    with Session(engine) as session:
        rows = [{"id": str(n), "created_at": now - DAY, "views": 0} for n in range(300)]
        fill(session, model, rows)
        session.commit()
    assert "missing-index" not in codes(engine, model)
    index.drop(engine)
    assert "missing-index" in codes(engine, model)
    assert due_parts(engine, model) == (Part.ALL,)
    index.create(engine)
    assert due_parts(engine, model) == (Part.CAPPED,)


def test_an_index_on_the_creation_is_made_where_there_is_none() -> None:
    plain, indexed = web_session(60), web_session(60, created_at=mapped_column(MOMENT, index=True))
    scanned = web_session(60, __ttl_sweep__="scan")

    def on_creation(model: Any) -> list[str]:
        indexes = model.__table__.indexes
        return [str(each.name) for each in indexes if "created_at" in each.columns]

    assert on_creation(plain) == ["ix_web_sessions_created_at_ttl"]
    assert on_creation(indexed) == ["ix_web_sessions_created_at"]
    assert on_creation(scanned) == []


def test_a_reflected_table_gets_a_limit_by_enable(engine: Engine) -> None:
    columns = (Column("id", Integer, primary_key=True), Column("seen", MOMENT))
    plain = Table("plain", MetaData(), *columns, Column("born", MOMENT))
    plain.create(engine)
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    reflected = Table("plain", MetaData(), autoload_with=engine)
    keys, written = select(reflected.c.id), {"last_modified": "seen", "override": None}
    with engine.begin() as connection:
        connection.execute(insert(plain), {"id": 1, "seen": now, "born": now - DAY})
        assert connection.scalars(keys).all() == [1]
        with pytest.raises(TTLConfigurationError, match="has no column 'first'"):
            enable(reflected, TTL(-1, max_lifetime=60, created="first", **written))
        enable(reflected, TTL(-1, max_lifetime=60, created="born", **written))
        assert connection.scalars(keys).all() == []
        enable(reflected, TTL(-1, max_lifetime=2 * DAY, created="born", **written))
        assert connection.scalars(keys).all() == [1]
        enable(reflected, 3600)
        enable(reflected, TTL(-1, max_lifetime=60, created="born", **written))
        assert connection.scalars(keys).all() == []
        disable(reflected)
        assert connection.scalars(keys).all() == [1]


def test_include_expired_shows_what_is_past_its_limit(engine: Engine) -> None:
    model = web_session(NEVER)
    model.metadata.create_all(engine)
    old = datetime.now(timezone.utc).replace(tzinfo=None) - DAY
    with Session(engine) as session:
        fill(session, model, [{"id": "a", "created_at": old, "views": 0}])
        assert session.scalars(select(model.id)).all() == []
        assert session.scalars(select(model.id).options(include_expired())).all() == ["a"]
