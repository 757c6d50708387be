"""Programs unpacked from Debian's packages start from any folder, also one with a space."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

TOOLS = Path(__file__).parents[2] / "tools"
LOADERS = sorted(Path("/lib").glob("*-linux-gnu/ld-linux-*.so.*"))

pytestmark = pytest.mark.skipif(
    not LOADERS, reason="Debian's folders, from which this copies a program"
)


@pytest.fixture
def suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, which keeps its packages in a folder with a space and a quote."""
    monkeypatch.syspath_prepend(TOOLS)
    from local_servers import suites

    monkeypatch.setattr(suites, "_cache", lambda: tmp_path / "Ada's cache")
    return suites


def unpacked(suites: ModuleType, **further: Any) -> Any:
    """A suite with this machine's `env`, as if packages had brought it and its libraries."""
    suite = suites.Suite("sid", ("coreutils",), (("env", "usr/bin/env"),), **further)
    root = suite.folder
    programs, libraries = root / "usr/bin", root / f"usr/lib/{platform.machine()}-linux-gnu"
    for folder in (programs, libraries):
        folder.mkdir(parents=True)
    shutil.copy("/usr/bin/env", programs)
    shutil.copy(LOADERS[0], libraries)
    shutil.copy(next(Path("/lib").glob("*-linux-gnu/libc.so.6")), libraries)
    suite._put_launchers(root)
    return suite


def output(*command: object) -> str:
    finished = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.parametrize("native", [False, True])
def test_a_program_starts_with_its_words(suites: ModuleType, *, native: bool) -> None:
    suite = unpacked(suites, native=native)
    program = suite.find()["env"]
    assert output(program, "printf", "%s|", "two words", "it's") == "two words|it's|"


def test_a_link_to_a_program_starts_it_under_the_links_name(
    suites: ModuleType, tmp_path: Path
) -> None:
    link = tmp_path / "a link"
    link.symlink_to(unpacked(suites).find()["env"])
    assert str(link) in output(link, "--help")


def test_a_program_finds_the_files_that_its_variables_name(suites: ModuleType) -> None:
    suite = unpacked(
        suites, files=(("my.conf", "a {brace}"),), variables=(("MY_CONFIGURATION", "my.conf"),)
    )
    said = output(suite.find()["env"], "sh", "-c", 'cat "$MY_CONFIGURATION"')
    assert said == "a {brace}"


def test_a_program_from_elsewhere_runs_with_the_packages_libraries(suites: ModuleType) -> None:
    text = '#!/bin/sh\nexec {loader} --library-path {libraries} "$@"\n'
    suite = unpacked(suites, files=(("with-libraries", text),))
    said = output(suite.folder / "with-libraries", "/usr/bin/env", "printf", "%s|", "a b")
    assert said == "a b|"


def test_a_machine_without_apt_is_told_so(
    suites: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    suite = suites.Suite("sid", ("coreutils",), (("env", "usr/bin/env"),))
    assert suite.obstacle() == "this is not Debian (apt-get is missing)"
    with pytest.raises(sys.modules["local_servers.children"].ServerError, match="apt-get"):
        suite.bring()
