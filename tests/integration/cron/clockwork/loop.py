"""A scheduler that stays."""

import sys

import django

django.setup()

from django_jobs.cron.loop import Loop  # noqa: E402 - needs the apps

sys.exit(Loop(on_decided=lambda one: print(one.name, flush=True)).run())
