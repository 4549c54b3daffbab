"""Tables and columns that are away for a while, as they are before ``migrate`` was run."""

from contextlib import contextmanager

from django.db import connection


def execute(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)


@contextmanager
def without_table(model):
    table = model._meta.db_table
    execute(f"ALTER TABLE {table} RENAME TO {table}_away")
    try:
        yield
    finally:
        execute(f"ALTER TABLE {table}_away RENAME TO {table}")


@contextmanager
def without_column(model, column):
    table = model._meta.db_table
    execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO {column}_away")
    try:
        yield
    finally:
        execute(f"ALTER TABLE {table} RENAME COLUMN {column}_away TO {column}")
