"""Which page of the admin is on which picture of the documentation."""

from pathlib import Path

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
LOOKS = ("", "-dark", "-phone", "-phone-dark")
PICTURES = {
    "overview_changelist": ("overview",),
    "failedjob_changelist": ("dead-letters-list",),
    "failedjob_change": ("dead-letters-detail",),
    "failedjob_edit": ("dead-letters-edit",),
    "failedjob_replay": ("dead-letters-confirm",),
    "failedjob_discard": ("dead-letters-discard",),
    "failedjob_groups": ("dead-letters-groups",),
    "failedjob_replay_all": ("dead-letters-begin",),
    "failedjob_discard_all": ("dead-letters-begin-discarding",),
    "resolutionrun_changelist": ("runs-list",),
    "resolutionrun_change": ("dead-letters-run",),
    "job_changelist": ("jobs-list",),
    "job_change": ("why-not-running", "job-running"),
    "job_cancel": ("job-cancel",),
    "job_broker": ("broker-jobs",),
    "jobresult_changelist": ("results-list",),
    "jobresult_change": ("result-detail",),
    "jobattempt_changelist": ("attempts-list",),
    "jobattempt_change": ("attempt-detail",),
    "queuecontrol_changelist": ("queues-list",),
    "queuecontrol_change": ("queue-detail",),
    "queuecontrol_pause": ("queue-pause",),
    "queuecontrol_resume": ("queue-resume",),
    "queuecontrol_limit": ("queue-limit",),
    "worker_changelist": ("workers-list",),
    "worker_change": ("worker-detail",),
    "worker_drain": ("worker-drain",),
    "schedulestate_changelist": ("schedules-list",),
    "schedulestate_change": ("schedule-detail",),
    "schedulestate_pause": ("schedule-pause",),
    "schedulestate_resume": ("schedule-resume",),
    "schedulestate_run": ("schedule-run",),
    "adminschedule_changelist": ("schedules-own-list",),
    "adminschedule_add": ("schedule-add",),
    "adminschedule_change": ("schedule-edit",),
    "operatorevent_changelist": ("events-list",),
    "operatorevent_change": ("event-detail",),
}
"""The name of an address, without that of the app → its pictures."""
ARE_NO_PAGES = {
    "overview_fragment",  # a part of the overview
    "adminschedule_preview",  # data for the form
    "resolutionrun_progress",  # data for the page of a run
    "resolutionrun_stop",  # for buttons of it
    "resolutionrun_carry",
}


def all_pictures():
    return [name for names in PICTURES.values() for name in names]
