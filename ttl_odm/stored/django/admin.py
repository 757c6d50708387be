"""The admin of stored defaults: the current ones, their history, and a form that changes one.

The form previews a change before it makes it, and makes only the previewed change. It requires the
permission ``ttl_odm_policies.change_policy``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.csrf import csrf_protect

from ttl_odm.errors import TTLError
from ttl_odm.stored.approval import PolicyPreview, parse_stored, scope_label, ttl_label
from ttl_odm.stored.django.changes import stored_policies
from ttl_odm.stored.django.lookup import LABEL, name_of
from ttl_odm.stored.django.models import PolicyChange
from ttl_odm.stored.django.previews import approve_policy, preview_policy
from ttl_odm.stored.django.source import stored_bindings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

_MOST: Final = 200
"""The most stored defaults that are listed: there may be thousands of tenants."""

_WIDTH: Final = 100
"""The width of a preview, in columns."""


class PolicyForm(forms.Form):
    """The default to change, and its new value."""

    model = forms.ChoiceField()
    scope = forms.CharField(
        required=False,
        strip=False,  # 'acme ' may be another tenant than 'acme'
        help_text="A value of the field that Stored(by=...) names; leave empty for all other rows.",
    )
    ttl = forms.CharField(
        label="default ttl",
        help_text="Seconds, or a duration such as 90d, 12h or 30m; -1 (rows never expire by "
        "default), or off. For a scope also the word default, which removes its own "
        "default.",
    )
    reason = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Offer the models whose default is stored."""
        super().__init__(*args, **kwargs)
        self.models = {binding.model._meta.label: binding for binding in stored_bindings()}
        choice = self.fields["model"]
        assert isinstance(choice, forms.ChoiceField)  # noqa: S101 (the class declares it)
        choice.choices = [(label, label) for label in sorted(self.models)]

    def clean(self) -> dict[str, Any]:
        """Parse the ttl."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if "ttl" in cleaned:
            try:
                cleaned["ttl"] = parse_stored(cleaned["ttl"], where="default ttl")
            except TTLError as error:
                self.add_error("ttl", str(error))
        return cleaned

    @property
    def change(self) -> dict[str, Any]:
        """The change, as arguments of `preview_policy`."""
        cleaned = self.cleaned_data
        model = self.models[cleaned["model"]].model
        return {"target": model, "ttl": cleaned["ttl"], "scope": cleaned["scope"] or None}

    def preview(self) -> PolicyPreview | None:
        """Preview the change; None if it is not possible, with the reason as the form's error."""
        try:
            return preview_policy(**self.change)
        except TTLError as error:
            self.add_error(None, str(error))
            return None

    def approve(self, token: str, by: str) -> bool:
        """Make the change; False if the token isn't its, with the reason as the form's error."""
        reason = self.cleaned_data["reason"] or None
        try:
            approve_policy(**self.change, token=token, by=by, reason=reason)
        except TTLError as error:
            self.add_error(None, str(error))
            return False
        return True


@admin.register(PolicyChange)
class PolicyChangeAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # not generic at run time
    """The current defaults with links to the form, above the history, which can't be changed."""

    list_display = ("changed_at", "name", "rows", "before", "after", "changed_by", "reason")
    list_filter = ("name",)
    ordering = ("-id",)
    change_list_template = "ttl_odm_policies/change_list.html"

    @admin.display(description="rows")
    def rows(self, obj: PolicyChange) -> str:
        """Return the rows that had the default."""
        return scope_label(obj.scope, obj.name in _scoped())

    @admin.display(description="from")
    def before(self, obj: PolicyChange) -> str:
        """Return the old value."""
        return ttl_label(obj.ttl_before)

    @admin.display(description="to")
    def after(self, obj: PolicyChange) -> str:
        """Return the new value."""
        return ttl_label(obj.ttl_after)

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002 (Django's signature)
        """Return False: the history is only read."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: PolicyChange | None = None) -> bool:  # noqa: ARG002
        """Return False: the history is only read."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: PolicyChange | None = None) -> bool:  # noqa: ARG002
        """Return False: the history is only read."""
        return False

    def has_view_permission(self, request: HttpRequest, obj: PolicyChange | None = None) -> bool:
        """Return whether the user may view or change defaults, and so see their history."""
        may = [_may(request, "view_policy"), _may(request, "change_policy")]
        return any(may) or super().has_view_permission(request, obj)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return whether the index lists it."""
        return self.has_view_permission(request)

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs with that of the form, before those that take any text for a key."""
        page = path("set/", self.admin_site.admin_view(self.set_view), name=f"{LABEL}_set")
        return [page, *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: Mapping[str, object] | None = None
    ) -> HttpResponse:
        """Show the history below the current defaults."""
        stored = stored_bindings()
        policies = stored_policies(*(binding.model for binding in stored)) if stored else []
        labels = {name_of(binding): binding.model._meta.label for binding in stored}
        scoped = _scoped()
        lines = [
            {
                "model": labels[row.name],
                "scope": row.scope or "",
                "cells": (row.name, scope_label(row.scope, row.name in scoped), ttl_label(row.ttl)),
                "row": row,
            }
            for row in policies[:_MOST]
        ]
        context = {
            "title": "Stored defaults",
            "policies": lines,
            "more": len(policies) - len(lines),
            "may_change": _may(request, "change_policy"),
        }
        return super().changelist_view(request, {**context, **(extra_context or {})})

    @method_decorator(csrf_protect)
    def set_view(self, request: HttpRequest) -> HttpResponse:
        """Show the form, then the preview of the change, and make the change once confirmed."""
        if not _may(request, "change_policy"):
            raise PermissionDenied
        form = PolicyForm(request.POST) if request.POST else PolicyForm(initial=request.GET.dict())
        preview = None
        if request.POST and form.is_valid():
            token = request.POST.get("token")
            if token is None:
                preview = form.preview()
            elif form.approve(token, request.user.get_username()):
                self.message_user(request, "The default was changed.", messages.SUCCESS)
                return HttpResponseRedirect(reverse(f"admin:{LABEL}_policychange_changelist"))
        return TemplateResponse(
            request,
            "ttl_odm_policies/set.html",
            {
                **self.admin_site.each_context(request),
                "opts": self.opts,
                "title": "Change a stored default",
                "form": form,
                "preview": preview,
                "paragraphs": list(preview.paragraphs(_WIDTH, "")) if preview else (),
            },
        )


def _scoped() -> set[str]:
    """The tables with scopes."""
    stored = stored_bindings()
    return {name_of(binding) for binding in stored if getattr(binding.policy.stored, "by", None)}


def _may(request: HttpRequest, permission: str) -> bool:
    user: Any = request.user  # whose class is the application's choice
    may: bool = user.has_perm(f"{LABEL}.{permission}")
    return may
