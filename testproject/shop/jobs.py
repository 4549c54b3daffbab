"""Three handlers: one that works, one that fails at first, one that always fails."""

from django.core.mail import send_mail

from django_jobs import JobContext, job
from testproject.shop.models import Order

RUNS_BEFORE_FLAKY_SUCCEEDS = 3


@job(queue="mail", max_retries=3, retry="none")  # a demonstration waits for nothing
def send_receipt(order_id: int) -> None:
    order = Order.objects.get(pk=order_id)
    send_mail("Your receipt", f"You paid {order.total}.", None, [order.email])
    order.state = Order.State.RECEIPT_SENT
    order.save(update_fields=["state"])


@job(max_retries=RUNS_BEFORE_FLAKY_SUCCEEDS, retry="none", takes_context=True)
def flaky(context: JobContext) -> int:
    if context.attempt < RUNS_BEFORE_FLAKY_SUCCEEDS:
        raise ConnectionError(f"attempt {context.attempt} found nobody at home")
    return context.attempt


@job
def doomed() -> None:
    raise RuntimeError("this handler never succeeds")
