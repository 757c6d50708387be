"""`StoreContract`: what every store of the sweeper has to do, as tests.

Whoever writes a store runs these on it:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def rig(self):
            rig = MyRig()  # a ttl_odm.testing.StoreRig
            yield rig
            rig.close()

Tests of what a store doesn't offer are skipped, and say so. It is made of parts, for a store (or
for leases) of which one knows that it has no more:

- `batches`: what is due and purged, one batch at a time: `PurgeContract`, `HoldContract`,
  `RefusalContract`
- `sweeps`: what a sweeper does with the store: `SweepContract`; counting: `CountingContract`
- `hooks`: what the store reports to hooks, and archives: `HookContract`
- `leases`: leases by themselves and under a sweeper: `LeaseContract`
- `workers`: what several workers do with the store: `WorkerContract`

The module `families` isn't part of it and isn't imported here: `FamilyContract`, what the family of
a database has to bring.
"""

import pytest

# Before they are imported: pytest shows the values of a failed assert only where it knows to.
for _name in ("batches", "families", "hooks", "leases", "sweeps", "workers"):
    pytest.register_assert_rewrite(f"{__name__}.{_name}")

from ttl_odm.testing.contract.batches import (  # noqa: E402
    HoldContract,
    PurgeContract,
    RefusalContract,
)
from ttl_odm.testing.contract.hooks import HookContract  # noqa: E402
from ttl_odm.testing.contract.leases import LeaseContract  # noqa: E402
from ttl_odm.testing.contract.sweeps import CountingContract, SweepContract  # noqa: E402
from ttl_odm.testing.contract.workers import WorkerContract  # noqa: E402

__all__ = [
    "CountingContract",
    "HoldContract",
    "HookContract",
    "LeaseContract",
    "PurgeContract",
    "RefusalContract",
    "StoreContract",
    "SweepContract",
    "WorkerContract",
]


class StoreContract(
    PurgeContract,
    SweepContract,
    HoldContract,
    RefusalContract,
    HookContract,
    CountingContract,
    LeaseContract,
    WorkerContract,
):
    """The whole contract; a subclass provides a fixture ``rig``."""
