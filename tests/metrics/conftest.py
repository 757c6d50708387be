"""Fixtures of the metrics' tests."""

from tests.cli.conftest import mongodb

__all__ = ["mongodb"]
