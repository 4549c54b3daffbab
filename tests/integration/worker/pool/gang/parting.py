"""What libraries do with ``atexit``: one that sends late, hooks that raise or hang."""

import atexit
import os
import queue
import tempfile
import threading
import time
from pathlib import Path

kept = {}


def write(diary, word):
    with Path(diary).open("a") as file:
        file.write(f"{os.getpid()} {word} {time.monotonic():.3f}\n")


def prepare(how, diary):
    """Called by the settings, before any child is born."""
    if how == "tracks":
        atexit.register(tracker.flush)
    elif how == "hangs-in-the-parent":
        atexit.register(hang, diary, os.getpid())
    elif how == "has-a-folder":
        kept["folder"] = tempfile.TemporaryDirectory()


def hang(diary, pid):
    if os.getpid() == pid:
        write(diary, "hangs")
        threading.Event().wait()


class Tracker:
    """Hands what it is told to a thread, as trackers of errors do, and sends it a while later."""

    def __init__(self):
        self._waiting = queue.Queue()
        self._thread = None

    def tell(self, diary, word):
        if self._thread is None:  # in the process that tells, which is no copy
            self._thread = threading.Thread(target=self._send, daemon=True)
            self._thread.start()
        self._waiting.put((diary, word))

    def flush(self):
        self._waiting.join()

    def _send(self):
        while True:
            diary, word = self._waiting.get()
            time.sleep(0.3)
            write(diary, word)
            self._waiting.task_done()


tracker = Tracker()


def raises():
    raise SystemExit("a hook that raises")


HOOKS = {
    "notes": lambda diary: write(diary, "notes"),
    "raises": lambda _diary: raises(),
    "hangs": lambda diary: hang(diary, os.getpid()),
}


def register(diary, *hows):
    """What runs last is registered first."""
    for how in reversed(hows):
        atexit.register(HOOKS[how], diary)


def has_folder():
    return Path(kept["folder"].name).is_dir()
