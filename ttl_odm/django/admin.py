"""Helpers for the admin: a column with the instant of expiry, a filter that shows expired rows.

    @admin.register(WebSession)
    class WebSessionAdmin(TTLAdminMixin, admin.ModelAdmin):
        list_display = ["key", "expires"]
        list_filter = [ExpiryFilter]

Without these the admin hides expired rows, as all other queries do. With them expired rows can be
read but not changed: lists that show some have no actions, and their pages have no buttons to save
or delete.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Final

from django.contrib import admin
from django.core.exceptions import ImproperlyConfigured
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from ttl_odm.django.policy import options
from ttl_odm.django.policy.bindings import binding_of, policy_of
from ttl_odm.django.policy.sources import INHERITED_AGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from django.contrib.admin.views.main import ChangeList
    from django.db.models import Model
    from django.http import HttpRequest

    from ttl_odm.django.policy.options import AnyQuerySet

_READS_EXPIRED: Final = "_ttl_odm_reads_expired"
"""An attribute of expired rows on display, and of the request for the page of one."""

_EXPIRED: Final = ("expired", "all")
"""The filter's choices that include expired rows."""


class ExpiryFilter(admin.SimpleListFilter):
    """A list filter: live rows, expired rows that have not been purged yet, or both.

    The ModelAdmin needs `TTLAdminMixin`, which keeps expired rows from being changed.
    """

    title = _("expiry")
    parameter_name = "ttl"

    def __init__(
        self, request: HttpRequest, params: Any, model: type[Model], model_admin: Any
    ) -> None:
        """Check that the ModelAdmin has the mixin, in front of Django's own class."""
        bases = type(model_admin).__mro__
        if TTLAdminMixin not in bases or bases.index(TTLAdminMixin) > bases.index(admin.ModelAdmin):
            name = type(model_admin).__name__
            raise ImproperlyConfigured(
                f"{name}.list_filter uses ExpiryFilter, which requires the mixin: write class "
                f"{name}(TTLAdminMixin, admin.ModelAdmin). Without it, actions and forms for "
                "expired rows would have no effect."
            )
        super().__init__(request, params, model, model_admin)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:  # noqa: ARG002
        """Return the choices besides live rows."""
        return [("expired", _("Expired, not purged yet")), ("all", _("Live and expired"))]

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Yield all choices, with "Live" in place of Django's "All"."""
        for number, choice in enumerate(super().choices(changelist)):
            yield choice if number else {**choice, "display": _("Live")}

    def queryset(self, request: HttpRequest, queryset: AnyQuerySet) -> AnyQuerySet:  # noqa: ARG002
        """Return the rows of the user's choice."""
        if self.value() == "expired":
            return options.only_expired(queryset)
        return options.include_expired(queryset) if self.value() == "all" else queryset

    def get_facet_queryset(self, changelist: ChangeList) -> dict[str, int]:
        """Count the rows of each choice. Django counts all of them among the live rows."""
        rows = changelist.get_queryset(self.request, exclude_parameters=self.expected_parameters())
        counts = {}
        for number, (value, _title) in enumerate(self.lookup_choices):
            choice: Any = copy(self)
            choice.used_parameters = {**self.used_parameters, self.parameter_name: value}
            counts[f"{number}__c"] = choice.queryset(self.request, rows).count()
        return counts


