"""What the database refuses to keep of a job changes nothing of what becomes of the job."""

import pytest
from django.db import connection

from django_jobs import job
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult, JobState
from django_jobs.telemetry import events
from django_jobs.worker import process_once

pytestmark = pytest.mark.django_db(transaction=True)
RUNS = []


@job(key="refused.sends")
def sends(text):
    RUNS.append(text)
    print(text)
    return {"sent": text}


@job(key="refused.fails")
def fails(text):
    RUNS.append(text)
    raise ValueError(text)


@pytest.fixture
def refuse():
    """Makes the database refuse what is true of a new row of a table, as a site's own rule does."""
    made = []

    def refuse(table, when, verb="INSERT"):
        row = "OLD" if verb == "DELETE" else "NEW"
        condition = when.replace("row.", f"{row}.")
        with connection.cursor() as cursor:
            for statement in TRIGGERS[connection.vendor](table, condition, verb):
                cursor.execute(statement)
        made.append(table)

    yield refuse
    for table in made:
        with connection.cursor() as cursor:
            on_table = f" ON {table}" if connection.vendor == "postgresql" else ""
            cursor.execute(f"DROP TRIGGER refused{on_table}")


def beyond_ascii(column):
    """Whether a text has more bytes than characters."""
    if connection.vendor == "sqlite":
        return f"LENGTH(CAST(row.{column} AS BLOB)) <> LENGTH(row.{column})"
    return f"OCTET_LENGTH(row.{column}) <> CHAR_LENGTH(row.{column})"


def on_postgresql(table, condition, verb):
    row = "OLD" if verb == "DELETE" else "NEW"
    return [
        f"""CREATE OR REPLACE FUNCTION refused() RETURNS trigger AS $$ BEGIN
            IF {condition} THEN RAISE EXCEPTION 'a rule of the site'; END IF;
            RETURN {row}; END $$ LANGUAGE plpgsql""",
        f"CREATE TRIGGER refused BEFORE {verb} ON {table} FOR EACH ROW EXECUTE FUNCTION refused()",
    ]


def on_mysql(table, condition, verb):
    return [
        f"""CREATE TRIGGER refused BEFORE {verb} ON {table} FOR EACH ROW IF {condition} THEN
            SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a rule of the site'; END IF"""
    ]


def on_sqlite(table, condition, verb):
    return [
        f"""CREATE TRIGGER refused BEFORE {verb} ON {table} WHEN {condition}
            BEGIN SELECT RAISE(ABORT, 'a rule of the site'); END"""
    ]


TRIGGERS = {"postgresql": on_postgresql, "mysql": on_mysql, "sqlite": on_sqlite}


@pytest.fixture(autouse=True)
def told():
    RUNS.clear()
    heard = []
    events.subscribe(heard.append)
    yield heard
    events.unsubscribe(heard.append)


def of_kind(told, kind):
    return [event for event in told if isinstance(event, kind)]


def test_a_job_whose_output_is_refused_has_succeeded_and_runs_once(refuse, told):
    refuse("django_jobs_jobresult", beyond_ascii("output"))
    sends.enqueue("café")
    assert process_once().status == "acked"
    assert process_once().status == "empty"
    assert RUNS == ["café"]
    kept = JobResult.objects.get()
    assert (kept.status, kept.output) == ("succeeded", "caf\\xe9\n")
    (refused,) = of_kind(told, events.SettleRefused)
    assert "a rule of the site" in str(refused.error)
    assert not of_kind(told, events.StoreLost)


def test_a_job_of_which_no_result_can_be_kept_has_succeeded_all_the_same(refuse):
    refuse("django_jobs_jobresult", "row.status = 'succeeded'")
    sends.enqueue("text")
    assert process_once().status == "acked"
    assert (Job.objects.count(), JobResult.objects.count(), RUNS) == (0, 0, ["text"])


def test_a_failure_with_a_text_that_is_refused_keeps_its_own_error(refuse):
    refuse("django_jobs_failedjob", beyond_ascii("error_message"))
    fails.enqueue("café")
    assert process_once().status == "dead-lettered"
    dead = FailedJob.objects.get()
    assert (dead.reason, dead.error_type, dead.crashes) == ("exhausted", "ValueError", 0)
    assert dead.error_message == "caf\\xe9"
    assert "ValueError: caf\\xe9" in dead.traceback


def test_a_job_is_retried_also_where_its_attempt_cannot_be_kept(refuse):
    refuse("django_jobs_jobattempt", "row.number > 0")
    fails.using(max_retries=1, retry=[0]).enqueue("text")
    assert process_once().status == "requeued"
    assert process_once().status == "dead-lettered"
    assert len(RUNS) == 2
    assert (Job.objects.count(), JobAttempt.objects.count(), FailedJob.objects.count()) == (0, 0, 1)


def test_what_is_refused_altogether_comes_again_later_charged_nothing(refuse, told):
    refuse("django_jobs_failedjob", "row.reason <> ''")
    fails.enqueue("text")
    report = process_once()
    assert (report.status, report.delay) == ("requeued", 60.0)
    assert "a rule of the site" in report.reason
    row = Job.objects.get()
    assert (row.state, row.attempts, row.crashes, row.suspect) == (JobState.SCHEDULED, 0, 0, False)
    assert len(of_kind(told, events.SettleRefused)) == 1


def test_a_job_whose_row_may_not_go_is_not_lost_and_not_called_a_crash(refuse):
    refuse("django_jobs_job", "row.attempts >= 0", verb="DELETE")
    sends.enqueue("text")
    assert process_once().status == "requeued"
    row = Job.objects.get()
    assert (row.state, row.crashes, row.suspect) == (JobState.SCHEDULED, 0, False)
