# ruff: noqa: E501, RUF001 - what attackers write is not to be laid out
"""Hundreds of hostile strings on a page, many at a time: each is shown, and as text.

Whatever a string holds, a page has the elements and attributes that it has with a harmless
one: markup that got out of its place would be one more. And each string stands on the page,
escaped, behind the mark of its field: a field that is not shown proves nothing.

Columns of SQLite take texts of any length, so that one row can hold many strings; how a page
escapes has nothing to do with where it read.
"""

import json
from collections import Counter
from html.parser import HTMLParser

from django.utils.html import escape

from django_jobs.admin.payloads import in_editor, shortened
from django_jobs.texts import printable

CLOSERS = ["", '"', "'", '">', "'>", "</textarea>", "</pre>", "</title>", "-->", "]]>", "</script>",
           "</style>", "{{", "{%", "`", "\\", "&lt;", "&#60;", "\u202e", "\x9b", "</dd></dl>", "</td>",
           "\r\n\r\n", "%3C", "</summary></details>"]  # fmt: skip
MARKUP = ["<script>hurt()</script>", "<img src=x onerror=hurt()>", "<svg/onload=hurt()>", "<b>",
          "<a href=javascript:hurt()>x</a>", "<iframe srcdoc='<script>hurt()</script>'></iframe>",
          "<style>*{display:none}</style>", "<form action=//evil><input name=csrfmiddlewaretoken>",
          " onmouseover=hurt() x=", " autofocus onfocus=hurt() ", "{% load static %}{{ request }}",
          "<!--", "<meta http-equiv=refresh content='0;url=//evil'>", "<base href=//evil>",
          "javascript:hurt()", "data:text/html,<script>hurt()</script>", "<object data=x>",
          "<math><mi//xlink:href='data:x,<script>hurt()</script>'>", "<details open ontoggle=hurt()>",
          "＜script＞", "<scr\u2028ipt>", "<p style=color:red>"]  # fmt: skip
HOSTILE = [closer + markup for closer in CLOSERS for markup in MARKUP]
ENOUGH = 500


class Structure(HTMLParser):
    """The elements of a page with the names of their attributes, and no text."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.found = Counter()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if (tag, attrs) != ("br", []):  # what the admin makes of the end of a line
            self.found[tag, *(name for name, _ in attrs)] += 1
        for name, value in attrs:
            if name in {"href", "src", "action", "formaction"}:
                assert not (value or "").lower().startswith(("javascript:", "data:", "//")), value

    def handle_comment(self, data):
        self.found["comment", len(data)] += 1


def structure_of(page):
    return Structure(page).found


def whole(text):
    """A field that is shown as it is."""
    return text


def short(length):
    """A field of which the first line is shown, and not more of it than that."""
    return lambda text: shortened(text, length)


def prove(look, put, fields, at_once=110):
    """Every string in every field, ``at_once`` of them on a page.

    ``put`` gets the strings by field and writes them; ``look`` gives the page. ``fields`` says
    of each how much of a text is shown.
    """
    assert len(set(HOSTILE)) >= ENOUGH
    assert len(HOSTILE) % at_once == 0
    marks = {name: f"~{chr(97 + number)}" for number, name in enumerate(fields)}

    def marked(strings):
        return {name: [mark + one for one in strings] for name, mark in marks.items()}

    put(marked([f"harmless {number}" for number in range(at_once)]))
    harmless = structure_of(look())
    shown = Counter()
    for first in range(0, len(HOSTILE), at_once):
        values = marked(HOSTILE[first : first + at_once])
        put(values)
        page = look()
        found = structure_of(page)
        assert found == harmless, (found - harmless, harmless - found)
        text = _plain_lines(page)
        for name, cut in fields.items():
            for one in values[name]:
                part = cut(one).strip()
                assert any(form in text for form in _forms(part)), (name, one)
                shown[name] += part != marks[name]
    assert min(shown.values()) >= ENOUGH, shown


def prove_texts(look, put, fields, at_once=110):
    """The same where all strings of a field are lines of one text, and nothing of it is cut."""

    def put_texts(values):
        put({name: "\n".join(lines) for name, lines in values.items()})

    prove(look, put_texts, dict.fromkeys(fields, whole), at_once)


def prove_rows(look, rows, fields, at_once=55):
    """The same where every row of a table holds one string in each field.

    ``rows`` writes the values of the rows, of each by field; ``fields`` as for ``prove``.
    """

    def put_rows(values):
        rows([dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)])

    prove(look, put_rows, fields, at_once)


def _plain_lines(text):
    return text.replace("\r\n", "\n").replace("<br>", "\n")


def _forms(text):
    """How a text may stand on a page: as it is, or with control characters written out, as JSON
    or quoted in a sentence.
    """
    yield _plain_lines(escape(text))
    yield escape(in_editor(text)[1:-1])
    for form in (printable(text), repr(text)[1:-1]):
        yield _plain_lines(escape(form))
    for form in (text, printable(text)):
        for ascii_only in (True, False):
            line = json.dumps(form, ensure_ascii=ascii_only)[1:-1]
            yield escape(line)
            yield escape(printable(line))
