"""The admin's column ``expires``, where the database stores the default."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib import admin
from django.test import RequestFactory

from tests.django_app.stored import DAY, HOUR, stored_models
from ttl_odm.django import set_policy
from ttl_odm.django.admin import ExpiryFilter, TTLAdminMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.test.utils import CaptureQueriesContext

pytestmark = pytest.mark.usefixtures("backend")


class Admin(TTLAdminMixin, admin.ModelAdmin):
    list_display = ("pk", "expires")
    list_filter = (ExpiryFilter,)


@pytest.fixture
def made() -> Iterator[SimpleNamespace]:
    with stored_models() as found:
        yield found


def page(model: Any, **asked: str) -> Any:
    """The list that the admin shows."""
    request: Any = RequestFactory().get("/", asked)
    request.user = SimpleNamespace(has_perm=lambda *_: True)
    return Admin(model, admin.AdminSite()).get_changelist_instance(request)


def shown(page: Any) -> dict[Any, datetime | None]:
    return {row.pk: page.model_admin.expires(row) for row in page.result_list}


def life(row: Any, seconds: int) -> datetime:
    end: datetime = row.last_modified + timedelta(seconds=seconds)
    return end


@pytest.mark.slow
def test_a_page_reads_the_stored_defaults_with_its_rows(
    made: SimpleNamespace, django_queries: Callable[[], CaptureQueriesContext]
) -> None:
    create = made.Post.objects.create
    owners = ["brief", "brief", "kept", "off", "other"]
    rows = [create(name=f"{key}", scope=owner) for key, owner in enumerate(owners)]
    rows += [create(name=f"{owner}'s", scope=owner, ttl=30) for owner in ("brief", "off")]
    set_policy(made.Post, 60, scope="brief", by="ann")
    set_policy(made.Post, -1, scope="kept", by="ann")
    set_policy(made.Post, None, scope="off", by="ann")
    ends: list[int | None] = [60, 60, None, None, HOUR, 30, None]
    posts = page(made.Post)
    with django_queries() as queries:
        seen = shown(posts)
    assert len(queries) == 1  # that of the rows
    assert seen == {
        row.pk: None if end is None else life(row, end) for row, end in zip(rows, ends, strict=True)
    }
    assert seen == {row.pk: row.expires_at for row in rows}
    assert set(shown(page(made.Post, ttl="expired"))) == set()


@pytest.mark.slow
def test_a_default_without_scopes_is_read_too_and_that_of_a_table_above(
    made: SimpleNamespace, django_queries: Callable[[], CaptureQueriesContext]
) -> None:
    cart, basket = made.Cart.objects.create(pk=1), made.Basket.objects.create(pk=2)
    set_policy(made.Cart, DAY, by="ann")
    for model, rows in ((made.Cart, [cart, made.Cart.objects.get(pk=2)]), (made.Basket, [basket])):
        carts = page(model)
        with django_queries() as queries:
            seen = shown(carts)
        assert len(queries) == 1  # that of the rows
        assert seen == {row.pk: life(row, DAY) for row in rows}


@pytest.mark.slow
def test_what_an_action_of_the_admin_deletes_is_what_it_shows(made: SimpleNamespace) -> None:
    for key in range(3):
        made.Message.objects.create(pk=key, tenant="brief")
    messages = page(made.Message)
    chosen = messages.queryset.filter(pk__lt=2)
    assert chosen.count() == 2
    assert chosen.update(tenant="other") == 2
    messages.model_admin.delete_queryset(None, chosen)
    assert [row.pk for row in made.Message.objects.all()] == [2]
