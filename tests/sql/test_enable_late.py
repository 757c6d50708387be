"""`enable` after first use: whatever SQLAlchemy has compiled by then gets the predicate too."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    ForeignKey,
    MetaData,
    Select,
    String,
    bindparam,
    column,
    create_engine,
    delete,
    insert,
    lambda_stmt,
    select,
    table,
    update,
)
from sqlalchemy.engine import default
from sqlalchemy.ext import baked
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    joinedload,
    mapped_column,
    relationship,
    selectinload,
)

from tests.clocks import age
from ttl_odm import TTL, TTLConfigurationError
from ttl_odm.sqlalchemy import ExpiredError, disable, enable, expired, expires_at, live
from ttl_odm.sqlalchemy.declare.mixin import last_modified_column, ttl_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine


class Models:
    """Somebody else's classes, with the contract's columns but without a policy."""

    def __init__(self) -> None:
        class Base(DeclarativeBase):
            metadata = MetaData()

        class Account(Base):
            __tablename__ = "accounts"
            id: Mapped[int] = mapped_column(primary_key=True)
            tokens: Mapped[list[Any]] = relationship(lambda: Token, back_populates="account")

        class Token(Base):
            __tablename__ = "tokens"
            id: Mapped[str] = mapped_column(String(40), primary_key=True)
            account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
            uses: Mapped[int] = mapped_column(default=0)
            account: Mapped[Any] = relationship(lambda: Account, back_populates="tokens")
            last_modified = last_modified_column()
            ttl = ttl_column(object)

        self.base, self.account, self.token = Base, Account, Token


@pytest.fixture
def models(engine: Engine) -> Models:
    """An account with a live token and one that will have expired once there is a policy."""
    made = Models()
    made.base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(made.account(id=1, tokens=[made.token(id="live"), made.token(id="dead")]))
        session.commit()
        age(session.connection(), "tokens", "dead", 100)
        session.commit()
    return made


def readers(models: Models, engine: Engine) -> dict[str, Callable[[], Any]]:
    """Ways to read, each made once and used before and after."""
    account, token = models.account, models.token
    prebuilt = select(token.id).order_by(token.id)
    joined = select(account).options(joinedload(account.tokens))
    eager = select(account).options(selectinload(account.tokens))
    bakery: Any = baked.bakery()
    cached = engine.execution_options(compiled_cache={})
    schema = engine.execution_options(schema_translate_map={"elsewhere": None})

    def scalars(statement: Any, on: Engine = engine) -> list[Any]:
        with Session(on) as session:
            return list(session.scalars(statement).unique())

    def ids(statement: Any) -> list[str]:
        (found,) = scalars(statement)
        return sorted(each.id for each in found.tokens)

    def by_lambda() -> list[Any]:
        return sorted(scalars(lambda_stmt(lambda: select(token.id))))

    def by_lambda_with_a_value() -> list[Any]:
        wanted = ["live", "dead"]
        statement = lambda_stmt(lambda: select(token.id))
        return sorted(scalars(statement + (lambda s: s.where(token.id.in_(wanted)))))

    def by_bakery() -> list[str]:
        query = bakery(lambda session: session.query(token).order_by(token.id))
        with Session(engine) as session:
            return [each.id for each in query(session).all()]

    def lazily() -> list[str]:
        with Session(engine) as session:
            return sorted(each.id for each in session.get_one(account, 1).tokens)

    def by_key() -> list[str]:
        with Session(engine) as session:
            return [each for each in ("dead", "live") if session.get(token, each) is not None]

    def by_query() -> list[str]:
        with Session(engine) as session:
            return [each.id for each in session.query(token).order_by(token.id)]

    def in_core() -> list[str]:
        with cached.connect() as connection:
            return list(connection.execute(prebuilt).scalars())

    return {
        "a prebuilt select": lambda: scalars(prebuilt),
        "a joined load": lambda: ids(joined),
        "a selectin load": lambda: ids(eager),
        "a lazy load": lazily,
        "a lambda statement": by_lambda,
        "a lambda statement with a value": by_lambda_with_a_value,
        "a baked query": by_bakery,
        "session.get": by_key,
        "Query": by_query,
        "a cache of the user's": in_core,
        "a schema translation": lambda: scalars(prebuilt, schema),
    }


@pytest.fixture
def used(models: Models, engine: Engine) -> dict[str, Callable[[], Any]]:
    made = readers(models, engine)
    for name, read in made.items():
        assert read() == ["dead", "live"], name
        assert read() == ["dead", "live"], name
    return made


def all_see(used: dict[str, Callable[[], Any]], expected: list[str]) -> bool:
    found = {name: read() for name, read in used.items()}
    assert found == {name: expected for name in used}  # noqa: C420 (it may not be one list)
    return True


def test_statements_that_were_used_before_see_live_rows_only(
    used: dict[str, Callable[[], Any]], models: Models
) -> None:
    enable(models.token, 60)
    assert all_see(used, ["live"])
    assert all_see(used, ["live"])


def test_disabling_takes_it_out_of_them_again(
    used: dict[str, Callable[[], Any]], models: Models
) -> None:
    enable(models.token, 60)
    for read in used.values():
        read()
    disable(models.token)
    assert all_see(used, ["dead", "live"])


def test_another_default_acts_at_once(used: dict[str, Callable[[], Any]], models: Models) -> None:
    enable(models.token, 60)
    assert used["session.get"]() == ["live"]
    for seconds, seen in ((1000, ["dead", "live"]), (50, ["live"]), (None, ["dead", "live"])):
        enable(models.token, seconds)
        assert all_see(used, seen)


def test_a_default_alone_compiles_nothing_again(models: Models, engine: Engine) -> None:
    enable(models.token, 60)
    statement = select(models.token)
    compiled = statement.compile(engine)
    text, before = compiled.string, compiled.__dict__
    enable(models.token, 120)
    assert compiled.__dict__ is before
    assert compiled.string is text


def test_a_flush_that_was_used_before_meets_the_gate(models: Models, engine: Engine) -> None:
    token = models.token

    def use(session: Session, key: str) -> None:
        found = session.get_one(token, key)
        found.uses += 1
        session.flush()

    with Session(engine) as session:
        use(session, "live")
        use(session, "dead")
        session.add(token(id="other"))
        session.flush()
        session.delete(session.get_one(token, "other"))
        session.commit()
        dead = session.get_one(token, "dead")
        age(session.connection(), "tokens", "dead", 100)
        session.commit()
        assert dead.uses == 1
        session.commit()
        dead.uses += 1
        enable(token, 60)
        with pytest.raises(ExpiredError, match="dead"):
            session.flush()
        session.rollback()
        age(session.connection(), "tokens", "live", 30)
        session.commit()
        before = session.get_one(token, "live").last_modified
        use(session, "live")
        session.commit()
        assert session.get_one(token, "live").last_modified > before
        session.add(token(id="dead"))  # its key is free
        session.commit()
        assert session.get_one(token, "dead").uses == 0


def test_bulk_statements_that_were_used_before_match_live_rows_only(
    models: Models, engine: Engine
) -> None:
    tokens = models.token.__table__
    change = update(tokens).where(tokens.c.id == bindparam("key")).values(uses=5)
    add = insert(tokens)
    remove = delete(tokens).where(tokens.c.id == bindparam("key"))

    def change_all(connection: Any) -> list[int]:
        return [connection.execute(change, {"key": key}).rowcount for key in ("live", "dead")]

    with engine.begin() as connection:
        assert change_all(connection) == [1, 1]
        connection.execute(add, {"id": "x"})
        assert connection.execute(remove, {"key": "x"}).rowcount == 1
        age(connection, "tokens", "dead", 100)
        enable(tokens, 60)
        assert change_all(connection) == [1, 0]
        assert connection.execute(remove, {"key": "dead"}).rowcount == 0
        connection.execute(add, {"id": "dead"})
        assert connection.execute(select(tokens.c.uses).where(tokens.c.id == "dead")).all() == [
            (0,)
        ]


def test_a_delete_from_a_parent_that_was_used_before_makes_room_among_expired_children(
    engine: Engine, enforcing: None
) -> None:
    models = Models()
    models.base.metadata.create_all(engine)
    accounts, tokens = models.account.__table__, models.token.__table__
    remove = delete(accounts).where(accounts.c.id == bindparam("key"))
    with engine.begin() as connection:
        connection.execute(insert(accounts), [{"id": 1}, {"id": 2}])
        connection.execute(insert(tokens), {"id": "dead", "account_id": 1})
        age(connection, "tokens", "dead", 100)
        assert connection.execute(remove, {"key": 2}).rowcount == 1
        enable(tokens, 60)
        assert connection.execute(remove, {"key": 1}).rowcount == 1


def test_statements_of_other_tables_are_left_alone() -> None:
    other, models = table("somewhere", column("id")), Models()
    compiled = select(other).compile(dialect=default.DefaultDialect())
    before = compiled.__dict__
    enable(models.token, 60)
    assert compiled.__dict__ is before


@pytest.fixture
def frozen() -> Iterator[None]:
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def ungated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements compile as before ttl_odm was imported, and nobody notes them."""
    handlers = Select.__dict__["_compiler_dispatcher"].specs

    def plain(element: Any, compiler: Any, **kw: Any) -> Any:
        return compiler.visit_select(element, **kw)

    monkeypatch.setitem(handlers, "default", plain)


