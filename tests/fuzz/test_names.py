"""Tables and columns of any name are read, and what is printed of them finds them again."""

from __future__ import annotations

from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import (
    Column,
    DateTime,
    Integer,
    MetaData,
    StaticPool,
    Table,
    create_engine,
)
from sqlalchemy import (
    text as sql,
)

from tests.fuzz.words import share
from tests.fuzz.words import text as words
from ttl_odm import ExpireAt
from ttl_odm.forecast.parser import parse_policy
from ttl_odm.inspection import as_source, declarations, propose
from ttl_odm.inspection.readers.sql import _OURS, index_for, now, reading_only, tables
from ttl_odm.inspection.source import as_enabled

ODD = [
    "select",
    "class",
    "True",
    "a b",
    'a"b',
    "a'b",
    "a`b",
    "[a]",
    "a;--",
    "a%sb",
    "a.b",
    "ünï",
    "ttl",
]
names = st.one_of(st.sampled_from(ODD), words.filter(str.strip)).filter(
    # What SQLite keeps for itself, and what inspect passes over: Hypothesis tries our own literals.
    lambda name: not name.lower().startswith("sqlite_") and name not in _OURS
)
ends = st.sampled_from(
    ["expires_at", "expiresAt", "Expires At", "EXPIRES", "valid.until", "not-after"]
)


@pytest.mark.slow
@share(1)
@given(names, ends, st.lists(names, max_size=3, unique_by=str.lower))
def test_what_is_read_of_a_table_of_any_name_leads_to_a_line_that_finds_it_again(
    name: str, end: str, others: list[str]
) -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    columns = [
        Column(other, Integer) for other in others if other.lower() not in (end.lower(), "id0")
    ]
    Table(
        name, MetaData(), Column("id0", Integer, primary_key=True), Column(end, DateTime), *columns
    ).create(engine)
    with engine.connect() as connection, reading_only(connection):
        verdicts = [propose(table, now(connection)) for table in tables(connection)]
        metadata = MetaData()
        metadata.reflect(connection)
    engine.dispose()
    (verdict,) = verdicts
    assert verdict.table.name == name
    if {"_ts", "ttl"} <= {end, *others}:
        return
    assert verdict.proposal is not None
    policy = verdict.proposal.policy
    assert policy == ExpireAt(end)

    compile(declarations([verdict.proposal]).replace("(...)", ""), "pasted", "exec")
    enabled: list[Any] = []
    line = as_enabled(verdict.proposal)
    mine = normalize("NFKC", line.removeprefix("enable(").partition(",")[0])  # as Python does
    known = {"ExpireAt": ExpireAt, "enable": lambda *args: enabled.append(args)}
    exec(line, {mine: metadata.tables[name], **known})  # noqa: S102 (what a user pastes)
    assert enabled == [(metadata.tables[name], policy)]
    assert parse_policy(as_source(policy)) == policy
    assert parse_policy(as_enabled(verdict.proposal)) == policy


@pytest.mark.slow
@share(1)
@given(names, ends)
def test_the_index_that_is_proposed_is_on_that_column(name: str, end: str) -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    Table(name, MetaData(), Column("id0", Integer), Column(end, DateTime)).create(engine)
    with engine.connect() as connection:
        connection.execute(sql(index_for(name, end, "sqlite").replace(":", "\\:")))
        metadata = MetaData()
        metadata.reflect(connection)
    engine.dispose()
    (index,) = metadata.tables[name].indexes
    assert [column.name for column in index.columns] == [end]
