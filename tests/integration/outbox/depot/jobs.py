"""A handler whose runs can be counted: each of them is a row."""

from django_jobs import job
from testproject.shop.models import Order


@job(key="depot.deliver", max_retries=0)
def deliver(word):
    Order.objects.create(email=f"{word}@delivered.example", total=1)
