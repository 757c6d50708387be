"""The copy without an extension lacks it, and the tests that use it, and no others."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from suite.without import EXTENSIONS, ROOT, delete, offered

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from pathlib import Path


def test_whatever_uses_it_is_deleted_and_whatever_imports_that(tmp_path: Path) -> None:
    texts = {
        "ttl_odm/follows/__init__.py": "",
        "ttl_odm/core.py": "",
        "ttl_odm/beanie/__init__.py": "_EXTENSIONS: Final = {'orphans': 'ttl_odm.follows.rows'}",
        "tests/conftest.py": "from ttl_odm import Follows",
        "tests/sql/models.py": "from ttl_odm import TTL\n",
        "tests/sql/families.py": "from ttl_odm import Follows\n",
        "tests/sql/test_machine.py": "from tests.sql.families import Family\n",
        "tests/sql/test_deeper.py": "import tests.sql.test_machine\n",
        "tests/mongo/test_offered.py": "from ttl_odm.beanie import orphans\n",
        "tests/sql/test_plain.py": "from tests.sql import models\n# it follows\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert delete("follows", tmp_path) == 4

    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.py")}
    assert left == {
        "ttl_odm/core.py",
        "ttl_odm/beanie/__init__.py",
        "tests/conftest.py",
        "tests/sql/models.py",
        "tests/sql/test_plain.py",
    }


def test_what_packages_offer_of_an_extension_is_known() -> None:
    names = offered("stored", ROOT)
    assert {"ttl_odm.Stored", "ttl_odm.beanie.set_policy", "ttl_odm.sqlalchemy.set_policy"} <= names
    assert "ttl_odm.Follows" not in names


def test_no_extension_is_left_out() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    names = [
        contract["modules"]
        for contract in contracts["contracts"]
        if contract["name"] == "Extensions don't know each other"
    ]
    assert [sorted(f"ttl_odm.{name}" for name in EXTENSIONS)] == [sorted(names[0])]
