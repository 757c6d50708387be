"""The pages: the list with its form, a paste and the button that keeps it, the admin."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path
from pastes import views

urlpatterns = [
    path("", views.index, name="index"),
    path("p/<slug:slug>/", views.paste, name="paste"),
    path("p/<slug:slug>/keep/", views.keep, name="keep"),
    path("admin/", admin.site.urls),
]
