"""Where the default is: a `ttl_odm.sqlalchemy.policy.looked_up.LookedUp`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Column, MetaData, String, Table, func, literal, select

from ttl_odm.core.values import lenient_ttl
from ttl_odm.sqlalchemy.policy.looked_up import OFF_SECONDS, LookedUp, Overruling, age_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import ColumnElement, Connection, Select

    from setting import FromSetting
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.sources import SourceColumns

settings = Table(
    "settings",
    MetaData(),
    Column("name", String(50), primary_key=True),
    Column("value", BigInteger),
)


class SettingSource(LookedUp):
    """The default ttl of a table, in a row of ``settings``."""

    def __init__(self, binding: Binding, name: str) -> None:
        super().__init__(binding)
        self._row = settings.c.name == literal(name, literal_execute=True)

    @property
    def tables(self) -> tuple[Table]:
        """What statements read besides the table."""
        return (settings,)

    def age(
        self,
        columns: SourceColumns,  # noqa: ARG002 (the same for each row)
        overruled_by: str,
        *,
        locking: bool,
    ) -> ColumnElement[Any]:
        """Look it up."""
        row = select(age_in(settings.c.value)).where(self._row).correlate(None)
        looked_up = (row.with_for_update(read=True) if locking else row).scalar_subquery()
        overruled = Overruling(self.binding.default, overruled_by)
        return func.coalesce(overruled, looked_up, OFF_SECONDS, type_=BigInteger())

    def lock(self, execute: Callable[[Any], object]) -> None:
        """Let nobody raise it while a transaction deletes by it."""
        execute(self._setting().with_for_update(read=True))

    def defaults(self, connection: Connection) -> list[int | None]:
        """What the setting is now; None where it is missing, or no ttl."""
        return [lenient_ttl(connection.scalar(self._setting()))]

    def _setting(self) -> Select[Any]:
        return select(settings.c.value).where(self._row)


def source(binding: Binding, declared: FromSetting) -> SettingSource:
    """Return the source of a table's default: ttl_odm asks for it when a class is mapped."""
    return SettingSource(binding, declared.name)
