"""Raw SQL that a guard can't understand is not sent: names in strings, programs, hidden columns."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    Integer,
    MetaData,
    Table,
    func,
    insert,
    literal_column,
    select,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from tests.policies import know_only
from ttl_odm.sqlalchemy import RawSQLError, RawSQLWarning, TTLMixin, guard
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine


@pytest.fixture(autouse=True)
def _no_policies_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    know_only(monkeypatch, "tests.sql", but="tests.sql.following")


EVERYWHERE = [
    "EXPLAIN SELECT id FROM web_sessions",
    "CREATE VIEW leak AS SELECT id FROM web_sessions",
    "CREATE TABLE leak AS SELECT id FROM web_sessions",
    "CREATE TRIGGER t BEFORE UPDATE ON web_sessions FOR EACH ROW EXECUTE FUNCTION f()",
    "WOBBLE web_sessions",
    "SELECT id FROM web_sessions WHERE id IN (SELECT FROM)",
]
OF_POSTGRESQL = [
    r'SELECT id FROM U&"\0077eb_sessions"',
    """SELECT id FROM u&"!0077eb_sessions" UESCAPE '!'""",
    "SELECT query_to_xml('SELECT id FROM web_sessions', true, true, '')::text",
    "SELECT query_to_xml('SELECT id FROM web_' || 'sessions', true, true, '')::text",
    "SELECT pg_catalog.\"query_to_xml\"('SELECT id FROM web_' || 'sessions', true, true, '')::text",
    "SELECT table_to_xml('web_sessions', true, true, '')::text",
    "SELECT table_to_xml(('web_' || 'sessions')::regclass, true, true, '')::text",
    "SELECT schema_to_xml(current_schema()::name, true, true, '')::text",
    "SELECT database_to_xml(true, true, '')::text",
    "SELECT * FROM ts_stat('SELECT to_tsvector(id) FROM web_' || 'sessions')",
    "COPY (SELECT id FROM web_sessions) TO STDOUT",
    "COPY web_sessions TO STDOUT",
    "TABLE web_sessions",
    "SELECT * FROM (TABLE web_sessions) t",
    "SELECT ARRAY(SELECT w.id FROM (TABLE web_sessions) w)",
    "PREPARE leak AS SELECT id FROM web_sessions",
    "PREPARE leak AS SELECT 1",
    "EXECUTE leak",
    "CREATE TABLE leak AS EXECUTE leak",
    "CREATE TABLE leak AS TABLE web_sessions",
    "CREATE MATERIALIZED VIEW leak AS SELECT id FROM web_sessions",
    "CREATE SCHEMA leak CREATE VIEW leak AS SELECT id FROM web_sessions",
    "EXPLAIN (ANALYZE, COSTS OFF) DELETE FROM web_sessions",
    "EXPLAIN ANALYZE EXECUTE leak",
    "DECLARE leak CURSOR FOR SELECT id FROM web_sessions",
    "DECLARE leak NO SCROLL CURSOR WITH HOLD FOR TABLE web_sessions",
    "DO $$ BEGIN UPDATE web_sessions SET views = 1; END $$",
    "DO $x$ BEGIN EXECUTE 'UPDATE web_' || 'sessions SET views = 1'; END $x$",
    "CREATE FUNCTION leak() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM web_sessions'",
    "CALL leak('web_sessions')",
    "SELECT id INTO leak FROM web_sessions",
    "WITH gone AS (DELETE FROM web_sessions RETURNING id) SELECT id FROM gone",
    "MERGE INTO other o USING web_sessions w ON o.id = w.id WHEN MATCHED THEN DELETE",
    "SELECT 1; TABLE web_sessions",
    "SET x = '1'; EXECUTE leak",
]
OF_MYSQL = [
    "SELECT id FROM /*!50000 web_sessions */",
    "SELECT id /*!50000 FROM web_sessions */",
    "PREPARE leak FROM 'SELECT id FROM web_sessions'",
    "PREPARE leak FROM @sql",
    "EXECUTE leak",
    "SELECT 1; EXECUTE leak",
    "HANDLER web_sessions OPEN",
    "HANDLER web_sessions READ FIRST",
    "DO (SELECT count(*) FROM web_sessions)",
    "SET @leak = (SELECT count(*) FROM web_sessions)",
    "SHOW TABLES WHERE (SELECT count(*) FROM web_sessions) > 2",
    "CREATE TABLE leak SELECT id FROM web_sessions",
    "CREATE EVENT leak ON SCHEDULE EVERY 1 DAY DO DELETE FROM web_sessions",
    "ALTER VIEW leak AS SELECT id FROM web_sessions",
    "CALL sys.execute_prepared_stmt(CONCAT('SELECT id FROM web_', 'sessions'))",
    "CALL leak('web_sessions')",
    'SELECT id FROM "web_sessions"',
    "SELECT id FROM web_sessions PARTITION (p0)",
    "SELECT id INTO OUTFILE '/tmp/leak' FROM web_sessions",
    "SELECT 1; REPLACE INTO other SELECT id FROM web_sessions",
    "DELETE w FROM web_sessions w JOIN other o ON o.id = w.id",
    "UPDATE web_sessions w, other o SET w.views = 1 WHERE o.id = w.id",
]
OF_MARIADB = [
    "SELECT id FROM /*M!100000 web_sessions */",
    "EXECUTE IMMEDIATE 'SELECT id FROM web_sessions'",
    "EXECUTE IMMEDIATE CONCAT('SELECT id FROM web_', 'sessions')",
    "SET STATEMENT max_statement_time = 9 FOR SELECT id FROM web_sessions",
    "ANALYZE FORMAT=JSON SELECT id FROM web_sessions",
    "BEGIN NOT ATOMIC SELECT id FROM web_sessions; END",
    "BEGIN NOT ATOMIC EXECUTE IMMEDIATE CONCAT('SELECT id FROM web_', 'sessions'); END",
    "IF 1 THEN SELECT id FROM web_sessions; END IF",
    "IF 1 THEN EXECUTE IMMEDIATE CONCAT('SELECT id FROM web_', 'sessions'); END IF",
]
OF_SQLITE = [
    "EXPLAIN QUERY PLAN SELECT id FROM web_sessions",
    "CREATE TEMP VIEW leak AS SELECT id FROM web_sessions",
    "SELECT load_extension('leak')",
]
ASKED = {
    "sqlite": EVERYWHERE + OF_SQLITE,
    "postgresql": EVERYWHERE + OF_POSTGRESQL,
    "mysql": EVERYWHERE + OF_MYSQL + OF_MARIADB,
}


@pytest.fixture
def filled(engine: Engine) -> Iterator[Any]:
    """Three rows, of which the first has expired; and another table."""

    class Base(DeclarativeBase):
        pass

    class WebSession(TTLMixin, Base):
        __tablename__ = "web_sessions"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        views: Mapped[int] = mapped_column(default=0)

    class Other(Base):
        __tablename__ = "other"
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([WebSession(id=1), WebSession(id=2), WebSession(id=3), Other(id=1)])
        session.flush()
        age(session.connection(), "web_sessions", 1, 7200)
        session.commit()
    return WebSession


@pytest.mark.parametrize("raw", ["raise", "rewrite"])
def test_what_the_guard_cannot_follow_is_not_sent(
    engine: Engine, filled: Any, sent: list[str], raw: Any
) -> None:
    guard(engine, raw=raw)
    rewritten = ("EXPLAIN ", "SELECT * FROM (TABLE", "SELECT ARRAY", "TABLE ", "ANALYZE ", "SET ST")
    rewritten += ('SELECT id FROM "', "DECLARE leak CURSOR")
    with engine.connect() as connection:
        for sql in ASKED[engine.dialect.name.replace("mariadb", "mysql")]:
            if raw == "rewrite" and sql.startswith(rewritten):
                continue
            sent.clear()
            for send in (connection.exec_driver_sql, lambda sql: connection.execute(text(sql))):
                with pytest.raises(RawSQLError):
                    pytest.fail(f"sent: {sql} {send(sql)}")
            assert sent == [], sql


def test_what_stands_behind_another_statement_is_rewritten(
    engine: Engine, filled: Any, sent: list[str]
) -> None:
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    sql = f"{explain} SELECT id FROM web_sessions w"  # noqa: S608
    guard(engine, raw="rewrite")
    with engine.connect() as connection:
        for send in (connection.exec_driver_sql, lambda sql: connection.execute(text(sql))):
            send(sql)
            assert sent[-1].startswith(f"{explain} SELECT id FROM (SELECT *")  # noqa: S608
            assert "_ts" in sent[-1]
        count = literal_column("(SELECT count(*) FROM web_sessions)")
        assert connection.scalar(select(count)) == 2


HARMLESS = [
    "SELECT 'prepare', 'do', 'execute'",
    "SELECT id FROM other WHERE id = 1",
    "SELECT count(*) FROM other WHERE 'web_sessions' = 'x'",
    "ALTER TABLE web_sessions ADD extra INTEGER",
    "CREATE INDEX web_sessions_views ON web_sessions (views)",
    "CREATE TABLE web_sessions_2 (id INTEGER)",
    "DROP TABLE web_sessions_2",
    "INSERT INTO web_sessions (id, views, _ts) SELECT 9, 0, _ts FROM web_sessions WHERE _ts > _ts",
]
HARMLESS_ON = {
    "sqlite": [
        'PRAGMA main.table_xinfo("web_sessions")',
        "ANALYZE web_sessions",
    ],
    "postgresql": [
        "SELECT 'web_sessions'::regclass::oid",
        "LOCK TABLE web_sessions IN SHARE MODE",
        "COMMENT ON TABLE web_sessions IS 'SELECT'",
        "GRANT SELECT, UPDATE ON web_sessions TO PUBLIC",
        "ANALYZE web_sessions",
        "SET LOCAL lock_timeout = '1s'",
        "SAVEPOINT web_sessions",
        "TRUNCATE web_sessions",
    ],
    "mysql": [
        "SHOW CREATE TABLE web_sessions",
        "SHOW INDEX FROM `web_sessions`",
        "DESCRIBE web_sessions",
        "ANALYZE TABLE web_sessions",
        "SET @x = 'SELECT web_sessions'",
        "TRUNCATE TABLE web_sessions",
    ],
}


@pytest.mark.parametrize("raw", ["raise", "rewrite"])
def test_maintenance_and_text_that_names_a_table_pass(
    engine: Engine, filled: Any, raw: Any
) -> None:
    guard(engine, raw=raw)
    with engine.connect() as connection:
        for sql in HARMLESS + HARMLESS_ON[engine.dialect.name.replace("mariadb", "mysql")]:
            connection.exec_driver_sql(sql)
        connection.rollback()


@pytest.mark.databases("postgres", "mysql")
def test_transactions_in_two_phases_pass(engine: Engine, filled: Any) -> None:
    guard(engine, raw="raise")
    with engine.connect() as connection, connection.begin_twophase() as transaction:
        connection.execute(select(filled.id)).all()
        if engine.dialect.name == "mysql":  # PostgreSQL has to be configured for more
            transaction.prepare()
            transaction.commit()
        else:
            transaction.rollback()


PSEUDO = {
    "sqlite": ["rowid", "_rowid_", "oid", '"rowid"', "w.rowid"],
    "postgresql": ["ctid", "xmin", "w.tableoid", "(SELECT w.ctid)"],
    "mysql": ["_rowid"],
}


def test_columns_that_live_rows_do_not_have_are_not_selected_from_them(
    engine: Engine, filled: Any
) -> None:
    guard(engine, raw="rewrite")
    with engine.connect() as connection:
        for column in PSEUDO[engine.dialect.name.replace("mariadb", "mysql")]:
            for sql in (
                f"SELECT {column} FROM web_sessions w",  # noqa: S608
                f"SELECT id FROM web_sessions w WHERE {column} IS NOT NULL",  # noqa: S608
                f"SELECT id FROM web_sessions w ORDER BY {column}",  # noqa: S608
            ):
                with pytest.raises(RawSQLError, match="a subquery of live rows has no"):
                    connection.exec_driver_sql(sql)


@pytest.mark.databases("sqlite", "mariadb", "mysql")
def test_an_ampersand_after_a_column_named_u_is_an_operator(engine: Engine, filled: Any) -> None:
    guard(engine, raw="rewrite")
    sql = "SELECT u & 1 FROM (SELECT views AS u FROM web_sessions) w"
    with engine.connect() as connection:
        assert len(connection.scalars(text(sql)).all()) == 2


@pytest.mark.databases("sqlite")
def test_columns_of_that_name_are_columns(engine: Engine, filled: Any) -> None:
    class Base(DeclarativeBase):
        pass

    class Message(TTLMixin, Base):
        __tablename__ = "oid_messages"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True)
        oid: Mapped[int]

    Base.metadata.create_all(engine)
    guard(engine, raw="rewrite")
    with engine.connect() as connection:
        connection.execute(insert(Message), [{"oid": 7}])
        assert connection.scalars(text("SELECT oid FROM oid_messages")).all() == [7]
        others = "SELECT o.rowid FROM other o, oid_messages m WHERE m.oid = 7"
        assert connection.scalars(text(others)).all() == [1]


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("name", ['say "hi"', "a]b", "a`b", "a%b", "a:b", "Käse"])
def test_names_that_are_written_with_escapes_are_found(engine: Engine, name: str) -> None:
    class Base(DeclarativeBase):
        pass

    class Row(TTLMixin, Base):
        __tablename__ = name
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True)

    Base.metadata.create_all(engine)
    guard(engine, raw="raise")
    quoted = engine.dialect.identifier_preparer.quote_identifier(name)
    sql = f"SELECT id FROM {quoted}"  # noqa: S608
    with engine.connect() as connection:
        with pytest.raises(RawSQLError):
            connection.exec_driver_sql(sql)
        with pytest.raises(RawSQLError):
            connection.execute(text(sql.replace(":", r"\:")))


@pytest.mark.databases("postgres")
def test_pieces_that_run_sql_are_not_sent_either(engine: Engine, filled: Any) -> None:
    guard(engine, raw="rewrite")
    piece = "query_to_xml('SELECT id FROM web_' || 'sessions', true, true, '')::text"
    with engine.connect() as connection:
        for statement in (
            select(literal_column(piece)),
            select(text(piece)),
            select(text("*")).select_from(text(piece.removesuffix("::text"))),
        ):
            with pytest.raises(RawSQLError, match="query_to_xml"):
                connection.execute(statement)
        assert connection.scalar(select(func.count()).select_from(filled)) == 2


@pytest.mark.databases("postgres")
def test_a_guard_that_warns_says_what_it_cannot_follow(engine: Engine, filled: Any) -> None:
    guard(engine, raw="warn")
    sql = r'SELECT id FROM U&"\0077eb_sessions"'
    with engine.connect() as connection, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            assert len(connection.exec_driver_sql(sql).all()) == 3
    assert [warning.category for warning in told] == [RawSQLWarning]
    assert "can't be checked, because it contains a name with escapes" in str(told[0].message)
    with engine.connect() as connection:
        guard(engine, raw="raise")
        deliberate = {"include_expired": True}
        assert len(connection.exec_driver_sql(sql, execution_options=deliberate).all()) == 3


@pytest.mark.databases("postgres")
def test_without_any_policy_nothing_is_rejected(engine: Engine, monkeypatch: Any) -> None:
    know_only(monkeypatch, "nothing")
    table = Table("plain", MetaData(), Column("id", Integer, primary_key=True))
    table.metadata.create_all(engine)
    guard(engine, raw="raise")
    with engine.connect() as connection:
        connection.exec_driver_sql("DO $$ BEGIN DELETE FROM plain; END $$")


@pytest.mark.parametrize("raw", ["raise", "rewrite"])
def test_a_sweep_with_archive_and_lease_passes(engine: Engine, filled: Any, raw: Any) -> None:
    guard(engine, raw=raw)
    report = Sweeper(engine, [filled]).run_once()
    assert report.deleted == 1
