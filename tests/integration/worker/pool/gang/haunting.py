"""Processes that hang at a chosen place of django_jobs, as any signal handler or lock could."""

import os
import sys
import time


def hang_in(place):
    """Let this thread hang when it next comes to a function."""

    def profile(frame, event, _argument):
        if event == "call" and frame.f_code.co_qualname == place:
            time.sleep(60)

    sys.setprofile(profile)


def haunt_children(place):
    """Let every process that this one forks a fork of hang there: a child of the fork server."""
    generation = 0

    def forked():
        nonlocal generation
        generation += 1
        if generation > 1:
            hang_in(place)

    os.register_at_fork(after_in_child=forked)
