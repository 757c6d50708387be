"""Whoever runs the tests, they see the same environment variables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from suite.surroundings import controlled, forget_python

if TYPE_CHECKING:
    import pytest

TOOLS = Path(__file__).parents[2] / "tools"
HOSTILE = {
    "PATH": "/usr/bin:/bin",
    "TZ": "America/St_Johns",
    "LANG": "tr_TR.UTF-8",
    "LC_ALL": "tr_TR.UTF-8",
    "LC_NUMERIC": "de_DE.UTF-8",
    "LANGUAGE": "tr",
    "PYTHONPATH": "/somewhere",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "7",
    "PYTHONOPTIMIZE": "2",
    "PYTHONWARNINGS": "ignore",
    "PYTEST_ADDOPTS": "-x",
    "HYPOTHESIS_STORAGE_DIRECTORY": "/somewhere",
    "PIP_USER": "1",
    "PIP_TARGET": "/somewhere",
    "GIT_DIR": "/somewhere",
    "GIT_INDEX_FILE": "/somewhere",
    "PGHOST": "nowhere",
    "PGUSER": "nobody",
    "PGOPTIONS": "-c search_path=nowhere",
    "MYSQL_HOST": "nowhere",
    "MYSQL_TCP_PORT": "1",
    "DJANGO_SETTINGS_MODULE": "shop.settings",
    "FLASK_APP": "shop",
    "OTEL_SDK_DISABLED": "true",
    "TTL_ODM_URL": "sqlite:///shop.db",
    "COLUMNS": "20",
    "NO_COLOR": "1",
    "VIRTUAL_ENV": "/somewhere",
}


def test_nothing_that_changes_a_result_is_passed_on() -> None:
    variables = controlled(HOSTILE)
    allowed = {"PATH", "HOME", "TZ", "LC_ALL", "NO_PROXY", "no_proxy"}
    assert variables.keys() & HOSTILE.keys() <= allowed
    assert variables["TZ"] == "UTC"
    assert variables["LC_ALL"] == "C.UTF-8"


def test_it_does_not_matter_what_was_there_before() -> None:
    assert controlled(HOSTILE) == controlled({"PATH": "/usr/bin:/bin"})


def test_packages_are_downloaded_as_the_developer_has_set_it_up() -> None:
    own = {
        "HOME": "/home/me",
        "PIP_INDEX_URL": "https://pip.invalid",
        "PIP_CERT": "/cert",
        "UV_DEFAULT_INDEX": "https://uv.invalid",
        "SSL_CERT_FILE": "/cert",
        "https_proxy": "http://proxy.invalid",
        "NO_PROXY": "intranet",
    }
    variables = controlled(own)
    assert own.items() - {("NO_PROXY", "intranet")} <= variables.items()
    assert variables["NO_PROXY"] == "intranet,127.0.0.1,localhost"


def test_what_the_tests_themselves_are_told_is_passed_on() -> None:
    told = {"TTL_ODM_TEST_MYSQL": "none", "TTL_ODM_TEST_POSTGRES_URL": "postgresql://here/x"}
    assert told.items() <= controlled(told).items()


def test_there_is_a_home_even_if_nobody_has_set_one() -> None:
    assert controlled({})["HOME"].startswith("/")


def test_the_command_takes_control_of_all_that_it_starts() -> None:
    code = (
        "import os, sys; from suite.surroundings import take_control; take_control(); "
        "print(os.umask(0o77), sorted(os.environ))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", f"import os; os.umask({umask}); {code}"],
            cwd=TOOLS,
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for umask, environment in ((0o077, {"PGHOST": "nowhere"}), (0o002, {"TZ": "Asia/Tokyo"}))
    }
    assert len(said) == 1
    assert said.pop().startswith(f"{0o022} ")


def test_the_demo_keeps_what_people_have_set_but_for_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = {"NO_COLOR": "1", "TZ": "Asia/Tokyo", "PYTHONUTF8": "1"}
    variables = {**kept, "PYTHONWARNINGS": "error", "PYTHONPATH": "/somewhere"}
    monkeypatch.setattr(os, "environ", variables)
    forget_python()
    assert variables == kept
