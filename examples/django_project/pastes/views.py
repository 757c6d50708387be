"""Two pages that know nothing of expiry but how to ask for a lifetime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django import forms
from django.db.models import Count, F
from django.shortcuts import get_object_or_404, redirect, render

from pastes.models import Paste
from ttl_odm.django import keep_last_modified

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

LIVES = [
    ("", "an hour after the last change"),
    ("60", "a minute"),
    ("86400", "a day"),
    ("-1", "ever"),
]


class PasteForm(forms.ModelForm):
    """A new paste. An expired one doesn't keep its name from being taken: there is none."""

    ttl = forms.TypedChoiceField(
        choices=LIVES, coerce=int, empty_value=None, required=False, label="Lives for"
    )

    class Meta:
        """What is asked."""

        model = Paste
        fields = ("slug", "text", "ttl")


def index(request: HttpRequest) -> HttpResponse:
    """The pastes, with their comments counted, and the form."""
    form = PasteForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        return redirect("paste", slug=form.save().slug)
    pastes = Paste.objects.annotate(comments=Count("comment"))
    return render(request, "pastes/index.html", {"pastes": pastes, "form": form})


def paste(request: HttpRequest, slug: str) -> HttpResponse:
    """One paste: 404 from the instant of its expiry. Reading it doesn't prolong its life."""
    found = get_object_or_404(Paste, slug=slug)
    keep_last_modified(Paste.objects.filter(pk=found.pk)).update(views=F("views") + 1)
    return render(request, "pastes/paste.html", {"paste": found})
