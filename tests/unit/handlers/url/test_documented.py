"""The page about the handler: its settings are accepted, its payload is allowed by them."""

import ast
import re
from pathlib import Path

import pytest

from django_jobs.conf import UrlEntry, read
from django_jobs.handlers.url import UrlHandler, addresses, http
from django_jobs.handlers.url.allow_list import ALWAYS_ALLOWED, UrlRule, rules_of
from django_jobs.handlers.url.http import EXCERPT
from django_jobs.handlers.url.url import MAX_URL

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "url-handler.md"
TEXT = PAGE.read_text("utf-8")
EXAMPLES = [ast.parse(one) for one in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)]
SETTINGS = [
    ast.literal_eval(node.value)
    for example in EXAMPLES
    for node in example.body
    if isinstance(node, ast.Assign)
]


def section(title):
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.fixture
def authority_of_the_page(monkeypatch, authority):
    """The page names a file that is not here; everything else of it is taken as it stands."""

    def with_a_real_file(configured):
        for entry in configured["ALLOWED_URLS"]:
            if "CA_FILE" in entry:
                entry["CA_FILE"] = str(authority.file)
        return configured

    return with_a_real_file


def test_there_are_two_examples_of_settings():
    assert len(SETTINGS) == 2


@pytest.mark.parametrize("configured", SETTINGS, ids=[0, 1])
def test_an_example_of_settings_is_accepted(configured, authority_of_the_page):
    settings, problems = read(authority_of_the_page(configured), secret_key="k" * 40)
    assert problems == []
    assert len(rules_of(settings)) == 1


def test_the_example_of_a_job_is_allowed_by_the_first_settings(settings):
    (call,) = (
        node
        for node in ast.walk(EXAMPLES[0])
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "define"
    )
    key, payload = (ast.literal_eval(argument) for argument in call.args)
    settings.DJANGO_JOBS = SETTINGS[0]
    assert key == "url"
    UrlHandler().validate(payload)


def test_every_entry_of_the_table_is_one():
    entries = re.findall(r'^\| `"([^"]+)"` \|', section("What may be called"), re.MULTILINE)
    assert len(entries) == 5
    assert [UrlRule.of(UrlEntry(url=entry)).port for entry in entries] == [443, 443, 443, 8443, 443]


def test_every_key_of_an_entry_is_listed_with_its_default():
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.*?) \|", section("What may be called"), re.MULTILINE)
    defaults = {
        name: str(list(value) if isinstance(value, tuple) else value).replace("'", '"')
        for name, value in ((name, getattr(UrlEntry(url=""), name)) for name in UrlEntry._fields)
    }
    listed = {name.lower(): default.strip("`") for name, default in rows}
    expected = {**defaults, "url": "required", "timeout": "30"}
    assert listed == expected


def test_the_headers_that_are_always_allowed_are_listed():
    for name in ALWAYS_ALLOWED:
        assert f"`{name.title()}`" in section("What may be called")


def test_the_limits_of_the_page_are_those_in_force():
    checks = " ".join(section("What is checked").split())
    assert f"more than {MAX_URL:,} characters" in checks
    assert f"{addresses.LOOKUP_SECONDS:g} s for the lookup" in checks
    assert f"{http.CONNECT_SECONDS:g} s for each of up to four addresses" in checks
    assert f"{http.READ_SECONDS:g} s for each read" in checks
    assert http.MAX_TRIES == 4
    assert f"at most {http.HEADER_BYTES // 1024} KiB of status and headers" in checks
    assert f"{http.FRAMING} bytes of framing" in checks
    assert f"first {EXCERPT:,} characters" in " ".join(section("What comes back").split())
