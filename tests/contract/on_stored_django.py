"""Django's ORM as a `Subject` where the database stores the defaults."""

from __future__ import annotations

from typing import Any

from django.db import connections

from tests.contract.django_models import Place
from tests.contract.on_django import OnDjango
from tests.contract.on_stored import default_to_store, stored
from tests.contract.subject import CONTAINERS
from ttl_odm import TTL
from ttl_odm.django import set_policy
from ttl_odm.django.policies.models import Policy, PolicyChange


class StoredOnDjango(OnDjango):
    """An operator changes the defaults."""

    place = Place("ttl_odm_policies", "stored_", stored)
    more_tables = (Policy, PolicyChange)

    def clear(self) -> None:
        connections[self.alias].close()
        self.raw.clear()
        self._made.told.clear()
        for container in self._models:
            self.set_policy(container, CONTAINERS[container].policy)

    def set_policy(self, container: str, declared: Any) -> None:
        if not isinstance(CONTAINERS[container].policy, TTL):
            super().set_policy(container, declared)
            return
        model = self._models[container]
        default = default_to_store(model, container, declared)
        set_policy(model, default, by="the contract", using=self.alias)
