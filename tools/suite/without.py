"""Run the tests of the base in a copy of the repository that lacks an extension.

`python tools/suite/without.py follows -- WORDS` copies the working tree into a temporary folder,
deletes `ttl_odm/follows` there, and with it each test that uses it or a module of tests that does.
Then it runs pytest with these words. `dev.py test --all` has such a lot for each extension.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]

EXTENSIONS: Final[dict[str, tuple[str, ...]]] = {
    "database_sweep": ("database_jobs",),
    "events": ("ExpiredEvents",),
    "follows": ("Follows",),
    "guard": ("guard", "RawSQLError", "RawSQLWarning", "assert_no_leaks"),
    "live_views": ('enforce="view"',),
    "partitions": ("Partitions",),
    "replication": ("ReplicationLag", "throttle="),
    "stored": ("Stored",),
}
"""The extensions, and what tests import, or write into calls and scripts, to use them.

What the library's packages offer of an extension is found there: `offered`.
"""

SET_UP: Final = ("conftest.py", "project.py")
"""Modules of tests that others need, and that do without an extension which isn't there."""


def copy_to(folder: Path) -> None:
    """Copy all files that git knows, or would."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def delete(extension: str, folder: Path) -> int:
    """Delete an extension in a copy, and the tests that use it; return how many files those are."""
    shutil.rmtree(folder / "ttl_odm" / extension)
    files = {module_of(file, folder): file for file in (folder / "tests").rglob("*.py")}
    texts = {module: file.read_text("utf-8") for module, file in files.items()}
    imported = {module: set(imports_of(text)) for module, text in texts.items()}
    names = offered(extension, folder)
    gone = {
        module
        for module, text in texts.items()
        if files[module].name not in SET_UP
        and (imported[module] & names or uses(extension, text, imported[module]))
    }
    while further := {module for module in files if imported[module] & gone} - gone:
        gone |= further
    for module in gone:
        files[module].unlink()
    return len(gone)


def offered(extension: str, folder: Path) -> set[str]:
    """List what packages offer of an extension, such as `ttl_odm.beanie.set_policy`.

    They import it at its first use, from the module that `_EXTENSIONS` names.
    """
    return {
        f"{module_of(file, folder)}.{name}"
        for file in (folder / "ttl_odm").rglob("__init__.py")
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.AnnAssign) and node.value
        if ast.unparse(node.target) == "_EXTENSIONS"
        for name, module in ast.literal_eval(node.value).items()
        if f"{module}.".startswith(f"ttl_odm.{extension}.")
    }


def uses(extension: str, text: str, imported: set[str]) -> bool:
    """Tell whether a module of tests uses an extension, by its text and by what it imports."""
    names = EXTENSIONS[extension]
    ours = {name.rpartition(".")[2] for name in imported if name.startswith("ttl_odm.")}
    # In a text, a name in small letters may be any word.
    told = [name for name in names if not (name.isidentifier() and name.islower())]
    words = "|".join(re.escape(name) for name in (f"ttl_odm.{extension}", *told))
    return not ours.isdisjoint(names) or re.search(rf"\b({words})(?!\w)", text) is not None


def module_of(file: Path, folder: Path) -> str:
    """Return the name by which a module of tests is imported."""
    parts = file.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(text: str) -> Iterator[str]:
    """List the modules that a module imports, and whatever it imports from them."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def main() -> int:
    """Copy, delete, run; return pytest's exit status."""
    extension, dashes, *words = sys.argv[1:]
    if extension not in EXTENSIONS or dashes != "--":
        print(f"usage: without.py {{{','.join(EXTENSIONS)}}} -- WORDS...", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="ttl-odm-without-") as name:
        folder = Path(name)
        copy_to(folder)
        count = delete(extension, folder)
        print(
            f"without ttl_odm/{extension}, and without {count} files of tests that use it",
            flush=True,
        )
        command = [sys.executable, "-m", "pytest", "--quiet", *words]
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
