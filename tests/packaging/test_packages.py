"""What is in the sdist and in the wheel."""

from __future__ import annotations

import configparser
import email
import tarfile
import zipfile
from typing import TYPE_CHECKING

import ttl_odm
from tests.packaging.conftest import ROOT

if TYPE_CHECKING:
    from tests.packaging.conftest import Packages

INFO = f"ttl_odm-{ttl_odm.__version__}.dist-info"


def in_source(folder: str) -> set[str]:
    """Every file below a folder of the source tree, but for what Python leaves there."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(packages: Packages) -> None:
    with zipfile.ZipFile(packages.wheel) as wheel:
        names = set(wheel.namelist())
    assert {name for name in names if not name.startswith(INFO)} == in_source("ttl_odm")
    assert "ttl_odm/py.typed" in names
    assert "ttl_odm/django/migrations/0001_initial.py" in names
    assert f"{INFO}/licenses/LICENSE" in names


def test_the_sdist_has_what_building_and_testing_need(packages: Packages) -> None:
    with tarfile.open(packages.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert in_source("ttl_odm") <= names
    assert {"pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "tests/conftest.py"} <= names


def test_without_an_extra_nothing_else_is_installed(packages: Packages) -> None:
    with zipfile.ZipFile(packages.wheel) as wheel:
        said = email.message_from_bytes(wheel.read(f"{INFO}/METADATA"))
    needed = said.get_all("Requires-Dist", [])
    assert [each for each in needed if "extra ==" not in each] == []
    assert (said["Version"], said["License-Expression"]) == (ttl_odm.__version__, "MIT")


def test_entry_points_are_found_by_those_who_look_for_them(packages: Packages) -> None:
    found = configparser.ConfigParser()
    with zipfile.ZipFile(packages.wheel) as wheel:
        found.read_string(wheel.read(f"{INFO}/entry_points.txt").decode())
    assert dict(found["console_scripts"]) == {"ttl-odm": "ttl_odm.cli:main"}
    assert dict(found["pytest11"]) == {"ttl_odm": "ttl_odm.testing.plugin"}
    assert set(found["ttl_odm.stores"]) == {"sqlalchemy", "pymongo", "motor", "django"}
