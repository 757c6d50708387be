"""Stored defaults of single tenants: rows live by their tenant's, or else by the table's."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    JSON,
    BigInteger,
    Integer,
    SmallInteger,
    String,
    Uuid,
    delete,
    select,
    text,
    update,
)
from sqlalchemy.dialects.mysql import VARCHAR
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column

from tests.clocks import age
from ttl_odm import InvalidTTL, Stored, TTLConfigurationError
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.forecast.change import preview_policy
from ttl_odm.sqlalchemy import (
    TTLMixin,
    expired,
    expires_at,
    live,
    policy_changes,
    set_policy,
    stored_policies,
)
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ttl_odm.stored import StoredTTL

HOUR = 3600
TENANTS: dict[str, Any] = {
    "text": (String(40), ["acme", "Acme", "o'neill%"]),
    "number": (Integer(), [1, 2, -3]),
    "uuid": (Uuid(), [uuid.UUID(int=number) for number in (1, 2, 3)]),
}


def message(column: Any, stored: Stored, **members: Any) -> Any:
    class Base(DeclarativeBase):
        pass

    class Message(TTLMixin, Base):
        __tablename__ = "messages"
        __ttl__ = stored
        id: Mapped[str] = mapped_column(String(40), primary_key=True)
        tenant: Mapped[Any] = mapped_column(column, nullable=True)

    for name, value in members.items():
        setattr(Message, name, value)
    return Message


class World:
    """Rows of 100 seconds: of three tenants and of none; by the default, and with ttl 50 and -1."""

    def __init__(self, engine: Engine, kind: str, **limits: Any) -> None:
        column, self.tenants = TENANTS[kind]
        self.engine = engine
        self.model = message(column, Stored(HOUR, by="tenant", **limits))
        self.model.metadata.create_all(engine)
        with Session(engine) as session:
            for index, tenant in enumerate([*self.tenants, None]):
                for own in (None, 50, -1):
                    session.add(self.model(id=f"{index} {own}", tenant=tenant, ttl=own))
            session.flush()
            for key in session.scalars(select(self.model.id)).all():
                age(session.connection(), "messages", key, 100)
            session.commit()

    def change(self, ttl: StoredTTL, scope: Any = None) -> None:
        with self.engine.connect() as connection:
            set_policy(connection, self.model, ttl, by="ann", scope=scope)

    def inheriting(self, session: Session) -> set[int]:
        """Whose inheriting row is live; the others are checked."""
        keys = set(session.scalars(select(self.model.id)))
        assert {f"{index} -1" for index in range(4)} <= keys
        return {index for index in range(4) if f"{index} None" in keys}


@pytest.fixture(params=TENANTS)
def world(engine: Engine, request: pytest.FixtureRequest) -> World:
    return World(engine, request.param)


def test_rows_live_by_their_tenants_default(world: World) -> None:
    first, second, _ = world.tenants
    with Session(world.engine) as session:
        assert world.inheriting(session) == {0, 1, 2, 3}
        session.rollback()
        world.change(60, second)
        assert world.inheriting(session) == {0, 2, 3}
        session.rollback()
        world.change(60)
        world.change(HOUR, first)
        assert world.inheriting(session) == {0}
        session.rollback()
        world.change(None, second)
        world.change(-1, first)
        assert world.inheriting(session) == {0, 1}
        # TTL is off for the second only: its rows' own don't count.
        keys = set(session.scalars(select(world.model.id)))
        assert "1 50" in keys
        assert "0 50" not in keys


@pytest.mark.databases("mariadb", "mysql")
def test_a_write_locks_the_defaults_of_its_rows_only(engine: Engine, sent: list[str]) -> None:
    """What an UPDATE or DELETE looks up is locked, and the shortest default is one of all."""
    model = World(engine, "number").model
    sent.clear()
    with Session(engine) as session:
        session.scalars(select(model.id)).all()
        session.execute(update(model).values(ttl=7))
        session.execute(delete(model))
    looks = {sql.split(maxsplit=1)[0]: "min(" in sql for sql in sent}
    assert looks == {"SELECT": True, "UPDATE": False, "DELETE": False}


def test_each_expression_goes_by_it(world: World) -> None:
    first, second, third = world.tenants
    world.change(60, second)
    world.change(-1, third)
    model, everywhere = world.model, {"include_expired": True}
    with Session(world.engine) as session:
        other = aliased(model)
        judged = select(other.id, live(other), expired(other), expires_at(other))
        ends = {}
        for key, is_live, is_expired, end in session.execute(judged, execution_options=everywhere):
            ends[key] = end
            assert is_live != is_expired
            assert is_live == (key not in ("1 None", "0 50", "1 50", "2 50", "3 50"))
        assert ends["2 None"] is None
        assert ends["0 None"] > ends["1 None"]
        rows = {row.id: row for row in session.scalars(select(model))}
        for key, row in rows.items():
            assert row.expires_at == ends[key]
        joined = select(model.id).join(other, other.id == model.id)
        assert set(session.scalars(joined)) == set(rows)
        outer = select(model.id, other.id).outerjoin(other, other.id == model.id)
        assert set(session.execute(outer)) == {(key, key) for key in rows}
        inner = select(model.id).where(model.id.in_(select(other.id)))
        assert set(session.scalars(inner)) == set(rows)
        written = session.execute(update(model).values(tenant=None).where(model.ttl.is_(None)))
        assert written.rowcount == 3  # type: ignore[attr-defined]
        session.rollback()
        assert session.execute(delete(model)).rowcount == len(rows)  # type: ignore[attr-defined]
        session.rollback()
        session.add(model(id="1 None", tenant=first))  # the key is free
        session.commit()


AGES = (50, 500, 5_000)
"""Younger than the shortest default, between that and the longest, and older than all."""
OWNS = (None, -1, 10, 1_000, 100_000)
DEFAULTS = (100, 1_000, -1, None)


@pytest.mark.parametrize("default", DEFAULTS)
def test_each_age_is_judged_by_each_default(engine: Engine, default: int | None) -> None:
    model = message(String(40), Stored(HOUR, by="tenant"))
    model.metadata.create_all(engine)
    of_tenant = {f"has {ttl}": ttl for ttl in DEFAULTS}
    with Session(engine) as session:
        rows = [
            model(id=f"{tenant} {own} {seconds}", tenant=tenant, ttl=own)
            for tenant in (*of_tenant, "another", None)
            for own in OWNS
            for seconds in AGES
        ]
        session.add_all(rows)
        session.flush()
        expected = {
            row.id: is_live(of_tenant.get(row.tenant, default), row.ttl, int(row.id.split()[-1]))
            for row in rows
        }
        for key in expected:
            age(session.connection(), "messages", key, int(key.split()[-1]))
        session.commit()
        session.expunge_all()
        set_policy(session.connection(), model, default, by="ann")
        for tenant, ttl in of_tenant.items():
            set_policy(session.connection(), model, ttl, by="ann", scope=tenant)
        session.commit()
        lives = {key for key, lives in expected.items() if lives}
        assert set(session.scalars(select(model.id))) == lives
        everywhere = {"include_expired": True}
        judged = select(model.id, live(model), expired(model))
        judgements = session.execute(judged, execution_options=everywhere).all()
        assert {key for key, is_alive, _ in judgements if is_alive} == lives
        assert {key for key, _, is_over in judgements if is_over} == expected.keys() - lives
        locked = select(model.id).with_for_update()
        assert set(session.scalars(locked)) == lives
        assert session.execute(delete(model)).rowcount == len(lives)  # type: ignore[attr-defined]
        left = select(model.id).execution_options(include_expired=True)
        assert set(session.scalars(left)) == expected.keys() - lives


def is_live(default: int | None, own: int | None, seconds: int) -> bool:
    """By the contract's table."""
    ttl = default if own is None or default is None else own
    return ttl is None or ttl == -1 or seconds < ttl


