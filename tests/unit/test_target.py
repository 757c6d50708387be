"""The size of batches: wide rows, and rows that can't be deleted."""

from __future__ import annotations

from ttl_odm.sweeper import BatchResult, Skip, weight
from ttl_odm.sweeper.pace import SINGLED_OUT, CulpritSearch

FAILED = BatchResult(0, skipped={Skip.REFUSED: 1})


def limits_of_rows_in_a_row(search: CulpritSearch) -> list[int | None]:
    """How large the batches after so many rows that each failed alone, and one more, may be."""
    limits = []
    for _ in range(SINGLED_OUT + 1):
        assert search.leaves(0, 1, FAILED)
        limits.append(search.limit)
    return limits


def test_a_batch_that_went_lets_as_many_rows_be_singled_out_as_before() -> None:
    search = CulpritSearch()
    first = limits_of_rows_in_a_row(search)
    assert first == [1] * SINGLED_OUT + [2]
    search.grow(1_000)
    assert limits_of_rows_in_a_row(search) == first


def test_a_row_weighs_what_all_of_its_values_weigh() -> None:
    value = weight([None])
    assert weight([7, "four", b"six bytes"]) == 3 * value + 4 + 9
    assert weight([7, ["four", None], {"key": "four"}]) == 6 * value + 4 + 4
