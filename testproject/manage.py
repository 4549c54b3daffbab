#!/usr/bin/env python
"""Django's command line for the test project; works from any directory."""

import os
import sys
from pathlib import Path


def main() -> None:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    from django.core.management import execute_from_command_line  # noqa: PLC0415 - path first

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
