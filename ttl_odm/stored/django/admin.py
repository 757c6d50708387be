"""For the admin: what is stored and how it became so, and a form that changes it.

The form shows what a change would do before it makes it, and makes only that one. Who may change
is whose account has the permission ``ttl_odm_policies.change_policy``.
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
from ttl_odm.stored.approval import PolicyPreview, parse_stored, said_scope, said_ttl
from ttl_odm.stored.django.changes import stored_policies
from ttl_odm.stored.django.lookup import LABEL, name_of
from ttl_odm.stored.django.models import PolicyChange
from ttl_odm.stored.django.previews import approve_policy, preview_policy
from ttl_odm.stored.django.source import stored_bindings

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

_MOST: Final = 200
"""Stored defaults that are listed: of tenants there may be thousands."""

_WIDTH: Final = 100
"""Columns of what a preview says."""


class PolicyForm(forms.Form):
    """Which default, and what it is to be."""

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
        choice: Any = self.fields["model"]
        choice.choices = [(label, label) for label in sorted(self.models)]

    def clean(self) -> dict[str, Any]:
        """Read the ttl as it was typed."""
        given: dict[str, Any] = super().clean() or self.cleaned_data
        if "ttl" in given:
            try:
                given["ttl"] = parse_stored(given["ttl"], where="default ttl")
            except TTLError as error:
                self.add_error("ttl", str(error))
        return given

    @property
    def change(self) -> dict[str, Any]:
        """What is asked for, as arguments."""
        given = self.cleaned_data
        model = self.models[given["model"]].model
        return {"target": model, "ttl": given["ttl"], "scope": given["scope"] or None}

    def previewed(self) -> PolicyPreview | None:
        """Count what it would do; None where it can't be, with the reason as an error."""
        try:
            return preview_policy(**self.change)
        except TTLError as error:
            self.add_error(None, str(error))
            return None

    def approved(self, token: str, by: str) -> bool:
        """Make the change; False where it is not the one of the token, with the reason."""
        reason = self.cleaned_data["reason"] or None
        try:
            approve_policy(**self.change, token=token, by=by, reason=reason)
        except TTLError as error:
            self.add_error(None, str(error))
            return False
        return True


@admin.register(PolicyChange)
class PolicyChangeAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # not generic at run time
    """What is stored, with a way to change it, above the history, which nobody changes."""

    list_display = ("changed_at", "name", "rows", "before", "after", "changed_by", "reason")
    list_filter = ("name",)
    ordering = ("-id",)
    change_list_template = "ttl_odm_policies/change_list.html"

    @admin.display(description="rows")
    def rows(self, obj: PolicyChange) -> str:
        """Whose default it was."""
        return said_scope(obj.scope, obj.name in _scoped())

    @admin.display(description="from")
    def before(self, obj: PolicyChange) -> str:
        """What it was."""
        return said_ttl(obj.ttl_before)

    @admin.display(description="to")
    def after(self, obj: PolicyChange) -> str:
        """What it became."""
        return said_ttl(obj.ttl_after)

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002 (Django's signature)
        """Nobody writes history."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        """Nor changes it."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        """Nor deletes it."""
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Who may see or change the defaults sees how they became so."""
        may = [_may(request, "view_policy"), _may(request, "change_policy")]
        return any(may) or super().has_view_permission(request, obj)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """The same for the index."""
        return self.has_view_permission(request)

    def get_urls(self) -> list[URLPattern]:
        """One more page, before those that take anything for a key."""
        page = path("set/", self.admin_site.admin_view(self.set_view), name=f"{LABEL}_set")
        return [page, *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The history, below what is stored."""
        stored = stored_bindings()
        found = stored_policies(*(each.model for each in stored)) if stored else []
        labels = {name_of(each): each.model._meta.label for each in stored}
        scoped = _scoped()
        lines = [
            {
                "model": labels[row.name],
                "scope": row.scope or "",
                "cells": (row.name, said_scope(row.scope, row.name in scoped), said_ttl(row.ttl)),
                "row": row,
            }
            for row in found[:_MOST]
        ]
        ours = {
            "title": "Stored defaults",
            "policies": lines,
            "more": len(found) - len(lines),
            "may_change": _may(request, "change_policy"),
        }
        return super().changelist_view(request, {**ours, **(extra_context or {})})

    @method_decorator(csrf_protect)
    def set_view(self, request: HttpRequest) -> HttpResponse:
        """Ask what it is to be, show what that would do, and change it when that is confirmed."""
        if not _may(request, "change_policy"):
            raise PermissionDenied
        form = PolicyForm(request.POST) if request.POST else PolicyForm(initial=request.GET.dict())
        seen = None
        if request.POST and form.is_valid():
            token = request.POST.get("token")
            if token is None:
                seen = form.previewed()
            elif form.approved(token, request.user.get_username()):
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
                "seen": seen,
                "said": list(seen.paragraphs(_WIDTH, "")) if seen else (),
            },
        )


def _scoped() -> set[str]:
    """The tables of which values of a field may have defaults of their own."""
    stored = stored_bindings()
    return {name_of(each) for each in stored if getattr(each.policy.stored, "by", None)}


def _may(request: HttpRequest, permission: str) -> bool:
    user: Any = request.user  # whose class is the application's choice
    may: bool = user.has_perm(f"{LABEL}.{permission}")
    return may
