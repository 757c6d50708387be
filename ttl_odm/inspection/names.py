"""What names tell: which columns say when a row ends, how long it lives, or when it began.

The words are those that applications and libraries use today (Django, Flask-Session, Celery,
Authlib, fastapi-users, advanced-alchemy, OAuth, X.509, JWT). A name alone proves nothing: it is
`ttl_odm.inspection.proposals` that looks at the values too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_WHEN = r"(?:_?(?:at|on|date|time|datetime|ts|timestamp|utc|ms|us|epoch))*"
_ENDS: Final = re.compile(
    rf"(?:(?P<whose>.+)_)?(?:expir(?:e|es|y|ation){_WHEN}|expire_after|exp{_WHEN}"
    rf"|valid_?(?:until|to|till|thru)|not_?after|(?:keep|retain|live|held|hold)_?until"
    rf"|(?:delete|purge|remove|discard|evict)_?(?:after|at|on)|best_before|end_of_life)"
)
_LIVES: Final = re.compile(
    r"(?:.+_)?(?:expires?_?in|life_?time|ttl|time_to_live|max_age|valid_for)(?:_?s(?:ec(?:ond)?s?)?)?"
)
_BEGINS: Final = re.compile(
    rf"(?:issued?|grant(?:ed)?|creat(?:ed?|ion)|insert(?:ed)?|added|generated|logged|recorded"
    rf"|occurred|requested|received|sent|started|logged_in){_WHEN}|date_(?:created|added|issued|joined)"
    r"|timestamp|ts|iat|ctime"
)
_DONE: Final = re.compile(
    rf"(?:finished|finish|completed|done|processed|ended|delivered|closed|resolved){_WHEN}"
    r"|date_(?:done|finished|completed)"
)
_ACTIVE: Final = re.compile(
    rf"last_(?:seen|active|activity|used?|access|accessed|modified|updated|changed|touched){_WHEN}"
    rf"|(?:updated?|modified|changed|accessed|touched|refreshed|used){_WHEN}"
    r"|(?:date_)?(?:updated|modified)|mtime|atime"
)


@dataclass(frozen=True, slots=True)
class Custom:
    """How long the rows of such a table usually live.

    Attributes:
        words: How its tables are called, in the singular.
        seconds: The usual time.
        whose: Who says so, for the reason.
    """

    words: tuple[str, ...]
    seconds: int
    whose: str


HOUR: Final = 3_600
DAY: Final = 24 * HOUR

_CUSTOMS: Final = (
    Custom(("taskmeta", "tasksetmeta", "groupmeta"), DAY, "Celery's result_expires is a day"),
    Custom(("otp", "captcha", "nonce", "challenge"), HOUR // 6, "ten minutes are usual for these"),
    Custom(("refresh",), 30 * DAY, "30 days are usual for refresh tokens"),
    Custom(("reset", "verification", "confirmation"), DAY, "a day is usual for these"),
    Custom(("token",), HOUR, "an hour is usual for access tokens"),
    Custom(("invite", "invitation"), 7 * DAY, "a week is usual for invitations"),
    Custom(("session",), 14 * DAY, "two weeks are Django's default for sessions"),
    Custom(("cache",), DAY, "a day is a guess"),
    Custom(("cart", "basket", "draft"), 30 * DAY, "30 days are a guess"),
    Custom(("log", "audit"), 90 * DAY, "90 days are usual for logs"),
)
_WORK: Final = Custom(
    ("job", "task", "result", "outbox", "message", "notification", "delivery", "webhook", "queue"),
    7 * DAY,
    "a week is a guess",
)


def snake(name: str) -> str:
    """Return ``expiresAt`` as ``expires_at``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s.-]+", "_", name).lower()


def words_of(table: str) -> tuple[str, ...]:
    """Return the words of a table's name, in the singular."""
    return tuple(_singular(word) for word in re.split(r"[_.\W]+", snake(table)) if word)


def whose_end(name: str) -> str | None:
    """Return whose end a column tells: ``""`` for the row's own; None where it tells none."""
    found = _ENDS.fullmatch(snake(name))
    return None if found is None else found["whose"] or ""


def is_lifetime(name: str) -> bool:
    """Whether a column says for how many seconds a row lives."""
    return _LIVES.fullmatch(snake(name)) is not None


def is_beginning(name: str) -> bool:
    """Whether a column says when a row began."""
    return _BEGINS.fullmatch(snake(name)) is not None


def is_completion(name: str) -> bool:
    """Whether a column says when what a row stands for was done."""
    return _DONE.fullmatch(snake(name)) is not None


def is_activity(name: str) -> bool:
    """Whether a column says when a row was last used or written."""
    return _ACTIVE.fullmatch(snake(name)) is not None


def is_telling(name: str) -> bool:
    """Whether a column's name is any of these."""
    tests = (is_lifetime, is_beginning, is_completion, is_activity)
    return whose_end(name) is not None or any(test(name) for test in tests)


def custom_of(table: str) -> Custom | None:
    """Return how long the rows of a table usually live, by its name; None where none does tell."""
    words = words_of(table)
    for custom in _CUSTOMS:
        if any(_ends_so(word, each) for word in words for each in custom.words):
            return custom
    return None


def work_of(table: str) -> Custom | None:
    """The same for tables whose rows have to stay until something was done with them."""
    return _WORK if set(words_of(table)) & set(_WORK.words) else custom_of(table)


def _ends_so(word: str, known: str) -> bool:
    # Many names are written in one word (accesstoken, websession); short ones would meet by chance.
    long_enough = 5
    return word == known or (len(known) >= long_enough and word.endswith(known))


def _singular(word: str) -> str:
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word
