"""For a site's own URLs: ``path("jobs/", include("django_jobs.urls"))``."""

from django.urls import path

from django_jobs.views import health, metrics

app_name = "django_jobs"
urlpatterns = [
    path("health/", health, name="health"),
    path("metrics/", metrics, name="metrics"),
]
