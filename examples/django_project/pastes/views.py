"""Pages that know nothing of expiry but how to ask for a lifetime, and to start it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django import forms
from django.db.models import Count, F
from django.http import Http404
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

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


@require_POST
def keep(request: HttpRequest, slug: str) -> HttpResponse:  # noqa: ARG001 (Django's signature)
    """Start a paste's life again, by one UPDATE; 404 if it has expired."""
    if not Paste.objects.filter(slug=slug).touch():
        raise Http404
    return redirect("paste", slug=slug)
