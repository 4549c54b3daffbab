"""What a child process is told: for which contestant, in which way, where, on which marks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from testproject.databases import server_details

ROOT = Path(__file__).resolve().parents[3]
PREFIX = "RIVALS_"


@dataclass(frozen=True)
class Surroundings:
    """The four words that travel through the environment."""

    contestant: str
    way: str
    database: str  # a name on the server, or the path of an SQLite file
    marks: str = ""

    @classmethod
    def here(cls) -> Surroundings:
        """Those of this process."""
        return cls(**{name: os.environ[PREFIX + name.upper()] for name in cls.__annotations__})

    def environment(self) -> dict[str, str]:
        """For a process that is to see them; libpq's variables are set for all alike."""
        words = {PREFIX + name.upper(): value for name, value in vars(self).items()}
        server = server_details("postgres")
        return {
            **os.environ,
            **words,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "DJANGO_SETTINGS_MODULE": "tests.benchmarks.rivals.settings",
            "PGHOST": server["HOST"],
            "PGPORT": server["PORT"],
            "PGUSER": server["USER"],
            "PGPASSWORD": server["PASSWORD"],
            "PGDATABASE": self.database,
        }
