"""Writes to tables with a policy over columns that exist: stamps, keys, objects, helpers."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import DateTime, Integer, String, event, func, insert, select, text, update
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, mapped_column
from sqlalchemy.orm.attributes import set_committed_value

from tests.clocks import stop_clock
from tests.sql.adopted import DAY, KINDS, SECOND, kinds_of, new_base, table
from ttl_odm import TTL, ExpireAfter, ExpireAt, TTLError
from ttl_odm.core.expiry import instant_of
from ttl_odm.sqlalchemy import ExpiredError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

NOW = datetime(2026, 6, 15, 12, 0, 0, 123_000, tzinfo=timezone.utc)
LATER = NOW.replace(microsecond=0) + timedelta(minutes=50)


def utcnow() -> datetime:
    return datetime.now(timezone.utc).replace(tzinfo=None)


def in_utc(session: Session) -> None:
    if session.get_bind().dialect.name == "mysql":
        session.execute(text("SET time_zone = '+00:00'"))


@contextmanager
def statements(session: Session) -> Iterator[list[str]]:
    """Collect what is sent to the database."""
    sent: list[str] = []

    def note(_: Any, __: Any, sql: str, *___: Any) -> None:
        sent.append(sql)

    engine: Any = session.get_bind()
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(engine, "before_cursor_execute", note)


@pytest.mark.slow
def test_every_write_stamps_the_column_in_its_own_kind(engine: Engine) -> None:
    kinds = kinds_of(engine.dialect.name)
    base = new_base()
    models = {
        name: table(
            name, TTL(3600, last_modified="at", override=None, **kind.options), base, kind.type
        )
        for name, kind in kinds.items()
    }
    base.metadata.create_all(engine)
    with Session(engine) as session:
        in_utc(session)

        def check(name: str, key: str, now: datetime) -> None:
            kind, model = kinds[name], models[name]
            row = session.get_one(model, key, populate_existing=True)
            at = instant_of(ExpireAt("at", **kind.options), row.at)
            assert at is not None
            late = max(kind.tick, SECOND) if kind.tick != DAY else 2 * DAY
            assert now <= at < now + late, (name, key)
            assert row.expires_at == at + timedelta(hours=1), (name, key)

        stop_clock(session.connection(), NOW)
        for name, model in models.items():
            given = kinds[name].value(NOW - timedelta(days=9))
            session.add_all([model(id="orm"), model(id="given", at=given)])
            session.flush()
            session.execute(insert(model), [{"id": "bulk"}, {"id": "many"}])
            session.execute(insert(model.__table__).values(id="core", at=given))
            session.execute(insert(model.__table__).values([{"id": "multi"}, {"id": "row"}]))
            nothing_to_keep = insert(model.__table__).values(id="none", at=None)
            session.execute(nothing_to_keep, execution_options={"keep_last_modified": True})
            for key in ("orm", "given", "bulk", "many", "core", "multi", "row", "none"):
                check(name, key, NOW)
        stop_clock(session.connection(), LATER)
        for name, model in models.items():
            session.get_one(model, "orm").views = 5
            session.get_one(model, "given").touch()
            session.flush()
            session.execute(update(model).where(model.id == "bulk").values(views=1))
            session.execute(update(model), [{"id": "many", "views": 2}])
            session.execute(update(model.__table__).where(model.id == "core").values(at=None))
            for key in ("orm", "given", "bulk", "many", "core"):
                check(name, key, LATER)
            session.execute(
                update(model).where(model.id == "multi").values(views=1),
                execution_options={"keep_last_modified": True},
            )
            check(name, "multi", NOW)


def upsert(engine: Engine, model: Any, **values: Any) -> Any:
    if engine.dialect.name == "mysql":
        return mysql.insert(model).values(**values).on_duplicate_key_update(views=9)
    module = {"postgresql": postgresql, "sqlite": sqlite}[engine.dialect.name]
    statement = module.insert(model).values(**values)
    return statement.on_conflict_do_update(index_elements=["id"], set_={"views": 9})


@pytest.mark.parametrize("kind", ["variant", "seconds", "iso", "paris"])
def test_an_upsert_updates_a_live_row_and_inserts_over_an_expired_one(
    engine: Engine, kind: str
) -> None:
    base, options = new_base(), KINDS[kind].options
    stamps = TTL(3600, last_modified="at", override=None, **options)
    sliding = table("sliding", stamps, base, KINDS[kind].type)
    fixed = table("fixed", ExpireAt("at", null="expired", **options), base, KINDS[kind].type)
    base.metadata.create_all(engine)
    value = KINDS[kind].value
    with Session(engine) as session:
        in_utc(session)
        stop_clock(session.connection(), NOW)
        rows = [{"id": "live", "at": value(LATER)}, {"id": "dead", "at": value(NOW - DAY)}]
        keep = {"keep_last_modified": True}
        for model in (sliding, fixed):
            session.execute(insert(model.__table__), rows, execution_options=keep)
            session.execute(insert(model.__table__).values(id="null", at=None))
            for key in ("live", "dead", "null"):
                session.execute(upsert(engine, model, id=key, at=value(LATER)))
        found = dict(session.execute(select(fixed.id, fixed.views)).all())
        assert found == {"live": 9, "dead": 0, "null": 0}
        found = dict(session.execute(select(sliding.id, sliding.views)).all())
        assert found == {"live": 9, "dead": 0, "null": 9}
        assert set(session.scalars(select(fixed.at))) == {value(LATER)}
        assert value(LATER) not in set(session.scalars(select(sliding.at)))


def test_the_defaults_of_the_application_give_way_to_the_databases_clock(engine: Engine) -> None:
    base = new_base()

    def never_asked() -> Any:
        raise AssertionError

    model = table(
        "stamped",
        TTL(60, last_modified="at", override=None),
        base,
        DateTime(),
        at=mapped_column(
            DateTime(), default=never_asked, onupdate=never_asked, server_default=func.now()
        ),
    )
    base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(model(id="1"))
        session.flush()
        row = session.scalars(select(model)).one()
        assert timedelta(seconds=50) < row.time_left <= timedelta(seconds=61)
        row.views = 3
        session.flush()
        assert not row.is_expired


@pytest.mark.parametrize(
    "policy", [ExpireAt("at"), ExpireAfter("at", 1), TTL(1, last_modified="at", override=None)]
)
def test_keys_of_expired_rows_are_free_and_nothing_brings_them_back(
    engine: Engine, policy: Any
) -> None:
    base = new_base()
    model = table(
        "sessions",
        policy,
        base,
        KINDS["variant"].type,
        email=mapped_column(String(40), unique=True, nullable=True),
    )
    base.metadata.create_all(engine)
    past, future = utcnow() - timedelta(hours=1), utcnow() + timedelta(hours=1)
    keep = {"keep_last_modified": True}
    rows = [
        {"id": "dead", "email": "a@x", "at": past, "views": 7},
        {"id": "gone", "email": "b@x", "at": past, "views": 7},
        {"id": "live", "email": "c@x", "at": future, "views": 7},
    ]
    with Session(engine) as session:
        session.execute(insert(model.__table__), rows, execution_options=keep)
        session.commit()
        assert session.get(model, "dead") is None
        changed: Any = session.execute(update(model).values(views=1).where(model.id == "dead"))
        assert changed.rowcount == 0
        session.add(model(id="dead", at=future, email="b@x"))
        session.commit()
        assert session.get_one(model, "dead").views == 0
        every = select(func.count()).select_from(model).execution_options(include_expired=True)
        assert session.scalar(every) == 2  # the holder of the e-mail is gone too
        session.add(model(id="other", at=future, email="c@x"))
        with pytest.raises(IntegrityError):
            session.flush()


@pytest.mark.slow
def test_an_object_whose_date_has_come_is_gone_for_the_session(engine: Engine) -> None:
    base = new_base()
    kinds = kinds_of(engine.dialect.name)
    models = {
        name: table(name, ExpireAt("at", **kind.options), base, kind.type)
        for name, kind in kinds.items()
        if kind.tick != DAY
    }
    base.metadata.create_all(engine)
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    with Session(engine, expire_on_commit=False) as session:
        in_utc(session)
        for name, model in models.items():
            row = model(id="1", at=kinds[name].value(soon))
            session.add(row)
            session.commit()
            if not name.startswith("timestamp"):  # what it shows hangs on the session
                with statements(session) as sent:
                    assert session.get(model, "1") is row, name
                assert sent == [], name
            in_utc(session)
            past = kinds[name].value(soon - timedelta(hours=2))
            set_committed_value(row, "at", past)  # as time will have it
            session.connection().exec_driver_sql(f"DELETE FROM {model.__tablename__}")  # noqa: S608
            assert session.get(model, "1") is None, name
            session.commit()


@pytest.mark.parametrize("policy", [ExpireAt("at"), ExpireAfter("at", 1)])
def test_a_flush_of_an_expired_object_says_so(engine: Engine, policy: Any) -> None:
    base = new_base()
    model = table("rows", policy, base, KINDS["variant"].type)
    base.metadata.create_all(engine)
    with Session(engine, expire_on_commit=False) as session:
        row = model(id="1", at=utcnow() - 2 * SECOND)
        session.add(row)
        session.commit()
        row.views = 5
        with pytest.raises(ExpiredError, match="Rows '1' can't be updated"):
            session.flush()


def test_writes_do_not_prolong_a_date(engine: Engine) -> None:
    base = new_base()
    models = [
        table("at", ExpireAt("at"), base, KINDS["variant"].type),
        table("after", ExpireAfter("at", 60), base, KINDS["variant"].type),
    ]
    base.metadata.create_all(engine)
    when = utcnow().replace(microsecond=0) + timedelta(hours=1)
    with Session(engine) as session:
        for model in models:
            session.add(model(id="1", at=when))
            session.commit()
            row = session.get_one(model, "1")
            row.views = 5
            session.commit()
            session.execute(update(model).values(views=6))
            assert row.at == when
            with pytest.raises(TTLError, match=r"touch\(\): with Expire.*; set 'at', or"):
                row.touch()


@pytest.mark.slow
def test_a_date_of_expiry_can_be_set_by_the_helpers(engine: Engine) -> None:
    base = new_base()
    kinds = kinds_of(engine.dialect.name)
    models = {
        name: table(name, ExpireAt("at", **kind.options), base, kind.type)
        for name, kind in kinds.items()
    }
    base.metadata.create_all(engine)
    with Session(engine) as session:
        in_utc(session)
        stop_clock(session.connection(), NOW)
        for name, model in models.items():
            kind = kinds[name]
            late = max(kind.tick, SECOND) if kind.tick != DAY else 2 * DAY
            row = model(id="1")
            session.add(row)
            for begin in (
                lambda row: row.expire_in(90),
                lambda row: row.expire_in(timedelta(seconds=90)),
                lambda row: row.expire_at(NOW + timedelta(seconds=90)),
            ):
                begin(row)
                session.flush()
                assert NOW + 90 * SECOND <= row.expires_at < NOW + 90 * SECOND + late, name
            row.persist()
            session.flush()
            assert row.expires_at is None, name
            with pytest.raises(TTLError, match="has no lifetime of its own"):
                row.inherit_ttl()
            row.expire_in(0)
            session.flush()
            session.expunge_all()
            assert session.get(model, "1") is None, name


@pytest.mark.slow
def test_an_own_ttl_can_be_set_by_the_helpers(engine: Engine) -> None:
    base = new_base()
    kinds = kinds_of(engine.dialect.name)
    models = {
        name: table(
            name,
            TTL(3600, last_modified="at", override="life", never=(0,), **kind.options),
            base,
            kind.type,
            life=mapped_column(Integer, nullable=True),
        )
        for name, kind in kinds.items()
    }
    base.metadata.create_all(engine)
    with Session(engine) as session:
        in_utc(session)
        stop_clock(session.connection(), NOW)
        for name, model in models.items():
            kind = kinds[name]
            late = max(kind.tick, SECOND) if kind.tick != DAY else 2 * DAY
            row = model(id="1")
            session.add(row)
            row.expire_in(90)
            session.flush()
            assert row.life == 90
            assert NOW + 90 * SECOND <= row.expires_at < NOW + 90 * SECOND + late, name
            row.expire_at(NOW + timedelta(seconds=70.5))
            session.flush()
            assert NOW + 70.5 * SECOND <= row.expires_at < NOW + 70.5 * SECOND + late, name
            row.persist()
            session.flush()
            assert (row.life, row.expires_at) == (-1, None), name
            row.inherit_ttl()
            session.flush()
            assert row.life is None
            assert NOW + 3600 * SECOND <= row.expires_at < NOW + 3600 * SECOND + late, name
            row.expire_in(0)
            session.flush()
            session.expunge_all()
            assert session.get(model, "1") is None, name


def test_helpers_refuse_what_the_policy_has_no_room_for(engine: Engine) -> None:
    base = new_base()
    after = table("after", ExpireAfter("at", 60), base, DateTime())
    shared = table("shared", TTL(60, last_modified="at", override=None), base, DateTime())
    hurried = table("hurried", ExpireAt("at", null="expired"), base, DateTime())
    fixed = table(
        "fixed", ExpireAt("at"), base, DateTime(), at=mapped_column(DateTime(), nullable=False)
    )
    for model in (after, shared):
        row = model(id="1", at=utcnow())
        for call in (
            row.persist,
            row.inherit_ttl,
            lambda row=row: row.expire_in(5),
            lambda row=row: row.expire_at(NOW),
        ):
            with pytest.raises(TTLError, match=rf"{model.__name__}\..*no lifetime of its own"):
                call()
    with pytest.raises(TTLError, match=r"Hurried\.persist\(\)"):
        hurried(id="1").persist()
    with pytest.raises(TTLError, match=r"Fixed\.at can't be NULL"):
        fixed(id="1").persist()
    assert not hasattr(after, "ttl")
    assert not hasattr(after, "last_modified")
    with pytest.raises(AttributeError, match=r"After has no ttl: its policy is ExpireAfter"):
        after(id="1").ttl = 5
    with pytest.raises(TypeError, match="'ttl' is an invalid keyword"):
        after(id="1", ttl=5)
