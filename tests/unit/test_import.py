"""Importing the contract brings in nothing foreign."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ttl_odm

# What an interpreter loads at its start (.pth files of an environment) is not our doing.
PROBE = """
import sys
before = set(sys.modules)
import {module}
print(*sorted(set(sys.modules) - before))
"""

CONTRACT = [
    "ttl_odm",
    "ttl_odm.errors",
    "ttl_odm.core",
    "ttl_odm.core.values",
    "ttl_odm.core.policy",
    "ttl_odm.core.declaration",
    "ttl_odm.core.expiry",
    "ttl_odm.core.lifetime",
    "ttl_odm.core.class_attributes",
]


def modules_brought_in_by(module: str) -> set[str]:
    parent_of_package = str(Path(ttl_odm.__file__).parents[1])
    run = subprocess.run(
        [sys.executable, "-c", PROBE.format(module=module)],
        env={**os.environ, "PYTHONPATH": parent_of_package},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(run.stdout.split())


@pytest.mark.parametrize("module", CONTRACT)
def test_the_contract_imports_the_standard_library_and_itself_only(module: str) -> None:
    brought_in = modules_brought_in_by(module)

    roots = {name.partition(".")[0] for name in brought_in}
    assert roots <= {*sys.stdlib_module_names, "ttl_odm"}
    ours = {name for name in brought_in if name.startswith("ttl_odm.")}
    assert ours <= {"ttl_odm.errors", "ttl_odm.core"} | {
        name for name in ours if name.startswith("ttl_odm.core.")
    }


def test_time_zone_data_is_loaded_only_where_a_policy_names_a_zone() -> None:
    assert "zoneinfo" not in modules_brought_in_by("ttl_odm")


def test_the_public_names_are_all_there() -> None:
    assert set(ttl_odm.__all__) == {
        "NEVER",
        "TTL",
        "ExpireAfter",
        "ExpireAt",
        "ExpiredError",
        "Follows",
        "InvalidTTL",
        "Partitions",
        "Stored",
        "TTLConfigurationError",
        "TTLError",
        "__version__",
    }
    for name in ttl_odm.__all__:
        assert hasattr(ttl_odm, name)
