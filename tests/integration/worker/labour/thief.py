"""Another process that lets a lease end, reaps it and takes the job: ``python -m … JOB_ID``."""

import sys

import django


def main(job_id):
    from django_jobs.backends.database import DatabaseBackend  # noqa: PLC0415 - Django is set up now
    from django_jobs.models import Job  # noqa: PLC0415 - as above

    assert Job.objects.filter(pk=job_id, state=2).update(lease_expires=1) == 1
    backend = DatabaseBackend("database", {})
    assert backend.reap_expired() == 1
    (lease,) = backend.fetch(["default"], 1, 600.0)
    assert lease.id == job_id
    print(lease.token)


if __name__ == "__main__":
    django.setup()
    main(sys.argv[1])
