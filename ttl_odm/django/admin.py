"""For the admin: a column with the instant of expiry, and a filter that shows expired rows.

    @admin.register(WebSession)
    class WebSessionAdmin(TTLAdminMixin, admin.ModelAdmin):
        list_display = ["key", "expires"]
        list_filter = [ExpiryFilter]

Without these the admin hides expired rows like everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from ttl_odm.django.policy import options
from ttl_odm.django.policy.binding import binding_of

if TYPE_CHECKING:
    from datetime import datetime


class ExpiryFilter(admin.SimpleListFilter):
    """Live rows, expired ones that were not purged yet, or both."""

    title = _("expiry")
    parameter_name = "ttl"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, Any]]:  # noqa: ARG002
        """The choices, besides live rows."""
        return [("expired", _("Expired, not purged yet")), ("all", _("Live and expired"))]

    def choices(self, changelist: Any) -> Any:
        """The same with "Live" for Django's "All", which it isn't here."""
        first, *others = super().choices(changelist)
        yield {**first, "display": _("Live")}
        yield from others

    def queryset(self, request: Any, queryset: Any) -> Any:  # noqa: ARG002
        """Let the list read what was chosen."""
        if self.value() == "expired":
            return options.only_expired(queryset)
        return options.include_expired(queryset) if self.value() == "all" else queryset


class TTLAdminMixin:
    """A read-only column ``expires`` for a ModelAdmin, on any model with a policy."""

    readonly_fields: ClassVar[Any] = ("expires",)

    @admin.display(description=_("expires"), empty_value=_("never"))  # type: ignore[untyped-decorator]
    def expires(self, obj: Any) -> datetime | None:
        """The instant from which the row doesn't exist."""
        if obj.pk is None:
            return None
        binding = binding_of(type(obj))
        return None if binding is None else binding.expires_at(obj)
