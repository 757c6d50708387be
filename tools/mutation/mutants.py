"""The mutants: one small change each, inside a function of the library."""

from __future__ import annotations

import ast
import hashlib
import random
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.file_mutation import deep_replace
from mutmut.mutation.mutators import mutation_operators

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = (
    "sqlalchemy",
    "beanie",
    "django",
    "sweeper",
    "dialects",
    "alembic",
    "follows",
    "stored",
    "partitions",
    "database_sweep",
)
"""What is mutated, below `ttl_odm`."""
_OTHERS: Final = {"ttl_odm/sweeper/plan.py"}  # mutmut's own run


@dataclass(frozen=True)
class Mutant:
    """A change of one function.

    Attributes:
        path: The module, relative to the repository.
        line: The first line that changes, in the original.
        function: The line on which the outermost function begins, with its decorators.
        change: The change in words.
        source: The changed module.
    """

    path: str
    line: int
    function: int
    change: str
    source: str

    @property
    def key(self) -> str:
        """What its verdicts are kept by: the same change of the same module."""
        return hashlib.sha256(f"{self.path}\0{self.source}".encode()).hexdigest()[:16]

    @property
    def place(self) -> str:
        """Where it is, in the form that editors open."""
        return f"{self.path}:{self.line}"

    @property
    def package(self) -> str:
        """The part of the library that it changes."""
        return self.path.split("/")[1]

    def texts(self) -> tuple[str, str]:
        """Return the lines that change and what they become, each on one line."""
        old = (ROOT / self.path).read_text().splitlines()
        new = self.source.splitlines()
        first = _in_common(old, new)
        last = _in_common(old[first:][::-1], new[first:][::-1])
        return _flat(old[first : len(old) - last]), _flat(new[first : len(new) - last])


def _in_common(one: list[str], other: list[str]) -> int:
    """Count the lines at the beginning that are the same."""
    same = (line == their for line, their in zip(one, other, strict=False))
    return len([*takewhile(bool, same)])


