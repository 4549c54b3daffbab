"""Schedules: what runs when, declared in code, in settings and in the admin.

``schedule`` says what a schedule is, ``expression`` when it is due by the clock on the wall,
``occurrences`` at which moments that is in UTC, ``gates`` what may hold it back, ``order`` which
goes first, ``registry`` where all of them are. Nothing in here writes to a database.
"""
