"""What names suggest: which columns have a row's expiry, its lifetime, or its beginning.

The words are those of today's applications and libraries (Django, Flask-Session, Celery, Authlib,
fastapi-users, advanced-alchemy, OAuth, X.509, JWT). A name alone proves nothing, so
`ttl_odm.inspection.proposals` looks at the values too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ttl_odm.core.policy import Unit

_WHEN = (
    r"(?:_?(?:at|on|date|time|datetime|ts|timestamp|utc|ms|us|epoch|unix))*"
    r"(?:_(?:s|secs?|seconds|millis|milliseconds|micros|microseconds))?"
)
_LIFE = r"(?:.+_)?(?:expires?_?in|life_?time|ttl|time_to_live|max_age|valid_for|lease_?duration)"
_END: Final = re.compile(
    rf"(?:(?P<whose>.+)_)?(?:expir(?:e|es|y|ation){_WHEN}|expire_after|exp{_WHEN}"
    rf"|valid_?(?:until|to|till|thru)|not_?after|(?:good|keep|retain|live|held|hold)_?until"
    rf"|(?:delete|purge|remove|discard|evict)_?(?:after|at|on)|purge_(?:date|time)|best_before"
    rf"|end_of_life)"
)
LIFETIME: Final = re.compile(rf"{_LIFE}(?:_?(?:in_)?s(?:ec(?:ond)?s?)?)?")
_OTHER_LIFETIME: Final = re.compile(
    rf"{_LIFE}_(?:in_)?(?P<unit>ms|us|[a-z]*(?:second|milli|micro|minute|hour|day|week|month)s?)"
)
"""A lifetime that isn't in seconds."""
LEASE: Final = re.compile(
    rf"(?:acquired?|acquisition|locked|leased|claimed|reserved|taken|held_since|granted){_WHEN}"
)
"""When a client leased a row."""
BEGINNING: Final = re.compile(
    rf"(?:issued?|grant(?:ed)?|creat(?:ed?|ion)|insert(?:ed)?|added|generated|logged|recorded"
    rf"|occurred|requested|received|sent|start(?:ed)?|opened|logged_in){_WHEN}"
    r"|date_(?:created|added|issued|joined)"
    r"|timestamp|ts|iat|ctime|dttm|event_(?:time|date|at)|logtime|when"
)
COMPLETION: Final = re.compile(
    rf"(?:finished|finish|completed|done|processed|ended|delivered|closed|resolved){_WHEN}"
    r"|date_(?:done|finished|completed)"
)
ACTIVITY: Final = re.compile(
    rf"last_(?:seen|active|activity|used?|access|accessed|modified|updated|changed|touched){_WHEN}"
    rf"|(?:updated?|modified|changed|accessed|touched|refreshed|renewed|used|heartbeat){_WHEN}"
    r"|(?:date_)?(?:updated|modified)|mtime|atime"
)


DELETION: Final = re.compile(
    rf"(?:soft_?)?(?:deleted|deletion|trashed|removed|discarded)_?(?:at|on|date|time|ts|utc){_WHEN}"
    r"|(?:delete|remove)_(?:date|time|timestamp)|date_(?:deleted|removed|trashed)"
)
"""When a row was marked as deleted; ``deleted`` alone usually says whether it was."""

_ALL: Final = (_END, LIFETIME, _OTHER_LIFETIME, LEASE, BEGINNING, COMPLETION, ACTIVITY, DELETION)


@dataclass(frozen=True, slots=True)
class Habit:
    """How long the rows of tables with such names usually live.

    Attributes:
        words: Words in the table's name, in the singular.
        seconds: The usual lifetime.
        whose: A phrase that says whose habit this is.
    """

    words: tuple[str, ...]
    seconds: int
    whose: str


HOUR: Final = 3_600
DAY: Final = 24 * HOUR

