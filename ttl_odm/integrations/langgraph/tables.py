"""The tables of checkpoints: threads have a lifetime, and their checkpoints and writes follow them.

This module must not know how LangGraph uses them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import JSON, ForeignKey, Integer, LargeBinary, MetaData, String, Text
from sqlalchemy.dialects.mysql import LONGBLOB
from sqlalchemy.orm import mapped_column, registry

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.follows import Follows
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from datetime import timedelta

    from ttl_odm.core.policy import Policy

_MYSQL: Final = ("mysql", "mariadb")
# InnoDB allows a primary key 3072 bytes, which these lengths don't exceed together.
_THREAD, _NAMESPACE, _ID = 255, 400, 50


class CheckpointTables:
    """The tables in which a `SQLAlchemySaver` stores checkpoints, as mapped classes.

    For example::

        tables = CheckpointTables(timedelta(days=30), Base)

    Attributes:
        metadata: The MetaData of the tables; ``metadata.create_all()`` creates them, and a
            `Sweeper` accepts it.
        Thread: A thread: ``thread_id``, and the columns of a `TTLMixin`. Its ``ttl`` is the
            lifetime of this one thread, in seconds.
        Checkpoint: A checkpoint, which follows its thread.
        Write: A write of a task, which follows its thread.
    """

    def __init__(
        self,
        ttl: float | timedelta | Policy | None,
        base: Any = None,
        *,
        prefix: str = "langgraph_",
        at_most_every: float | timedelta | None = None,
    ) -> None:
        """Declare the tables.

        Args:
            ttl: The ``__ttl__`` of threads: how long one lives after the last write to it, in
                seconds, or a policy that writes prolong.
            base: The declarative base or MetaData for the tables, where Alembic sees them; None for
                a MetaData of their own.
            prefix: How the names of the tables begin.
            at_most_every: Seconds, or a timedelta, for which a thread that was renewed isn't
                renewed again, which saves an UPDATE per write; see `Follows`. It has to be
                shorter than threads live. None for none.

        Raises:
            TTLConfigurationError: An argument has the wrong type, or no write prolongs the policy.
        """
        metadata = MetaData() if base is None else getattr(base, "metadata", base)
        if not isinstance(metadata, MetaData):
            raise TTLConfigurationError(
                f"CheckpointTables(..., {base!r}): pass a declarative base or a MetaData, or "
                "leave base out."
            )
        mapped = registry(metadata=metadata).mapped
        self.metadata = metadata
        self.at_most_every = at_most_every

        @mapped
        class Thread(TTLMixin):
            __tablename__ = f"{prefix}threads"
            __ttl__ = ttl

            thread_id = mapped_column(_key(_THREAD), primary_key=True)

        thread_id: Any = Thread.thread_id
        follows = Follows("thread_id", renews=True, at_most_every=at_most_every)

        def of_thread() -> Any:
            return mapped_column(_key(_THREAD), ForeignKey(thread_id), primary_key=True)

        @mapped
        class Checkpoint:
            __tablename__ = f"{prefix}checkpoints"
            __ttl__ = follows

            thread_id = of_thread()
            checkpoint_ns = mapped_column(_key(_NAMESPACE), primary_key=True)
            checkpoint_id = mapped_column(_key(_ID), primary_key=True)
            parent_id = mapped_column(_key(_ID))
            type = mapped_column(String(100), nullable=False)
            value = mapped_column(_bytes(), nullable=False)
            details = mapped_column("metadata", JSON, nullable=False)

        @mapped
        class Write:
            __tablename__ = f"{prefix}writes"
            # It follows its thread, not its checkpoint, which may be stored later.
            __ttl__ = follows

            thread_id = of_thread()
            checkpoint_ns = mapped_column(_key(_NAMESPACE), primary_key=True)
            checkpoint_id = mapped_column(_key(_ID), primary_key=True)
            task_id = mapped_column(_key(_ID), primary_key=True)
            idx = mapped_column(Integer, primary_key=True, autoincrement=False)
            task_path = mapped_column(Text, nullable=False)
            channel = mapped_column(Text, nullable=False)
            type = mapped_column(String(100), nullable=False)
            value = mapped_column(_bytes(), nullable=False)

        self.Thread: Any = Thread
        self.Checkpoint: Any = Checkpoint
        self.Write: Any = Write


def _key(length: int) -> String:
    """Return a type for text compared byte by byte, which MySQL and MariaDB do by a collation."""
    exact = String(length, collation="utf8mb4_bin")
    return String(length).with_variant(exact, *_MYSQL)


def _bytes() -> LargeBinary:
    """Return a type for any number of bytes; MySQL's and MariaDB's BLOB has 64 KiB."""
    return LargeBinary().with_variant(LONGBLOB(), *_MYSQL)
