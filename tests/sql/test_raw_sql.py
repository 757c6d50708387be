"""What is read out of raw SQL: its tables, where they stand, and what is asked of them."""

from __future__ import annotations

import pytest

from ttl_odm.guard.tables import Kind, RawSQL, Source, parse, replaced
from ttl_odm.guard.words import Marks

POSTGRES, MYSQL, SQLITE = "postgresql", "mysql", "sqlite"


def names(raw: RawSQL) -> set[str]:
    assert raw.problem is None
    return {".".join(source.name) for source in raw.sources}


@pytest.mark.parametrize(
    ("dialect", "sql", "found"),
    [
        (POSTGRES, 'SELECT * FROM "Tokens"', {"tokens"}),
        (MYSQL, "SELECT * FROM `app`.`tokens`", {"app.tokens"}),
        (SQLITE, "SELECT * FROM [tokens] AS t", {"tokens"}),
        (POSTGRES, "SELECT * FROM app . tokens t", {"app.tokens"}),
        (POSTGRES, "SELECT tokens FROM users", {"users"}),
        (POSTGRES, "SELECT u.tokens, tokens FROM users u", {"users"}),
        (POSTGRES, "SELECT * FROM users u, tokens t WHERE u.a = t.b", {"users", "tokens"}),
        (POSTGRES, "SELECT * FROM users JOIN tokens USING (tokens)", {"users", "tokens"}),
        (POSTGRES, "SELECT * FROM (users JOIN tokens ON a = b)", {"users", "tokens"}),
        (POSTGRES, "SELECT extract(epoch FROM tokens) FROM users", {"users"}),
        (POSTGRES, "SELECT a FROM users WHERE a IS DISTINCT FROM tokens", {"users"}),
        (POSTGRES, "SELECT * FROM unnest(tokens)", set()),
        (POSTGRES, "DELETE FROM users USING tokens WHERE 1 = 1", {"users", "tokens"}),
        (POSTGRES, "DELETE FROM ONLY tokens", {"tokens"}),
        (MYSQL, "DELETE QUICK FROM tokens", {"tokens"}),
        (MYSQL, "DELETE t FROM tokens t JOIN users u ON t.id = u.id", {"tokens", "users"}),
        (MYSQL, "UPDATE LOW_PRIORITY IGNORE tokens SET a = 1", {"tokens"}),
        (SQLITE, "UPDATE OR REPLACE tokens SET a = 1", {"tokens"}),
        (POSTGRES, "UPDATE users SET tokens = 1, a = (SELECT 1 FROM b)", {"users", "b"}),
        (POSTGRES, "MERGE INTO a USING tokens t ON t.id = a.id WHEN MATCHED THEN DELETE",
         {"a", "tokens"}),
        (POSTGRES, "INSERT INTO tokens (a) VALUES (1) ON CONFLICT DO UPDATE SET a = 2", set()),
        (MYSQL, "INSERT INTO a (b) VALUES (1) ON DUPLICATE KEY UPDATE tokens = 2", set()),
        (MYSQL, "REPLACE INTO tokens SELECT * FROM users", {"users"}),
        (POSTGRES, "COPY tokens TO STDOUT", {"tokens"}),
        (POSTGRES, "COPY tokens FROM STDIN", set()),
        (POSTGRES, "CREATE TABLE a AS SELECT * FROM tokens", {"tokens"}),
        (MYSQL, "CREATE TABLE a SELECT * FROM tokens", {"tokens"}),
        (SQLITE, "CREATE VIEW a AS SELECT * FROM tokens", {"tokens"}),
        (POSTGRES, "EXPLAIN (ANALYZE) SELECT * FROM tokens", {"tokens"}),
        (MYSQL, "EXPLAIN FORMAT=TREE UPDATE tokens SET a = 1", {"tokens"}),
        (SQLITE, "EXPLAIN QUERY PLAN SELECT * FROM tokens", {"tokens"}),
        (MYSQL, "SET STATEMENT max_statement_time=1 FOR SELECT * FROM tokens", {"tokens"}),
        (POSTGRES, "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM tokens", {"tokens"}),
        (POSTGRES, "SELECT 1 FROM a WHERE b = 'it''s FROM tokens'", {"a"}),
        (POSTGRES, "SELECT $$ FROM tokens $$, $x$ FROM tokens $x$ FROM a", {"a"}),
        (POSTGRES, "SELECT E'it\\'s FROM tokens' FROM a", {"a"}),
        (POSTGRES, "SELECT 'a\\' FROM tokens", {"tokens"}),
        (MYSQL, "SELECT 'a\\' FROM tokens' # FROM tokens", set()),
        (POSTGRES, "SELECT 1; SET x = 1; DELETE FROM tokens", {"tokens"}),
        (POSTGRES, "SELECT 1 FROM a WHERE x = :tokens AND z::int = ANY(:n) LIMIT :n", {"a"}),
        (POSTGRES, "SELECT 1 FROM a UNION SELECT 2 FROM tokens ORDER BY b, c", {"a", "tokens"}),
        (POSTGRES, "SELECT * FROM a FOR UPDATE OF a", {"a"}),
    ],
)  # fmt: skip
def test_tables_are_told_from_other_names(dialect: str, sql: str, found: set[str]) -> None:
    assert names(parse(sql, dialect)) == found


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("WITH tokens AS (SELECT 1) SELECT * FROM tokens", []),
        ("WITH tokens AS (SELECT * FROM tokens) SELECT * FROM tokens", ["tokens"]),
        ("WITH RECURSIVE tokens AS (SELECT 1 UNION SELECT 2 FROM tokens) SELECT 3", []),
        ("WITH a AS (SELECT 1), b AS (SELECT * FROM a) SELECT * FROM b", []),
        ("WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a", ["b"]),
        ("SELECT (WITH tokens AS (SELECT 1) SELECT * FROM tokens) FROM tokens", ["tokens"]),
        ("WITH tokens AS (SELECT 1) SELECT (SELECT 1 FROM tokens), 2 FROM app.tokens",
         ["app.tokens"]),
    ],
)  # fmt: skip
def test_the_name_of_a_cte_is_no_table(sql: str, found: list[str]) -> None:
    assert [".".join(source.name) for source in parse(sql, POSTGRES).sources] == found


