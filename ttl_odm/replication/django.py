"""The throttle for a database of Django's, which asks its replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ttl_odm.django.sweep.store import DjangoStore
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.replication.families import Question, Questions, Rows, answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.sweeper.options import Throttle


def throttle_of(
    engine: DjangoStore | BaseDatabaseWrapper,
    at_most: float,
    replicas: Sequence[BaseDatabaseWrapper],
) -> Throttle:
    """Make the throttle; see `ttl_odm.replication.ReplicationLag`."""
    primary = engine.using if isinstance(engine, DjangoStore) else engine.alias
    if any(not isinstance(replica, BaseDatabaseWrapper) for replica in replicas):
        raise TTLConfigurationError(
            f'replicas = {replicas!r}: give a connection for each, such as connections["replica"].'
        )
    known = {replica.alias: replica.alias for replica in replicas}
    questions = Questions(connections[primary].vendor, at_most, known)

    def replication() -> float | str | None:
        return answer(questions(), lambda question: _ask(question, primary))

    return replication


def _ask(question: Question, primary: str) -> Rows:
    if question.place is not None:
        host, port = question.place
        raise TTLConfigurationError(
            f"throttle='replication': only the replica {host}:{port} itself knows how far it is "
            "behind. Put it into DATABASES, and pass throttle=ReplicationLag(connection, "
            'replicas=[connections["replica"]]).'
        )
    alias = primary if question.known is None else str(question.known)
    with connections[alias].cursor() as cursor:
        cursor.execute(question.sql)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
