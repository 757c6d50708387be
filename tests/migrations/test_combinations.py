"""Each pair of `ttl_odm.combinations` is tried on SQLAlchemy: it works, or its reason is given."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import DateTime, ForeignKey, event, select, text
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    configure_mappers,
    mapped_column,
)

from tests.clocks import age
from tests.combined import pairs, pattern
from tests.migrations.swept import alone
from tests.sql.cutting import DAILY, ago, create, partitions
from ttl_odm import TTL, Follows, Stored, TTLConfigurationError
from ttl_odm.alembic import MigrationRefusedError
from ttl_odm.combinations import CAPABILITIES
from ttl_odm.sqlalchemy import Archive, TTLMixin, set_policy
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ttl_odm.combinations import Combination
    from ttl_odm.sweeper import TargetReport

DAY = 86_400
LIFE = 20 * 3600
"""Longer than the clock of `noon` is away from that of the database, which views go by."""
EXPIRED, LIVE = 1, 2
SERVERS = ("postgres", "mariadb", "mysql")

pytestmark = pytest.mark.filterwarnings("ignore:Skipped unsupported reflection")


class World:
    """A table with two capabilities, and what each of them has to show for itself."""

    def __init__(self, engine: Engine, project: Any, *capabilities: str) -> None:
        """Declare the models, and create and migrate their tables."""
        self.engine, self._project, self._has = engine, project, {*capabilities}
        assert self._has <= CAPABILITIES.keys()
        self.hooked: list[int] = []
        self.deleted_by_orm: list[int] = []

    # Declaring

    def declare(self) -> None:
        """Declare ``things``, with what it follows, what follows it, and its archive."""

        class Base(DeclarativeBase):
            pass

        self.base: Any = Base
        archive = {"__tablename__": "old_things", **self._key()}
        self.old: Any = type("Old", (Base,), archive)
        members = {"__tablename__": "things", **self._key()}
        self.thing: Any = type("Thing", (TTLMixin, Base), self._with_capabilities(members))
        if "followed" in self._has:
            self.item: Any = self._item()
        if "orm" in self._has:
            event.listen(self.thing, "before_delete", self._note_deleted)
        configure_mappers()

    def _with_capabilities(self, members: dict[str, Any]) -> dict[str, Any]:
        default: Any = Stored(7 * DAY) if "stored" in self._has else LIFE
        members["__ttl__"] = default
        if "partitions" in self._has:
            members["__ttl__"] = TTL(default, max_lifetime=30 * DAY, created="began")
            members["__ttl_partition__"] = DAILY
        if "follows" in self._has:
            root = {"__tablename__": "roots", "__ttl__": LIFE, **_key()}
            self.root: Any = type("Root", (TTLMixin, self.base), root)
            members["__annotations__"]["root_id"] = Mapped[int]
            members["root_id"] = mapped_column(ForeignKey("roots.id"), index=True)
            members["ends"] = mapped_column(DateTime(timezone=True), nullable=True)
            members["__ttl__"] = Follows(self.root, on={"root_id": "id"})
        if "archive" in self._has:
            members["__ttl_archive__"] = Archive(self.old)
        if "hooks" in self._has:
            members["__ttl_on_purged__"] = lambda purged: self.hooked.extend(
                key for (key, *_) in purged.keys
            )
        if "orm" in self._has:
            members["__ttl_purge__"] = "orm"
        return members

    def _key(self) -> dict[str, Any]:
        members = _key()
        if "partitions" in self._has:
            members["__annotations__"]["began"] = Mapped[datetime]
            members["began"] = mapped_column(DateTime(timezone=True), primary_key=True)
        return members

    def _item(self) -> Any:
        members, on = _key(), {"thing_id": "id"}
        members["__annotations__"]["thing_id"] = Mapped[int]
        key = [ForeignKey("things.id", ondelete="CASCADE")]
        if "partitions" in self._has:  # which InnoDB gives no foreign keys
            members["__annotations__"]["thing_began"] = Mapped[datetime]
            members["thing_began"] = mapped_column(DateTime(timezone=True))
            key, on = [], {**on, "thing_began": "began"}
        members["thing_id"] = mapped_column(*key, index=True)
        members["__ttl__"] = Follows(self.thing, on=on)
        return type("Item", (TTLMixin, self.base), {"__tablename__": "items", **members})

    def _note_deleted(self, _: object, __: object, row: Any) -> None:
        self.deleted_by_orm.append(row.id)

    def migrate(self, policy: str | None = None) -> None:
        """Let the database sweep the table, and hide its expired rows."""
        default = "ttl_odm.Stored(604800)" if "stored" in self._has else str(LIFE)
        if "partitions" in self._has:
            default = f"ttl_odm.TTL({default}, max_lifetime={30 * DAY}, created='began')"
        here = self._project(self.base)
        options = {"database_sweep": "sweep='database'", "view": "enforce='view'"}
        options["rls"] = "enforce='rls'"
        for capability in sorted(self._has & options.keys()):
            option = options[capability]
            here.revision(f"import ttl_odm; op.alter_ttl('things', {policy or default}, {option})")
        here.upgrade()

    def create(self) -> None:
        """Create the tables, with a partition of three days ago."""
        if "partitions" in self._has:
            create(self.engine, self.thing, 3)
        else:
            self.base.metadata.create_all(self.engine)

    # Using

    def write(self) -> None:
        """Write a row that expires, and one that doesn't."""
        with Session(self.engine) as session:
            for key in (EXPIRED, LIVE):
                values: dict[str, Any] = {}
                if "follows" in self._has:
                    session.add(self.root(id=key))
                    session.flush()
                    values["root_id"] = key
                if "partitions" in self._has:
                    days = 3 if key == EXPIRED else 0
                    values["began"] = ago(session.connection(), days) + timedelta(hours=12)
                row = self.thing(id=key, **values)
                session.add(row)
                session.flush()
                if "followed" in self._has:
                    of = {"thing_began": row.began} if "partitions" in self._has else {}
                    session.add(self.item(id=10 * key, thing_id=key, **of))
            session.commit()
        aged = "roots" if "follows" in self._has else "things"
        with self.engine.begin() as connection:
            age(connection, aged, EXPIRED, 3 * DAY)
        if "stored" in self._has:
            assert self.read() == [EXPIRED, LIVE]
            with self.engine.connect() as connection:
                set_policy(connection, self.thing, LIFE, by="test")

    def read(self) -> list[int]:
        """The keys of the live rows, the same by all ways."""
        with Session(self.engine) as session:
            keys = [*session.scalars(select(self.thing.id).order_by(self.thing.id))]
            if "followed" in self._has:
                items = session.scalars(select(self.item.id).order_by(self.item.id))
                assert [*items] == [10 * key for key in keys]
        query = text("SELECT id FROM {} ORDER BY id".format("things_live"))  # noqa: S608
        with self.engine.connect() as connection:
            if "view" in self._has:
                assert [*connection.scalars(query)] == keys
            if "rls" in self._has:
                assert self._read_by_another(connection) == keys
        return keys

    def _read_by_another(self, connection: Any) -> list[int]:
        reader = f"reads_{self.engine.url.database}"[:60]
        connection.execute(text(f"CREATE ROLE {reader}"))
        tables = ["things", *(["ttl_odm_policies"] if "stored" in self._has else [])]
        connection.execute(text(f"GRANT SELECT ON {', '.join(tables)} TO {reader}"))
        connection.execute(text(f"SET LOCAL ROLE {reader}"))
        keys = [*connection.scalars(text("SELECT id FROM things ORDER BY id"))]
        connection.rollback()
        return keys

    def sweep(self) -> TargetReport | None:
        """Delete the expired rows; return the report of ``things``."""
        if "database_sweep" in self._has:
            with alone(self.engine, "things") as let_run:
                let_run()
            return None
        first, *_ = [
            Sweeper(self.engine, self.base, lease=False).run_once()
            for _ in range(2 if "partitions" in self._has else 1)  # the second drops empty ones
        ]
        first.raise_for_failures()
        return next((target for target in first.targets if target.table == "things"), None)

    def check_swept(self) -> None:
        """See that the expired row is gone as each capability says."""
        assert self.read() == [LIVE]
        assert self._stored("things") == [LIVE]
        if "follows" in self._has:
            assert self._stored("roots") == [LIVE]
        if "followed" in self._has:
            assert self._stored("items") == [10 * LIVE]
        assert self._stored("old_things") == [EXPIRED] * ("archive" in self._has)
        assert self.hooked == [EXPIRED] * ("hooks" in self._has)
        assert self.deleted_by_orm == [EXPIRED] * ("orm" in self._has)
        if "partitions" in self._has:
            is_left = "things_d3" in partitions(self.engine, "things")
            assert is_left == ("rls" in self._has)

    def _stored(self, table: str) -> list[int]:
        with self.engine.connect() as connection:
            return [*connection.scalars(text(f"SELECT id FROM {table} ORDER BY id"))]  # noqa: S608


