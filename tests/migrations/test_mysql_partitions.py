"""``op.add_ttl(..., partition=)`` on MariaDB and MySQL: a table that is there is cut by a copy."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import BigInteger, Text, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.migrations.projects import catalogue, is_mysql
from tests.sql.cutting import (
    DAILY,
    DAY,
    ago,
    instant,
    killed_before,
    partitions,
    run,
    swept,
    visits,
)
from ttl_odm import TTL, ExpireAfter, TTLError
from ttl_odm.alembic import MigrationRefusedError
from ttl_odm.partitions.alembic import mysql_cut
from ttl_odm.sqlalchemy import TTLMixin, include_expired

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

# MariaDB and MySQL partition differently.
pytestmark = [
    pytest.mark.databases("mariadb", "mysql"),
    pytest.mark.usefixtures("noon"),
    pytest.mark.every_server,
]

ADD = (
    "import ttl_odm; op.add_ttl('events', ttl_odm.ExpireAfter('created_at', 172800), "
    "partition=ttl_odm.Partitions('1 day', ahead=2){more})"
)
COPYING = ADD.format(more=", copy_table=True")
AGES = (1, 3, 5, 5, 8)
"""Of the rows, in days."""


def declared() -> Any:
    """The model as it is after the migration."""

    class Base(DeclarativeBase):
        pass

    class Event(Base):
        __tablename__ = "events"
        __ttl__ = ExpireAfter("created_at", 2 * DAY)
        __ttl_partition__ = DAILY

        id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=True)
        body: Mapped[str | None] = mapped_column(Text)
        created_at: Mapped[datetime] = mapped_column(primary_key=True)

    return Event


def make(
    engine: Engine, kind: str = "DATETIME NOT NULL", *more: str, ages: Any = AGES, unit: int = 0
) -> None:
    """The table as it was before, with a row of each age, from noon on."""
    key = "id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY"
    parts = ", ".join([key, "body TEXT", f"created_at {kind}", *more])
    run(engine, f"CREATE TABLE events ({parts})")
    with engine.begin() as connection:
        for days in ages:
            moment = ago(connection, days)
            value = instant(connection, moment)
            if unit:
                value = str(int(moment.timestamp()) * unit)
            statement = f"INSERT INTO events (body, created_at) VALUES ('{days} 100%', {value})"  # noqa: S608
            connection.exec_driver_sql(statement.replace("%", "%%"))


def rows(engine: Engine, table: str = "events") -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(text(f"SELECT * FROM {table} ORDER BY id")))  # noqa: S608


def named(engine: Engine, *ages: int, table: str = "events") -> set[str]:
    """The partitions of some days, and the two for all others."""
    with engine.connect() as connection:
        days = {f"{table}_p{ago(connection, age):%Y%m%d}" for age in ages}
    return {*days, f"{table}_past", f"{table}_rest"}


def definition(engine: Engine) -> str:
    with engine.connect() as connection:
        return str(connection.exec_driver_sql("SHOW CREATE TABLE events").one()[1])


# --- what is done --------------------------------------------------------------------------------


def test_a_table_with_rows_is_cut_from_its_oldest_row_on(engine: Engine, project: Any) -> None:
    make(engine)
    before = rows(engine)
    here = project(declared())
    here.revision(COPYING)
    here.upgrade()
    assert rows(engine) == before
    assert partitions(engine, "events") == named(engine, *range(-2, 9))
    assert "PRIMARY KEY (`id`,`created_at`)" in definition(engine)
    run(engine, "INSERT INTO events (body, created_at) VALUES ('new', UTC_TIMESTAMP(6))")
    assert rows(engine)[-1].id == 6
    here.check()


@pytest.mark.slow
def test_the_sweeper_drops_what_is_over_afterwards(engine: Engine, project: Any) -> None:
    make(engine)
    here = project(declared())
    here.revision(COPYING)
    here.upgrade()
    report = swept(engine, declared())
    assert (report.deleted, report.notes) == (4, ())
    assert report.partitions is not None
    assert report.partitions.over == report.partitions.missing == 0
    assert [row.body for row in rows(engine)] == ["1 100%"]
    assert partitions(engine, "events") == named(engine, *range(-2, 3))


def test_a_table_that_is_cut_already_stays_as_it_is(engine: Engine, project: Any) -> None:
    make(engine)
    here = project(declared())
    here.revision(COPYING)
    here.upgrade()
    before = catalogue(engine, "events")
    here.revision(ADD.format(more=""))
    here.upgrade()
    assert catalogue(engine, "events") == before


def test_an_empty_table_begins_with_today(engine: Engine, project: Any) -> None:
    make(engine, ages=())
    here = project(declared())
    here.revision(COPYING)
    here.upgrade()
    assert partitions(engine, "events") == named(engine, 0, -1, -2)


@pytest.mark.slow
def test_columns_that_ttl_brings_are_kept(engine: Engine, project: Any) -> None:
    class Base(DeclarativeBase):
        pass

    class Visit(TTLMixin, Base):
        __tablename__ = "visits"
        __ttl__ = TTL(3600, max_lifetime=5 * DAY, created="began")
        __ttl_partition__ = DAILY

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        began: Mapped[datetime] = mapped_column(primary_key=True)

    run(engine, "CREATE TABLE visits (id INT PRIMARY KEY, began DATETIME NOT NULL)")
    with engine.begin() as connection:
        for days in (3, 9):
            value = instant(connection, ago(connection, days))
            connection.execute(text(f"INSERT INTO visits VALUES ({days}, {value})"))  # noqa: S608
    here = project(Visit)
    here.revision(
        "import ttl_odm; op.add_ttl('visits', ttl_odm.ExpireAfter('began', 432000)); "
        "op.add_ttl('visits', ttl_odm.TTL(3600, max_lifetime=432000, "
        "created='began'), backfill='began', partition=ttl_odm.Partitions('1 day', ahead=2), "
        "copy_table=True)"
    )
    here.upgrade()
    here.check()
    made = catalogue(engine, "visits")
    assert partitions(engine, "visits") == named(engine, *range(-2, 10), table="visits")
    run(engine, "UPDATE visits SET ttl = -1 WHERE id = 3")
    assert swept(engine, Visit).deleted == 1
    with engine.connect() as connection:
        left = select(Visit.id).options(include_expired())
        assert list(connection.scalars(left)) == [3]
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    lines = [line for line in catalogue(engine, "visits") if "PARTITION" not in line]
    assert [line for line in made if "PARTITION" not in line] == lines


def test_a_table_of_the_same_revision_is_cut_too(engine: Engine, project: Any) -> None:
    here = project(declared())
    create = (
        "op.create_table('events', sa.Column('id', sa.BigInteger(), primary_key=True), "
        "sa.Column('body', sa.Text()), sa.Column('created_at', sa.DateTime(), nullable=False)); "
    )
    here.revision(create + ADD.format(more=", in_transaction=True"))
    here.upgrade()
    assert partitions(engine, "events") == named(engine, 0, -1, -2)
    assert "PRIMARY KEY (`id`,`created_at`)" in definition(engine)
    here.check()


@pytest.mark.parametrize("kind", ["DATE NOT NULL", "DATETIME(6) NULL"])
def test_columns_of_other_kinds_are_cut(engine: Engine, project: Any, kind: str) -> None:
    make(engine, kind)
    before = rows(engine)
    here = project()
    here.revision(COPYING)
    here.upgrade()
    assert rows(engine) == before
    assert partitions(engine, "events") == named(engine, *range(-2, 9))


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1_000), ("us", 1_000_000)])
def test_epoch_numbers_are_cut(engine: Engine, project: Any, unit: str, per_second: int) -> None:
    make(engine, "BIGINT NOT NULL", unit=per_second)
    here = project()
    here.revision(COPYING.replace("172800)", f"172800, unit={unit!r})"))
    here.upgrade()
    assert partitions(engine, "events") == named(engine, *range(-2, 9))
    assert len(rows(engine)) == len(AGES)


def test_old_rows_share_a_partition_where_there_would_be_too_many(
    engine: Engine, project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql_cut, "MOST", 6)
    make(engine)
    here = project(declared())
    here.revision(COPYING)
    here.upgrade()
    # From the oldest row's day on, up to the day before yesterday.
    assert partitions(engine, "events") == named(engine, 8, *range(-2, 3))
    with engine.connect() as connection:
        (first, *_) = named(engine, 8) - named(engine)
        counts = [
            connection.scalar(text(f"SELECT count(*) FROM events PARTITION ({name})"))  # noqa: S608
            for name in ("events_past", first)
        ]
    assert counts == [0, 4]
    assert swept(engine, declared()).deleted == 4
    assert first not in partitions(engine, "events")


def test_a_primary_key_that_has_the_column_stays(engine: Engine, project: Any) -> None:
    make(engine)
    run(engine, "ALTER TABLE events DROP PRIMARY KEY, ADD PRIMARY KEY (id, created_at, body(9))")
    here = project()
    here.revision(COPYING)
    here.upgrade()
    assert "PRIMARY KEY (`id`,`created_at`,`body`(9))" in definition(engine)


def test_a_primary_key_keeps_what_it_is_made_of(engine: Engine, project: Any) -> None:
    make(engine)
    run(engine, "ALTER TABLE events DROP PRIMARY KEY, ADD PRIMARY KEY (id, body(9))")
    here = project()
    here.revision(COPYING)
    here.upgrade()
    assert "PRIMARY KEY (`id`,`body`(9),`created_at`)" in definition(engine)


def test_a_name_that_needs_quotes_is_cut(engine: Engine, project: Any) -> None:
    make(engine)
    run(engine, r"RENAME TABLE events TO `a ``100%``\:b`")
    here = project()
    here.revision(COPYING.replace("'events'", "'a `100%`:b'"))
    here.upgrade()
    assert len(partitions(engine, "a `100%`:b")) == 13


# --- a table that is cut, later on ---------------------------------------------------------------


def allowing_a_copy(engine: Engine, here: Any, operation: str) -> None:
    """Migrate; MariaDB says before that it copies a partitioned table for virtual columns."""
    here.revision(operation)
    if not is_mysql(engine):
        before = catalogue(engine, "visits")
        with pytest.raises(MigrationRefusedError, match="copy_table=True if that is acceptable"):
            here.upgrade()
        assert catalogue(engine, "visits") == before
        here.edit(operation, f"{operation[:-1]}, copy_table=True)")
    here.upgrade()


def test_ttl_can_be_taken_off(engine: Engine, project: Any) -> None:
    visits().metadata.create_all(engine)
    allowing_a_copy(engine, project(), "op.drop_ttl('visits')")
    left = str(catalogue(engine, "visits"))
    assert not [word for word in ("_ts", "_ttl_inh", "_ttl_own", "`ttl`") if word in left]
    assert partitions(engine, "visits") == named(engine, 0, -1, -2, table="visits")


def test_ttl_can_be_put_on(engine: Engine, project: Any) -> None:
    run(engine, "CREATE TABLE visits (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2")
    allowing_a_copy(engine, project(), "op.add_ttl('visits', 60)")
    made = str(catalogue(engine, "visits"))
    assert [word for word in ("_ts", "_ttl_inh", "_ttl_own", "`ttl`") if word not in made] == []


def test_without_indexes_nothing_is_copied(engine: Engine, project: Any) -> None:
    run(engine, "CREATE TABLE visits (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2")
    here = project()
    here.revision("op.add_ttl('visits', 60, sweep='scan')", "op.drop_ttl('visits')")
    here.upgrade()
    assert "_ts" in str(catalogue(engine, "visits"))
    here.downgrade("base")
    assert "_ts" not in str(catalogue(engine, "visits"))


# --- what is refused -----------------------------------------------------------------------------

REFUSED: dict[str, tuple[list[str], str]] = {
    "partitioned": (
        ["ALTER TABLE events PARTITION BY HASH (id) PARTITIONS 2"],
        r"is partitioned by HASH \(.*id.*\), not by ranges of 'created_at'.*REMOVE",
    ),
    "timestamp": (
        ["ALTER TABLE events MODIFY created_at TIMESTAMP NOT NULL"],
        "'created_at' is a TIMESTAMP, which MariaDB and MySQL would partition in the",
    ),
    "foreign key": (
        [
            "CREATE TABLE kinds (id INT PRIMARY KEY)",
            (
                "ALTER TABLE events ADD kind INT, ADD CONSTRAINT k FOREIGN KEY (kind) "
                "REFERENCES kinds (id)"
            ),
        ],
        r"foreign keys.*\(k of events\)",
    ),
    "reference": (
        [
            (
                "CREATE TABLE notes (event BIGINT, CONSTRAINT e FOREIGN KEY (event) "
                "REFERENCES events (id))"
            )
        ],
        (
            r"foreign keys.*\(e of notes\), which MariaDB and MySQL don't support for partitioned "
            r"tables\. Drop them first, or leave partition= out\."
        ),
    ),
    "descending key": (
        ["ALTER TABLE events ADD UNIQUE INDEX u (body(9), id DESC)"],
        r"ADD UNIQUE INDEX `u` \(`body`\(9\), `id`( DESC)?, `created_at`\)",
    ),
    "unique key": (
        ["ALTER TABLE events ADD number INT, ADD UNIQUE INDEX u (number)"],
        r"contain 'created_at'.*ADD UNIQUE INDEX `u` \(`number`, `created_at`",
    ),
    "null": (
        [
            "ALTER TABLE events MODIFY created_at DATETIME NULL",
            "INSERT INTO events (body) VALUES ('x')",
        ],
        r"is NULL in some rows.*SELECT \* FROM `events` WHERE `created_at` IS NULL",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_be_cut_is_refused_before_anything_is_changed(
    engine: Engine, project: Any, case: str
) -> None:
    statements, message = REFUSED[case]
    make(engine)
    run(engine, *statements)
    before = catalogue(engine, "events")
    here = project()
    here.revision(COPYING)
    with pytest.raises(MigrationRefusedError, match=message):
        here.upgrade()
    assert catalogue(engine, "events") == before


@pytest.mark.filterwarnings("ignore:Did not recognize type 'point'")
def test_so_is_a_column_of_geometry(engine: Engine, project: Any) -> None:
    make(engine)
    run(engine, "ALTER TABLE events ADD g POINT")
    here = project()
    here.revision(COPYING)
    with pytest.raises(
        MigrationRefusedError, match="column g is a point, which this server doesn't support"
    ):
        here.upgrade()


@pytest.mark.databases("mysql")
@pytest.mark.parametrize(
    ("change", "message"),
    [("ADD FULLTEXT INDEX f (body)", "index f is FULLTEXT"), ("ENGINE=MyISAM", "is MyISAM")],
)
def test_so_is_what_mysql_alone_does_not_cut(
    engine: Engine, project: Any, change: str, message: str
) -> None:
    make(engine)
    run(engine, f"ALTER TABLE events {change}")
    here = project()
    here.revision(COPYING)
    with pytest.raises(MigrationRefusedError, match=message):
        here.upgrade()


def test_without_leave_to_copy_it_is_said_what_to_do(engine: Engine, project: Any) -> None:
    make(engine)
    before, made = catalogue(engine, "events"), rows(engine)
    here = project(declared())
    here.revision(ADD.format(more=""))
    with pytest.raises(MigrationRefusedError, match="Write copy_table=True if that") as refused:
        here.upgrade()
    assert catalogue(engine, "events") == before
    # What it names may be done otherwise, and then all is well.
    run(engine, str(refused.value).partition("run this again: ")[2])
    here.upgrade()
    here.check()
    assert rows(engine) == made
    swept(engine, declared())
    swept(engine, declared())
    with engine.connect() as connection:
        tomorrow = f"events_p{ago(connection, -1):%Y%m%d}"
    assert tomorrow in partitions(engine, "events")


def test_a_script_cuts_new_tables_only(engine: Engine, project: Any) -> None:
    here = project(declared())
    here.revision(COPYING)
    with pytest.raises(MigrationRefusedError, match="--sql can't"):
        here.script()
    here.revision(ADD.format(more=", in_transaction=True"))
    with engine.connect():  # by which the dialect knows its version
        script = here.script(revisions="r1:r2")
    assert "PARTITION BY RANGE COLUMNS (`created_at`) (PARTITION `events_past`" in script


# --- when it fails -------------------------------------------------------------------------------


@pytest.fixture
def other(engine: Engine) -> Iterator[Engine]:
    """A second engine, which kills the connections of the first."""
    from sqlalchemy import create_engine

    second = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    yield second
    second.dispose()


@pytest.mark.slow
def test_a_kill_at_every_statement_leaves_it_cut_or_as_it_was(
    engine: Engine, other: Engine, project: Any
) -> None:
    here = project(declared())
    here.revision("pass")
    here.upgrade()
    here.revision(COPYING)
    wanted: Any = None
    for number in range(1, 200):
        run(other, "DROP TABLE IF EXISTS events")
        make(other)
        before = rows(other)
        with killed_before(engine, other, number) as to_come:
            try:
                here.upgrade()
            except (SQLAlchemyError, TTLError):
                assert to_come[0] <= 0
        engine.dispose()
        assert rows(other) == before
        here.upgrade()
        made = catalogue(other, "events")
        wanted = wanted or made
        assert made == wanted
        if to_come[0] > 0:
            break
        here.downgrade("r1")
    else:
        raise AssertionError("It is never done.")
    here.check()
