"""What the shop remembers."""

from django.db import models


class Order(models.Model):
    class State(models.TextChoices):
        PLACED = "placed"
        RECEIPT_SENT = "receipt-sent"

    email = models.EmailField()
    total = models.DecimalField(max_digits=10, decimal_places=2)
    state = models.CharField(max_length=20, choices=State, default=State.PLACED)

    def __str__(self) -> str:
        return f"Order {self.pk} of {self.email}"
