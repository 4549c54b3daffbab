"""The limit: a loop over the bare driver, with nothing that would notice a crash.

It claims a hundred rows with one statement, runs them and deletes them with another, each
committed by itself. No signature, no lease that ends, no retry, no result, no Django.

python -m tests.benchmarks.rivals.adapters.bare is its worker.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from typing import TYPE_CHECKING, Any

from tests.benchmarks.rivals.site import CORES, MACHINE, ONE, POSTGRES, SQLITE, Site, Way

if TYPE_CHECKING:
    from collections.abc import Iterable

CLAIMED = 100
NOTHING_FOUND = 0.05  # seconds; who is fed while it drains may be ahead of its producer
WORKER = ("tests.benchmarks.rivals.adapters.bare",)


class BareSite(Site):
    """psycopg."""

    name = "bare driver"
    vendor = POSTGRES
    distribution = "psycopg"
    keeps = f"the limit: claims {CLAIMED}, acknowledges them in one statement, keeps nothing else"
    left = "SELECT count(*) FROM bare"
    together = 1_000
    ways = (
        Way(ONE, (WORKER,), f"claim {CLAIMED}, delete {CLAIMED}", 60_000),
        Way(MACHINE, (WORKER,) * CORES, f"{CORES} loops", 60_000),
    )
    table = (
        "CREATE TABLE bare (id bigserial PRIMARY KEY, queue text NOT NULL, "
        "state smallint NOT NULL DEFAULT 1, due timestamptz NOT NULL DEFAULT now(), "
        "token text, body text NOT NULL)"
    )
    index = "CREATE INDEX bare_claim ON bare (queue, due, id) WHERE state = 1"
    lock = "FOR UPDATE SKIP LOCKED"
    place = "%s"

    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(autocommit=True)  # libpq's variables say where

    def start(self) -> None:
        self.connection = self.connect()

    def prepare(self) -> None:
        self.connection.execute(self.table)
        self.connection.execute(self.index)

    def each(self, numbers: Iterable[int]) -> None:
        insert = f"INSERT INTO bare (queue, body) VALUES ('default', {self.place})"
        for n in numbers:
            self.connection.execute(insert, [json.dumps({"n": n})])

    def many(self, numbers: list[int]) -> None:
        rows = ", ".join([f"('default', {self.place})"] * len(numbers))
        insert = f"INSERT INTO bare (queue, body) VALUES {rows}"
        self.connection.execute(insert, [json.dumps({"n": n}) for n in numbers])

    def claim(self, token: str) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = self.connection.execute(
            f"UPDATE bare SET state = 2, token = {self.place} WHERE id IN (SELECT id FROM bare "
            f"WHERE queue = 'default' AND state = 1 ORDER BY due, id LIMIT {CLAIMED} {self.lock}) "
            "RETURNING id, body",
            [token],
        ).fetchall()
        return found

    def ack(self, ids: list[int], token: str) -> None:
        self.connection.execute("DELETE FROM bare WHERE id = ANY(%s) AND token = %s", [ids, token])


class BareSqliteSite(BareSite):
    """sqlite3 from the standard library."""

    vendor = SQLITE
    distribution = ""
    ways = (Way(ONE, (WORKER,), f"claim {CLAIMED}, delete {CLAIMED}", 50_000),)
    table = (
        "CREATE TABLE bare (id integer PRIMARY KEY, queue text NOT NULL, "
        "state integer NOT NULL DEFAULT 1, due integer NOT NULL DEFAULT 0, "
        "token text, body text NOT NULL)"
    )
    lock = ""
    place = "?"

    def connect(self) -> Any:
        connection = sqlite3.connect(self.surroundings.database, autocommit=True, timeout=20)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def ack(self, ids: list[int], token: str) -> None:
        some = ", ".join(map(str, ids))
        self.connection.execute(f"DELETE FROM bare WHERE id IN ({some}) AND token = ?", [token])


def work() -> None:
    """Drain the table until stopped: what ends takes its processor time with it."""
    from tests.benchmarks.rivals.contestants import chosen
    from tests.benchmarks.rivals.handlers.plain import noop

    site: Any = chosen()
    site.start()
    token = secrets.token_hex(16)
    while True:
        while rows := site.claim(token):
            for _, body in rows:
                noop(**json.loads(body))
            site.ack([row[0] for row in rows], token)
        time.sleep(NOTHING_FOUND)


if __name__ == "__main__":
    work()
