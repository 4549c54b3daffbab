"""The pure core imports no models and no settings: it works where Django is not configured."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]


def test_it_imports_without_settings():
    (core,) = [contract for contract in CONTRACTS if contract["name"].startswith("Pure core")]
    imports = f"""
import importlib, sys
for name in {core["source_modules"]}:
    importlib.import_module(name)
from django.conf import settings
assert not settings.configured
assert "django.db.models" not in sys.modules
"""
    bare = {name: text for name, text in os.environ.items() if not name.startswith("DJANGO")}
    ran = subprocess.run(
        [sys.executable, "-c", imports],
        cwd=ROOT,
        env=bare,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
