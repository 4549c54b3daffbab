"""A program from its start to its end: what it sees, what is kept of it, and that it ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from django_jobs.conf import ShellConfig
from django_jobs.handlers.shell import stray_processes
from django_jobs.handlers.shell.process import Order, ProgramRun
from django_jobs.outcome import Failed, Succeeded

ABOUT_ITSELF = """
import json, os, resource, signal, sys
limits = {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name))[0]
          for name in ("CPU", "AS", "FSIZE", "NOFILE", "CORE")}
print(json.dumps({
    "argv": sys.argv[1:], "environment": sorted(os.environ), "path": os.environ["PATH"],
    "directory": os.getcwd(), "input": sys.stdin.read(), "umask": oct(os.umask(0)),
    "leads": os.getsid(0) == os.getpid() == os.getpgid(0), "limits": limits,
    "files": sorted(os.listdir("/proc/self/fd"))[:-1],
    "default": [signal.getsignal(number) == signal.SIG_DFL
                for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1)],
    "ignored": next(line.split()[1] for line in open("/proc/self/status")
                    if line.startswith("SigIgn")),
}))
"""


def is_alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def written(path):
    """The pids that programs wrote to a file."""
    return [int(word) for word in Path(path).read_text().split()]


def until(condition, patience=20.0):
    deadline = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


@pytest.fixture
def impatient():
    socket.setdefaulttimeout(0.01)
    yield
    socket.setdefaulttimeout(None)


def test_a_default_timeout_of_sockets_is_none_of_its_business(run, script, impatient):
    words = ["x" * 100_000] * 5  # more than a socket holds, and read once a process has started
    outcome = run(script("import sys; print(len(sys.argv))"), *words)
    assert isinstance(outcome, Succeeded), outcome
    assert outcome.output == "6\n"


def test_a_program_sees_only_what_it_is_given(run, script, monkeypatch):
    monkeypatch.setenv("DATABASE_PASSWORD", "x")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    monkeypatch.setenv("TZ", "UTC")
    outcome = run(script(ABOUT_ITSELF), "a b", "$HOME", "*", "; true", ENVIRONMENT=["TZ", "NO"])
    seen = json.loads(outcome.output)
    # Python itself adds LC_CTYPE where the locale is none it knows.
    assert set(seen["environment"]) - {"LC_CTYPE"} == {"LANG", "PATH", "TZ"}
    assert seen["path"] == "/usr/local/bin:/usr/bin:/bin"
    assert seen["argv"] == ["a b", "$HOME", "*", "; true"]
    assert seen["directory"] == "/"
    assert seen["input"] == ""
    assert seen["umask"] == "0o77"
    assert seen["leads"]
    assert seen["files"] == ["0", "1", "2"]
    assert seen["default"] == [True] * 4
    # Python in the program ignores SIGPIPE and SIGXFSZ for itself, and nobody else for it.
    # 32 and 33 are the C library's own: nobody can set them, and some are born with them ignored.
    assert int(seen["ignored"], 16) & ~(0b11 << 31) == 1 << 12 | 1 << 24


def test_limits_are_those_of_the_settings(run, script, tmp_path):
    told = {
        "CPU_SECONDS": 7, "MEMORY_BYTES": 2**30, "FILE_BYTES": 12345, "OPEN_FILES": 50,
        "CORE_BYTES": None, "DIRECTORY": str(tmp_path),
    }  # fmt: skip
    seen = json.loads(run(script(ABOUT_ITSELF), **told).output)
    assert seen["directory"] == str(tmp_path)
    limits = seen["limits"]
    assert (limits["CPU"], limits["AS"], limits["FSIZE"], limits["NOFILE"]) == (7, 2**30, 12345, 50)
    assert json.loads(run(script(ABOUT_ITSELF)).output)["limits"]["CORE"] == 0


WRITES = """
import signal, tempfile
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
with tempfile.TemporaryFile() as file: file.write(bytes(10**5)); file.flush()
"""


@pytest.mark.parametrize(
    ("text", "told", "surroundings"),
    [
        ("while True: pass", "ended by SIGXCPU (it used up CPU_SECONDS)", {"CPU_SECONDS": 1}),
        ("x = bytes(10**10)", "MemoryError", {}),
        (
            WRITES,
            "ended by SIGXFSZ (it wrote more than FILE_BYTES)",
            {"FILE_BYTES": 1000},
        ),
    ],
    ids=["processor", "memory", "file"],
)
def test_a_limit_that_is_reached_is_told(run, script, text, told, surroundings):
    outcome = run(script(text), **surroundings)
    assert isinstance(outcome, Failed)
    assert told in outcome.error.message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("raise SystemExit(3)", "ended with exit code 3"),
        ("import sys; sys.exit('a\\nb')", "ended with exit code 1: a\nb"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("import os; os.kill(os.getpid(), 40)", "was ended by signal 40"),
    ],
    ids=["code", "words", "signal", "nameless"],
)
def test_h10_what_ends_badly_is_a_failure(run, script, text, told):
    outcome = run(path := script(text))
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert outcome.error.message == f"{path} {told}"


def test_only_the_end_of_what_it_complained_is_in_the_message_and_no_password(run, script):
    secret = "hunter" + "2"
    text = (
        "import sys; print('x' * 9000, 'password:', 'hunter' + '2', file=sys.stderr); sys.exit(1)"
    )
    outcome = run(script(text), f"--password={secret}")
    assert 2000 < len(outcome.error.message) < 2200
    assert outcome.error.message.endswith("x password: ••••")
    assert secret not in outcome.error.message + outcome.error.traceback


def test_what_is_no_program_cannot_be_run(run, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("no program")
    path.chmod(0o755)
    outcome = run(str(path))
    assert isinstance(outcome, Failed)
    assert "could not be run: [Errno 8] Exec format error" in outcome.error.message


def test_a_directory_that_is_not_there_is_told(run):
    assert (
        "No such file or directory: '/no/where'"
        in run("/bin/true", DIRECTORY="/no/where").error.message
    )


def test_its_output_is_kept_as_text_and_capped(run, script):
    text = """
