"""SQL that SQLAlchemy has no words for: a text with places for expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.visitors import InternalTraversal

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement
    from sqlalchemy.types import TypeEngine


class SQLTemplate(FunctionElement[Any]):
    """A text in which ``{0}``, ``{1}``... stand for expressions.

    Args:
        text: The SQL, with nothing in it that comes from outside of this package.
        type_: The type of its value.
        parts: The expressions. The text puts parentheses around those that need them, and around
            itself if it does.
    """

    inherit_cache = True
    _traverse_internals = [  # noqa: RUF012 (SQLAlchemy's)
        *FunctionElement._traverse_internals,
        ("text", InternalTraversal.dp_string),
        ("type", InternalTraversal.dp_type),
    ]

    def __init__(self, text: str, type_: TypeEngine[Any], *parts: ColumnElement[Any]) -> None:
        """Keep them."""
        super().__init__(*parts)
        self.text = text
        self.type = type_

    def self_group(self, against: Any = None) -> Any:  # noqa: ARG002 (SQLAlchemy's signature)
        """As it is: a condition needs no ``= 1`` on databases without booleans."""
        return self


@compiles(SQLTemplate)
def _render(element: SQLTemplate, compiler: Any, **kw: Any) -> str:
    kw.pop("add_to_result_map", None)  # the element itself is the result column, not its parts
    kw["within_columns_clause"] = False
    return element.text.format(*(compiler.process(part, **kw) for part in element.clauses))
