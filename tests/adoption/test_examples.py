"""Each example runs as it stands, and shows a row that is over and its sweep."""

from __future__ import annotations

import asyncio
import inspect

import pytest
import sqlalchemy

from tests.adoption.conftest import EXAMPLES, example

NEEDS_SQLALCHEMY_2_0 = {"fastapi_users_tokens"}
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if "documents" not in path.stem)


@pytest.mark.filterwarnings("ignore:The declarative_mixin decorator:DeprecationWarning")
@pytest.mark.parametrize("name", NAMES)
def test_an_example_shows_an_end_and_a_sweep(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name in NEEDS_SQLALCHEMY_2_0 and sqlalchemy.__version__.startswith("2.1"):
        pytest.skip("fastapi-users-db-sqlalchemy has no release for SQLAlchemy 2.1")
    main = example(name).main
    if inspect.iscoroutinefunction(main):
        asyncio.run(main())
    else:
        main()
    shown = capsys.readouterr().out
    assert "1 row deleted" in shown
    assert "after its end" in shown or "invalid" in shown
