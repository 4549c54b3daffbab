"""The admin, and one view that places an order."""

from django.contrib import admin
from django.urls import path

from testproject.shop.views import place_order

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders/", place_order, name="place-order"),
]
