"""Django's `clients.Application`: a model in PostgreSQL, whose driver looks for the primary.

Importing this sets Django up with a model that other tests don't know, so it is for a process that
measures a cluster. Each thread has its own connection. It is closed after each error, as Django
does at the end of a request, and when the application is told to `reconnect`.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib import metadata
from threading import local
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tests.clusters.clients import DEFAULT_TTL, LEASE, RecordedLeases, microseconds
from tests.clusters.history import Kind, Outcome, Row
from tests.django_app import project

project.set_up()

from django.db import Error, IntegrityError, connections, models, transaction  # noqa: E402

from ttl_odm.django import DjangoStore, ExpiredError, TTLModel  # noqa: E402
from ttl_odm.django.time import clock  # noqa: E402
from ttl_odm.django.time.fields import DatabaseNow  # noqa: E402
from ttl_odm.sweeper import Sweeper  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from local_servers.cluster import Cluster, Member
    from tests.clusters.clients import Noted, SweepJournal
    from tests.clusters.places import Places
    from ttl_odm.sweeper import Purged, SweepReport

PRIMARY: Final = "default"
STANDBYS: Final = "other"


class Entry(TTLModel):
    __ttl__ = DEFAULT_TTL

    key: models.CharField[str, str] = models.CharField(max_length=40, primary_key=True)
    version: models.CharField[str, str] = models.CharField(max_length=60)

    class Meta:
        """No app of the project has it."""

        app_label = "clusters"
        db_table = "cluster_entries"

    def __str__(self) -> str:
        return self.key


class _StatementsNow(DatabaseNow):
    """The instant by which a statement judges rows."""

    def as_sql(self, compiler: Any, connection: Any) -> Any:  # noqa: ARG002
        """Render it."""
        return clock.now(connection, "instant"), ()


@contextmanager
def opened(places: Places) -> Iterator[DjangoApplication]:
    """As in `clients.Opening`."""
    members = places.cluster.members
    project.point_at(PRIMARY, _settings(members, "read-write"))
    project.point_at(STANDBYS, _settings(members, "prefer-standby"))
    project.migrate(PRIMARY)
    with connections[PRIMARY].schema_editor() as editor:
        editor.create_model(Entry)
    yield DjangoApplication({_port_of(member): member.name for member in members})
    connections.close_all()


def described(_cluster: Cluster) -> tuple[str, str]:
    """Say which server and which driver it is."""
    with connections[PRIMARY].cursor() as cursor:
        cursor.execute("SHOW server_version")
        version = str(cursor.fetchone()[0]).partition(" ")[0]
    connections.close_all()
    return version, f"Django {metadata.version('django')}, psycopg {metadata.version('psycopg')}"


def _port_of(member: Member) -> int:
    port = urlsplit(member.url).port
    assert port is not None
    return port


def _settings(members: Sequence[Member], role: str) -> dict[str, Any]:
    """Django's settings for those of a cluster's servers that have a role."""
    addresses = [urlsplit(member.url) for member in members]
    (first, *_) = addresses
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": first.path[1:],
        "USER": first.username or "",
        "HOST": ",".join(str(address.hostname) for address in addresses),
        "PORT": ",".join(str(address.port) for address in addresses),
        # A server that was cut off accepts connections, but says nothing.
        "OPTIONS": {"target_session_attrs": role, "connect_timeout": 2},
    }


class DjangoApplication:
    """The `clients.Application`.

    Attributes:
        generation: How often connections were to be opened anew.
    """

    def __init__(self, names: dict[int, str]) -> None:
        self._names = names
        self._own = local()
        self.generation = 0
        self.primary = DjangoAccess(self, PRIMARY)
        self.replica = DjangoAccess(self, STANDBYS)

    @contextmanager
    def sweeping(self, journal: SweepJournal, *, watched: bool) -> Iterator[DjangoSweeping]:
        """As in `Application`."""
        try:
            yield DjangoSweeping(journal, self, watched=watched)
        finally:
            connections.close_all()

    def reconnect(self) -> None:
        """As in `Application`: each thread does so before it uses a connection again."""
        self.generation += 1

    def keep_up(self) -> None:
        """Close this thread's connections if that is due."""
        if getattr(self._own, "generation", self.generation) != self.generation:
            connections.close_all()
        self._own.generation = self.generation

    def server_of(self, alias: str) -> str:
        """The member that this thread is connected to."""
        connection = connections[alias]
        connection.ensure_connection()
        return self._names[connection.connection.info.port]


