"""The limit on Redis: two scripts that claim a hundred and acknowledge them, and nothing else.

python -m tests.benchmarks.rivals.adapters.redis_bare is its worker.
"""

from __future__ import annotations

import json
import secrets
import signal
from typing import TYPE_CHECKING, Any

from tests.benchmarks.rivals.site import CORES, MACHINE, ONE, REDIS, Site, Way

if TYPE_CHECKING:
    from collections.abc import Iterable

CLAIMED = 100
WORKER = ("tests.benchmarks.rivals.adapters.redis_bare",)
CLAIM = """
local found = redis.call('ZPOPMIN', 'bare:ready', ARGV[1])
local ids, held, leased = {}, {}, {}
for i = 1, #found, 2 do
  ids[#ids + 1] = found[i]
  held[#held + 1], held[#held + 2] = found[i], ARGV[2]
  leased[#leased + 1], leased[#leased + 2] = ARGV[3], found[i]
end
if #ids == 0 then return {} end
redis.call('HSET', 'bare:tokens', unpack(held))
redis.call('ZADD', 'bare:leased', unpack(leased))
return {ids, redis.call('HMGET', 'bare:bodies', unpack(ids))}
"""
ACK = """
local tokens, gone = redis.call('HMGET', 'bare:tokens', unpack(ARGV, 2)), {}
for i, token in ipairs(tokens) do
  if token == ARGV[1] then gone[#gone + 1] = ARGV[i + 1] end
end
redis.call('HDEL', 'bare:tokens', unpack(gone))
redis.call('HDEL', 'bare:bodies', unpack(gone))
redis.call('ZREM', 'bare:leased', unpack(gone))
return #gone
"""


class BareRedisSite(Site):
    """redis-py and two scripts."""

    name = "bare Lua loop"
    vendor = REDIS
    distribution = "redis"
    keeps = f"the limit: leases {CLAIMED} with a token, acknowledges them in one script, no more"
    left = "return redis.call('HLEN', 'bare:bodies')"
    together = 1_000
    ways = (
        Way(ONE, (WORKER,), f"claim {CLAIMED}, ack {CLAIMED}", 60_000),
        Way(MACHINE, (WORKER,) * CORES, f"{CORES} loops", 60_000),
    )

    def start(self) -> None:
        import redis

        self.client = redis.Redis.from_url(self.surroundings.database)
        self.claim: Any = self.client.register_script(CLAIM)
        self.ack: Any = self.client.register_script(ACK)

    def each(self, numbers: Iterable[int]) -> None:
        for n in numbers:
            self.many([n])

    def many(self, numbers: list[int]) -> None:
        with self.client.pipeline() as pipe:
            pipe.hset("bare:bodies", mapping={str(n): json.dumps({"n": n}) for n in numbers})
            pipe.zadd("bare:ready", {str(n): n for n in numbers})
            pipe.execute()


def work() -> None:
    """Drain, and wait to be stopped: what ends takes its processor time with it."""
    from tests.benchmarks.rivals.contestants import chosen
    from tests.benchmarks.rivals.handlers.plain import noop

    site: Any = chosen()
    site.start()
    token = secrets.token_hex(16)
    while found := site.claim(args=[CLAIMED, token, 1]):
        ids, bodies = found
        for body in bodies:
            noop(**json.loads(body))
        site.ack(args=[token, *ids])
    signal.pause()


if __name__ == "__main__":
    work()
