"""The connection to Redis: one client per process, and its errors in words that we know.

redis-py's own retries are off. A script that was sent and not answered may have counted;
whoever asked knows whether to ask again.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from django_jobs.exceptions import PrefixInUse, StoreUnavailable

try:
    import redis
    from redis import exceptions
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError as error:
    raise ImportError(
        "the Redis backend needs the package redis; install django-durable-jobs[redis]"
    ) from error

OLDEST_CLIENT = 6
"""Older ones of redis-py take a certificate of a trusted authority for whatever server it is,
and in a cluster cannot even be asked to look at the name.
"""

if int(redis.__version__.partition(".")[0]) < OLDEST_CLIENT:
    raise ImportError(
        f"the Redis backend needs redis-py {OLDEST_CLIENT} or newer, and {redis.__version__} is "
        "installed, which does not check the name of a server (rediss://); "
        "install django-durable-jobs[redis]"
    )

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.backends.redis.ownership import Ownership
    from django_jobs.backends.redis.scripts import Script

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
        """The client of this process. One that was made before a fork is left to its maker."""
        if self._client is None or self._pid != os.getpid():
            with self._lock:
                if self._client is None or self._pid != os.getpid():
                    self._client, self._pid = self.make(self.timeout), os.getpid()
        return self._client

    def make(self, timeout: float) -> Any:
        """A client of one's own."""
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
        """The server of a cluster on which a key lies; empty where none has its slot."""
        try:
            return str(self.client.get_node_from_key(key).name)
        except (AttributeError, exceptions.RedisError, OSError):
            return ""

    def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """A script's answer. A server that does not know it yet is told its text."""
        client = self._own_client()
        try:
            try:
                return client.evalsha(script.sha, len(keys), *keys, *args)
            except exceptions.NoScriptError:
                return client.eval(script.text, len(keys), *keys, *args)
        except (exceptions.RedisError, OSError) as error:
            raise self.failed(error) from error

    def ask(self, work: Callable[[Any], Any]) -> Any:
        """What plain commands answer."""
        client = self._own_client()
        try:
            return work(client)
        except (exceptions.RedisError, OSError) as error:
            raise self.failed(error) from error

    def _own_client(self) -> Any:
        """The client, once it is known that the keys are those of this site."""
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

        By a client of its own: whoever forks after it leaves no connection to its children.
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
        """What an error means (see ``translated``); it may be that of a server that is lost."""
        told = translated(error)
        if isinstance(told, StoreUnavailable) and not told.answered:
            self.ownership.compare_again()
        return told


def is_of_a_key(error: Exception) -> bool:
    """Whether Redis did what it could, and a key holds what is none of ours.

    What it would say to anybody, whatever the key, is an error of a kind of its own.
    """
    return type(error) is exceptions.ResponseError


def translated(error: Exception) -> Exception:
    """What a worker takes for an outage, if it is one; else the error itself."""
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
        # Itself, and none of its kinds: each time it was asked, a cluster named another server.
        refused = answered or type(error) is exceptions.ClusterError
        return StoreUnavailable(
            f"Redis does not serve: {type(error).__name__}: {text}",
            undone=refused or _NEVER_SENT in text,
            answered=answered,
        )
    return error