def _key() -> dict[str, Any]:
    return {
        "__annotations__": {"id": Mapped[int]},
        "id": mapped_column(primary_key=True, autoincrement=False),
    }


def try_pair(line: Combination, world: World) -> None:
    """Do all that users do with the pair."""
    world.declare()
    world.create()
    if (line.first, line.second) == ("follows", "stored"):
        with world.engine.connect() as connection:
            set_policy(connection, world.thing, LIFE, by="test")
    world.migrate(POLICIES.get((line.first, line.second)))
    world.write()
    assert world.read() == [LIVE]
    target = world.sweep()
    world.check_swept()
    if line.first == "partitions" and line.second != "archive" and line.reason:
        assert target is not None
        assert any(line.reason in note for note in target.notes), target.notes


POLICIES = {
    ("follows", "database_sweep"): "ttl_odm.ExpireAt('ends')",
    ("follows", "view"): "ttl_odm.Follows('root_id')",
    ("follows", "rls"): "ttl_odm.Follows('root_id')",
}
"""What a migration might say of rows that follow others."""


def check(line: Combination, engine: Engine, project: Any, request: pytest.FixtureRequest) -> None:
    """See that a pair does what its line says."""
    pair = {line.first, line.second}
    for capability, fixture in {"partitions": "noon", "database_sweep": "scheduler"}.items():
        if capability in pair:
            request.getfixturevalue(fixture)
    world = World(engine, project, *pair)
    if line.outcome != "rejected":
        try_pair(line, world)
        return
    with pytest.raises((TTLConfigurationError, MigrationRefusedError), match=pattern(line)):
        try_pair(line, world)


@pytest.mark.databases("sqlite")
@pairs("sqlalchemy", "sqlite")
def test_each_pair_on_sqlite(
    engine: Engine, project: Any, line: Combination, request: pytest.FixtureRequest
) -> None:
    check(line, engine, project, request)


@pytest.mark.databases("postgres")
@pairs("sqlalchemy", "postgres", but="sqlite")
def test_each_pair_that_postgresql_has_and_sqlite_does_not(
    engine: Engine, project: Any, line: Combination, request: pytest.FixtureRequest
) -> None:
    check(line, engine, project, request)


@pytest.mark.databases("mariadb", "mysql")
@pairs("sqlalchemy", "mysql", but="sqlite")
def test_each_pair_that_innodb_has_and_sqlite_does_not(
    engine: Engine, project: Any, line: Combination, request: pytest.FixtureRequest
) -> None:
    check(line, engine, project, request)
