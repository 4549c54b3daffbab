"""The test project is a site that works, and other processes can see its test databases."""

import subprocess
import sys

import pytest
from django.db import connection
from django.urls import reverse

from django_jobs.models import Job
from testproject.shop.models import Order

COUNT_ORDERS = """
import django
django.setup()
from testproject.shop.models import Order
print(Order.objects.count(), Order.objects.using("other").count())
"""


@pytest.mark.django_db
def test_an_order_and_its_receipt_job_appear_together(client):
    answer = client.post(reverse("place-order"), {"email": "a@example.com", "total": "9.50"})
    assert answer.status_code == 201
    assert Order.objects.get().pk == answer.json()["order"]
    assert str(Job.objects.get().pk) == answer.json()["job"]


@pytest.mark.django_db
def test_an_order_without_a_number_leaves_nothing_behind(client):
    answer = client.post(reverse("place-order"), {"email": "a@example.com", "total": "much"})
    assert answer.status_code == 400
    assert not Order.objects.exists()
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_the_admin_opens(admin_client):
    assert admin_client.get(reverse("admin:index")).status_code == 200
    assert admin_client.get(reverse("admin:shop_order_changelist")).status_code == 200


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_another_process_sees_both_test_databases(site_environment):
    Order.objects.create(email="a@example.com", total=1)
    Order.objects.using("other").create(email="b@example.com", total=2)
    Order.objects.using("other").create(email="c@example.com", total=3)
    other = subprocess.run(
        [sys.executable, "-c", COUNT_ORDERS],
        env=site_environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.split() == ["1", "2"]


@pytest.mark.only_on("sqlite")
@pytest.mark.django_db
def test_sqlite_runs_as_it_would_in_production():
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA journal_mode")
        assert cursor.fetchone() == ("wal",)
