"""The app `ttl_odm.django`, with all its names, under the common name of integrations."""

from ttl_odm.django import (
    Archive,
    __all__,
    __getattr__,
    include_expired,
    keep_last_modified,
    only_expired,
)

# ruff: noqa: F401
