"""Orders in the admin."""

from typing import TYPE_CHECKING

from django.contrib import admin

from testproject.shop.models import Order

if TYPE_CHECKING:
    OrderAdminBase = admin.ModelAdmin[Order]
else:
    OrderAdminBase = admin.ModelAdmin  # generic in its type stubs only


@admin.register(Order)
class OrderAdmin(OrderAdminBase):
    list_display = ["id", "email", "total", "state"]
    list_filter = ["state"]
