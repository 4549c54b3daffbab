"""The mark of programs stays, and by it they are found; nothing else is."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from django_jobs.handlers.shell import stray_processes
from django_jobs.handlers.shell.stray_processes import (
    LAUNCHER,
    PROGRAM,
    RLIMIT_LOCKS,
    Sweep,
    end_strays,
    mark_of,
)

# Its second word is the mark it gives itself, and then what it starts; it says both pids.
MARKED = """
import os, resource, sys, time
mark = int(sys.argv[1])
if mark >= 0: resource.setrlimit(10, (mark, mark))
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(write, b"x")
    os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(100)"], {})
os.read(read, 1)
print(os.getpid(), open(f"/proc/self/task/{os.getpid()}/children").read(), flush=True)
if sys.argv[2] == "stays": time.sleep(100)
"""


@pytest.fixture
def marked():
    """Starts a process with a mark and a child; both pids."""
    started, pids = [], []

    def marked(mark, then="stays"):
        command = [sys.executable, "-c", MARKED, str(mark), then]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        found = [int(word) for word in started[-1].stdout.readline().split()]
        pids.extend(found)
        return found

    yield marked
    for process in started:
        process.kill()
        process.stdout.close()
        process.wait()
    for pid in pids:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_mark_is_inherited_through_a_session_and_an_environment_of_its_own(marked):
    assert mark_of(os.getpid()) > LAUNCHER
    assert [mark_of(pid) for pid in marked(LAUNCHER)] == [LAUNCHER] * 2
    assert [mark_of(pid) for pid in marked(PROGRAM)] == [PROGRAM] * 2


def test_a_program_cannot_take_its_mark_off():
    if (pid := os.fork()) == 0:
        code = 1
        try:
            resource.setrlimit(RLIMIT_LOCKS, (PROGRAM, PROGRAM))
            if os.geteuid() == 0:  # root may do it
                os.setresuid(65534, 65534, 65534)
            try:
                resource.setrlimit(RLIMIT_LOCKS, (1, 1))
            except ValueError:
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_what_is_gone_or_was_never_there_has_no_mark():
    assert mark_of(2**22 + 1) > LAUNCHER


def test_a_program_without_a_launcher_is_a_stray_and_one_with_a_launcher_is_not(marked):
    launcher, program = marked(LAUNCHER)
    _, orphan = marked(PROGRAM, "ends")
    _, of_a_handler = marked(-1, "ends")
    until(lambda: parent_of(orphan) not in {launcher, 0} and parent_of(of_a_handler) != launcher)
    end_strays()
    assert not is_alive(orphan)
    assert is_alive(launcher)
    assert is_alive(program)
    assert is_alive(of_a_handler)


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_sweep_ends_what_is_marked_below_a_process_and_reaps_its_own(marked):
    first, _ = marked(LAUNCHER)
    other, _ = marked(-1)
    sweep = Sweep({os.getpid()}, LAUNCHER)
    while sweep.goes_on():
        time.sleep(0.002)
    assert not is_alive(first)
    assert is_alive(other)
    assert not Path(f"/proc/{first}").exists()


def test_one_pass_ends_what_is_below_a_stray_in_a_session_of_its_own(marked):
    stray, below = marked(LAUNCHER)
    assert os.getsid(below) != os.getsid(stray)
    assert Sweep({os.getpid()}, LAUNCHER).goes_on()
    until(lambda: not is_alive(stray) and not is_alive(below))


def test_a_sweep_is_over_when_its_time_is(marked):
    stray, _ = marked(LAUNCHER)
    sweep = Sweep({os.getpid()}, LAUNCHER, seconds=0)
    assert not sweep.goes_on()
    until(lambda: not is_alive(stray))


def test_where_the_system_keeps_no_list_of_children_all_processes_are_looked_at(
    marked, monkeypatch
):
    launcher, _ = marked(LAUNCHER)
    monkeypatch.setattr(stray_processes, "open", without_lists, raising=False)
    sweep = Sweep({os.getpid()}, LAUNCHER)
    while sweep.goes_on():
        time.sleep(0.002)
    assert not is_alive(launcher)


def without_lists(path, mode):
    if path.endswith("/children"):
        raise FileNotFoundError(path)
    return Path(path).open(mode)


def test_below_a_program_nothing_is_swept():
    """A worker that a job started: all around it have the mark."""
    if (pid := os.fork()) == 0:
        code = 1
        try:
            resource.setrlimit(RLIMIT_LOCKS, (PROGRAM, PROGRAM))
            sleeper = subprocess.Popen(["sleep", "100"])
            end_strays()
            code = int(sleeper.poll() is not None)
            sleeper.kill()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# Of user and group 65534, with a child that has the mark of programs and the user and group
# of its arguments; it says how many passes of a sweep there were, and how the child ended.
OF_OTHERS = """
import os, resource, signal, sys, time
from django_jobs.handlers.shell.stray_processes import PROGRAM, RLIMIT_LOCKS, Sweep
user, group = map(int, sys.argv[1:])
def become(user, group):
    os.setgroups([])
    os.setresgid(65534, group, group)
    os.setresuid(user, user, user)
first = os.getpid()
ready, tells = os.pipe()
child = os.fork()
if child == 0:
    resource.setrlimit(RLIMIT_LOCKS, (PROGRAM, PROGRAM))
    become(user, group)
    os.write(tells, b"x")
    signal.pause()
os.read(ready, 1)
sweeper = os.fork()
if sweeper == 0:
    become(65534, 65534)
    sweep, passes = Sweep({first}, PROGRAM), 1
    while sweep.goes_on() and passes < 100:
        passes += 1
        time.sleep(0.001)
    print(passes, end=" ", flush=True)
    os._exit(0)
os.waitpid(sweeper, 0)
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")
@pytest.mark.parametrize(
    ("user", "group", "ends_by"), [(65534, 1, signal.SIGKILL), (1, 1, signal.SIGTERM)]
)
def test_a_program_of_another_group_is_ended_and_one_of_another_user_is_left(user, group, ends_by):
    command = [sys.executable, "-c", OF_OTHERS, str(user), str(group)]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=30, check=True).stdout
    passes, code = map(int, said.split())
    assert code == -ends_by
    assert passes < 100
