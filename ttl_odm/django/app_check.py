"""Says which app is missing, before Django names a model that the user has never seen."""

from __future__ import annotations

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured


def require_app(app: str, purpose: str) -> None:
    """Raise ImproperlyConfigured if `app`, which `purpose` depends on, isn't in INSTALLED_APPS."""
    if not apps.is_installed(app):
        raise ImproperlyConfigured(f'{purpose} require the app "{app}": add it to INSTALLED_APPS.')
