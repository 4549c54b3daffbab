"""Placing an order: the row and its receipt job commit together or not at all."""

from decimal import Decimal, InvalidOperation

from django.db import transaction
from django.http import HttpRequest, HttpResponseBadRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_POST

from testproject.shop.jobs import send_receipt
from testproject.shop.models import Order


@require_POST
def place_order(request: HttpRequest) -> HttpResponseBase:
    try:
        total = Decimal(request.POST["total"])
        email = request.POST["email"]
    except (KeyError, InvalidOperation):
        return HttpResponseBadRequest("An order needs an email and a total.")
    with transaction.atomic():
        order = Order.objects.create(email=email, total=total)
        handle = send_receipt.enqueue(order.pk)
    return JsonResponse({"order": order.pk, "job": handle.id}, status=201)