def test_memory_knows_the_tenants_too(world: World) -> None:
    _, second, _ = world.tenants
    with Session(world.engine) as session:
        session.get(world.model, "1 None")
        session.rollback()
        world.change(60, second)
        assert session.get(world.model, "1 None") is None
        session.rollback()
        world.change(None, second)
        assert session.get(world.model, "1 None").expires_at is None
        session.rollback()
        row = session.get(world.model, "0 None")
        row.tenant = second
        session.flush()
        assert session.get(world.model, "0 None") is row
        assert row.expires_at is None


@pytest.mark.slow
@pytest.mark.parametrize("sweep", ["index", "scan"])
def test_sweeps_go_by_it(engine: Engine, sweep: str) -> None:
    world = World(engine, "text", least=30)
    first, second, third = world.tenants
    world.change(60, second)
    world.change(None, third)
    report = Sweeper(engine, world.model).run_once()
    # The second's that inherits, and those of 50 seconds but for the third's.
    assert (report.deleted, report.problems) == (4, ())
    with engine.connect() as connection:
        left = set(connection.scalars(text("SELECT id FROM messages")))
    assert left >= {"0 None", "2 None", "2 50", "3 None"}
    world.change(60)
    world.change(HOUR, first)
    assert Sweeper(engine, world.model, dry_run=True).run_once().targets[0].due == 1
    assert Sweeper(engine, world.model).run_once().deleted == 1


