"""The admin, with the instant of expiry and a filter for what has expired."""

from __future__ import annotations

from django.contrib import admin

from pastes.models import Comment, Paste
from ttl_odm.django.admin import ExpiryFilter, TTLAdminMixin


@admin.register(Paste)
class PasteAdmin(TTLAdminMixin, admin.ModelAdmin):
    """Pastes."""

    list_display = ("slug", "ttl", "last_modified", "expires", "views")
    list_filter = (ExpiryFilter,)


@admin.register(Comment)
class CommentAdmin(admin.ModelAdmin):
    """Comments; one whose paste has expired shows none."""

    list_display = ("text", "paste_or_none")
    list_select_related = ("paste",)

    @admin.display(description="paste", empty_value="(expired)")
    def paste_or_none(self, comment: Comment) -> Paste | None:
        """The paste, while it is there."""
        return getattr(comment, "paste", None)