import os, sys
os.write(1, "é".encode()[:1]); os.write(1, "é".encode()[1:]); os.write(1, b"\\xff\\x00\\n")
sys.stdout.write("y" * 100_000)
"""
    outcome = run(script(text))
    assert isinstance(outcome, Succeeded)
    assert outcome.output.startswith("é�\\x00\ny")
    assert re.search(r"\n… [\d,]+ more characters were not kept$", outcome.output)
    assert len(outcome.output) < 66_000


@pytest.mark.parametrize(
    "on_stderr",
    [
        pytest.param(200_000_000, id="200 MB"),
        pytest.param(1_000_000_000, id="1 GB", marks=pytest.mark.long),
    ],
)
def test_h10_floods_on_both_streams_hang_nothing_and_stay_outside_of_memory(run, script, on_stderr):
    text = """
import os, sys, threading
def flood(number):
    block, left = bytes([48 + number]) * 65536, int(sys.argv[number])
    while left > 0: left -= os.write(number, block)
threads = [threading.Thread(target=flood, args=[number]) for number in (1, 2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    path = script(text)
    assert isinstance(run(path, "1", "1"), Succeeded)  # warm up
    Path("/proc/self/clear_refs").write_text("5")  # forget the highest use of memory so far
    before, began = memory(), time.monotonic()
    outcome = run(path, "200000000", str(on_stderr), timeout=100)
    grown, took = memory() - before, time.monotonic() - began
    told = f"{(on_stderr + 200_000_000) / 1e6:.0f} MB read in {took:.2f} s"
    print(f"{told}, {grown / 1e6:.1f} MB more memory at the highest")
    assert isinstance(outcome, Succeeded)
    assert grown < 20_000_000
    dropped = int(re.sub(r"\D", "", outcome.output.rpartition("…")[2]))
    assert 0 <= on_stderr + 200_000_000 - dropped < 300_000


def memory():
    """The highest use of memory since it was last forgotten, in bytes."""
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])


FAMILY = """
import os, signal, subprocess, sys, time
note, how = sys.argv[1:3]
def tell():
    with open(note, "a") as file: file.write(f"{os.getpid()}\\n")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        tell()
        time.sleep(1000)
    tell()
    time.sleep(1000)
tell()
while len(open(note).read().split()) < 3: time.sleep(0.01)
if how == "stays": time.sleep(1000)
"""


