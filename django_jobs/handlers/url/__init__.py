"""The handler ``url``: one HTTP call, only to destinations in ALLOWED_URLS.

Read ``handler`` first. Each hop goes through ``url`` (parse), ``request`` (validate),
``allow_list`` (find the rule), ``addresses`` (one lookup, and whether each address may be called)
and ``http`` (connect to exactly that address). A redirect repeats all of it.
"""

from __future__ import annotations

from django_jobs.handlers.url.handler import UrlHandler

__all__ = ["UrlHandler"]
