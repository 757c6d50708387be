"""The contract, and a sweep of the in-memory store, with the standard library alone."""

import sys
from datetime import datetime, timedelta, timezone
from importlib import import_module

from ttl_odm import NEVER, TTL, InvalidTTL
from ttl_odm.core import expires_at
from ttl_odm.sweeper import Sweeper
from ttl_odm.testing import InMemoryStore

now = datetime(2026, 1, 1, tzinfo=timezone.utc)
assert expires_at(TTL(60), instant=now, own=None) == now + timedelta(seconds=60)
assert expires_at(TTL(60), instant=now, own=NEVER) is None
try:
    TTL(0)
except InvalidTTL as error:
    assert "TTL.default = 0" in str(error)  # noqa: PT017
else:
    raise AssertionError("0 is not a ttl")

assert Sweeper(InMemoryStore()).run_once().deleted == 0
foreign = {name.partition(".")[0] for name in sys.modules} - {*sys.stdlib_module_names, "ttl_odm"}
assert not {name for name in foreign if not name.startswith(("__", "_virtualenv"))}, foreign

for adapter, needs in [("sqlalchemy", {"sqlalchemy"}), ("beanie", {"beanie", "pymongo", "bson"})]:
    try:
        import_module(f"ttl_odm.{adapter}")
    except ModuleNotFoundError as error:
        assert error.name in needs, error.name  # noqa: PT017
    else:
        raise AssertionError(f"{adapter} without {needs}")
