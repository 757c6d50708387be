"""Epoch numbers with a fraction: what is not a number, and floats that are too short."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import REAL, Double, Float, Numeric, select, text
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import Session

from tests.sql.adopted import new_base, table
from ttl_odm import TTL, ExpireAfter, ExpireAt, TTLConfigurationError
from ttl_odm.sqlalchemy import expired, expires_at
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

NO_NUMBERS = {
    "postgresql": ["'NaN'", "'Infinity'", "'-Infinity'", "NULL"],
    "sqlite": ["'x'", "''", "x'00'", "9e999", "-9e999", "NULL"],
    "mysql": ["NULL"],
}
EVERY: Any = {"include_expired": True}


@pytest.mark.parametrize("type_", [Double(), Numeric(asdecimal=False)], ids=["double", "numeric"])
def test_what_is_no_number_never_expires(engine: Engine, type_: Any) -> None:
    values, base = NO_NUMBERS[engine.dialect.name], new_base()
    policies: dict[str, Any] = {
        "float_at": ExpireAt("at", unit="s"),
        "float_after": ExpireAfter("at", 60, unit="ms"),
        "float_ttl": TTL(60, last_modified="at", override=None, unit="s"),
    }
    models = [table(name, policy, base, type_) for name, policy in policies.items()]
    base.metadata.create_all(engine)
    with Session(engine) as session:
        for model in models:
            for key, value in enumerate(values):
                sql = f"INSERT INTO {model.__tablename__} (id, at) VALUES ('{key}', {value})"  # noqa: S608
                session.execute(text(sql))
            keys = {str(key) for key in range(len(values))}
            assert set(session.scalars(select(model.id))) == keys
            gone = select(model.id).where(expired(model))
            assert session.scalars(gone, execution_options=EVERY).all() == []
            assert set(session.scalars(select(expires_at(model)))) == {None}
        session.commit()
    assert Sweeper(engine, base).run_once().deleted == 0


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_floats_of_four_bytes_are_refused(engine: Engine) -> None:
    types = [Float(), mysql.FLOAT(), Float(24)] if engine.dialect.name == "mysql" else [REAL()]
    for type_ in types:
        model = table("short_float", ExpireAt("at", unit="s"), new_base(), type_)
        with Session(engine) as session, pytest.raises(TTLConfigurationError) as error:
            session.scalars(select(model.id))
        assert "Column t_short_float.at is " in str(error.value)
        assert "steps of 128" in str(error.value)


def test_a_row_is_stamped_and_given_an_end_with_the_fraction(engine: Engine) -> None:
    base = new_base()
    ends = table("float_ends", ExpireAt("at", unit="s"), base, Double())
    stamps = table(
        "float_stamps", TTL(60, last_modified="at", override=None, unit="s"), base, Double()
    )
    base.metadata.create_all(engine)
    with Session(engine) as session:
        has_fraction = False
        for key in range(1_000):  # a thousandth of the milliseconds are a whole second
            session.add(stamps(id=str(key)))
            session.flush()
            at = session.scalars(select(stamps.at).where(stamps.id == str(key))).one()
            if has_fraction := bool(at % 1):
                break
        assert has_fraction
        end = ends(id="a")
        end.expire_in(60)
        session.add(end)
        session.flush()
        assert 0 < end.time_left.total_seconds() <= 60
        end.expire_in(0)
        session.flush()
        assert session.scalars(select(ends.id)).all() == []
