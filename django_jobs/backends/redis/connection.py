"""The connection to Redis: its options, one client per process, and its errors in our terms.

redis-py's own retries are off: a script that was sent and not answered may have taken effect,
and only the caller can tell whether it is safe to send it again.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from django_jobs.backends.redis.keys import Layout
from django_jobs.conf.model import nearest
from django_jobs.exceptions import InvalidBackend, PrefixInUse, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.backends.redis.ownership import Ownership
    from django_jobs.backends.redis.scripts import Script
    from django_jobs.clock import Clock


try:
    import redis
    from redis import exceptions
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError as error:
    raise ImportError(
        "the Redis backend needs the package redis; install django-durable-jobs[redis], "
        "as its README says under Installing"
    ) from error

OLDEST_CLIENT = 6
"""Older versions of redis-py accept a certificate of a trusted authority for any server, and in
a cluster cannot even be configured to check the name.
"""

if int(redis.__version__.partition(".")[0]) < OLDEST_CLIENT:
    raise ImportError(
        f"the Redis backend needs redis-py {OLDEST_CLIENT} or newer, and {redis.__version__} is "
        "installed, which does not check the name of a server (rediss://); "
        "install django-durable-jobs[redis], as its README says under Installing"
    )


TIMEOUT_SECONDS = 5.0

_PASSING = (
    exceptions.ConnectionError,  # also LOADING, and a refused password
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.MasterDownError,
    exceptions.TryAgainError,
    exceptions.ClusterError,
    exceptions.RedisClusterException,
    OSError,
)
_PASSING_WORDS = ("OOM", "MISCONF", "NOREPLICAS", "BUSY", "MASTERDOWN", "UNBLOCKED", "READONLY")
_REFUSED = (
    exceptions.AuthenticationError,
    exceptions.BusyLoadingError,
    exceptions.ClusterDownError,
    exceptions.ReadOnlyError,
)
options_of_url: Any = redis.connection.parse_url  # which is untyped
_NEVER_SENT = "connecting to"
SOCKET = "unix://"


class NoRoomError(StoreUnavailable):
    """Redis has no memory left, and stored nothing."""


class Connection:
    """Runs scripts and commands; raises StoreUnavailable when Redis does not serve them."""

    def __init__(
        self,
        url: str,
        *,
        clustered: bool,
        timeout: float,
        options: dict[str, Any],
        ownership: Ownership,
    ) -> None:
        self._url = url
        self._clustered = clustered
        self.ownership = ownership
        self.timeout = timeout
        self._options = options
        self._client: Any = None
        self._pid = 0
        self._lock = threading.Lock()

    @property
    def client(self) -> Any:
        """The client of this process. One that was made before a fork is left to the parent."""
        if self._client is None or self._pid != os.getpid():
            with self._lock:
                if self._client is None or self._pid != os.getpid():
                    self._client, self._pid = self.make(self.timeout), os.getpid()
        return self._client

    def make(self, timeout: float) -> Any:
        """A new client."""
        settings = {
            "protocol": 2,
            **({} if self._url.startswith(SOCKET) else {"socket_keepalive": True}),
            **self._options,
            "socket_timeout": timeout,
            "socket_connect_timeout": min(timeout, self.timeout),
            "retry": Retry(NoBackoff(), 0),
            "decode_responses": False,
        }
        try:
            if self._clustered:
                return redis.RedisCluster.from_url(self._url, **settings)
            return redis.Redis.from_url(self._url, **settings)
        except _PASSING as error:
            raise translated(error) from error

    def server_of(self, key: str) -> str:
        """The server of a cluster that holds a key; empty where none has its slot."""
        try:
            return str(self.client.get_node_from_key(key).name)
        except (AttributeError, exceptions.RedisError, OSError):
            return ""

    def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """A script's answer. A server that does not have it yet is sent its text."""
        client = self._own_client()
        try:
            try:
                return client.evalsha(script.sha, len(keys), *keys, *args)
            except exceptions.NoScriptError:
                return client.eval(script.text, len(keys), *keys, *args)
        except (exceptions.RedisError, OSError) as error:
            raise self.failed(error) from error

    def ask(self, work: Callable[[Any], Any]) -> Any:
        """The answer of plain commands."""
        client = self._own_client()
        try:
            return work(client)
        except (exceptions.RedisError, OSError) as error:
            raise self.failed(error) from error

    def _own_client(self) -> Any:
        """The client, after confirming that the keys belong to this site."""
        client = self.client
        try:
            self.ownership.confirm(client)
        except PrefixInUse:
            raise
        except (exceptions.RedisError, OSError) as error:
            raise self.failed(error) from error
        return client

    def confirm_site(self) -> None:
        """Raise PrefixInUse where the keys are another site's, if the server answers.

        Uses a client of its own, so that a process which forks later leaves its children no
        connection.
        """
        try:
            client = self.make(self.timeout)
            try:
                self.ownership.confirm(client)
            finally:
                client.close()
        except PrefixInUse:
            raise
        except _PASSING:
            return  # a worker waits for it

    def failed(self, error: Exception) -> Exception:
        """The error in our terms (see ``translated``). A lost server is compared anew."""
        failure = translated(error)
        if isinstance(failure, StoreUnavailable) and not failure.answered:
            self.ownership.compare_again()
        return failure


