"""The admin, what probes and scrapers ask for, and one view that places an order."""

from django.contrib import admin
from django.urls import include, path

from testproject.shop.views import place_order

urlpatterns = [
    path("admin/", admin.site.urls),
    path("jobs/", include("django_jobs.urls")),
    path("orders/", place_order, name="place-order"),
]