_HABITS: Final = (
    Habit(("taskmeta", "tasksetmeta", "groupmeta"), DAY, "Celery's result_expires is a day"),
    Habit(("otp", "captcha", "nonce", "challenge"), HOUR // 6, "ten minutes are usual for these"),
    Habit(("refresh",), 30 * DAY, "30 days are usual for refresh tokens"),
    Habit(("reset", "verification", "confirmation"), DAY, "a day is usual for these"),
    Habit(("token",), HOUR, "an hour is usual for access tokens"),
    Habit(("invite", "invitation"), 7 * DAY, "a week is usual for invitations"),
    Habit(("session",), 14 * DAY, "two weeks are Django's default for sessions"),
    Habit(("cache",), DAY, "a day is a guess"),
    Habit(("cart", "basket", "draft"), 30 * DAY, "30 days are a guess"),
    Habit(("log", "audit"), 90 * DAY, "90 days are usual for logs"),
)
TRASH: Final = Habit((), 30 * DAY, "30 days are usual for rows marked as deleted")
_DEFINES: Final = (
    *("template", "type", "kind", "category", "setting", "config", "configuration", "option"),
    *("level", "rule", "policy", "definition", "schema", "format", "source", "channel", "role"),
)
"""Last words of names whose rows describe such things, and are none themselves."""

_WORK: Final = Habit(
    ("job", "task", "result", "outbox", "message", "notification", "delivery", "webhook", "queue"),
    7 * DAY,
    "a week is a guess",
)


_INSTANT_UNITS: Final[dict[Unit, tuple[str, ...]]] = {
    "s": ("s", "sec", "secs", "second", "seconds"),
    "ms": ("ms", "msec", "milli", "millis", "millisecond", "milliseconds"),
    "us": ("us", "usec", "micro", "micros", "microsecond", "microseconds"),
}


def snake(name: str) -> str:
    """Return ``expiresAt`` as ``expires_at``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s.-]+", "_", name).lower()


def words_of(table: str) -> tuple[str, ...]:
    """Return the words of a table's name, in the singular."""
    words = []
    for word in filter(None, re.split(r"[_.\W]+", snake(table))):
        is_plural = word.endswith("s") and not word.endswith("ss")
        words.append(f"{word[:-3]}y" if word.endswith("ies") else word[: -1 if is_plural else None])
    return tuple(words)


def whose_end(name: str) -> str | None:
    """Return whose expiry a column has: ``""`` for the row's own; None if it has none."""
    match = _END.fullmatch(snake(name))
    return None if match is None else match["whose"] or ""


def says(name: str, what: re.Pattern[str]) -> bool:
    """Whether a column's name matches a pattern such as `LIFETIME`, `BEGINNING` or `ACTIVITY`."""
    return what.fullmatch(snake(name)) is not None


def unit_of_lifetime(name: str) -> str | None:
    """Return the unit at the end of a lifetime's name; None for seconds and other names."""
    match = _OTHER_LIFETIME.fullmatch(snake(name))
    if match is None or says(name, LIFETIME):
        return None
    return {"ms": "milliseconds", "us": "microseconds"}.get(match["unit"], match["unit"])


def unit_of_instants(name: str) -> Unit | None:
    """Return the unit at the end of a name of epoch numbers; None without one."""
    last = snake(name).rpartition("_")[2]
    return next((unit for unit, words in _INSTANT_UNITS.items() if last in words), None)


def is_about_expiry(name: str) -> bool:
    """Whether a column's name matches any of these patterns."""
    return any(says(name, what) for what in _ALL)


def habit_of(table: str) -> Habit | None:
    """Return how long the rows of a table usually live, by its name; None if unknown."""
    # Many names are single words (accesstoken, websession), of which short endings match by chance.
    long_enough = 5
    words = words_of(table)
    if words and words[-1] in _DEFINES:
        return None
    for habit in _HABITS:
        for usual in habit.words:
            endings = (usual,) if len(usual) >= long_enough else ()
            if any(word == usual or word.endswith(endings) for word in words):
                return habit
    return None


def work_habit_of(table: str) -> Habit | None:
    """Return `habit_of`, or the habit of tables whose rows are work to be done."""
    words = words_of(table)
    is_work = set(words) & set(_WORK.words) and words[-1] not in _DEFINES
    return _WORK if is_work else habit_of(table)