@pytest.mark.parametrize(
    ("sql", "asked"),
    [
        ("SELECT _ts FROM tokens", set()),
        ("SELECT 1 FROM tokens WHERE _ts > 1 AND id = 2", {"_ts", "id"}),
        ("SELECT 1 FROM tokens t WHERE t._ts > 1", {"_ts"}),
        ("SELECT 1 FROM tokens t JOIN a ON t._ts > a.x", {"_ts"}),
        ("SELECT 1 FROM tokens t JOIN a ON a._ts > 1", set()),
        ("SELECT 1 FROM tokens HAVING max(_ts) > 1", {"_ts"}),
        ("SELECT 1 FROM tokens ORDER BY _ts", set()),
        ("SELECT 1 FROM tokens t WHERE EXISTS (SELECT 1 FROM a WHERE a.x > t._ts)", {"_ts"}),
        ("SELECT (SELECT 1 FROM a WHERE a.x = t._ts) FROM tokens t", set()),
        ("SELECT 1 FROM (SELECT * FROM tokens) t WHERE t._ts > 1", set()),
        ("UPDATE tokens SET a = 1 WHERE _ts > 1", {"_ts"}),
        ("UPDATE tokens SET _ts = 1", set()),
        ("DELETE FROM tokens WHERE tokens._ts > 1", {"_ts"}),
    ],
)
def test_what_conditions_of_its_own_query_ask_of_a_table(sql: str, asked: set[str]) -> None:
    (source,) = [one for one in parse(sql, POSTGRES).sources if one.name == ("tokens",)]
    assert source.condition_columns == asked


@pytest.mark.parametrize(
    ("dialect", "sql", "result"),
    [
        (POSTGRES, "SELECT * FROM tokens", "SELECT * FROM (LIVE tokens) AS tokens"),
        (POSTGRES, 'SELECT * FROM"tokens"', 'SELECT * FROM (LIVE tokens) AS "tokens"'),
        (MYSQL, "SELECT * FROM`a`.`tokens`;", "SELECT * FROM (LIVE a.tokens) AS `tokens`;"),
        (POSTGRES, "SELECT * FROM tokens  t\n", "SELECT * FROM (LIVE tokens)  t\n"),
        (POSTGRES, "select /* tokens */ 1 -- x\nfrom app . tokens as t",
         "select /* tokens */ 1 -- x\nfrom (LIVE app.tokens) as t"),
        (POSTGRES, "SELECT * FROM tokens,tokens t WHERE '€' = tokens.x",
         "SELECT * FROM (LIVE tokens) AS tokens,(LIVE tokens) t WHERE '€' = tokens.x"),
        (SQLITE, r"SELECT '\:x', :x FROM tokens WHERE a\:\:b",
         r"SELECT '\:x', :x FROM (LIVE tokens) AS tokens WHERE a\:\:b"),
        (MYSQL, "SELECT SQL_NO_CACHE /*+ BKA(t) */ * FROM tokens t",
         "SELECT SQL_NO_CACHE /*+ BKA(t) */ * FROM (LIVE tokens) t"),
    ],
)  # fmt: skip
def test_all_but_the_table_stays_as_it_was_written(dialect: str, sql: str, result: str) -> None:
    raw = parse(sql, dialect)
    assert all(source.obstacle is None for source in raw.sources)
    rows = replaced(sql, list(raw.sources), lambda source: f"(LIVE {'.'.join(source.name)})")
    assert rows == result


