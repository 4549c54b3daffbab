"""The demo, step by step. Every step waits for what it shows, and fails when it does not come."""

from __future__ import annotations

import re
import secrets
from decimal import Decimal
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connections, transaction
from django.urls import reverse

from django_jobs.models import FailedJob, JobAttempt, JobResult
from testproject.demo.browser import Browser, Page
from testproject.demo.processes import Process, manage, wait_for
from testproject.demo.telling import DidNotHappen, Teller
from testproject.shop.jobs import RUNS_BEFORE_FLAKY_SUCCEEDS, flaky, send_receipt
from testproject.shop.models import Order

if TYPE_CHECKING:
    from pathlib import Path

    from django_jobs import Handle

WHO = "operator"
BACKOFF = [0.2, 0.4]
CLOCK_STEP = 0.01  # the waits are judged by the clock of SQLite, and measured by the worker's
BROKEN_ADDRESS = "eve@example.com\nBcc: everybody@example.com"
RIGHT_ADDRESS = "eve@example.com"
LETTERS = "admin:django_jobs_failedjob_changelist"
WHY = "the address of the order was corrected"


class Story:
    """What happens, in order."""

    def __init__(self, folder: Path, tell: Teller) -> None:
        self.folder = folder
        self.tell = tell
        self.processes: list[Process] = []
        self.password = secrets.token_urlsafe(16)
        self.receipts: list[Handle[None]] = []

    def run(self) -> None:
        self.prepare()
        self.enqueue()
        self.work()
        self.look()
        letter = self.read_dead_letter()
        self.repair_and_replay(*letter)
        self.stop()

    def prepare(self) -> None:
        self.tell.step("A new SQLite database and an administrator")
        manage("migrate", "--verbosity", "0")
        User.objects.create_superuser(WHO, password=self.password)
        self.tell.fact(f"migrated, and {WHO!r} may log in to the admin")

    def enqueue(self) -> None:
        self.tell.step("Orders are placed, and their receipts enqueued with them")
        for email in ("ann@example.com", "bob@example.com"):
            self.receipts.append(self._place(email))
        self.tell.fact("two orders that will do")
        self.flaky = flaky.using(retry=BACKOFF).enqueue()
        self.tell.fact(f"a job that fails twice, with a retry after {BACKOFF} seconds")
        self.doomed = self._place(BROKEN_ADDRESS)
        self.tell.fact("an order whose address is broken: no mail can be sent to it")
        with transaction.atomic():
            undone = self._place("nobody@example.com")
            transaction.set_rollback(True)
        _expect(undone.status == "unknown", "a job of a rolled-back transaction never existed")
        self.tell.happened("an order was rolled back, and its job with it")
        self._show("jobs_list")

    def work(self) -> None:
        self.tell.step("A worker starts: manage.py jobs_work --processes 0")
        self.worker = self._start("worker", "jobs_work", "--processes", "0")
        self.tell.fact(f"process {self.worker.pid}")
        for handle in self.receipts:
            self._until(handle, "succeeded", "a receipt is sent")
        self.tell.happened("the receipts of good orders were sent")
        self._until(self.flaky, "succeeded", "the job that fails twice succeeds after all")
        runs = self.flaky.result()
        _expect(runs == RUNS_BEFORE_FLAKY_SUCCEEDS, "it succeeds in its third run")
        waits = self._waits(self.flaky.id)
        enough = all(
            waited > asked - CLOCK_STEP for waited, asked in zip(waits, BACKOFF, strict=True)
        )
        _expect(enough, f"it waits {BACKOFF} seconds before its retries; it was {waits}")
        self.tell.happened(
            f"one job failed twice, was retried after {' and '.join(f'{s:.2f} s' for s in waits)}, "
            f"and succeeded in run {runs}"
        )
        self._until(self.doomed, "dead", "the receipt for the broken address is given up")
        self.tell.happened("one job ran out of retries and became a dead letter")
        self.tell.fact("what the worker printed:")
        self.tell.quote(self.worker.output())

    def look(self) -> None:
        self.tell.step("What an operator sees on the command line")
        self._show("jobs_status")
        listed = self._show("jobs_dlq", "list")
        _expect("send_receipt" in listed, "jobs_dlq list names the dead job")

    def read_dead_letter(self) -> tuple[Browser, Page, FailedJob]:
        self.tell.step("The same in the admin, over HTTP")
        browser = Browser(self._serve())
        self._log_in(browser)
        letter = FailedJob.objects.get(job_id=self.doomed.id)
        letters = browser.get(reverse(LETTERS))
        link = reverse("admin:django_jobs_failedjob_change", args=[letter.pk])
        _expect(link in letters.text, "the dead-letters page lists the job")
        self.tell.happened(f"the dead-letters page lists it: {reverse(LETTERS)}")
        detail = browser.get(link).text
        for part in (self.doomed.id, escape(letter.error_message.splitlines()[0]), "Traceback"):
            _expect(part in detail, f"the page of the dead letter shows {part!r}")
        self.tell.fact(f"its own page shows the error: {letter.error_type}")
        return browser, letters, letter

    def repair_and_replay(self, browser: Browser, letters: Page, letter: FailedJob) -> None:
        self.tell.step("The cause is repaired, and the job replayed from the admin")
        order = Order.objects.get(email=BROKEN_ADDRESS)
        order.email = RIGHT_ADDRESS
        order.save(update_fields=["email"])
        self.tell.fact(f"order {order.pk} goes to {RIGHT_ADDRESS} now")
        chosen = {"action": "replay_selected", "_selected_action": str(letter.pk), "index": "0"}
        asked = browser.submit(letters, letters.form_with("_selected_action"), chosen)
        self.tell.fact("“Replay selected dead letters” asks before it does anything")
        _expect(FailedJob.objects.get(pk=letter.pk).resolution == "", "asking changes nothing")
        done = browser.submit(asked, asked.form_with("confirmed"), {"reason": WHY})
        _expect("replayed as a new job" in done.text, "the admin says that the job was replayed")
        letter.refresh_from_db()
        _expect(letter.resolution == "replayed", "the dead letter is marked as replayed")
        self.tell.happened(f"replayed over HTTP as {letter.replayed_as}, by {letter.resolved_by}")
        _expect(
            LogEntry.objects.filter(user__username=WHO, change_message__contains=WHY).exists(),
            "the admin's log says who replayed it, and why",
        )
        again = type(self.doomed)(str(letter.replayed_as), self.doomed.backend)
        self._until(again, "succeeded", "the replayed job succeeds")
        order.refresh_from_db()
        _expect(order.state == Order.State.RECEIPT_SENT, "the order is marked as done")
        self.tell.happened("the replayed job succeeded, and the receipt was sent")
        open_letters = browser.get(f"{reverse(LETTERS)}?{urlencode({'resolution': 'open'})}")
        link = reverse("admin:django_jobs_failedjob_change", args=[letter.pk])
        _expect(link not in open_letters.text, "the list of open dead letters is empty again")
        self._show("jobs_dlq", "list")

    def stop(self) -> None:
        self.tell.step("The worker is told to stop (SIGTERM)")
        code = self.worker.stop()
        _expect(code == 0, f"the worker ends with exit code 0; it was {code}")
        self.tell.happened("the worker ended in good order, exit code 0")

    def clean_up(self) -> None:
        """Leave no process and no open database behind."""
        for process in self.processes:
            process.stop()
        connections.close_all()

    def last_words(self) -> dict[str, str]:
        """What the processes said, for the case that something did not happen."""
        return {process.name: process.everything() for process in self.processes}

    def _show(self, *command: str) -> str:
        """Run a management command and show what it prints."""
        self.tell.fact(f"manage.py {' '.join(command)}")
        printed = manage(*command)
        self.tell.quote(printed)
        return printed

    def _place(self, email: str) -> Handle[None]:
        with transaction.atomic():
            order = Order.objects.create(email=email, total=Decimal("19.90"))
            return send_receipt.enqueue(order.pk)

    def _start(self, name: str, *arguments: str) -> Process:
        process = Process(self.folder, name, *arguments)
        self.processes.append(process)
        return process

    def _until(self, handle: Handle[Any], status: str, what: str) -> None:
        def look() -> bool:
            self.worker.check()
            return handle.status == status

        try:
            wait_for(what, look)
        except DidNotHappen as missing:
            raise DidNotHappen(f"{missing}; the job {handle.id} is {handle.status}") from None

    def _waits(self, job_id: str) -> list[float]:
        """The seconds between the end of each failed run and the start of the next one."""
        failed = list(JobAttempt.objects.filter(job_id=job_id).order_by("number"))
        last = JobResult.objects.get(pk=job_id).started_at
        starts = [*(attempt.started_at for attempt in failed[1:]), last]
        ends = [attempt.finished_at for attempt in failed]
        pairs = zip(ends, starts, strict=True)
        return [(start - end).total_seconds() for end, start in pairs if start is not None]

    def _serve(self) -> str:
        """The address of the admin's own server, on a port that is free."""
        server = self._start(
            "web server", "runserver", "--noreload", "--nothreading", "127.0.0.1:0"
        )

        def look() -> re.Match[str] | None:
            server.check()
            return re.search(r"http://127\.0\.0\.1:[1-9]\d*/", server.output())

        address = wait_for("the web server says where it is", look).group()
        self.tell.fact(f"the web server is process {server.pid}, at {address}admin/")
        return address

    def _log_in(self, browser: Browser) -> None:
        page = browser.get(reverse(LETTERS))
        who = {"username": WHO, "password": self.password}
        page = browser.submit(page, page.form_with("password"), who)
        _expect("logout" in page.text, f"{WHO!r} can log in")
        self.tell.fact(f"{WHO!r} is logged in")


def _expect(happened: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence where it is used
    if not happened:
        raise DidNotHappen(what)
