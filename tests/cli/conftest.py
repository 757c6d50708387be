"""Fixtures of the command line's tests."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Close what functions of the application made."""
    yield
    if shop := sys.modules.get("tests.cli.shop"):
        while shop.made:
            shop.made.pop().dispose()


@pytest.fixture
def mongodb(mongodb_url: str) -> Iterator[Any]:
    """The URL of an empty database, and the database itself."""
    from pymongo import MongoClient

    name = f"ttl_odm_{uuid4().hex}"
    with MongoClient[dict[str, Any]](mongodb_url) as client:
        head, mark, query = mongodb_url.partition("?")
        yield f"{head.rstrip('/')}/{name}{mark}{query}", client[name]
        client.drop_database(name)