@pytest.mark.parametrize(
    ("dialect", "sql", "obstacle"),
    [
        (POSTGRES, "UPDATE tokens SET a = 1", "not a plain SELECT"),
        (POSTGRES, "INSERT INTO a SELECT * FROM tokens", "not a plain SELECT"),
        (POSTGRES, "SELECT * INTO a FROM tokens", "not a plain SELECT"),
        (
            POSTGRES,
            "WITH a AS (DELETE FROM tokens RETURNING *) SELECT * FROM a",
            "not a plain SELECT",
        ),
        (POSTGRES, "SELECT * FROM tokens FOR SHARE", "FOR UPDATE"),
        (MYSQL, "SELECT * FROM tokens LOCK IN SHARE MODE", "FOR UPDATE"),
        (POSTGRES, "SELECT * FROM ONLY tokens", "applied to a subquery"),
        (POSTGRES, "SELECT * FROM tokens TABLESAMPLE SYSTEM (10)", "applied to a subquery"),
        (MYSQL, "SELECT * FROM tokens PARTITION (p0)", "applied to a subquery"),
        (MYSQL, "SELECT * FROM tokens FORCE INDEX (i)", "applied to a subquery"),
        (SQLITE, "SELECT * FROM tokens NOT INDEXED", "applied to a subquery"),
        (POSTGRES, "SELECT app.tokens.id FROM app.tokens", "give it an alias"),
    ],
)
def test_what_no_subquery_can_stand_in_for(dialect: str, sql: str, obstacle: str) -> None:
    sources = [one for one in parse(sql, dialect).sources if one.name[-1] == "tokens"]
    assert [obstacle in (source.obstacle or "") for source in sources] == [True]


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        (POSTGRES, "SELECT FROM WHERE tokens"),
        (POSTGRES, "SELECT 'tokens"),
        (MYSQL, "SELECT * FROM a /*! , tokens */"),
        (POSTGRES, "SELECT " + "(" * 3000 + "tokens"),
    ],
)
def test_what_cannot_be_read_says_so(dialect: str, sql: str) -> None:
    raw = parse(sql, dialect)
    assert raw.problem
    assert raw.sources == ()


def test_the_statement_table_is_not_replaced() -> None:
    raw = parse("TABLE tokens", POSTGRES)  # older versions of the parser don't know it
    assert raw.problem or "TABLE doesn't accept a subquery" in str(raw.sources[0].obstacle)


@pytest.mark.parametrize(
    "sql",
    [
        "SHOW TABLES LIKE 'tokens'",
        "SET x = 'tokens'",
        "DROP TABLE tokens",
        "ALTER TABLE tokens ADD a int",
        "CREATE INDEX i ON tokens (a)",
        "CREATE TABLE a (b int REFERENCES tokens)",
        "",
        "-- tokens",
    ],
)
@pytest.mark.parametrize("dialect", [POSTGRES, MYSQL, SQLITE])
def test_statements_that_are_not_about_rows_pass(dialect: str, sql: str) -> None:
    assert names(parse(sql, dialect)) == set()


@pytest.mark.parametrize(
    ("kind", "sql", "found"),
    [
        ("from", "tokens", {"tokens"}),
        ("from", "users u JOIN tokens t ON u.id = t.id", {"users", "tokens"}),
        ("from", "(SELECT * FROM tokens) AS t", {"tokens"}),
        ("piece", "x IN (SELECT id FROM tokens)", {"tokens"}),
        ("piece", "(SELECT 1 FROM tokens) DESC NULLS LAST", {"tokens"}),
        ("piece", "SELECT id FROM tokens", {"tokens"}),
        ("piece", "id FROM tokens", {"tokens"}),
        ("piece", "tokens.id = 3 AND tokens.a", set()),
        ("piece", "SQL_CALC_FOUND_ROWS tokens", set()),
    ],
)
def test_pieces_of_statements_are_read_too(kind: Kind, sql: str, found: set[str]) -> None:
    raw = parse(sql, SQLITE, kind)
    assert names(raw) == found
    assert all(sql[slice(*source.span)] == source.name[-1] for source in raw.sources)


@pytest.mark.parametrize(
    ("dialect", "paramstyle", "sql"),
    [
        (POSTGRES, "pyformat", "SELECT 10 %% 3 FROM tokens WHERE a = %(name)s AND b = %(b)s"),
        (MYSQL, "format", "SELECT 10 %% 3 FROM tokens WHERE a = %s AND b LIKE '%%x' LIMIT %s"),
        (POSTGRES, "numeric_dollar", "SELECT 10 % 3 FROM tokens WHERE a = $1::int AND b = $2"),
        (SQLITE, "qmark", "SELECT 10 % 3 FROM tokens WHERE a = ? AND b = ? LIMIT ?"),
    ],
)
def test_a_drivers_parameters_are_read_and_kept(dialect: str, paramstyle: str, sql: str) -> None:
    raw = parse(sql, dialect, marks=Marks.of_driver(paramstyle))
    assert names(raw) == {"tokens"}

    def live(_: Source) -> str:
        return "(LIVE)"

    expected = sql.replace("FROM tokens", "FROM (LIVE) AS tokens")
    assert replaced(sql, list(raw.sources), live) == expected


def test_names_are_words_outside_of_literals_comments_and_parameters() -> None:
    assert parse("SELECT a.b # c", MYSQL).names >= {"select", "a", "b"}
    raw = parse("SELECT \"A\", 'b' /* c */ FROM t WHERE x = :d -- e", POSTGRES)
    assert raw.names >= {"a", "t", "x"}
    assert not raw.names & {"b", "c", "d", "e"}
