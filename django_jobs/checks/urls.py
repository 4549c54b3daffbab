"""What ALLOWED_URLS opens, and whether it means anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core.checks import Error, Warning  # noqa: A004 - Django's name for it

from django_jobs.handlers.url.rules import Rule, WrongEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django.core.checks import CheckMessage

    from django_jobs.conf import JobsSettings, Problem

_IDS = {
    "URL": "django_jobs.E030",
    "METHODS": "django_jobs.E031",
    "HEADERS": "django_jobs.E032",
    "PRIVATE": "django_jobs.E033",
    "CA_FILE": "django_jobs.E034",
}


def check_allowed_urls(
    settings: JobsSettings, _problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """Each entry can be understood, and opens no more than it seems to."""
    for index, entry in enumerate(settings.allowed_urls):
        if not entry.url:
            continue
        where = f"ALLOWED_URLS[{index}]"
        try:
            rule = Rule.of(entry)
        except WrongEntry as wrong:
            yield Error(f"{where} {wrong.what}.", hint=wrong.hint, id=_IDS[wrong.key])
        else:
            yield from _check_width(rule, where)


def _check_width(rule: Rule, where: str) -> Iterator[CheckMessage]:
    if rule.host is None:
        yield Warning(
            f"{where} lets jobs call every public host.",
            hint="Name the hosts, if they are known. If they are not, as with webhooks of "
            "customers, silence this.",
            id="django_jobs.W030",
        )
    if rule.scheme == "http" and not rule.private:
        yield Warning(
            f"{where} allows plain http over the internet: anyone on the way can read the "
            "request and forge the answer.",
            hint="Write https://.",
            id="django_jobs.W031",
        )


URL_CHECKS = (check_allowed_urls,)
