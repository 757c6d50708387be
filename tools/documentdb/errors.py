"""The engine's errors, under MongoDB's numbers.

PostgreSQL names an error by five characters. The engine's own begin with an M and count in base 36,
in the order of a table of its sources; the others are PostgreSQL's. Where a write is refused the
five characters come packed into one number. Azure's gateway translates both, in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from documentdb.wire import Document

COMMAND_NOT_FOUND: Final = 59
WRITE_CONFLICT: Final = 112
CURSOR_NOT_FOUND: Final = 43
NO_SUCH_TRANSACTION: Final = 251
_INTERNAL: Final = 1
_LOCK_TIMEOUT: Final = 24
_DUPLICATE_KEY: Final = 11000
_DUPLICATE: Final = "Duplicate key violation on the requested collection"

# In the table's order: M0000, M0001 and so on.
_OWN: Final = (
    *(1, 2, 5, 9, 14, 15, 20, 23, 26, 27, 28, 31, 34, 40, 43, 48, 52, 53, 54, 56, 57, 61, 66, 67),
    *(68, 72, 73, 85, 86, 111, 115, 118, 146, 159, 165, 166, 167, 181, 197, 224, 232, 241, 263),
    *(276, 291, 361, 10065, 10334, 11000, 12587),
)
_FURTHER: Final = {"M00CO": 121}  # DocumentValidationFailure
_POSTGRES: Final = {
    "0A000": 115,  # CommandNotSupported
    "22023": 2,  # BadValue
    "22P02": 9,  # FailedToParse
    "25P02": NO_SUCH_TRANSACTION,  # something before it has failed
    "40001": WRITE_CONFLICT,
    "40P01": WRITE_CONFLICT,
    "42P01": 26,  # NamespaceNotFound
    "42501": 13,  # Unauthorized
    "53100": 14031,  # OutOfDiskSpace
    "57014": 50,  # MaxTimeMSExpired
}
_UNIQUE: Final = ("23505", "23P01")
_LOCKED: Final = "55P03"
# Azure's gateway lets these fail the command, not the one write.
_WHOLE: Final = (_INTERNAL, _LOCK_TIMEOUT, WRITE_CONFLICT, 13)


class CommandError(Exception):
    """A command fails with a number of MongoDB's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    def document(self) -> Document:
        """Return the answer to the client."""
        return {"ok": 0.0, "errmsg": str(self), "code": self.code, "codeName": f"E{self.code}"}


def command_error(state: str, message: str, *, in_transaction: bool) -> CommandError:
    """Return the error of a command that PostgreSQL has ended."""
    if state in _UNIQUE:
        return CommandError(WRITE_CONFLICT if in_transaction else _DUPLICATE_KEY, _DUPLICATE)
    if state == _LOCKED:
        return CommandError(WRITE_CONFLICT if in_transaction else _LOCK_TIMEOUT, message)
    code = _POSTGRES.get(state) or _FURTHER.get(state)
    if code is None and state.startswith("M"):
        place = int(state[1:], 36)
        code = _OWN[place] if place < len(_OWN) else None
    return CommandError(code or _INTERNAL, message if code else f"{message} ({state})")


def translate_writes(reply: Document, *, in_transaction: bool) -> Document:
    """Put MongoDB's numbers on the writes that the engine has refused.

    Raises:
        CommandError: One of them ends the command.
    """
    for error in reply.get("writeErrors", ()):
        known = command_error(
            _unpacked(error["code"]), error.get("errmsg", ""), in_transaction=in_transaction
        )
        if known.code in _WHOLE:
            raise known
        error["code"], error["errmsg"] = known.code, str(known)
    return reply


def packed_error(reply: Document) -> CommandError:
    """Return the error that is somewhere in the engine's answer to a change of indexes."""
    for part in (reply, *reply.get("raw", {}).values()):
        if "code" in part:
            return command_error(_unpacked(part["code"]), part["errmsg"], in_transaction=False)
    return CommandError(_INTERNAL, str(reply))


def _unpacked(code: int) -> str:
    """Return the five characters of a number, six bits for each."""
    return "".join(chr((code >> 6 * place & 0x3F) + ord("0")) for place in range(5))
