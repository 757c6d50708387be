"""Authlib's SQLAlchemy tokens live and die under ttl_odm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from tests.adoption.conftest import ROWS, example, in_batches, stored
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from tests.backends import Backend


@pytest.fixture
def tokens(backend: Backend) -> Iterator[Any]:
    authlib_tokens = example("authlib_tokens")
    engine = authlib_tokens.make_engine(backend.sync_url)
    authlib_tokens.Base.metadata.create_all(engine)
    made = authlib_tokens.Tokens(engine)
    yield made
    made.session.remove()
    engine.dispose()


def back(database: Engine, seconds: int) -> None:
    with database.begin() as connection:
        connection.execute(
            text("UPDATE oauth_tokens SET issued_at = issued_at - :s"), {"s": seconds}
        )


def test_a_token_ends_after_expires_in_and_can_be_issued_again(
    tokens: Any, database: Engine
) -> None:
    tokens.issue("hour", 3600)
    tokens.issue("minute", 60)
    assert tokens.validator.authenticate_token("hour").get_expires_in() == 3600
    tokens.session.remove()
    back(database, 70)
    assert tokens.validator.authenticate_token("minute") is None
    assert tokens.query("minute", "access_token") is None
    assert tokens.validator.authenticate_token("hour") is not None
    tokens.issue("minute", 60)
    assert tokens.query("minute", None).access_token == "minute"


def test_a_token_without_an_end_has_none(tokens: Any, database: Engine) -> None:
    tokens.issue("endless", 0)
    tokens.session.remove()
    back(database, 10**9)
    assert tokens.validator.authenticate_token("endless") is not None


def test_revoking_a_token_does_not_prolong_it(tokens: Any, database: Engine) -> None:
    tokens.issue("hour", 3600)
    tokens.session.remove()
    back(database, 3000)
    token = tokens.query("hour", None)
    issued_at = token.issued_at
    token.access_token_revoked_at = 1
    tokens.session.commit()
    assert tokens.query("hour", None).issued_at == issued_at
    assert tokens.query("hour", None).is_revoked()


def test_the_sweeper_deletes_them_in_batches(tokens: Any, database: Engine) -> None:
    for number in range(ROWS):
        tokens.issue(f"minute {number}", 60)
    tokens.issue("hour", 3600)
    tokens.session.remove()
    back(database, 70)
    token = example("authlib_tokens").Token
    report = Sweeper(database, token, batch_size=2).run_once()
    assert in_batches(report, "oauth_tokens", ROWS, database)
    with database.connect() as connection:
        assert stored(connection, "oauth_tokens") == 1
