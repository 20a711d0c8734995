"""What the shop sells."""

from django.db import models


class Item(models.Model):
    name = models.CharField(max_length=100, unique=True)
    price = models.DecimalField(max_digits=8, decimal_places=2)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name
