"""The admin's pages, and django-oauth-toolkit's."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls), path("o/", include("oauth2_provider.urls"))]
