"""A changed ``__ttl__`` acts at once on every inheriting row, and compiles nothing again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Mapped, Session, mapped_column, registry
from sqlalchemy.sql.compiler import SQLCompiler

from tests.clocks import age
from tests.sql.models import web_session
from ttl_odm import TTL, ExpireAt, InvalidTTL, TTLConfigurationError
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from sqlalchemy import Engine


@pytest.fixture
def model(engine: Engine) -> Any:
    made = web_session(3600)
    made.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([made(id="inherits"), made(id="own", ttl=50), made(id="never", ttl=-1)])
        session.flush()
        for key in ("inherits", "own", "never"):
            age(session.connection(), "web_sessions", key, 100)
        session.commit()
    return made


def ids(session: Session, model: Any) -> set[str]:
    return set(session.scalars(select(model.id)))


def test_nothing_is_compiled_again_and_the_cache_does_not_grow(
    engine: Engine, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    original = SQLCompiler.__init__

    def counting(self: Any, *args: Any, **kw: Any) -> None:
        original(self, *args, **kw)
        compiled.append(self.string)

    cache: Any = engine._compiled_cache
    with Session(engine) as session:

        def run() -> None:
            ids(session, model)
            session.get(model, "never")
            session.execute(update(model).values(views=model.views + 1))
            session.scalars(select(model.id), execution_options={"include_expired": True}).all()
            session.expunge_all()

        run()
        before = len(cache)
        monkeypatch.setattr(SQLCompiler, "__init__", counting)
        for default in (60, -1, None, 3600, 7, None, -1):
            model.__ttl__ = default
            run()
        assert compiled == []
        assert len(cache) == before


def test_an_invalid_default_is_not_taken(engine: Engine, model: Any) -> None:
    for value in (0, -2, 1.5, "3600", True):
        with pytest.raises(InvalidTTL, match=r"^WebSession\.__ttl__ = .* is not a ttl"):
            model.__ttl__ = value
    with Session(engine) as session:
        assert "inherits" in ids(session, model)


def test_of_a_class_that_is_mapped_by_a_decorator_the_statement_fails(engine: Engine) -> None:
    types = registry()

    @types.mapped
    class Letter(TTLMixin):
        __tablename__ = "decorated_letters"
        __ttl__: Any = 3600
        id: Mapped[int] = mapped_column(primary_key=True)

    types.metadata.create_all(engine)
    Letter.__ttl__ = 0
    with Session(engine) as session:
        with pytest.raises(InvalidTTL, match=r"Letter\.__ttl__ = 0"):
            session.get(Letter, 1)
        Letter.__ttl__ = 3600
        assert session.get(Letter, 1) is None


def test_the_columns_of_a_policy_cannot_change_while_the_application_runs(
    engine: Engine, model: Any
) -> None:
    model.__ttl__ = ExpireAt("views")
    with Session(engine) as session:
        with pytest.raises(TTLConfigurationError, match="not the columns"):
            ids(session, model)
        model.__ttl__ = TTL(60, last_modified="other")
        with pytest.raises(TTLConfigurationError, match="not the columns"):
            ids(session, model)
        model.__ttl__ = TTL(60)
        assert ids(session, model) == {"never"}
