"""The shop in the admin."""

from typing import TYPE_CHECKING

from django.contrib import admin

from .models import Item

if TYPE_CHECKING:
    ItemAdminBase = admin.ModelAdmin[Item]
else:
    ItemAdminBase = admin.ModelAdmin


@admin.register(Item)
class ItemAdmin(ItemAdminBase):
    list_display = ("name", "price")
    search_fields = ("name",)