def test_scopes_are_written_down(world: World) -> None:
    first, *_ = world.tenants
    world.change(60, first)
    world.change(70, first)
    with world.engine.connect() as connection:
        of_all, of_first = stored_policies(connection)
        last, before = policy_changes(connection)
    assert (of_all.scope, of_all.ttl) == (None, HOUR)
    assert of_first.ttl == 70
    assert (before.scope, before.ttl_before, before.ttl_after) == (of_first.scope, 0, 60)
    assert (last.scope, last.ttl_before, last.ttl_after) == (of_first.scope, 60, 70)


def test_a_default_of_ones_own_can_be_removed(world: World) -> None:
    first, second, _ = world.tenants
    world.change(60, first)
    world.change(None, second)
    with Session(world.engine) as session:
        rows = set(session.scalars(select(world.model.id)))
    world.change("default", first)
    with Session(world.engine) as session:
        assert set(session.scalars(select(world.model.id))) > rows
    with world.engine.connect() as connection:
        stored = {row.scope: row.ttl for row in stored_policies(connection)}
        last, *_ = changes = policy_changes(connection)
    assert list(stored.values()) == [HOUR, None]
    assert (last.ttl_before, last.ttl_after, last.changed_by) == (60, 0, "ann")
    world.change("default", first)  # there is nothing to remove, and nothing to write down
    with world.engine.connect() as connection:
        assert policy_changes(connection) == changes
    with pytest.raises(InvalidTTL, match=r"Message\.__ttl__ = 'default'"):
        world.change("default")


def test_limits_hold_for_tenants(engine: Engine) -> None:
    world = World(engine, "text", least=60, most=2 * HOUR)
    for ttl in (59, 2 * HOUR + 1, None, -1):
        with pytest.raises(InvalidTTL, match=r"^Message\.__ttl__"):
            world.change(ttl, "acme")
    before = policies_of(world)
    for scope in ("", "x" * 256):
        with pytest.raises(
            TTLConfigurationError, match=r"^Message\.tenant = .*1 to (40|255) characters"
        ):
            world.change(60, scope)
    assert policies_of(world) == before


def policies_of(world: World) -> list[Any]:
    with world.engine.connect() as connection:
        return list(stored_policies(connection, world.model))


def test_a_uuid_that_is_text_in_python_is_found(engine: Engine) -> None:
    tenant = str(uuid.UUID(int=7))
    model = message(Uuid(as_uuid=False), Stored(HOUR, by="tenant"))
    model.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(model(id="a", tenant=tenant))
        session.flush()
        age(session.connection(), "messages", "a", 100)
        session.commit()
        set_policy(session.connection(), model, 60, scope=tenant, by="ann")
        session.commit()
        assert session.scalars(select(model.id)).all() == []


def test_a_column_that_is_no_text_is_refused() -> None:
    with pytest.raises(TTLConfigurationError, match="text, whole numbers or UUIDs"):
        message(JSON(), Stored(HOUR, by="tenant"))
    with pytest.raises(TTLConfigurationError, match="no column 'region'"):
        message(String(40), Stored(HOUR, by="region"))


# --- one form for each scope ----------------------------------------------------------------------


def protects(world: World, scope: Any, tenant: int) -> bool:
    """Whether a default for a scope is that of a tenant's rows, and of no others."""
    world.change(60)
    with Session(world.engine) as session:
        assert world.inheriting(session) == set()
    world.change(HOUR, scope)
    with Session(world.engine) as session:
        found = world.inheriting(session)
    world.change("default", scope)
    return found == {tenant}


@pytest.mark.parametrize(
    ("kind", "scope", "tenant"),
    [
        ("number", "1", 0),
        ("number", "001", 0),
        ("number", 1.0, 0),
        ("number", "-3", 2),
        ("uuid", str(uuid.UUID(int=2)).upper(), 1),
        ("uuid", uuid.UUID(int=2).hex, 1),
        ("uuid", f"urn:uuid:{uuid.UUID(int=2)}", 1),
        ("text", "Acme", 1),
    ],
)
def test_a_scope_protects_its_rows_however_it_is_spelled(
    engine: Engine, kind: str, scope: Any, tenant: int
) -> None:
    world = World(engine, kind)
    assert protects(world, scope, tenant)
    assert [policy.scope for policy in policies_of(world)] == [None]


