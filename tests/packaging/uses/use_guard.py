"""Guard an engine, and watch another: both read SQL."""

from sqlalchemy import create_engine, text

from ttl_odm.sqlalchemy import guard
from ttl_odm.testing import assert_no_leaks

engine = create_engine("sqlite://")
guard(engine, raw="rewrite")
with engine.connect() as connection, assert_no_leaks(connection):
    assert connection.scalar(text("SELECT 1")) == 1
