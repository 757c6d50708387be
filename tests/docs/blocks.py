"""How a page of the documentation is run: block by block, in a folder of its own.

| block | what is done with it |
|---|---|
| `python` | run in the page's namespace, `await` included; it is written as a file instead if its first line is the comment `# name.py` |
| `console` | the lines after `$ ` (all, if none has one) are run by bash; the lines between are what they print |
| `text` | has to be what the block right before it printed; `...` stands for anything, a duration for any duration, a preview's token for the one that comes out; what tools/cli_docs.py has written may have other numbers |
| `sql` | each statement is run on the page's `engine` |
| `toml`, `yaml` | read; `[tool.ttl_odm]` by the command line's own reader |

The blocks are the page's own and those of its scaffolding: see pages.py. Nothing here knows pytest.
"""  # noqa: E501 - the table

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import yaml
from click.testing import CliRunner
from packaging.requirements import Requirement
from pymongo import AsyncMongoClient
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.docs.pages import AT_THE_END, ROOT, Section, blocks, keyed, scaffolding
from ttl_odm.cli import configuration
from ttl_odm.cli.commands import cli
from ttl_odm.testing import TTLClock

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sybil import Example

TIMEOUT = 600  # seconds; so long only where something hangs, on a busy machine too
_FILE = re.compile(r"# ([\w./-]+\.py)\n")
_DURATION = re.compile(r"(< )?(\d+ (d|h|min) )?\d[\d.]* ?(s|min|h)\b")
_OPENED = (Engine, AsyncEngine, AsyncMongoClient)
_FOLDERS = ("benchmarks/", "examples/", "tools/")
# tools/cli_docs.py writes these pages: only the numbers in their blocks may differ.
_WRITTEN = ("cli.md", "cli-check.md", "cli-events.md", "cli-plan.md")
# What a sweep without a terminal prints every ten seconds: never, on a fast machine.
_PROGRESS = re.compile(r"^\S+: [\d,]+ rows, [\d,]+/s\n", re.MULTILINE)
# The option with the token of a preview: each has another one.
_APPROVAL = re.compile(r"--approve \d+-(?:[0-9a-f]+|\.\.\.)")
_SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Page:
    """One page while it is run.

    Attributes:
        names: What its Python blocks share; `__name__` is a module that others can import from.
            `opened` is an ExitStack for its scaffolding, closed at the end of the page.
        environment: The variables of its commands.
    """

    def __init__(self, path: Path, folder: Path, **names: object) -> None:
        self._path = path
        self._folder = folder
        self._module = types.ModuleType(f"page_{path.stem.replace('-', '_')}")
        self._said = ""
        self._last: Example | None = None
        self._status = 0
        self._approval = ""
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("TTL_ODM_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "80",
        }
        self.names = vars(self._module)
        self._opened = contextlib.ExitStack()
        self.names.update(names, environment=self.environment, opened=self._opened)

    def run(self) -> None:
        """Run all blocks in order, but for those that are said to be left out.

        Raises:
            AssertionError: A block's output is not the one that the page shows.
            Exception: Whatever a block raises, with the page's own lines in the traceback.
        """
        examples = blocks(self._path, self._evaluator)
        sections = scaffolding(self._path, self._evaluator)
        self._loop = asyncio.new_event_loop()
        sys.modules[self._module.__name__] = self._module
        sys.path.insert(0, str(self._folder))  # for the files that it writes
        try:
            for key, example in keyed(examples):
                section = sections.pop(key, Section())
                for step in section.steps:
                    step.evaluate()
                if not section.not_run:
                    example.evaluate()
            for step in sections.pop(AT_THE_END, Section()).steps:
                step.evaluate()
        finally:
            self._close()
        assert not sections, f"{self._path.name} has no such block: {[*sections]}"

    def _evaluator(self, language: str) -> Callable[[Example], None]:
        """Choose what is done with the blocks of a language."""
        known = language and (language == "text" or hasattr(self, f"_run_{language}"))
        assert known, (
            f"{self._path.name}: nothing is known of blocks in {language or 'no language'}"
        )
        run = getattr(self, f"_run_{language}", None)

        def evaluate(example: Example) -> None:
            path = Path(example.path)
            kind = "" if path == self._path else "scaffolding of "
            where = f"{kind}{path.name}, line {example.line}"
            if language == "text":
                assert self._is_next(example), f"{where}: this is the output of no block"
                _compare(str(example.parsed), self._said, where)
            elif named := _FILE.match(example.parsed):
                self._write(named[1], example.parsed)
            else:
                self._said = run(example, where)
                self._last = example

        return evaluate

    def _is_next(self, example: Example) -> bool:
        """Whether there is nothing between a block and the one that ran last."""
        last = self._last
        if last is None or last.document is not example.document:
            return last is not None
        return not example.document.text[last.end : example.start].strip()

    def _write(self, name: str, source: str) -> None:
        """Make a block the file that its first line names, or add it to that file."""
        if name.endswith(".py"):
            compile(source, name, "exec", dont_inherit=True)
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(source)

    def _run_python(self, example: Example, _where: str) -> str:
        source = "\n" * example.line + str(example.parsed)
        # dont_inherit: the __future__ of this module is not the page's.
        code = compile(
            source, self._path, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            made = eval(code, self.names)  # noqa: S307 - our own pages
            if code.co_flags & inspect.CO_COROUTINE:
                self._loop.run_until_complete(made)
        return out.getvalue()

    def _run_console(self, example: Example, where: str) -> str:
        said = ""
        commands = commands_of(str(example.parsed))
        for place, (command, shown) in enumerate(commands):
            said = self._command(command)
            if shown:
                _compare(shown, said, where, numbers=self._path.name not in _WRITTEN)
            told = any(later == "echo $?" for later, _ in commands[place:])
            assert self._status == 0 or told, f"{where}: $ {command}\n{said}"
        return said

    def _command(self, command: str) -> str:
        if _is_of_developers(command):
            return ""
        if command.startswith("ttl-odm ") and command.endswith(" --help"):
            # There are many of these, so they get no process each.
            runner, (program, *words) = CliRunner(env=self.environment), shlex.split(command)
            return runner.invoke(cli, words, prog_name=program, terminal_width=78).output
        command = _APPROVAL.sub(self._approval, command)
        finished = subprocess.run(
            ["/bin/bash", "-c", f"(exit {self._status}); {command}"],
            cwd=self._folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
        self._status = finished.returncode
        self._approval = next(iter(_APPROVAL.findall(finished.stdout)), self._approval)
        return finished.stdout

    def _run_sql(self, example: Example, _where: str) -> str:
        engine = self.names["engine"].execution_options(isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in re.split(r";\s*$", str(example.parsed), flags=re.MULTILINE):
                if statement.strip():
                    connection.exec_driver_sql(statement)
        return ""

    def _run_toml(self, example: Example, _where: str) -> str:
        if "ttl_odm" in tomllib.loads(example.parsed).get("tool", {}):
            self._write("read/pyproject.toml", example.parsed)
            here = Path.cwd()
            os.chdir(self._folder / "read")
            try:
                with mock.patch.dict(os.environ, self.environment):
                    configuration.read(cli.commands, None)
            finally:
                os.chdir(here)
        return ""

    def _run_yaml(self, example: Example, _where: str) -> str:
        assert list(yaml.safe_load_all(str(example.parsed)))
        return ""

    def _close(self) -> None:
        """Close what the page has opened, and forget the modules that it has written."""
        self._opened.close()
        if clocks := [value for value in self.names.values() if isinstance(value, TTLClock)]:
            clocks[0].__exit__(None, None, None)  # nothing, where the page itself has ended it
        opened = {id(value): value for value in self.names.values() if isinstance(value, _OPENED)}
        for value in opened.values():
            closed = value.close() if isinstance(value, AsyncMongoClient) else value.dispose()
            if inspect.isawaitable(closed):
                self._loop.run_until_complete(closed)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(f"{self._folder}{os.sep}"):
                del sys.modules[name]
        del sys.modules[self._module.__name__]
        sys.path.remove(str(self._folder))


@contextlib.contextmanager
def sleep_moves(clock: TTLClock) -> Iterator[None]:
    """Let `time.sleep` move a clock in this thread; others, such as a driver's, really sleep."""
    really_sleep = time.sleep
    thread = threading.get_ident()

    def sleep(seconds: float) -> None:
        if threading.get_ident() == thread:
            clock.advance(seconds)
        else:
            really_sleep(seconds)

    with mock.patch.object(time, "sleep", sleep):
        yield


def commands_of(block: str) -> list[tuple[str, str]]:
    """Split a console block into commands and what they print, if it says so."""
    lines = block.replace("\\\n", " ").splitlines()
    if not any(line.startswith("$ ") for line in lines):
        return [(line, "") for line in lines if line.strip()]
    commands: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith("$ "):
            commands.append((line[2:], ""))
        else:
            command, shown = commands[-1]
            commands[-1] = command, f"{shown}{line}\n"
    return commands


def _compare(shown: str, said: str, where: str, *, numbers: bool = True) -> None:
    texts = (shown, _PROGRESS.sub("", said))
    texts = (_APPROVAL.sub("--approve TOKEN", text) for text in texts)
    want, got = (f"{_DURATION.sub('SOME TIME', text).strip()}\n" for text in texts)
    if not numbers:
        want, got = (re.sub(r"[\d,.]+%?|█+", "N", text) for text in (want, got))
    if not doctest.OutputChecker().check_output(want, got, _SAME):
        raise AssertionError(f"{where} shows\n{shown}\nand what comes out is\n{said}")


def _is_of_developers(command: str) -> bool:
    """Check a command of this repository, or of pip, without running it.

    They make environments and run whole test suites; that they work is what CI shows by itself.
    """
    words = shlex.split(command, comments=True)
    if words[:2] == ["pip", "install"]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for requirement in map(Requirement, words[2:]):
            if requirement.name == project["name"]:
                assert requirement.extras <= set(project["optional-dependencies"]), command
        return True
    if words[:2] == ["python3", "tools/dev.py"]:
        assert re.search(rf"def command_{words[2]}\(", (ROOT / words[1]).read_text()), command
        return True
    files = [word for word in shlex.split(" ".join(words)) if word.startswith(_FOLDERS)]
    assert all((ROOT / file).exists() for file in files), command
    return bool(files) or words[0].startswith(".venv/")