def is_of_a_key(error: Exception) -> bool:
    """Whether the cause is a key that holds something else than we store there.

    Errors that do not depend on the key have classes of their own.
    """
    return type(error) is exceptions.ResponseError


def translated(error: Exception) -> Exception:
    """StoreUnavailable or NoRoomError if the error is an outage; otherwise the error itself."""
    text = str(error)
    if isinstance(error, exceptions.OutOfMemoryError) or text.startswith("OOM"):
        return NoRoomError(
            "Redis has no memory left (maxmemory) and refused to store more; nothing was "
            "stored. Raise maxmemory, or let workers drain the queues",
            undone=True,
            answered=True,
        )
    if isinstance(error, _PASSING) or text.startswith(_PASSING_WORDS):
        answered = isinstance(error, _REFUSED) or text.startswith(_PASSING_WORDS)
        # Exactly this class: the cluster answered each try with a redirect to another server.
        refused = answered or type(error) is exceptions.ClusterError
        return StoreUnavailable(
            f"Redis does not serve: {type(error).__name__}: {text}",
            undone=refused or _NEVER_SENT in text,
            answered=answered,
        )
    return error


# ``OPTIONS`` of the Redis backend.

_OPTION_NAMES = ("URL", "PREFIX", "CLUSTER", "TIMEOUT", "CLIENT", "REMEMBER_SECONDS")
REMEMBER_SECONDS = 7 * 86_400.0
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,64}")
TLS = "rediss://"
_SCHEMES = ("redis://", TLS, SOCKET)


@dataclass(frozen=True, kw_only=True)
class RedisOptions:
    """``URL``: redis, rediss or unix. ``PREFIX``: how all keys of this site and backend begin.
    ``CLUSTER``: whether it is a Redis Cluster. ``TIMEOUT``: seconds that an answer may take.
    ``REMEMBER_SECONDS``: how long the ids of ended jobs are remembered; 0 for not at all.
    ``CLIENT``: further arguments for redis-py's client, such as ``ssl_ca_certs``.
    """

    url: str
    prefix: str = "django_jobs"
    cluster: bool = False
    timeout: float = TIMEOUT_SECONDS
    remember: float = REMEMBER_SECONDS
    client: dict[str, Any] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        return Layout(self.prefix, self.cluster)

    @classmethod
    def read(cls, alias: str, options: Mapping[str, Any]) -> Self:
        """The OPTIONS of an alias; raises InvalidBackend. The URL is not shown: it may
        hold a password.
        """
        where = f"BACKENDS[{alias!r}]['OPTIONS']"
        for name in options:
            if name not in _OPTION_NAMES:
                raise InvalidBackend(f"{where} has {name!r}{nearest(name, _OPTION_NAMES)}")
        url = options.get("URL")
        if not isinstance(url, str) or not url.startswith(_SCHEMES):
            raise InvalidBackend(
                f"{where}['URL'] has to be an address such as redis://localhost:6379/0, "
                "or one that begins with rediss:// or unix://"
            )
        prefix = options.get("PREFIX", cls.prefix)
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            raise InvalidBackend(
                f"{where}['PREFIX'] is {prefix!r}; write 1 to 64 letters, digits and ._-"
            )
        cluster = options.get("CLUSTER", False)
        if not isinstance(cluster, bool):
            raise InvalidBackend(f"{where}['CLUSTER'] is {cluster!r}; write True or False")
        if cluster and url.startswith(SOCKET):
            raise InvalidBackend(
                f"{where}['URL'] begins with {SOCKET}, and no cluster can be reached by a socket "
                "of one machine; write redis:// or rediss://, or leave CLUSTER out"
            )
        client = options.get("CLIENT", {})
        if not isinstance(client, Mapping):
            raise InvalidBackend(f"{where}['CLIENT'] is {client!r}; write a dict")
        return cls(
            url=url,
            prefix=prefix,
            cluster=cluster,
            timeout=_seconds(where, options, "TIMEOUT", cls.timeout),
            remember=_seconds(where, options, "REMEMBER_SECONDS", cls.remember),
            client=dict(client),
        )


def _seconds(where: str, options: Mapping[str, Any], name: str, default: float) -> float:
    """A number of seconds. Only REMEMBER_SECONDS may be 0."""
    value = options.get(name, default)
    if isinstance(value, int | float) and not isinstance(value, bool):
        least = 0 if name == "REMEMBER_SECONDS" else 1e-3
        if value >= least:
            return float(value)
    or_none = ", or 0" if name == "REMEMBER_SECONDS" else ""
    raise InvalidBackend(f"{where}[{name!r}] is {value!r}; write a number of seconds{or_none}")


class RedisClock:
    """Where every script gets its "now": Redis's own time, unless a test sets a clock."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock

    def arg(self) -> str:
        """The first argument of every script."""
        return "" if self._clock is None else str(int(self._clock.now()))
