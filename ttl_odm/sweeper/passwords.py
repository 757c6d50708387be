"""What people are shown of errors, without the passwords that drivers and handlers put into them.

A plain sweep never imports it: only what prints a report or an event does.
"""

from __future__ import annotations

import re
from typing import Final

_IN_URL: Final = re.compile(r"(?P<head>(?:\w[\w+.-]*://)?[^\s:/@'\"]*?)(?::(?!//)|%3[Aa])\S+@")
"""Up to the last @ of a word, with a scheme or without."""
_PORT: Final = r"\d{1,5}(?:,[^\s:/@,]+(?::\d{1,5})?)*(?:[^\w@:-]|$)"
_WITHOUT_HOST: Final = re.compile(
    rf"(?P<head>\w[\w+.-]*://[^\s:/@\[]*):(?!\*\*\*|{_PORT})(?:[^\n'\"]*(?=@)|[^\s/?'\"]+)"
)
"""A user and a password in the place of a host and a port, which is a number, or of several.

Where an @ follows all the same, the password has a space in it.
"""
_NAMED: Final = re.compile(
    r"(?i)(?P<head>(?:(?:password|passwd|pwd)\s*=\s*"
    r"|(?:password|passwd|pwd|secret|token|api_?key|mechanismproperties)(?:=|%3d)))"
    r"(?:'[^']*'|\"[^\"]*\"|[^&\s'\"]+)"
)
"""In a URL's query, in a connection string, by whatever name that ends so."""


def without_passwords(text: str) -> str:
    """Return a text in which no URL has a password any more."""
    text = _WITHOUT_HOST.sub(r"\g<head>:***", _IN_URL.sub(r"\g<head>:***@", text))
    return _NAMED.sub(r"\g<head>***", text)
