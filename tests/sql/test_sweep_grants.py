"""A sweeper whose user may do what the documentation says, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    create_engine,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.sql.sweeping import HOUR, add, left
from ttl_odm import Stored
from ttl_odm.sqlalchemy import Archive, TTLMixin, create_policies, lease_table, set_policy
from ttl_odm.sweeper import Skip, Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from tests.backends import Backend

# Each server has grants of its own.
pytestmark = pytest.mark.every_server

GRANTS = {
    "carts": "SELECT, UPDATE, DELETE",
    "old": "INSERT",
    "notes": "SELECT",
    "ttl_odm_lease": "SELECT, INSERT, UPDATE",
}


def shop(ttl: Any = HOUR) -> Any:
    class Base(DeclarativeBase):
        pass

    old = Table("old", MetaData(), Column("id", Integer))
    lease_table(Base.metadata)

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = ttl
        __ttl_archive__ = Archive(old)

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Note(Base):
        __tablename__ = "notes"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        cart: Mapped[int] = mapped_column(ForeignKey(Cart.id), index=True)

    return Cart, Note, old


@pytest.fixture
def poor(engine: Engine, backend: Backend) -> Iterator[Engine]:
    """An engine whose user has been granted `GRANTS`; the tables are there."""
    cart, _, old = shop()
    cart.metadata.create_all(engine)
    old.create(engine)
    name = engine.url.database
    is_postgresql = engine.dialect.name == "postgresql"
    who = f'"{name}"' if is_postgresql else f"'{name}'@'%'"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE {'ROLE' if is_postgresql else 'USER'} {who}"))
        if is_postgresql:
            connection.execute(text(f"ALTER ROLE {who} LOGIN"))
            connection.execute(text("REVOKE ALL ON SCHEMA public FROM PUBLIC"))
            connection.execute(text(f"GRANT USAGE ON SCHEMA public TO {who}"))
        for table, rights in GRANTS.items():
            connection.execute(text(f"GRANT {rights} ON {table} TO {who}"))
    made = create_engine(engine.url.set(username=name, password=None))
    yield made
    made.dispose()
    with engine.begin() as connection:
        if is_postgresql:
            connection.execute(text(f"DROP OWNED BY {who}"))
        connection.execute(text(f"DROP {'ROLE' if is_postgresql else 'USER'} {who}"))


@pytest.mark.databases("postgres", "mariadb", "mysql")
@pytest.mark.parametrize("hooks", [None, lambda _: None])
def test_a_sweeper_needs_no_more_than_is_documented(
    engine: Engine, poor: Engine, hooks: Any
) -> None:
    cart, note, _ = shop()
    with engine.begin() as connection:
        add(connection, "carts", [(number, None, 2 * HOUR + number) for number in range(20)])
        connection.execute(note.__table__.insert(), [{"id": 1, "cart": 7}])
    with engine.connect() as holder:
        holder.execute(text("SELECT id FROM carts WHERE id = 4 FOR UPDATE"))
        sweeper = Sweeper(poor, cart, on_purged=hooks, max_fraction=1, batch_size=6)
        report = sweeper.run_once()
        report.raise_for_failures()
        (target,) = report.targets
        assert (target.deleted, target.archived) == (18, 18)
        assert dict(target.skips) == {Skip.LOCKED: 1, Skip.RESTRICTED: 1}
    with engine.connect() as connection:
        assert left(connection, cart) == {4, 7}


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_an_application_needs_to_insert_as_well_and_displaces_what_has_expired(
    engine: Engine, poor: Engine
) -> None:
    cart, _, old = shop()
    name = engine.url.database
    who = f'"{name}"' if engine.dialect.name == "postgresql" else f"'{name}'@'%'"
    with engine.begin() as connection:
        connection.execute(text(f"GRANT INSERT ON carts TO {who}"))
        add(connection, "carts", [(1, None, 2 * HOUR)])
    with Session(poor) as session:
        session.add(cart(id=1))
        session.commit()
        session.get_one(cart, 1).touch()
        session.commit()
    with engine.connect() as connection:
        assert left(connection, cart) == {1}
        assert connection.scalars(select(old.c.id)).all() == [1]


@pytest.mark.databases("mariadb", "mysql")
def test_an_application_that_may_not_update_inserts_all_the_same(
    engine: Engine, poor: Engine
) -> None:
    cart, _, _ = shop()
    who = f"'{engine.url.database}'@'%'"
    with engine.begin() as connection:
        connection.execute(text(f"REVOKE UPDATE ON carts FROM {who}"))
        connection.execute(text(f"GRANT INSERT ON carts TO {who}"))
        add(connection, "carts", [(1, None, 2 * HOUR), (4, None, 2 * HOUR), (9, None, 0)])
    with Session(poor) as session:
        session.add(cart(id=1))
        session.flush()
        session.add_all([cart(id=number) for number in (2, 3, 4)])
        session.commit()
        session.add(cart(id=9))
        with pytest.raises(IntegrityError):
            session.flush()
    with engine.connect() as connection:
        assert left(connection, cart) == {1, 2, 3, 4, 9}


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_who_deletes_by_a_stored_default_may_lock_its_row(engine: Engine, poor: Engine) -> None:
    """On PostgreSQL that takes the right to update a column; reading is enough elsewhere."""
    cart, *_ = shop(Stored(HOUR))
    name, is_postgresql = engine.url.database, engine.dialect.name == "postgresql"
    who = f'"{name}"' if is_postgresql else f"'{name}'@'%'"
    with engine.begin() as connection:
        create_policies(connection, cart.__table__)
        connection.execute(text(f"GRANT SELECT ON ttl_odm_policies TO {who}"))
        connection.execute(text(f"GRANT INSERT ON carts TO {who}"))
        add(connection, "carts", [(1, None, 2 * HOUR), (2, None, 2 * HOUR)])
    if is_postgresql:
        (target,) = Sweeper(poor, cart).run_once().targets
        assert "GRANT UPDATE (reason) ON ttl_odm_policies" in str(target.error)
        with Session(poor) as session:
            session.add(cart(id=1))
            with pytest.raises(DBAPIError, match=r"GRANT UPDATE \(reason\)"):
                session.flush()
        with engine.begin() as connection:
            connection.execute(text(f"GRANT UPDATE (reason) ON ttl_odm_policies TO {who}"))
    with Session(poor) as session:
        session.add(cart(id=1))
        session.commit()
        with pytest.raises(DBAPIError):
            set_policy(session.connection(), cart, 60, by="eve")
    Sweeper(poor, cart).run_once().raise_for_failures()
    with engine.connect() as connection:
        assert left(connection, cart) == {1}
