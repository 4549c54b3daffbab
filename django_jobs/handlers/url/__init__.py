"""The handler ``url``: one HTTP call, to where ALLOWED_URLS lets it go and nowhere else.

Read ``handler`` first. The order of a hop: ``target`` (parse), ``rules`` (allow-list),
``resolving`` (one lookup), ``addresses`` (may it be called), ``connecting`` and ``exchange``
(to that very address), ``redirects`` (all of it again).
"""

from __future__ import annotations

from django_jobs.handlers.url.handler import UrlHandler

__all__ = ["UrlHandler"]
