"""Events as Django signals: `expired`.

    @receiver(expired, sender=SeatHold)
    def release(sender, event, **kwargs): ...

All receivers of a model are one consumer. If one of them raises an exception, all get the event
again. To have a function retried on its own, register it with `ttl_odm.events.on_expired` instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.dispatch import Signal

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.handlers import on_expired

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.events.expiry import Expiry

__all__ = ["expired"]


class ExpirySignal(Signal):
    """A signal that is sent once for each event of a model: ``sender=Model, event=Expiry``.

    The worker, ``manage.py ttl_events``, sends it. Connecting a receiver is sufficient: the model's
    events are recorded from then on.
    """

    def connect(
        self,
        receiver: Callable[..., object],
        sender: object | None = None,
        weak: bool = True,  # noqa: FBT001, FBT002 (Django's signature)
        dispatch_uid: Hashable | None = None,
    ) -> None:
        """Connect a receiver to the model whose events it gets.

        Raises:
            TTLConfigurationError: The sender isn't a model that declares a policy.
        """
        from ttl_odm.events.django.recorder import (  # noqa: PLC0415 (once apps are loaded)
            binding_with_events,
        )

        if sender is None:
            raise TTLConfigurationError(
                "Events are recorded for the models that are named: give sender=Model."
            )
        model = binding_with_events(sender).model
        if model is not sender:
            raise TTLConfigurationError(
                f"{sender!r} has the policy of {model._meta.label}: give sender={model.__name__}."
            )
        super().connect(receiver, sender, weak, dispatch_uid)
        self._register(model)

    def _register(self, model: Model) -> None:
        """Register a handler that sends the signal: one consumer for all receivers."""

        def send(event: Expiry) -> None:
            self.send(sender=model, event=event)

        on_expired(model, name=f"signals: {model._meta.label}")(send)


expired = ExpirySignal()
"""Sent for each row that has expired and is deleted."""
