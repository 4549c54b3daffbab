"""``shell``: a program of the system, started without any shell.

The payload is a list, ``["/usr/bin/pg_dump", "--schema-only", "shop"]``. The program has to
be in ``ALLOWED_SHELL_COMMANDS``, with arguments of a form that is allowed.

It exports nothing: a worker imports ``stray_processes`` without the handler.
"""
