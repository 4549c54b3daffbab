"""An app that starts a thread as soon as Django is set up, beside which nothing may be forked."""

import os
import sys
import threading

from django.apps import AppConfig

NAME = "started-by-an-app"


class Threaded(AppConfig):
    name = "tests.integration.worker.pool.threaded"
    label = "threaded"

    def ready(self):
        if os.environ["GANG_THREAD"] == "fails-in-children" and sys.argv[0] == "-c":
            raise RuntimeError("this app wants no children")
        threading.Thread(target=threading.Event().wait, name=NAME, daemon=True).start()
