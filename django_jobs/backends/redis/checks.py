"""System checks of a Redis server: its version, its owner, and whether it could lose jobs.

A server that does not answer is not reported: ``manage.py check`` also runs where there is none.
"""

from __future__ import annotations

from ssl import CERT_NONE
from typing import TYPE_CHECKING, Any

from django.core.checks import Error, Warning  # noqa: A004 - Django's name for it

from django_jobs.backends.redis.connection import TLS, options_of_url, translated
from django_jobs.conf import get_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.core.checks import CheckMessage

    from django_jobs.backends.redis.connection import Connection, RedisOptions

TIMEOUT_SECONDS = 1.0
OLDEST = 7


def check_server(alias: str, connection: Connection) -> list[CheckMessage]:
    """Problems of the server of an alias, if it answers."""
    try:
        client = connection.make(TIMEOUT_SECONDS)
        nodes = _nodes(client)
        owner = connection.ownership.owner(client)
    except Exception as error:  # noqa: BLE001 - only a check; a real use of the server raises its own error
        translated(error)
        return []
    messages: dict[str, CheckMessage] = {}
    if owner not in {None, get_settings().site}:
        messages["site"] = Warning(
            f"The backend {alias!r} cannot be used: {connection.ownership.problem(str(owner))}.",
            hint="Two sites must not share keys; the page Use Redis says how to keep them apart.",
            id="django_jobs.W061",
        )
    for info in nodes:
        messages.update((str(message.id), message) for message in _messages(alias, info))
    return list(messages.values())


def check_identity(alias: str, options: RedisOptions) -> list[CheckMessage]:
    """Whether a server must prove its name before it gets the password. Opens no connection."""
    if not options.url.startswith(TLS):
        return []
    client_options = {
        **options.client,
        **options_of_url(options.url),
    }  # the URL wins, as in redis-py
    if client_options.get("ssl_cert_reqs", "required") in {"none", None, CERT_NONE}:
        name, accepted = "ssl_cert_reqs", "with any certificate"
    elif not client_options.get("ssl_check_hostname", True):
        name, accepted = "ssl_check_hostname", "with a certificate for any name"
    else:
        return []
    return [
        Warning(
            f"The backend {alias!r} accepts any server {accepted} ({name} is "
            f"{client_options[name]!r}): that server gets the password and the jobs.",
            hint=f"Remove {name} from OPTIONS['CLIENT'] and from the URL; if you have your own "
            "certificate authority, name it in ssl_ca_certs. Silence this warning if you trust the "
            "network itself.",
            id="django_jobs.W015",
        )
    ]


def _nodes(client: Any) -> list[dict[str, Any]]:
    """What INFO reports, for each server."""
    wanted = ("server", "memory", "persistence")
    by_node: dict[str, dict[str, Any]] = {}
    for section in wanted:
        answer = client.info(section)
        nodes = answer if isinstance(next(iter(answer.values()), None), dict) else {"": answer}
        for node, values in nodes.items():
            by_node.setdefault(node, {}).update(values)
    return list(by_node.values())


def _messages(alias: str, info: dict[str, Any]) -> Iterator[CheckMessage]:
    version = str(info.get("redis_version", ""))
    if version.partition(".")[0].isdigit() and int(version.partition(".")[0]) < OLDEST:
        yield Error(
            f"The backend {alias!r} is on Redis {version}, which does not support flags in "
            "scripts: on a full server jobs could not end.",
            hint=f"Use Redis {OLDEST} or newer, or Valkey.",
            id="django_jobs.E060",
        )
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        yield Error(
            f"The backend {alias!r} is on a Redis that drops keys when its memory is full "
            f"(maxmemory-policy {policy}): jobs would be lost silently.",
            hint="Set maxmemory-policy to noeviction, or use a separate server for jobs.",
            id="django_jobs.E061",
        )
    if str(info.get("aof_enabled", "1")) == "0":
        yield Warning(
            f"The backend {alias!r} is on a Redis without an append-only file: jobs "
            "enqueued since its last snapshot are lost when it ends.",
            hint="Set appendonly to yes; the page Use Redis says what each setting may lose.",
            id="django_jobs.W060",
        )