def test_h10_a_timeout_ends_a_program_that_ignores_it_and_all_its_offspring(run, script, tmp_path):
    note = str(tmp_path / "pids")
    began = time.monotonic()
    outcome = run(script(FAMILY), note, "stays", timeout=1)
    took = time.monotonic() - began
    print(f"ended {took - 1:.3f} s after its timeout; it had half a second to end by itself")
    assert outcome.timed_out
    assert outcome.error.message == "the job exceeded its timeout of 1 seconds"
    assert took < 4
    assert len(written(note)) == 3
    assert not any(map(is_alive, written(note)))


def test_nothing_that_a_program_started_outlives_its_job(run, script, tmp_path):
    note = str(tmp_path / "pids")
    outcome = run(script(FAMILY), note, "leaves", timeout=20)
    assert isinstance(outcome, Succeeded)
    assert len(written(note)) == 3
    assert not any(map(is_alive, written(note)))


def test_a_program_may_clean_up_when_its_time_is_over(run, script):
    text = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("clean"), sys.exit(0)))
print("ready", flush=True)
time.sleep(1000)
"""
    outcome = run(script(text), timeout=1)
    assert outcome.timed_out
    assert outcome.output == "ready\nclean\n"


def test_in_a_thread_where_no_alarm_rings_the_time_is_watched_all_the_same(run, script, tmp_path):
    note = str(tmp_path / "pids")
    outcomes = []
    path = script(FAMILY)
    thread = threading.Thread(target=lambda: outcomes.append(run(path, note, "stays", timeout=0.5)))
    thread.start()
    thread.join(20)
    assert outcomes[0].timed_out
    assert outcomes[0].error.message == "the job exceeded its timeout of 0.5 seconds"
    assert not any(map(is_alive, written(note)))


ATTACKS = """
import ctypes, os, signal, sys, time
what, note = sys.argv[1:3]
launcher = os.getppid()
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # outlive the parent
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def tell():
    with open(note, "a") as file: file.write(f"{os.getpid()}\\n")
tell()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        tell()
        os.execve(sys.executable, ["python", "-c", "import time; time.sleep(1000)"], {})
    tell()
    time.sleep(1000)
while len(open(note).read().split()) < 3: time.sleep(0.01)
os.kill(launcher, getattr(signal, what))
time.sleep(1000)
"""


def test_h10_a_program_that_kills_its_launcher_fails_the_job_and_nothing_of_it_lives_on(
    run, script, tmp_path
):
    note = str(tmp_path / "pids")
    outcome = run(script(ATTACKS), "SIGKILL", note, timeout=20)
    assert isinstance(outcome, Failed)
    assert not outcome.timed_out
    assert "its launcher ended before it did" in outcome.error.message
    assert len(written(note)) == 3
    assert not any(map(is_alive, written(note)))


def test_h10_a_program_that_stops_its_launcher_ends_in_time_with_all_of_it(run, script, tmp_path):
    note = str(tmp_path / "pids")
    before, began = children(), time.monotonic()
    outcome = run(script(ATTACKS), "SIGSTOP", note, timeout=1)
    print(f"ended {time.monotonic() - began - 1:.3f} s after its timeout")
    assert outcome.timed_out
    assert time.monotonic() - began < 8
    assert not any(map(is_alive, written(note)))
    assert children() == before  # no zombie either


def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def test_an_alarm_while_a_stopped_launcher_is_waited_for_lets_nothing_live_on(script, tmp_path):
    note, rings = tmp_path / "pids", []

    class Alarm(BaseException):
        pass

    def ring(*_):
        rings.append(time.monotonic())
        if len(rings) < 3:  # the first interrupts the job, the second its end
            raise Alarm

    def when_attacked():
        until(lambda: note.exists() and len(written(note)) == 3)
        signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3)

    path = script(ATTACKS)
    order = Order(path=path, argv=[path, "SIGSTOP", str(note)], surroundings=ShellConfig())
    before = signal.signal(signal.SIGALRM, ring)
    watcher = threading.Thread(target=when_attacked)
    watcher.start()
    try:
        with pytest.raises(Alarm):
            ProgramRun(order).to_its_end()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        watcher.join()
    assert len(rings) > 2
    assert not any(map(is_alive, written(note)))


COMET = """
import os, signal, sys
launcher, note = os.getppid(), open(sys.argv[1], "ab", 0)
before = os.fstat(note.fileno()).st_size
if os.fork() == 0:
    while True:
        if os.fork(): os._exit(0)
        os.setsid()
        note.write(b"x")
