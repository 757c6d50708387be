"""Expired rows in the admin can be read, and nothing that can't work is offered for them."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import path

from tests.django_app.data import kill
from tests.django_app.family.models import Cart, Item
from tests.django_app.shop.models import Note, Seat, Session
from ttl_odm.django import include_expired
from ttl_odm.django.admin import ExpiryFilter, TTLAdminMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("backend")

ran: list[str] = []


@admin.action(description="Count")
def count(model_admin: Any, request: Any, queryset: Any) -> HttpResponse:
    ran.append(f"count {queryset.count()}")
    return HttpResponse("counted")


class Notes(admin.TabularInline):
    model = Note
    fk_name = "session"


class SessionAdmin(TTLAdminMixin, admin.ModelAdmin):
    list_display = ("key", "number", "expires")
    list_editable = ("number",)
    list_filter = (ExpiryFilter,)
    inlines = (Notes,)
    actions: ClassVar[Any] = [count]
    save_as = True
    view_on_site = staticmethod(lambda obj: f"/sessions/{obj.pk}/")


class ItemAdmin(TTLAdminMixin, admin.ModelAdmin):
    list_filter = (ExpiryFilter,)


class EverySeatAdmin(TTLAdminMixin, admin.ModelAdmin):
    list_display = ("label", "expires")

    def get_queryset(self, request: Any) -> Any:  # noqa: ARG002
        return Seat.all_objects.all()


class Plain(TTLAdminMixin, admin.ModelAdmin):
    """Has the column alone."""


site = admin.AdminSite(name="admin")
site.register(Session, SessionAdmin)
site.register(Item, ItemAdmin)
site.register(Cart, Plain)
site.register(Seat, EverySeatAdmin)
urlpatterns = [path("admin/", site.urls)]

LIST, LIVE, EXPIRED = "/admin/shop/session/", 1, 2


@pytest.fixture
def client() -> Iterator[Client]:
    for key, name in ((LIVE, "live-row"), (EXPIRED, "dead-row")):
        Session.objects.create(pk=key, key=name, number=key)
    kill(Session, [EXPIRED], 7200)
    ran.clear()
    client = Client()
    with override_settings(ROOT_URLCONF="tests.django_app.test_admin_of_expired_rows"):
        client.force_login(User.objects.create_superuser("root"))
        yield client


def text(response: Any) -> str:
    assert response.status_code == 200, response
    return str(response.content.decode())


def chosen(action: str, *keys: int) -> dict[str, Any]:
    return {"action": action, "_selected_action": keys, "index": "0", "post": "yes"}


def left() -> list[int]:
    return sorted(include_expired(Session.objects.all()).values_list("pk", flat=True))


def test_the_list_of_live_rows_has_its_actions(client: Client) -> None:
    shown = text(client.get(LIST))
    assert 'value="delete_selected"' in shown
    assert "live-row" in shown
    assert "dead-row" not in shown
    client.post(LIST, chosen("delete_selected", LIVE))
    assert left() == [EXPIRED]
    assert LogEntry.objects.count() == 1


@pytest.mark.parametrize("which", ["expired", "all"])
def test_a_list_with_expired_rows_has_no_actions_and_no_forms(client: Client, which: str) -> None:
    shown = text(client.get(LIST, {"ttl": which}))
    assert "dead-row" in shown
    assert ("live-row" in shown) == (which == "all")
    for absent in (
        "delete_selected",
        'name="action"',
        "_selected_action",
        'name="_save"',
        "form-0",
    ):
        assert absent not in shown


@pytest.mark.parametrize("which", ["", "expired", "all"])
def test_the_filter_counts_the_rows_of_each_choice(client: Client, which: str) -> None:
    Session.objects.create(key="other", number=LIVE)
    shown = text(client.get(LIST, {"_facets": "True", **({"ttl": which} if which else {})}))
    counts = re.findall(r"(not purged yet|Live and expired) \((\d+)\)", shown)
    assert counts == [("not purged yet", "1"), ("Live and expired", "3")]


@pytest.mark.parametrize("which", ["expired", "all"])
@pytest.mark.parametrize("action", ["delete_selected", "count"])
def test_no_action_runs_on_expired_rows_and_nothing_is_logged(
    client: Client, which: str, action: str
) -> None:
    answer = client.post(f"{LIST}?ttl={which}", chosen(action, LIVE, EXPIRED), follow=True)
    assert "Successfully" not in text(answer)
    assert left() == [LIVE, EXPIRED]
    assert LogEntry.objects.count() == 0
    assert ran == []


def test_columns_of_expired_rows_are_not_saved(client: Client) -> None:
    given = {
        "form-TOTAL_FORMS": 1,
        "form-INITIAL_FORMS": 1,
        "form-0-id": EXPIRED,
        "form-0-number": 9,
        "_save": "Save",
    }
    assert client.post(f"{LIST}?ttl=expired", given).status_code in {200, 302}
    assert include_expired(Session.objects.filter(pk=EXPIRED)).get().number == EXPIRED


def test_links_lead_to_a_page_that_can_be_read_only(client: Client) -> None:
    shown = text(client.get(LIST, {"ttl": "expired"}))
    link = re.search(r'href="(/admin/shop/session/2/change/[^"]*)"', shown)
    assert link is not None
    page = text(client.get(link[1].replace("&amp;", "&")))
    assert "dead-row" in page
    for absent in ('name="_save"', 'name="_continue"', "deletelink", 'name="key"', "/sessions/2/"):
        assert absent not in page
    for absent in ('name="action"', 'value="count"', 'name="_saveasnew"'):
        assert absent not in page
    assert 'name="_saveasnew"' in text(client.get(f"{LIST}{LIVE}/change/"))
    assert 'name="_save"' in text(client.get(f"{LIST}{LIVE}/change/"))
    assert "/sessions/1/" in text(client.get(f"{LIST}{LIVE}/change/"))


def test_rows_on_the_page_of_an_expired_one_can_be_read_only(client: Client) -> None:
    for key in (LIVE, EXPIRED):
        Note.objects.create(text=f"a note of {key}", session_id=key)
    page = text(client.get(f"{LIST}{EXPIRED}/change/"))
    assert f"a note of {EXPIRED}" in page
    for absent in ('name="_save"', 'name="note_set-0-text"', "note_set-0-DELETE", "__prefix__"):
        assert absent not in page
    page = text(client.get(f"{LIST}{LIVE}/change/"))
    for there in ('name="_save"', 'name="note_set-0-text"', "note_set-0-DELETE", "__prefix__"):
        assert there in page


def test_the_history_of_an_expired_row_can_be_read(client: Client) -> None:
    assert client.get(f"{LIST}{EXPIRED}/history/").status_code == 200


def test_what_expires_while_it_is_edited_is_gone(client: Client) -> None:
    answer = client.post(f"{LIST}{EXPIRED}/change/", {"key": "new", "number": 3}, follow=True)
    assert "Perhaps it was deleted?" in text(answer)
    answer = client.post(f"{LIST}{EXPIRED}/delete/", {"post": "yes"}, follow=True)
    assert "Perhaps it was deleted?" in text(answer)
    assert client.get(f"{LIST}{EXPIRED}/delete/").status_code == 403
    assert left() == [LIVE, EXPIRED]
    assert LogEntry.objects.count() == 0


def test_a_row_that_is_not_there_is_not_there(client: Client) -> None:
    assert "Perhaps it was deleted?" in text(client.get(f"{LIST}77/change/", follow=True))


def test_who_may_not_see_rows_sees_no_expired_ones(client: Client) -> None:
    user = User.objects.create_user("ann", is_staff=True)
    client.force_login(user)
    assert client.get(f"{LIST}{EXPIRED}/change/").status_code == 403
    user.user_permissions.add(
        Permission.objects.get(codename="view_session", content_type__app_label="shop")
    )
    assert "dead-row" in text(client.get(f"{LIST}{EXPIRED}/change/"))


def test_without_the_filter_expired_rows_have_no_page(client: Client) -> None:
    Cart.objects.create(pk=1)
    kill(Cart, [1], 7200)
    assert "Perhaps it was deleted?" in text(
        client.get("/admin/family/cart/1/change/", follow=True)
    )


def test_followers_of_expired_rows_can_be_read_too(client: Client) -> None:
    Cart.objects.create(pk=1)
    Item.objects.create(pk=1, cart_id=1, name="a-punch")
    kill(Cart, [1], 7200)
    assert "a-punch" not in text(client.get("/admin/family/item/"))
    page = text(client.get("/admin/family/item/1/change/?_changelist_filters=ttl%3Dexpired"))
    assert "a-punch" in page
    assert 'name="_save"' not in page


def test_a_row_that_expires_after_the_list_was_read_is_not_logged_as_deleted(
    client: Client,
) -> None:
    answer = client.post(LIST, chosen("delete_selected", EXPIRED), follow=True)
    assert "Successfully" not in text(answer)
    assert left() == [LIVE, EXPIRED]
    assert LogEntry.objects.count() == 0


def test_an_admin_that_reads_all_objects_offers_nothing_that_cannot_work(client: Client) -> None:
    Seat.objects.bulk_create([Seat(pk=n, row="a", number=n, label=f"seat-{n}") for n in (1, 2)])
    kill(Seat, [EXPIRED], 7200)
    seats = "/admin/shop/seat/"
    shown = text(client.get(seats))
    assert "seat-2" in shown
    assert "delete_selected" not in shown
    answer = client.post(seats, chosen("delete_selected", LIVE, EXPIRED), follow=True)
    assert "Successfully" not in text(answer)
    page = text(client.get(f"{seats}{EXPIRED}/change/"))
    assert "seat-2" in page
    assert 'name="_save"' not in page
    assert 'name="_save"' in text(client.get(f"{seats}{LIVE}/change/"))
    answer = client.post(f"{seats}{EXPIRED}/delete/", {"post": "yes"}, follow=True)
    assert "Perhaps it was deleted?" in text(answer)
    assert Seat.all_objects.count() == 2
    assert LogEntry.objects.count() == 0


@pytest.mark.parametrize(
    "bases", [(admin.ModelAdmin,), (admin.ModelAdmin, TTLAdminMixin)], ids=["without", "behind"]
)
def test_the_filter_asks_for_the_mixin(bases: Any) -> None:
    without: Callable[..., Any] = type("CodeAdmin", bases, {"list_filter": (ExpiryFilter,)})
    request: Any = RequestFactory().get("/")
    request.user = SimpleNamespace(has_perm=lambda *_: True)
    with pytest.raises(ImproperlyConfigured, match=r"class CodeAdmin\(TTLAdminMixin, admin"):
        without(Session, admin.AdminSite()).get_changelist_instance(request)
