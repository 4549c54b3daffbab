"""Schedules: what runs when, declared in code, in settings and in the admin.

``schedule`` has the data of a schedule, ``expression`` its times by the clock on the wall,
``occurrences`` the moments of these in UTC, ``gates`` what may hold it back, and ``registry`` all
schedules in their order. The scheduler is in ``loop`` and ``tick``: they decide what is due
(``decide``), write it down (``history``) and enqueue jobs (``enqueue``) or run them (``inline``).
"""