def _flat(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


@dataclass(frozen=True)
class _Function:
    """A function that is in no other function.

    Attributes:
        path: The module, relative to the repository.
        begin: Its first line, with its decorators.
        end: Its last line.
        indented: Whether it is in a class.
    """

    path: str
    begin: int
    end: int
    indented: bool

    def text(self) -> str:
        """Return its lines, as a module that can be parsed."""
        lines = (ROOT / self.path).read_text().splitlines(keepends=True)
        body = "".join(lines[self.begin - 1 : self.end])
        return _INDENTED + body if self.indented else body

    def source(self, text: str) -> str:
        """Return the module with another text of this function."""
        lines = (ROOT / self.path).read_text().splitlines(keepends=True)
        lines[self.begin - 1 : self.end] = [text.removeprefix(_INDENTED)]
        return "".join(lines)


_INDENTED: Final = "if 1:\n"


def sample(count: int, seed: int) -> list[Mutant]:
    """Choose mutants at random, each line of the packages with the same probability."""
    chance = random.Random(seed)
    functions = [function for path in _modules() for function in _functions(path)]
    sizes = [function.end - function.begin + 1 for function in functions]
    chosen: dict[tuple[str, int, str], Mutant] = {}
    while len(chosen) < count:
        (function,) = chance.choices(functions, sizes)
        if mutant := _random_mutant(function, chance):
            chosen[mutant.path, mutant.line, mutant.change] = mutant
    return list(chosen.values())


def edited(path: str, before: str, after: str) -> Mutant:
    """Make a mutant by hand.

    Args:
        path: The module, relative to the repository.
        before: Text that is in the module once.
        after: What replaces it.
    """
    text = (ROOT / path).read_text()
    if text.count(before) != 1:
        message = f"{path} has {text.count(before)} times {before!r}"
        raise ValueError(message)
    line = text[: text.index(before)].count("\n") + 1
    # The first line that differs, which a test has to execute.
    for old, new in zip(before.splitlines(), after.splitlines(), strict=False):
        if old != new:
            break
        line += 1
    begin = max(each.begin for each in _functions(path) if each.begin <= line <= each.end)
    return Mutant(path, line, begin, f"{before!r} -> {after!r}", text.replace(before, after))


def _modules() -> list[str]:
    folder = ROOT / "ttl_odm"
    paths = (path for package in PACKAGES for path in sorted((folder / package).rglob("*.py")))
    names = (path.relative_to(ROOT).as_posix() for path in paths)
    return [name for name in names if name not in _OTHERS]


@cache
def _functions(path: str) -> list[_Function]:
    module = ast.parse((ROOT / path).read_text())
    return [*_in_body(path, module.body, indented=False)]


def _in_body(path: str, body: list[ast.stmt], *, indented: bool) -> Iterator[_Function]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = [statement.lineno, *(each.lineno for each in statement.decorator_list)]
            yield _Function(path, min(lines), statement.end_lineno or 0, indented)
        elif isinstance(statement, ast.ClassDef):
            yield from _in_body(path, statement.body, indented=True)


def _random_mutant(function: _Function, chance: random.Random) -> Mutant | None:
    text = function.text()
    wrapper = MetadataWrapper(cst.parse_module(text))
    collector = _Collector()
    wrapper.visit(collector)
    if not collector.changes:
        return None
    line, node, replacement = chance.choice(collector.changes)
    changed = deep_replace(wrapper.module, node, replacement)
    assert isinstance(changed, cst.Module)  # noqa: S101 - for type checkers
    before, after = (
        " ".join(wrapper.module.code_for_node(each).split()) for each in (node, replacement)
    )
    line += function.begin - (2 if function.indented else 1)
    source = function.source(changed.code)
    return Mutant(function.path, line, function.begin, f"{before} -> {after}", source)


class _Collector(cst.CSTVisitor):
    """Collects the changes inside functions.

    Left out are annotations, decorators, defaults of parameters, docstrings, and the texts of
    errors and logs, whose words nobody's data depend on.
    """

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[int, cst.CSTNode, cst.CSTNode]] = []
        self._inside = False

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef):
            self._inside = True
        elif isinstance(node, _LEFT_OUT) or any(is_one(node) for is_one in _ALSO_LEFT_OUT):
            return False
        if self._inside:
            self._add(node)
        return True

    def _add(self, node: cst.CSTNode) -> None:
        replacements = [
            replacement
            for kind, operator in mutation_operators
            if isinstance(node, kind)
            for replacement in operator(node)
        ]
        if isinstance(node, cst.SimpleStatementLine) and _is_call(node):
            replacements.append(node.with_changes(body=[cst.Pass()]))
        if replacements:
            position: Any = self.get_metadata(PositionProvider, node)
            line: int = position.start.line
            self.changes += [(line, node, new) for new in replacements]


def _is_call(node: cst.SimpleStatementLine) -> bool:
    statement = node.body[0]
    if not isinstance(statement, cst.Expr):
        return False
    value = statement.value
    return isinstance(value, cst.Call) or (
        isinstance(value, cst.Await) and isinstance(value.expression, cst.Call)
    )


def _is_docstring(node: cst.CSTNode) -> bool:
    if not isinstance(node, cst.SimpleStatementLine):
        return False
    statement = node.body[0]
    texts = (cst.SimpleString, cst.ConcatenatedString)
    return isinstance(statement, cst.Expr) and isinstance(statement.value, texts)


def _is_type_checking(node: cst.CSTNode) -> bool:
    return (
        isinstance(node, cst.If)
        and isinstance(node.test, cst.Name)
        and node.test.value == "TYPE_CHECKING"
    )


def _is_log(node: cst.CSTNode) -> bool:
    if not (isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)):
        return False
    logger = node.func.value
    return isinstance(logger, cst.Name) and logger.value.strip("_").lower() in {"log", "logger"}


_LEFT_OUT: Final = (cst.Annotation, cst.Decorator, cst.Param, cst.Raise)
_ALSO_LEFT_OUT: Final = (_is_docstring, _is_type_checking, _is_log)
