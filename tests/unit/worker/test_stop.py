"""Signals: the first asks the worker to stop, the second stops it now."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from django_jobs.execution.attempt import Attempt
from django_jobs.handlers.base import JobContext
from django_jobs.handlers.function import FunctionHandler
from django_jobs.outcome import Interrupted, Succeeded
from django_jobs.worker.stop import SIGNALS, Stop

EXIT = """
import os, signal, sys, threading, time
from django_jobs.worker.stop import Stop

class Last:
    def __init__(self):
        self.send = os.kill, os.getpid(), signal.SIGTERM
    def __del__(self):  # when modules are cleared, long after the handlers of signals
        kill, *what = self.send
        kill(*what)

sys.last = Last()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
stop = Stop()
stop.ends_process = True
with stop.listening():
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
sys.exit(stop.exit_code)
"""


@pytest.fixture
def stop():
    stop = Stop()
    with stop.listening():
        yield stop


def send(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


def run(function):
    handler = FunctionHandler("tests.it", function, takes_context=False)
    payload = {"args": [], "kwargs": {}}
    context = JobContext(id="1", payload=payload, name="it", queue="default")
    return Attempt(handler=handler, context=context).run()


@pytest.mark.parametrize("number", SIGNALS)
def test_one_signal_asks_and_lets_the_handler_end(stop, number):
    assert run(lambda: send(number)) == Succeeded(None)
    assert stop.asked.is_set()
    assert (stop.urgent, stop.exit_code) == (False, 0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_interrupts_the_handler_and_is_the_exit_code(stop, number, code):
    def handler():
        send()
        send(number)
        return "never"

    assert isinstance(run(handler), Interrupted)
    assert (stop.urgent, stop.exit_code) == (True, code)


def test_a_terminal_that_is_told_gone_twice_is_no_hurry(stop):
    def handler():
        send(signal.SIGHUP)
        send(signal.SIGHUP)
        return "done"

    assert run(handler) == Succeeded("done")
    assert (stop.asked.is_set(), stop.urgent, stop.exit_code) == (True, False, 0)
    send()
    assert (stop.urgent, stop.exit_code) == (True, 143)


def test_under_nohup_it_outlives_the_terminal():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = Stop()
        with stop.listening():
            send(signal.SIGHUP)
            assert not stop.asked.is_set()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_while_python_exits_does_not_change_the_exit_code():
    ended = subprocess.run([sys.executable, "-c", EXIT], check=False)
    assert ended.returncode == 143


def test_a_second_signal_outside_a_handler_lets_the_work_on_the_store_end(stop):
    send()
    send()
    assert (stop.urgent, stop.exit_code) == (True, 143)


def test_a_signal_ends_the_waiting_at_once(stop):
    started = time.monotonic()
    stop.unless_asked(lambda: (send(), time.sleep(30)))
    assert time.monotonic() - started < 5
    assert (stop.asked.is_set(), stop.urgent) == (True, False)


def test_two_signals_during_the_waiting_are_no_error(stop):
    stop.unless_asked(lambda: (send(), send(), time.sleep(30)))
    assert stop.asked.is_set()


def test_who_was_asked_before_does_not_wait(stop):
    stop.ask()
    stop.unless_asked(lambda: pytest.fail("it waited"))
    assert stop.exit_code == 0


def test_an_error_of_the_waiting_is_not_swallowed(stop):
    with pytest.raises(ZeroDivisionError):
        stop.unless_asked(lambda: 1 / 0)
    send()
    assert stop.asked.is_set()


def test_the_handlers_of_before_come_back():
    before = [signal.getsignal(number) for number in SIGNALS]
    with Stop().listening():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_in_another_thread_it_does_without_signals():
    entered = []

    def work():
        with Stop().listening():
            entered.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered == [True]