class DjangoAccess:
    """`clients.Access` by an alias of ``DATABASES``."""

    away = (Error, OSError)

    def __init__(self, application: DjangoApplication, alias: str) -> None:
        self._application = application
        self._alias = alias

    def read(self, noted: Noted) -> None:
        """As in `Access`."""
        with self._connected(noted):
            noted.asked = self.now()
            noted.rows = self._rows(Entry.objects, noted.keys)
            noted.answered = self.now()

    def write(self, noted: Noted, ttl: int | None) -> None:
        """As in `Access`."""
        (key,) = noted.keys
        with self._connected(noted):
            noted.asked = self.now()
            try:
                with transaction.atomic(using=self._alias):
                    is_there = _CHANGES[noted.kind](key, noted.version, ttl)
                    if is_there:
                        noted.rows = self._rows(Entry.all_objects, noted.keys)
                        noted.answered = self.now()
                        noted.outcome = Outcome.UNKNOWN
                noted.outcome = Outcome.ACKNOWLEDGED if is_there else Outcome.MISSED
            except ExpiredError:
                noted.outcome = Outcome.MISSED
            except IntegrityError:
                noted.outcome = Outcome.REFUSED
            if noted.outcome is not Outcome.ACKNOWLEDGED:
                noted.answered = self.now()

    def now(self) -> int:
        """As in `Access`."""
        return microseconds(clock.database_now(connections[self._alias]))

    @contextmanager
    def _connected(self, noted: Noted) -> Iterator[None]:
        self._application.keep_up()
        try:
            noted.server = self._application.server_of(self._alias)
            yield
        except self.away:
            connections[self._alias].close()
            raise

    def _rows(self, manager: Any, keys: Sequence[str]) -> tuple[Row, ...]:
        chosen = manager.using(self._alias).filter(pk__in=keys).annotate(now=_StatementsNow())
        return tuple(
            Row(key, version, microseconds(changed), ttl, microseconds(now))
            for key, version, changed, ttl, now in chosen.values_list(
                "key", "version", "last_modified", "ttl", "now"
            )
        )


def _insert(key: str, version: str | None, ttl: int | None) -> bool:
    Entry(key=key, version=version, ttl=ttl).save(force_insert=True)
    return True


def _locked(key: str) -> Entry | None:
    """Load a row, and let nobody delete it before it is saved."""
    entry: Entry | None = Entry.objects.select_for_update().filter(pk=key).first()
    return entry


def _renew(key: str, version: str | None, ttl: int | None) -> bool:
    entry = _locked(key)
    if entry is None:
        return False
    assert version is not None
    entry.version, entry.ttl = version, ttl
    entry.save()
    return True


def _touch(key: str, _version: str | None, _ttl: int | None) -> bool:
    entry = _locked(key)
    if entry is None:
        return False
    entry.touch()
    return True


def _update(key: str, version: str | None, ttl: int | None) -> bool:
    return bool(Entry.objects.filter(pk=key).update(version=version, ttl=ttl))


def _delete(key: str, _version: str | None, _ttl: int | None) -> bool:
    deleted, _ = Entry.objects.filter(pk=key).delete()
    return bool(deleted)


_CHANGES = {
    Kind.INSERT: _insert,
    Kind.RENEW: _renew,
    Kind.TOUCH: _touch,
    Kind.UPDATE: _update,
    Kind.DELETE: _delete,
}
"""What does each kind of write, and says whether there was a row."""


class DjangoSweeping:
    """The `clients.Sweeping`."""

    def __init__(
        self, journal: SweepJournal, application: DjangoApplication, *, watched: bool
    ) -> None:
        self.journal = journal
        self._application = application
        store = DjangoStore(PRIMARY, Entry)
        self.sweeper = Sweeper(
            store,
            lease=RecordedLeases(store.leases, journal, application.primary),
            lease_duration=LEASE,
            on_progress=journal.batch,
            on_purged=self._purged if watched else None,
        )

    def run_once(self) -> SweepReport:
        """As in `Sweeping`."""
        self._application.keep_up()
        self.journal.begin()
        return self.sweeper.run_once()

    def _purged(self, purged: Purged) -> None:
        self.journal.purged(purged, self._application.server_of(PRIMARY))