@pytest.mark.slow
def test_statements_that_a_server_froze_before_it_forked_are_found(
    models: Models, engine: Engine, frozen: None, ungated: None
) -> None:
    statement = select(models.token.id).order_by(models.token.id)
    with engine.connect() as connection:
        assert connection.execute(statement).scalars().all() == ["dead", "live"]
        gc.freeze()
        enable(models.token, 60)
        assert gc.get_freeze_count() > 0
        assert connection.execute(statement).scalars().all() == ["live"]


def test_a_statement_that_no_policy_can_be_put_on_is_refused_when_it_runs() -> None:
    engine = create_engine("sqlite://")
    models = Models()
    tokens = models.token.__table__
    tokens.schema = "main"
    tokens.fullname = "main.tokens"
    accounts = models.account.__table__
    models.base.metadata.create_all(engine)
    full = select(accounts.c.id, tokens.c.id).select_from(
        accounts.join(tokens, accounts.c.id == tokens.c.account_id, full=True)
    )
    plain = select(tokens.c.id)
    with engine.connect() as connection:
        connection.execute(plain)
        connection.execute(full)
        enable(tokens, 60)
        with pytest.raises(TTLConfigurationError, match="alias"):
            connection.execute(full)
        assert connection.execute(plain).all() == []
    engine.dispose()


def test_an_expression_that_was_made_for_another_policy_is_refused(
    models: Models, engine: Engine
) -> None:
    token = models.token
    enable(token, 60)
    made = select(live(token), expired(token), expires_at(token)).where(token.id == "live")
    with Session(engine) as session:
        assert session.execute(made).one()[:2] == (True, False)
        enable(token, 90, purge="orm")  # the same columns
        assert session.execute(made).one()[:2] == (True, False)
        enable(token, TTL(90, override=None))
        with pytest.raises(TTLConfigurationError, match="create the expression again"):
            session.execute(made)
        disable(token)
        with pytest.raises(TTLConfigurationError, match="no policy now"):
            session.execute(made)