@pytest.mark.parametrize(
    ("kind", "scopes"),
    [
        ("number", ["abc", "", "1.5", " 1", True, 1.5, 2**63, [1], b"1"]),
        ("uuid", ["acme", "", 1, True]),
        ("text", [1, True, 1.0, "a\0", "\ud800", ""]),
    ],
)
def test_a_scope_that_no_row_can_have_is_rejected(
    engine: Engine, kind: str, scopes: list[Any]
) -> None:
    world = World(engine, kind)
    before = policies_of(world)
    holds = {"number": "whole numbers", "uuid": "UUIDs", "text": "text"}[kind]
    reason = f"the column holds {holds}|a scope has 1 to"
    with engine.connect() as connection:
        for scope in scopes:
            for function in (set_policy, preview_policy):
                by: Any = {"by": "ann"} if function is set_policy else {}
                with pytest.raises(TTLConfigurationError, match=reason):
                    function(connection, world.model, 60, scope=scope, **by)
    assert policies_of(world) == before


@pytest.mark.databases("postgres", "mariadb", "mysql")
@pytest.mark.parametrize("kind", [SmallInteger(), Integer(), BigInteger()])
def test_a_number_that_the_column_cant_hold_is_rejected(engine: Engine, kind: Any) -> None:
    bits = {"SmallInteger": 16, "Integer": 32, "BigInteger": 64}[type(kind).__name__]
    model = message(kind, Stored(HOUR, by="tenant"))
    model.metadata.create_all(engine)
    with engine.connect() as connection:
        set_policy(connection, model, 60, scope=2 ** (bits - 1) - 1, by="ann")
        with pytest.raises(TTLConfigurationError, match="give a number from"):
            set_policy(connection, model, 60, scope=2 ** (bits - 1), by="ann")


def test_blanks_tell_tenants_apart_where_the_database_does(engine: Engine) -> None:
    model = message(String(40), Stored(60, by="tenant"))
    model.metadata.create_all(engine)
    tenants = ["acme", " acme", "Acme", "acm\u00e9"]
    with Session(engine) as session:
        session.add_all(model(id=str(n), tenant=tenant) for n, tenant in enumerate(tenants))
        session.flush()
        for number in range(len(tenants)):
            age(session.connection(), "messages", str(number), 100)
        session.commit()
        for number, tenant in enumerate(tenants):
            set_policy(session.connection(), model, HOUR, scope=tenant, by="ann")
            assert session.scalars(select(model.id)).all() == [str(number)]
            set_policy(session.connection(), model, "default", scope=tenant, by="ann")
        connection = session.connection()
        if engine.dialect.name in MYSQL_FAMILY:
            with pytest.raises(TTLConfigurationError, match="treats it as 'acme'"):
                set_policy(connection, model, 60, scope="acme ", by="ann")
        else:
            set_policy(connection, model, HOUR, scope="acme ", by="ann")
            assert session.scalars(select(model.id)).all() == []


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.parametrize("collation", ["utf8mb4_bin", "no pad", "latin1_bin"])
def test_blanks_behind_count_as_in_the_tenants_column(engine: Engine, collation: str) -> None:
    pads = collation != "no pad"
    if not pads:
        with engine.connect() as connection:  # which finds out
            is_mariadb = getattr(connection.dialect, "is_mariadb", False)
        collation = "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin"
    kind = VARCHAR(40, charset=collation.split("_")[0], collation=collation)
    model = message(kind, Stored(60, by="tenant"))
    model.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([model(id="1", tenant="acme"), model(id="2", tenant="acme ")])
        session.flush()
        for key in ("1", "2"):
            age(session.connection(), "messages", key, 100)
        session.commit()
        everywhere = {"include_expired": True}
        same = select(model.id).where(model.tenant == "acme").execution_options(**everywhere)
        of_acme = set(session.scalars(same))
        assert of_acme == ({"1", "2"} if pads else {"1"})
        set_policy(session.connection(), model, HOUR, scope="acme", by="ann")
        session.commit()
        assert set(session.scalars(select(model.id))) == of_acme
        seen = preview_policy(session.connection(), model, 60, scope="acme")
        assert seen.at_most == len(of_acme)
        session.rollback()
    assert Sweeper(engine, model).run_once().deleted == 2 - len(of_acme)
    with engine.connect() as connection:
        set_policy(connection, model, "default", scope="acme", by="ann")
    assert Sweeper(engine, model).run_once().deleted == len(of_acme)
