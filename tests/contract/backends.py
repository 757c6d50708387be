"""The subjects: which there are, and how each is opened."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final

from tests.backends import async_backends, fresh, server_url, sync_backends

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from tests.contract.django_models import Models, Place
    from tests.contract.subject import Subject

SQLALCHEMY, SQLALCHEMY_ASYNC, BEANIE, DJANGO = "sqlalchemy", "sqlalchemy-async", "beanie", "django"
SQLALCHEMY_STORED, DJANGO_STORED = "sqlalchemy-stored", "django-stored"
"""The same where the database stores the defaults."""
SQLALCHEMY_VIEWS = "sqlalchemy-views"
"""The same where other programs read views of live rows."""

_CLASSES: Final = {
    SQLALCHEMY: "on_sqlalchemy:SyncSQLAlchemy",
    SQLALCHEMY_ASYNC: "on_sqlalchemy:AsyncSQLAlchemy",
    SQLALCHEMY_STORED: "on_stored:StoredOnSQLAlchemy",
    SQLALCHEMY_VIEWS: "on_views:ThroughViews",
    BEANIE: "on_beanie:OnBeanie",
    DJANGO: "on_django:OnDjango",
    DJANGO_STORED: "on_stored_django:StoredOnDjango",
}
"""Where the subjects' classes are. Nothing imports them here: without an extension, its own is
missing, and the others are still asked."""


def names(databases: Collection[str]) -> list[str]:
    """Name every subject on these databases: its adapter, and the backend behind a colon."""
    return [
        *(f"{SQLALCHEMY}:{name}" for name in sync_backends(databases, every_driver=True)),
        *(f"{SQLALCHEMY_ASYNC}:{name}" for name in async_backends(databases, every_driver=True)),
        *(f"{SQLALCHEMY_STORED}:{name}" for name in sync_backends(databases)),
        *(f"{SQLALCHEMY_VIEWS}:{name}" for name in sync_backends(databases)),
        *(f"{BEANIE}:{name}" for name in ("mongodb",) if name in databases),
        *(f"{DJANGO}:{name}" for name in sync_backends(databases)),
        *(f"{DJANGO_STORED}:{name}" for name in sync_backends(databases)),
    ]


class Subjects:
    """Opens each subject when it is first asked for, and closes all of them together."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, Subject] = {}
        self._stack = ExitStack()
        self._django: dict[Place, Models] = {}

    def __getitem__(self, name: str) -> Subject:
        if name not in self._open:
            folder = self._folder / name.replace(":", "-")
            folder.mkdir()
            self._open[name] = self._stack.enter_context(self._opened(name, folder))
        return self._open[name]

    def close(self) -> None:
        self._stack.close()

    @contextmanager
    def _opened(self, name: str, folder: Path) -> Iterator[Subject]:
        adapter, _, backend = name.partition(":")
        kind: Any = resolve_name(f"{__package__}.{_CLASSES[adapter]}")
        if adapter == BEANIE:
            made: Subject = kind(server_url(backend))
            yield made
            made.close()
            return
        with fresh(backend, folder) as database:
            django = adapter in (DJANGO, DJANGO_STORED)
            made = kind(database, self._models(kind.place)) if django else kind(database)
            yield made
            made.close()

    def _models(self, place: Place) -> Models:
        """Django's models, one set for all databases."""
        if place not in self._django:
            from tests.contract.django_models import installed

            self._django[place] = self._stack.enter_context(installed(place))
        return self._django[place]
