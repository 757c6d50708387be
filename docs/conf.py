"""How Sphinx makes the documentation site: `python3 tools/dev.py docs`.

The source directory is the repository's root, not this folder. So README.md, CONTRIBUTING.md and
the reports of benchmarks/ are pages of the site, and every link works both here and where the
files are read as they are. A link to any other file of the repository offers it for download.
"""

# ruff: noqa: INP001 - Sphinx reads it by its path

from __future__ import annotations

import inspect
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import declared_attr

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
SITE = "https://ttl-odm.readthedocs.io/en/latest/"
sys.path.insert(0, str(ROOT))

import django  # noqa: E402 - after the path, as what follows
from django.conf import settings  # noqa: E402

# Django has to be set up before a module with models in it is imported.
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "ttl_odm.django", "ttl_odm.django.policies"],
    USE_TZ=True,
)
django.setup()

# Sphinx imports what it documents as type checkers do, where LangChain's models can't be made.
import langgraph.checkpoint.base  # noqa: E402, F401 - made already

import ttl_odm  # noqa: E402 - the line above makes it importable
import ttl_odm.alembic  # noqa: E402 - it gives Alembic's Operations the methods to document

project = "ttl_odm"
author = "the ttl_odm developers"
project_copyright = "the ttl_odm developers, MIT licence"
version = release = ttl_odm.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "*.md",
    "benchmarks/*.md",
    "examples/README.md",
]
# So that the environments are not walked through.
exclude_patterns = [".*", "build", "dist", "tests", "tools", "ttl_odm", "**/__pycache__"]

# The headings' anchors are the ones that the files link to where they are read as they are.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
suppress_warnings = [
    # A name such as `Sweeper` in a docstring may be two objects; it is then left without a link.
    "ref.python",
    # The reports of the benchmarks begin their tables at the third level.
    "myst.header",
]
# Shown as code, and linked where the reference has that name.
default_role = "py:obj"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 110
napoleon_numpy_docstring = False
# A list under its own name: Napoleon's way would describe a dataclass's attributes twice. The
# others are the groups in which SweepOptions tells its options.
napoleon_custom_sections = [
    (group, "params_style")
    for group in (
        *("Attributes", "How much and how fast", "When"),
        *("Safety", "Elsewhere", "Notifications", "One at a time"),
    )
]

# What was typed can be copied, without its prompt; what was printed can't.
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"
copybutton_exclude = ".gp, .go"

html_theme = "furo"
html_title = f"ttl_odm {release}"
# Where Read the Docs publishes it; empty anywhere else.
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
html_static_path = ["_static"]
html_css_files = ["site.css"]
templates_path = ["_templates"]
# The front page is docs/index.html; whoever opens the folder is sent there.
html_additional_pages = {"index": "to_the_front.html"}
html_copy_source = False
html_show_sourcelink = False


def attribute(owner: type, name: str, *default: object) -> Any:
    """Get a class's attribute without asking SQLAlchemy for SQL of a mixin, which no table has."""
    found = inspect.getattr_static(owner, name, None)
    if isinstance(found, hybrid_property):
        return property(found.fget, doc=found.__doc__)
    if isinstance(found, declared_attr):
        return property(found.fget, doc=found.__doc__)
    return getattr(owner, name, *default)


def join_types(*event: Any) -> None:
    """Undo what Napoleon makes of a colon in "Returns:", or in a property: a type."""
    lines: list[str] = event[-1]
    for place, line in enumerate(lines):
        field, _, before = line.partition(": ")
        if field not in {":rtype", ":type"} or not before:
            continue
        del lines[place]
        begins = ":returns: " if field == ":rtype" else ""
        told = next(at for at, text in enumerate(lines) if text.startswith(begins))
        lines[told] = f"{begins}{before}: {lines[told].removeprefix(begins)}"
        return


def link_within(_app: Sphinx, page: str, source: list[str]) -> None:
    """Make README's links to this site relative; they are absolute because PyPI shows it, too."""
    if page == "README":
        text = source[0].replace(f"{SITE}_static/", "docs/_static/")
        source[0] = re.sub(rf"{re.escape(SITE)}([\w/-]+)\.html", r"\1.md", text)


def drop_comments(_app: Sphinx, page: nodes.document) -> None:
    """Leave out HTML comments: what tests/docs needs for a page's blocks isn't part of the site."""
    for node in list(page.findall(nodes.raw)):
        if node.astext().startswith("<!--"):
            node.parent.remove(node)


def drop_pictures_from_elsewhere(_app: Sphinx, page: nodes.document) -> None:
    """Leave out README's badges: the site asks no other host for anything."""
    for image in list(page.findall(nodes.image)):
        if "://" in image["uri"]:
            paragraph = image.parent
            paragraph.remove(image)
            if not paragraph.astext().strip() and not paragraph.next_node(nodes.image):
                paragraph.parent.remove(paragraph)


def setup(app: Sphinx) -> None:
    """Say how autodoc gets attributes, and what becomes of README's links and of each page."""
    app.add_autodoc_attrgetter(type, attribute)
    app.connect("autodoc-process-docstring", join_types, priority=900)
    app.connect("source-read", link_within)
    app.connect("doctree-read", drop_comments)
    app.connect("doctree-read", drop_pictures_from_elsewhere)
