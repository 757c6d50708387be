"""Code as users write it, for mypy --strict and pyright to read; nobody runs it.

Both look at it with the rest of the project (`python3 tools/dev.py lint`). ``assert_type`` says
which type a user sees. A line that has to be a mistake carries ``type: ignore``: each checker
reports one that ignores nothing, so the line stays a mistake for both.
"""
