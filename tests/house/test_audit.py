"""The audit of dependencies claims no more than it looked up."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / ".ci/audit.py"
SPEC = importlib.util.spec_from_file_location("audit", PATH)
audit = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(audit)

SOUND = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1"}, {"id": "CVE-2"}]}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("report", "counts", "told"),
    [
        ([SOUND], (0, 0), "1 of 1 packages were audited, 0 are vulnerable"),
        ([SOUND, BAD], (1, 0), "VULNERABLE: b 2: CVE-1, CVE-2"),
        ([SOUND, UNKNOWN], (0, 1), "NOT AUDITED: 1 of 2 packages.\n  c"),
        ([UNKNOWN], (0, 1), "NOTHING was looked up: the service knows none"),
        (None, (0, 1), "NOT AUDITED: pip-audit made no report, so NOTHING was looked up."),
    ],
    ids=["sound", "vulnerable", "in part", "unknown", "no report"],
)
def test_it_tells_what_it_looked_up_and_what_not(capsys, report, counts, told):
    assert audit.judged(report, "error: no route to the service") == counts
    said = capsys.readouterr().out
    assert told in said
    assert ("no route" in said) is (report is None)
