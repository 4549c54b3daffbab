"""``jobs_preflight`` on databases that cannot keep every character."""

import json

import pytest
from django.db import connection

from tests.conftest import RUN_ON
from tests.integration.missing import execute

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def encoding_of(manage):
    """What preflight says of a database that is made so, with all our tables."""
    name = f"{connection.settings_dict['NAME']}_encoded"
    where = {f"DJANGO_JOBS_{RUN_ON.upper()}_NAME": name}

    def look(how, *statements):
        execute(f"DROP DATABASE IF EXISTS {name}")
        execute(f"CREATE DATABASE {name} {how}")
        done = manage("migrate", "-v0", **where)
        assert done.returncode == 0, done.stderr
        for statement in statements:
            execute(statement.format(name=name))
        told = manage("jobs_preflight", "--json", **where)
        assert told.returncode == 0, told.stderr + told.stdout
        findings = json.loads(told.stdout)["findings"]
        (found,) = [one for one in findings if one["what"] == "encoding"]
        return found

    yield look
    execute(f"DROP DATABASE IF EXISTS {name}")


@pytest.mark.only_on("postgres")
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "UTF8"])
def test_postgresql_keeps_every_character_in_utf8(encoding_of, encoding):
    c = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    found = encoding_of(c)
    if encoding == "UTF8":
        assert (found["state"], found["way_out"]) == ("ok", "")
        return
    assert found["state"] == "warning"
    assert f"default is encoded in {encoding}, not in UTF8" in found["text"]
    assert "ENCODING 'UTF8'" in found["way_out"]


@pytest.mark.only_on("mariadb", "mysql")
def test_mysql_keeps_every_character_in_utf8mb4(encoding_of):
    assert encoding_of("CHARACTER SET utf8mb4")["state"] == "ok"


@pytest.mark.only_on("mariadb", "mysql")
def test_mysql_in_three_bytes_is_warned_of_table_by_table(encoding_of):
    found = encoding_of("CHARACTER SET utf8mb3")
    assert found["state"] == "warning"
    assert "tables of jobs in utf8mb3, not in utf8mb4" in found["text"]
    way_out = found["way_out"]
    assert way_out.startswith("ALTER DATABASE ")
    assert "ALTER TABLE django_jobs_job CONVERT TO CHARACTER SET utf8mb4;" in way_out
    assert "auth_user" not in way_out


@pytest.mark.only_on("mariadb", "mysql")
def test_the_way_out_of_mysql_ends_the_warning(encoding_of):
    first = encoding_of("CHARACTER SET utf8mb3")
    name = f"{connection.settings_dict['NAME']}_encoded"
    statements = first["way_out"].replace("ALTER TABLE ", f"ALTER TABLE {name}.").rstrip(";")
    found = encoding_of("CHARACTER SET utf8mb3", *statements.split("; "))
    assert (found["state"], found["way_out"]) == ("ok", "")


@pytest.mark.only_on("mariadb", "mysql")
def test_a_database_whose_tables_to_come_would_not_keep_all_is_warned_of(encoding_of):
    change = "ALTER DATABASE {name} CHARACTER SET latin1"
    found = encoding_of("CHARACTER SET utf8mb4", change)
    assert "default makes new tables in latin1, not in utf8mb4" in found["text"]
    assert found["way_out"].endswith(" CHARACTER SET utf8mb4;")


@pytest.mark.only_on("sqlite")
def test_sqlite_keeps_every_character(run):
    findings = run("jobs_preflight", "--json").json()["findings"]
    (found,) = [one for one in findings if one["what"] == "encoding"]
    assert found["state"] == "ok"
