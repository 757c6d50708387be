"""What the gate makes of class hierarchies: when an EXISTS is needed, and whose default counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    ForeignKey,
    ForeignKeyConstraint,
    StaticPool,
    create_engine,
    delete,
    outerjoin,
    select,
    update,
)
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    aliased,
    joinedload,
    mapped_column,
    with_polymorphic,
)

from tests.clocks import age
from tests.leaks.living import Lasting
from tests.leaks.models import Key, Models, Text, make_models
from ttl_odm import TTLConfigurationError
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

HOUR = 3600


@pytest.fixture(scope="module")
def m() -> Models:
    return make_models(Lasting, type("Base", (DeclarativeBase,), {}))


@pytest.fixture
def memory() -> Iterator[Engine]:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    yield engine
    engine.dispose()


def statements(m: Models) -> dict[str, Any]:
    """Statements in which the ORM joins a subclass's table to its base's, or a user does."""
    base, sub, subsub = (each.__table__ for each in (m.Document, m.Invoice, m.CreditNote))
    every = with_polymorphic(m.Document, "*")
    flat = with_polymorphic(m.Document, "*", flat=True)
    return {
        "a subclass": select(m.Invoice),
        "a subclass of a subclass": select(m.CreditNote),
        "a flat alias": select(aliased(m.CreditNote, flat=True)),
        "an alias": select(aliased(m.CreditNote)),
        "with_polymorphic": select(every),
        "with_polymorphic, flat": select(flat),
        "joinedload": select(m.Line).options(joinedload(m.Line.invoice)),
        "an outer join": select(m.Line.text, m.Invoice.title).outerjoin(m.Line.invoice),
        "of_type": select(m.Customer).join(m.Customer.documents.of_type(m.Invoice)),
        "has": select(m.Line).where(m.Line.invoice.has()),
        "a join by hand": select(base.c.id, sub.c.id).join(sub, sub.c.id == base.c.id),
        "a join by hand over the middle": select(base.c.id, subsub.c.reason)
        .join(sub, sub.c.id == base.c.id)
        .join(subsub, subsub.c.note_id == sub.c.id),
        "WHERE": select(base.c.id, sub.c.id).where(base.c.id == sub.c.id),
        "the base outer-joined": select(base.c.id).select_from(
            outerjoin(base, sub, base.c.id == sub.c.id)
        ),
        "UPDATE FROM": update(sub).values(amount=1).where(sub.c.id == base.c.id),
    }


STATEMENTS = list(statements(make_models(Lasting, type("Base", (DeclarativeBase,), {}))))


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_subclass_that_is_joined_to_its_base_needs_no_exists(
    m: Models, memory: Engine, name: str
) -> None:
    sql = str(statements(m)[name].compile(memory))
    # has() is an EXISTS by itself.
    assert sql.count("EXISTS") == (1 if name == "has" else 0)
    assert "_ts" in sql


def test_a_subclass_s_table_alone_needs_one_exists_for_each_time_it_occurs(
    m: Models, memory: Engine
) -> None:
    base, sub = m.Document.__table__, m.Invoice.__table__
    other = sub.alias()
    for statement, count in {
        select(sub): 1,
        select(sub.c.id, other.c.id).where(sub.c.id < other.c.id): 2,
        select(sub.c.id).select_from(outerjoin(sub, base, sub.c.id == base.c.id)): 1,
        select(sub.c.id, base.c.id).where(sub.c.id != base.c.id): 1,
        update(sub).values(amount=1): 1,
        delete(sub): 1,
    }.items():
        assert str(statement.compile(memory)).count("EXISTS") == count, statement


def test_a_composite_key_of_a_subclass_is_compared_as_a_whole(memory: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Page(TTLMixin, Base):
        __tablename__ = "pages"
        __ttl__ = HOUR
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "page"}

        site: Mapped[Key]
        number: Mapped[Key]
        kind: Mapped[Text]

    class Article(Page):
        __tablename__ = "articles"
        __mapper_args__ = {"polymorphic_identity": "article"}

        site: Mapped[Key]
        number: Mapped[Key]
        title: Mapped[Text]
        __table_args__ = (ForeignKeyConstraint(["site", "number"], ["pages.site", "pages.number"]),)

    pages, articles = Page.__table__, Article.__table__
    half = select(articles.c.title).join(pages, pages.c.site == articles.c.site)
    whole = half.where(pages.c.number == articles.c.number)
    assert str(half.compile(memory)).count("EXISTS") == 1
    assert str(whole.compile(memory)).count("EXISTS") == 0


def events() -> tuple[Any, Any]:
    class Base(DeclarativeBase):
        pass

    class Event(TTLMixin, Base):
        __tablename__ = "events"
        __ttl__ = HOUR
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "event"}

        id: Mapped[Key]
        kind: Mapped[Text]

    return Base, Event


def add_aged(session: Session, *rows: Any) -> None:
    """Add rows that were last written ten minutes ago."""
    session.add_all(rows)
    session.flush()
    for row in rows:
        age(session.connection(), "events", row.id, HOUR / 6)


def test_a_subclass_s_default_counts_in_statements_that_were_compiled_before_it_was_declared(
    memory: Engine,
) -> None:
    base, event = events()
    base.metadata.create_all(memory)
    with Session(memory) as session:
        add_aged(session, event(id=1))
        assert session.scalars(select(event.id)).all() == [1]

        class Probe(event):  # type: ignore[misc]
            __ttl__ = 60
            __mapper_args__ = {"polymorphic_identity": "probe"}

        add_aged(session, Probe(id=2))
        assert session.scalars(select(event.id)).all() == [1]
        assert session.scalars(select(event.__table__.c.id)).all() == [1]
        assert session.execute(update(event).values(kind=event.kind)).rowcount == 1  # type: ignore[attr-defined]


def test_a_subclass_that_is_declared_later_inherits_the_nearest_default(memory: Engine) -> None:
    base, event = events()

    class Probe(event):  # type: ignore[misc]
        __ttl__ = 60
        __mapper_args__ = {"polymorphic_identity": "probe"}

    base.metadata.create_all(memory)
    with Session(memory) as session:
        add_aged(session, event(id=1), Probe(id=2))
        assert session.scalars(select(event.id)).all() == [1]

        class DeepProbe(Probe):
            __mapper_args__ = {"polymorphic_identity": "deep_probe"}

        class LongProbe(DeepProbe):
            __ttl__ = 24 * HOUR
            __mapper_args__ = {"polymorphic_identity": "long_probe"}

        add_aged(session, DeepProbe(id=3), LongProbe(id=4))
        assert session.scalars(select(event.id).order_by(event.id)).all() == [1, 4]
        Probe.__ttl__ = 2 * HOUR
        assert session.scalars(select(event.id).order_by(event.id)).all() == [1, 2, 3, 4]
        session.expunge_all()
        assert [row.is_expired for row in session.scalars(select(event))] == [False] * 4


def test_an_abstract_subclass_hands_its_default_down(memory: Engine) -> None:
    base, event = events()

    class Probe(event):  # type: ignore[misc]
        __ttl__ = 60
        __mapper_args__ = {"polymorphic_abstract": True}

    base.metadata.create_all(memory)
    with Session(memory) as session:
        add_aged(session, event(id=1))
        assert session.scalars(select(event.id)).all() == [1]

        class DeepProbe(Probe):
            __mapper_args__ = {"polymorphic_identity": "deep_probe"}

        add_aged(session, DeepProbe(id=2))
        assert session.scalars(select(event.id)).all() == [1]


def test_a_joined_subclass_of_a_single_table_subclass_inherits_its_default(memory: Engine) -> None:
    base, event = events()

    class Probe(event):  # type: ignore[misc]
        __ttl__ = 60
        __mapper_args__ = {"polymorphic_identity": "probe"}

    class DeepProbe(Probe):
        __tablename__ = "deep_probes"
        __mapper_args__ = {"polymorphic_identity": "deep_probe"}

        id: Mapped[int] = mapped_column(
            ForeignKey("events.id"), primary_key=True, autoincrement=False
        )
        depth: Mapped[int]

    base.metadata.create_all(memory)
    with Session(memory) as session:
        add_aged(session, event(id=1), DeepProbe(id=2, depth=3))
        assert session.scalars(select(event.id)).all() == [1]
        assert session.scalars(select(DeepProbe.__table__.c.depth)).all() == []


def test_a_default_of_a_subclass_that_nothing_tells_apart_is_refused() -> None:
    class Base(DeclarativeBase):
        pass

    class Event(TTLMixin, Base):
        __tablename__ = "events"
        __ttl__ = HOUR

        id: Mapped[Key]

    with pytest.raises(TTLConfigurationError, match="can't be told apart from others"):

        class Probe(Event):
            __ttl__ = 60


def test_a_joined_subclass_with_a_default_of_its_own_is_refused() -> None:
    _, event = events()

    with pytest.raises(TTLConfigurationError, match="joined subclass shares its row"):

        class Probe(event):  # type: ignore[misc]
            __tablename__ = "probes"
            __ttl__ = 60
            __mapper_args__ = {"polymorphic_identity": "probe"}

            id: Mapped[int] = mapped_column(ForeignKey("events.id"), primary_key=True)
