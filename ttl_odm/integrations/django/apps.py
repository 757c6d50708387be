"""Django looks for an app's config beside the app."""

from ttl_odm.django.apps import TTLConfig

__all__ = ["TTLConfig"]
