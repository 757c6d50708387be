"""`StoreContract`: the tests that every store of the sweeper has to pass.

The author of a store runs them on it:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def rig(self):
            rig = MyRig()  # a ttl_odm.testing.StoreRig
            yield rig
            rig.close()

Tests of a feature that the store doesn't have are skipped with a reason. The contract has parts,
which can be run alone on a store (or leases) with these features only:

- `batches`: finding and purging one batch at a time: `PurgeContract`, `HoldContract`,
  `RefusalContract`
- `sweeps`: a sweeper on the store: `SweepContract`; counting: `CountingContract`
- `hooks`: reports to hooks, and archives: `HookContract`
- `leases`: leases alone and under a sweeper: `LeaseContract`
- `workers`: several workers on the store: `WorkerContract`

The module `families` isn't part of it and isn't imported here: `FamilyContract` has the tests of a
database's family.
"""

import pytest

# Before the imports: pytest shows the values of a failed assert only in registered modules.
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
