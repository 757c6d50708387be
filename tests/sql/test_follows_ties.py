"""Rows that follow others and refer to each other: trees, rings, and a parent's link to a child."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import ForeignKey, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from tests.sql.following import HOUR, stored
from ttl_odm import Follows
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sweeper import Skip, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine


class Base(DeclarativeBase):
    pass


class Topic(TTLMixin, Base):
    """Has a link to one of the rows that follow it."""

    __tablename__ = "topics"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    last_id: Mapped[int | None] = mapped_column(
        ForeignKey("posts.id", name="topic_last", use_alter=True), index=True
    )


class Post(Base):
    """Replies to others."""

    __tablename__ = "posts"
    __ttl__ = Follows("topic_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    topic_id: Mapped[int] = mapped_column(ForeignKey("topics.id"), index=True)
    reply_id: Mapped[int | None] = mapped_column(ForeignKey("posts.id"), index=True)
    cover_id: Mapped[int | None] = mapped_column(
        ForeignKey("pictures.id", name="post_cover", use_alter=True), index=True
    )


class Picture(Base):
    """Follows a post, which may refer to it."""

    __tablename__ = "pictures"
    __ttl__ = Follows("post_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    post_id: Mapped[int] = mapped_column(ForeignKey("posts.id"), index=True)


LIVE, EXPIRED = 1, 2


@pytest.fixture(autouse=True)
def _rows(engine: Engine, enforcing: None) -> None:
    """In each topic a tree of posts, a post that replies to itself, a ring, and links back."""
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(Topic), [{"id": LIVE}, {"id": EXPIRED}])
        for topic in (LIVE, EXPIRED):
            first = topic * 10_000
            posts = [{"id": first + n, "topic_id": topic} for n in range(1_200)]
            connection.execute(insert(Post), posts)
            pictures = [{"id": first + n, "post_id": first + n} for n in range(3)]
            connection.execute(insert(Picture), pictures)
            post: Any = Post.__table__
            mine = post.c.topic_id == topic
            back = post.update().where(mine, post.c.id > first).values(reply_id=post.c.id - 1)
            connection.execute(back)
            ends = post.update().where(mine, post.c.id == first)
            connection.execute(ends.values(reply_id=first + 5, cover_id=first + 1))
            connection.execute(
                post.update().where(post.c.id == first + 9).values(reply_id=first + 9)
            )
            topics: Any = Topic.__table__
            linked = topics.update().where(Topic.id == topic)
            connection.execute(linked.values(last_id=first + 7))
        age(connection, "topics", EXPIRED, 2 * HOUR)


TABLES = ("topics", "posts", "pictures")


@pytest.mark.slow
@pytest.mark.parametrize("size", [100, 500, 5_000])
def test_a_sweep_takes_trees_and_rings(engine: Engine, size: int) -> None:
    report = Sweeper(engine, Base, lease=False, batch_size=size).run_once()
    assert report.outcome == "finished", report.problems
    assert stored(engine, *TABLES) == [1, 1_200, 3]


@pytest.mark.slow
def test_a_new_parent_takes_the_place_of_one_with_trees_and_rings(engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        session.add(Topic(id=EXPIRED))
    assert stored(engine, *TABLES) == [2, 1_200, 3]


@pytest.mark.slow
def test_what_live_rows_refer_to_stays_expired_until_they_let_it_go(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(insert(Post), [{"id": 1, "topic_id": LIVE}])
        connection.exec_driver_sql("UPDATE posts SET reply_id = 20003 WHERE id = 1")
        connection.execute(insert(Topic), [{"id": 3}])
        connection.execute(insert(Post), [{"id": 30_000, "topic_id": 3}])
        age(connection, "topics", 3, 2 * HOUR)
    report = Sweeper(engine, Base, lease=False).run_once()
    (target,) = report.targets
    assert target.deleted == 1  # the third
    assert dict(target.skips) == {Skip.RESTRICTED: 1}
    assert stored(engine, "topics") == [2]
    with Session(engine) as session:
        assert session.scalar(select(Post.reply_id).where(Post.id == 1)) == 20_003
        assert session.get(Topic, EXPIRED) is None
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE posts SET reply_id = NULL WHERE id = 1")
    assert Sweeper(engine, Base, lease=False).run_once().targets[0].deleted == 1
    assert stored(engine, *TABLES) == [1, 1_201, 3]