class TTLAdminMixin:
    """A read-only column ``expires`` for a ModelAdmin, on any model with a policy.

    With `ExpiryFilter`, expired rows can be read: lists with expired rows have no actions and no
    editable columns, and the pages of expired rows no buttons.
    """

    readonly_fields: ClassVar[Sequence[str]] = ("expires",)

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> Any:
        """Return the actions of a list; none if it shows expired rows."""
        if self._shows_expired(request) or hasattr(request, _READS_EXPIRED):
            return {}
        parent: Any = super()
        if action_location is None:  # before Django 6.1, which also has actions on a row's page
            return parent.get_actions(request)
        return parent.get_actions(request, action_location=action_location)

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Return the list, without editable columns if it shows expired rows."""
        parent: Any = super()
        changelist: ChangeList = parent.get_changelist_instance(request)
        if self._shows_expired(request):
            changelist.list_editable = ()
        return changelist

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Model | None:
        """Return the row of a page; an expired one only if the list can show it."""
        parent: Any = super()
        obj: Model | None = parent.get_object(request, object_id, from_field)
        reads_expired = self._reads_expired(request)
        if obj is not None and reads_expired:
            rows: AnyQuerySet = QuerySet(model=type(obj), using=obj._state.db)
            if not rows.filter(pk=obj.pk).exists():
                obj = None
        can_show = reads_expired or self._expiry_filters(request)
        if obj is not None or request.method != "GET" or not can_show:
            return obj
        setattr(request, _READS_EXPIRED, True)
        obj = parent.get_object(request, object_id, from_field)
        if obj is None:
            delattr(request, _READS_EXPIRED)
        else:
            setattr(obj, _READS_EXPIRED, True)
        return obj

    def has_add_permission(self, request: HttpRequest, *obj: Model | None) -> bool:
        """Whether a user may add a row; not from the page of an expired one ("Save as new")."""
        parent: Any = super()
        is_forbidden = hasattr(request, _READS_EXPIRED)
        return not is_forbidden and bool(parent.has_add_permission(request, *obj))

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Whether a user may change a row; no user may change an expired one."""
        parent: Any = super()
        return not _is_expired(obj) and bool(parent.has_change_permission(request, obj))

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Whether a user may delete a row; no user may delete an expired one."""
        parent: Any = super()
        return not _is_expired(obj) and bool(parent.has_delete_permission(request, obj))

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Whether a user may read a row; users who may change live rows may read expired ones."""
        parent: Any = super()
        return bool(parent.has_view_permission(request, None if _is_expired(obj) else obj))

    def get_view_on_site_url(self, obj: Model | None = None) -> str | None:
        """Return the page of a row on the site; None for an expired row."""
        parent: Any = super()
        return None if _is_expired(obj) else parent.get_view_on_site_url(obj)

    def _expiry_filters(self, request: HttpRequest) -> list[type[ExpiryFilter]]:
        own: Any = self
        return [
            item
            for item in own.get_list_filter(request)
            if isinstance(item, type) and issubclass(item, ExpiryFilter)
        ]

    def _shows_expired(self, request: HttpRequest) -> bool:
        """Whether a request is for a list with expired rows."""
        names = (str(item.parameter_name) for item in self._expiry_filters(request))
        is_chosen = any(request.GET.get(name) in _EXPIRED for name in names)
        return is_chosen or self._reads_expired(request)

    def _reads_expired(self, request: HttpRequest) -> bool:
        """Whether the application's get_queryset() includes expired rows, as `all_objects` does."""
        return options.rows_of(self.get_queryset(request).query) != "live"

    def get_queryset(self, request: HttpRequest) -> AnyQuerySet:
        """Return rows together with their defaults, or the column might query for each row."""
        parent: Any = super()
        rows: AnyQuerySet = parent.get_queryset(request)
        if hasattr(request, _READS_EXPIRED):
            rows = options.only_expired(rows)
        binding = binding_of(rows.model)
        age = None if binding is None else binding.source.row_age()
        return rows if age is None else rows.annotate(**{INHERITED_AGE: age})

    @admin.display(description=_("expires"), empty_value=_("never"))  # type: ignore[call-overload, untyped-decorator] # lazy texts are fine
    def expires(self, obj: Model) -> datetime | None:
        """Return the instant at which the row expires; None for never."""
        if obj.pk is None:
            return None
        policy = policy_of(type(obj))
        return None if policy is None else policy.expires_at(obj, vars(obj).get(INHERITED_AGE))


def _is_expired(obj: Model | None) -> bool:
    """Whether a row was read although it has expired."""
    return hasattr(obj, _READS_EXPIRED)
