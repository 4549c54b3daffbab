"""ALLOWED_URLS as it is read: its form. What its entries mean, the handler's tests ask."""

import pytest

from django_jobs.conf import UrlEntry, read

KEY = "k" * 40


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], ()),
        (("https://a.example/x",), (UrlEntry(url="https://a.example/x"),)),
        (
            [
                {
                    "URL": "https://a.example/*",
                    "METHODS": ["PUT"],
                    "HEADERS": ("X-A",),
                    "PRIVATE": {"10.0.0.0/8"},
                    "MAX_BYTES": 2**20,
                    "REDIRECTS": 3,
                    "TIMEOUT": 5,
                    "CA_FILE": "/etc/ca.pem",
                },
                "http://b.example/",
            ],
            (
                UrlEntry(
                    url="https://a.example/*",
                    methods=("PUT",),
                    headers=("X-A",),
                    private=("10.0.0.0/8",),
                    max_bytes=2**20,
                    redirects=3,
                    timeout=5.0,
                    ca_file="/etc/ca.pem",
                ),
                UrlEntry(url="http://b.example/"),
            ),
        ),
    ],
    ids=["none", "text", "dict"],
)
def test_entries_are_read(entries, expected):
    settings, problems = read({"ALLOWED_URLS": entries}, secret_key=KEY)
    assert problems == []
    assert settings.allowed_urls == expected


@pytest.mark.parametrize(
    ("entry", "path", "shown"),
    [
        ("a.example", "", "'a.example'"),
        (5, "", "int"),
        ({"METHODS": ["GET"]}, "", "no URL"),
        ({"URL": 5}, "['URL']", "is 5, not a url"),
        ({"URL": "https://me:secret@a/"}, "['URL']", "holds an '@'"),
        ({"URL": "https://a/", "METHOD": ["GET"]}, "['METHOD']", "METHODS"),
        ({"URL": "https://a/", "METHODS": "GET"}, "['METHODS']", "not a list"),
        ({"URL": "https://a/", "METHODS": ["*"]}, "['METHODS'][0]", "'*'"),
        ({"URL": "https://a/", "HEADERS": ["*"]}, "['HEADERS'][0]", "'*'"),
        ({"URL": "https://a/", "PRIVATE": True}, "['PRIVATE']", "not a list"),
        ({"URL": "https://a/", "MAX_BYTES": 2**20 + 1}, "['MAX_BYTES']", "1048577"),
        ({"URL": "https://a/", "MAX_BYTES": -1}, "['MAX_BYTES']", "-1"),
        ({"URL": "https://a/", "REDIRECTS": 4}, "['REDIRECTS']", "4"),
        ({"URL": "https://a/", "TIMEOUT": 0}, "['TIMEOUT']", "0"),
        ({"URL": "https://a/", "CA_FILE": 5}, "['CA_FILE']", "5"),
    ],
    ids=str,
)
def test_what_is_no_entry_is_refused(entry, path, shown):
    _, problems = read({"ALLOWED_URLS": [entry]}, secret_key=KEY)
    (problem,) = problems
    assert problem.subject == f"ALLOWED_URLS[0]{path}"
    assert shown in problem.message
    assert problem.hint
    assert "secret" not in str(problem)


def test_an_entry_that_is_refused_keeps_its_place():
    entries = ["a.example", {"URL": "b.example"}, "https://c.example/"]
    settings, problems = read({"ALLOWED_URLS": entries}, secret_key=KEY)
    assert len(problems) == 2
    assert [entry.url for entry in settings.allowed_urls] == ["", "", "https://c.example/"]
