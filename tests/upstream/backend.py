"""The backend as it is, with the two things that Django's tests ask of a backend of tests."""

from django_jobs.models import Job
from django_jobs.tasks import JobsBackend


class RememberingBackend(JobsBackend):
    @property
    def results(self):
        return [self.get_result(str(key)) for key in Job.objects.values_list("pk", flat=True)]

    def clear(self):
        Job.objects.all().delete()
