"""Beanie's own tests pass through the gate as they do without it.

They come from the newest source distribution of Beanie 2 that brings them and run in processes of
their own against the Beanie that is installed: once with a policy on every collection, and once
with the gate but no policy, where nothing may fail. What fails is listed here, each with its
reason; a failure that is not listed is one of this test, and so is one that is listed and no longer
there.

Only for Beanie 2. The suite of 1.30 makes all collections anew for each of its tests and leaves
its clients open: it takes many minutes, which is too long for each run. What it says, run by hand,
is in docs/mongodb-costs.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from uuid import uuid4

import beanie
import pytest

from tests.other_suites import failures, unpacked

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = [pytest.mark.slow, pytest.mark.in_turns]

PLUGIN: Final = Path(__file__).with_name("through_the_gate.py")
SOURCE = "2.1.0"  # 2.2.0 leaves its tests out
SETTINGS = (
    "asyncio_mode=auto",
    "asyncio_default_fixture_loop_scope=session",
    "asyncio_default_test_loop_scope=session",
    "addopts=",
    "filterwarnings=",
)
_SEES_TS: Final = "compares the raw document, which now has a _ts, with an exact one"


@dataclass(frozen=True)
class Run:
    """A run of the suite.

    Attributes:
        chosen: What of it runs.
        least: How many tests pass, at least: a suite that was not found would fail in nothing.
        left_out: What of that doesn't run.
        fails: What fails, and why.
    """

    chosen: tuple[str, ...]
    least: int
    left_out: tuple[str, ...] = ()
    fails: Mapping[str, str] = field(default_factory=dict)


RUNS: Final = {
    "hour": Run(
        ("tests/odm",),
        least=380,
        left_out=(  # these build queries, schemas and so on, and send nothing to any collection
            "tests/odm/operators",
            "tests/odm/test_encoder.py",
            "tests/odm/test_expression_fields.py",
            "tests/odm/test_fields.py",
            "tests/odm/test_json_schema_generation.py",
            "tests/odm/test_typing_utils.py",
        ),
        fails={
            "tests.odm.documents.test_create.test_insert_keep_nulls_false": _SEES_TS,
            "tests.odm.documents.test_create.test_insert_many_keep_nulls_false": _SEES_TS,
            "tests.odm.documents.test_update.test_save_keep_nulls_false": _SEES_TS,
            "tests.odm.documents.test_update.test_save_changes_keep_nulls_false": _SEES_TS,
        },
    ),
    "none": Run(
        (  # where the gate has work to do, and cursors of its own to give, without a policy as well
            "tests/odm/documents/test_init.py",
            "tests/odm/query/test_aggregate.py",
            "tests/odm/query/test_aggregate_methods.py",
            "tests/odm/test_cursor.py",
            "tests/odm/test_relations.py",
            "tests/odm/test_timesries_collection.py",
            "tests/odm/test_views.py",
        ),
        least=90,
    ),
}
"""With a policy of an hour on every collection, and without any."""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder with Beanie's tests, without Beanie, so that the installed one is tested."""
    return unpacked("beanie", SOURCE, "beanie", tmp_path_factory.mktemp("beanie"))


def outcome(suite: Path, url: str, policy: str) -> set[str]:
    """Run the suite and return the names of the tests that fail."""
    name = f"ttl_odm_{uuid4().hex[:16]}"
    run = RUNS[policy]
    words = [*run.chosen, *(f"--ignore={path}" for path in run.left_out)]
    words += [word for setting in SETTINGS for word in ("-o", setting)]
    variables = {
        "TTL_ODM_POLICY": policy,
        # A test takes what stands after the last slash for the database's name.
        "mongodb_dsn": urlsplit(url)._replace(path=f"/{name}", query="").geturl(),
        "mongodb_db_name": name,
    }
    return failures(suite, words, PLUGIN, variables, least=run.least)


if not beanie.__version__.startswith("1."):

    @pytest.mark.parametrize("policy", RUNS)
    def test_nothing_fails_that_is_not_listed(policy: str, suite: Path, mongodb_url: str) -> None:
        assert outcome(suite, mongodb_url, policy) == RUNS[policy].fails.keys()
