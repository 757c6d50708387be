"""The app `ttl_odm.django` under the name that all integrations have; it has all of its names."""

from ttl_odm.django import (
    Archive,
    __all__,
    __getattr__,
    include_expired,
    keep_last_modified,
    only_expired,
)

# ruff: noqa: F401
