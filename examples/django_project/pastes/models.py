"""A paste lives for an hour after it was last changed, unless it says otherwise."""

from __future__ import annotations

from django.db import models

from ttl_odm.django import TTLModel


class Paste(TTLModel):
    """Some text under a name, which is free again once the paste has expired."""

    __ttl__ = 3600

    slug = models.SlugField(max_length=40, unique=True)
    text = models.TextField()
    views = models.IntegerField(default=0, editable=False)

    class Meta:
        """The latest first."""

        ordering = ("-last_modified",)

    def __str__(self) -> str:
        """Its name."""
        return str(self.slug)


class Comment(models.Model):
    """It has no lifetime of its own; it goes when its paste goes."""

    paste = models.ForeignKey(Paste, models.CASCADE)
    text = models.CharField(max_length=200)

    def __str__(self) -> str:
        """Its text."""
        return str(self.text)