while os.fstat(note.fileno()).st_size < before + 5: pass
os.kill(launcher, signal.SIGKILL)
signal.pause()
"""


def test_a_program_that_forks_and_ends_all_the_time_does_not_outrun_its_end(run, script, tmp_path):
    note = tmp_path / "steps"
    for _ in range(3):
        assert isinstance(run(script(COMET), str(note), timeout=20), Failed)
        steps = note.stat().st_size
        assert isinstance(run(script("", "later")), Succeeded)  # time enough for many more
        assert note.stat().st_size == steps


WAITS = """
import os, sys, time
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
print("done")
"""


def test_what_others_of_the_process_run_is_let_live_when_a_launcher_is_killed(
    run, script, tmp_path
):
    """Another program in a thread, a process of a handler's own, and an orphan of one."""
    note, gate, other = tmp_path / "beside", tmp_path / "gate", str(tmp_path / "pids")
    waits, attacks = script(WAITS, "waits"), script(ATTACKS, "attacks")
    outcomes = []
    beside = threading.Thread(
        target=lambda: outcomes.append(
            run(waits, str(note), str(gate), timeout=60, allowed=[waits, attacks])
        )
    )
    orphan = "import subprocess as s, sys; print(s.Popen(sys.argv[1:], stdout=s.DEVNULL).pid)"
    command = [sys.executable, "-c", "import time; time.sleep(1000)"]
    mine = subprocess.Popen(command, start_new_session=True)
    told = subprocess.run(
        [sys.executable, "-c", orphan, "sleep", "1000"], stdout=subprocess.PIPE, check=True
    )
    adopted = int(told.stdout)
    beside.start()
    until(lambda: note.exists() and written(note))
    try:
        assert isinstance(run(attacks, "SIGKILL", other, allowed=[waits, attacks]), Failed)
        assert not any(map(is_alive, written(other)))
        assert is_alive(written(note)[0])
        assert mine.poll() is None
        assert is_alive(adopted)
    finally:
        gate.touch()
        beside.join(30)
        os.kill(adopted, signal.SIGKILL)
        mine.terminate()
    assert mine.wait(10) == -signal.SIGTERM
    assert isinstance(outcomes[0], Succeeded)
    assert outcomes[0].output == "done\n"


PEEKS = """
import os, resource, time
def read(path):
    try: return open(path).read()
    except OSError: return "denied"
print(read(f"/proc/{os.getppid()}/environ"))
"""


def test_the_environment_of_the_worker_is_not_in_the_launcher(run, script, monkeypatch):
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter-2")
    outcome = run(script(PEEKS), timeout=20)
    assert isinstance(outcome, Succeeded)
    assert outcome.output in {"\n", "denied\n"}  # root may read it, and finds nothing


def test_the_process_is_kept_to_itself_while_a_program_runs(run, script, tmp_path):
    note, gate = tmp_path / "pids", tmp_path / "gate"
    waits = script(WAITS)
    threads = [
        threading.Thread(target=lambda: run(waits, str(note), str(gate), timeout=60))
        for _ in range(2)
    ]
    assert not stray_processes.forbids_dumps()
    for thread in threads:
        thread.start()
    until(lambda: note.exists() and len(written(note)) == 2)
    assert stray_processes.forbids_dumps()
    gate.touch()
    for thread in threads:
        thread.join(30)
    assert not stray_processes.forbids_dumps()


def test_a_launcher_that_cannot_start_fails_the_job(run, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    outcome = run("/bin/true", timeout=20)
    assert "its launcher ended before it did" in outcome.error.message


def test_nothing_is_left_open(run):
    run("/bin/true")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        run("/bin/true")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
