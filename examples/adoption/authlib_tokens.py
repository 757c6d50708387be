"""Authlib's SQLAlchemy tokens under ttl_odm: ``issued_at`` plus ``expires_in``, both epoch seconds.

Run it: ``python examples/adoption/authlib_tokens.py``.

Authlib never deletes a token, and a token without ``expires_in`` (0) never ends. Its validator
loads the row and compares with the clock of the server. With the policy an expired token is not
found, which is the same answer to the client: invalid_token.

A row that also holds a refresh token ends with its access token. Where yours are of use for
longer, let the row live as long as they do: ``ExpireAfter("issued_at", 30 * 86400, unit="s")``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from authlib.integrations.sqla_oauth2 import (
    OAuth2ClientMixin,
    OAuth2TokenMixin,
    create_bearer_token_validator,
    create_query_token_func,
    create_save_token_func,
)
from sqlalchemy import Column, Engine, Integer, create_engine, text
from sqlalchemy.orm import DeclarativeBase, Session, scoped_session, sessionmaker

from ttl_odm import NEVER, TTL
from ttl_odm.sqlalchemy import enable
from ttl_odm.sweeper import Sweeper


class Base(DeclarativeBase):
    """The application's models."""


class Client(OAuth2ClientMixin, Base):  # type: ignore[misc]
    """A client, as Authlib's documentation says to declare it."""

    __tablename__ = "oauth_clients"
    id = Column(Integer, primary_key=True)


class Token(OAuth2TokenMixin, Base):  # type: ignore[misc]
    """A token, as Authlib's documentation says to declare it."""

    __tablename__ = "oauth_tokens"
    id = Column(Integer, primary_key=True)
    user_id = Column(Integer)


# The adoption: tokens end by themselves; those with expires_in = 0 never do.
enable(Token, TTL(NEVER, last_modified="issued_at", override="expires_in", never=(0,), unit="s"))


def make_engine(url: str) -> Engine:
    """Make an engine on which no write, such as revoking, moves ``issued_at``."""
    return create_engine(url, execution_options={"keep_last_modified": True})


class Tokens:
    """What an authorization server does with tokens, by Authlib's own functions."""

    def __init__(self, engine: Engine) -> None:
        """Make the functions for a database."""
        self.session: Any = scoped_session(sessionmaker(engine, class_=Session))
        self.query = create_query_token_func(self.session, Token)
        self._save = create_save_token_func(self.session, Token)
        self.validator = create_bearer_token_validator(self.session, Token)()

    def issue(self, access_token: str, expires_in: int) -> None:
        """Issue a token."""
        client = SimpleNamespace(client_id="shop")
        token = {"access_token": access_token, "expires_in": expires_in, "token_type": "Bearer"}
        self._save(token, SimpleNamespace(user=None, client=client))


def main() -> None:
    """Let a token expire, issue it again, and sweep."""
    engine = make_engine("sqlite://")
    Base.metadata.create_all(engine)
    tokens = Tokens(engine)
    for name, seconds in (("hour", 3600), ("another", 60), ("endless", 0)):
        tokens.issue(name, seconds)
    with engine.begin() as connection:
        connection.execute(text("UPDATE oauth_tokens SET issued_at = issued_at - 3700"))
    for name in ("hour", "another", "endless"):
        print(f"{name}: {'valid' if tokens.validator.authenticate_token(name) else 'invalid'}")
    tokens.issue("hour", 3600)
    print(f"hour, issued again: {tokens.validator.authenticate_token('hour').expires_in} s")
    tokens.session.remove()
    print(Sweeper(engine, Token).run_once())
    engine.dispose()


if __name__ == "__main__":
    main()
