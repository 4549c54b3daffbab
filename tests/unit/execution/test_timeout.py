"""The soft timeout: what it interrupts, what it leaves as it was."""

import os
import signal
import threading
import time

import pytest

from django_jobs.execution import timeout as timeout_module
from django_jobs.execution.timeout import can_interrupt, soft_timeout
from django_jobs.handlers.base import JobTimeout


def spin(seconds=30):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


@pytest.fixture(autouse=True)
def _no_alarm_of_the_test_runner():
    """pytest-timeout has an alarm of its own, which these tests would disturb or count."""
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
    handler = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, left, interval)


@pytest.mark.parametrize("work", [spin, time.sleep])
def test_a_busy_loop_and_a_sleep_are_interrupted(work):
    started = time.monotonic()
    with pytest.raises(JobTimeout, match=r"timeout of 0\.05 seconds"), soft_timeout(0.05):
        work(30)
    assert time.monotonic() - started < 5


def test_except_exception_does_not_swallow_it():
    def handler():
        try:
            time.sleep(30)
        except Exception:  # noqa: BLE001 - what many handlers do
            return "swallowed"

    with pytest.raises(JobTimeout), soft_timeout(0.05):
        handler()


def test_who_swallows_it_all_the_same_is_interrupted_again(monkeypatch):
    monkeypatch.setattr(timeout_module, "REPEAT_SECONDS", 0.05)
    swallowed = []

    def handler():
        try:
            time.sleep(30)
        except BaseException as error:  # noqa: BLE001 - what a few handlers do
            swallowed.append(error)
        time.sleep(30)

    with pytest.raises(JobTimeout), soft_timeout(0.05):
        handler()
    assert len(swallowed) == 1


def test_what_is_quick_enough_is_left_alone_and_no_alarm_is_left():
    with soft_timeout(20):
        value = 1
    assert value == 1
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_none_sets_no_alarm():
    with soft_timeout(None):
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("late", [False, True])
def test_the_previous_handler_of_the_signal_comes_back(late):
    def mine(_number, _frame):
        raise AssertionError("nobody sent this")

    signal.signal(signal.SIGALRM, mine)
    try:
        with soft_timeout(0.05):
            spin(30 if late else 0)
    except JobTimeout:
        assert late
    assert signal.getsignal(signal.SIGALRM) is mine


def test_a_timeout_inside_another_leaves_the_outer_one_running():
    def handler():
        with pytest.raises(JobTimeout, match=r"0\.05 seconds"), soft_timeout(0.05):
            time.sleep(30)
        time.sleep(30)

    started = time.monotonic()
    with pytest.raises(JobTimeout, match=r"0\.3 seconds"), soft_timeout(0.3):
        handler()
    assert 0.25 < time.monotonic() - started < 5


def test_an_outer_timeout_that_passed_meanwhile_comes_at_once():
    def handler():
        with soft_timeout(20):
            spin(0.05)
        time.sleep(30)

    with pytest.raises(JobTimeout, match=r"0\.01 seconds"), soft_timeout(0.01):
        handler()


def test_in_another_thread_the_time_is_looked_at_afterwards():
    found = []

    def work():
        found.append(can_interrupt())
        try:
            with soft_timeout(0.01):
                time.sleep(0.03)
        except JobTimeout as late:
            found.append(late.seconds)
        with soft_timeout(0.01, grace=20):
            time.sleep(0.03)
        with soft_timeout(20):
            found.append("in time")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False, 0.01, "in time"]
    assert can_interrupt()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_thread_that_forks_is_the_main_one_of_the_new_process():
    found = []

    def fork():
        if (pid := os.fork()) == 0:
            os._exit(can_interrupt())
        found.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    assert found == [True]


def test_where_the_alarm_is_kept_a_handler_that_took_the_signal_has_lost_it_again(monkeypatch):
    monkeypatch.setattr(timeout_module._Alarm, "kept", True)
    with soft_timeout(20):
        mine = signal.getsignal(signal.SIGALRM)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
    with pytest.raises(JobTimeout), soft_timeout(0.05):
        time.sleep(30)
    assert signal.getsignal(signal.SIGALRM) is mine
    signal.raise_signal(signal.SIGALRM)  # outside of a timeout it does nothing
