"""The app's config, which Django looks for beside the app."""

from ttl_odm.django.apps import TTLConfig

__all__ = ["TTLConfig"]
