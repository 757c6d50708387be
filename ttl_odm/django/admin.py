"""For the admin: a column with the instant of expiry, and a filter that shows expired rows.

    @admin.register(WebSession)
    class WebSessionAdmin(TTLAdminMixin, admin.ModelAdmin):
        list_display = ["key", "expires"]
        list_filter = [ExpiryFilter]

Without these the admin hides expired rows like everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from ttl_odm.django.policy import options
from ttl_odm.django.policy.binding import binding_of
from ttl_odm.django.policy.following import following_of
from ttl_odm.django.policy.stored import StoredAge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from django.contrib.admin.views.main import ChangeList
    from django.db.models import Model
    from django.http import HttpRequest

    from ttl_odm.django.policy.binding import AnyQuerySet

_AGE: Final = "ttl_stored_age"
"""The attribute that rows have their stored default in."""


class ExpiryFilter(admin.SimpleListFilter):
    """A list filter: live rows, expired rows that have not been purged yet, or both."""

    title = _("expiry")
    parameter_name = "ttl"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:  # noqa: ARG002
        """The choices, besides live rows."""
        return [("expired", _("Expired, not purged yet")), ("all", _("Live and expired"))]

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """The same with "Live" for Django's "All", which it isn't here."""
        for number, choice in enumerate(super().choices(changelist)):
            yield choice if number else {**choice, "display": _("Live")}

    def queryset(self, request: HttpRequest, queryset: AnyQuerySet) -> AnyQuerySet:  # noqa: ARG002
        """Let the list read what was chosen."""
        if self.value() == "expired":
            return options.only_expired(queryset)
        return options.include_expired(queryset) if self.value() == "all" else queryset


class TTLAdminMixin:
    """A read-only column ``expires`` for a ModelAdmin, on any model with a policy."""

    readonly_fields: ClassVar[Sequence[str]] = ("expires",)

    def get_queryset(self, request: HttpRequest) -> AnyQuerySet:
        """Rows that come with their stored defaults, or the column would ask for each by itself."""
        parent: Any = super()
        rows: AnyQuerySet = parent.get_queryset(request)
        binding = binding_of(rows.model)
        if binding is None or not binding.is_stored:
            return rows
        return rows.annotate(**{_AGE: StoredAge(binding)})

    @admin.display(description=_("expires"), empty_value=_("never"))  # type: ignore[call-overload, untyped-decorator] # a lazy text will do
    def expires(self, obj: Model) -> datetime | None:
        """The instant at which the row expires."""
        if obj.pk is None:
            return None
        following = following_of(type(obj))
        if following is not None:
            found = following.root_of(obj)
            return None if found is None else found[0].expires_at(found[1])
        binding = binding_of(type(obj))
        return None if binding is None else binding.expires_at(obj, vars(obj).get(_AGE))
