"""Redaction of payloads and messages for people: values of sensitive keys are hidden."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_jobs.conf import get_settings

HIDDEN = "••••"
LONGEST_KEY = 200
# Sensitive anywhere in a key: PGPASSWORD, csrftoken, apiKey.
_ANYWHERE = re.compile(
    "passw(?:or)?d|pwd|passphrase|passcode|secret|token|credential|authori[sz]ation|signature|cookie"
    "|(?:api|private|access|signing|encryption|session)_?key|session_?id"
)
# Sensitive as whole words only: neither author nor passenger.
_WORDS = ("pass", "pw", "auth", "oauth", "dsn", "jwt", "bearer")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BETWEEN = re.compile(r"[\W_]+")
_BETWEEN_LETTERS = re.compile(r"[\W\d_]+")
# Sensitive in the query of a URL, where they sign it or identify a user.
_IN_QUERIES = frozenset({"sig", "hmac", "key", "googleaccessid"})
_NAMES = frozenset({"name", "key", "field", "header"})
_VALUES = frozenset({"value", "val"})
_HEADERS = ("authorization", "cookie", "cookies")
_ERRORS = ("error", "exception", "warning")

# Every repetition is bounded, possessive, or ends where the next one begins, so that no text can
# make the search slow.
_PLACE = re.compile(
    r"""(?P<key>(?<![\w-])[\w-]++)\\{0,8}["'\]]{0,2}\s{0,4}(?:=>|[=:])\s{0,4}"""
    r"""|(?:(?<!\S)|["'])(?:-u|-U|--user|--proxy-user)(?:=|["',\s]{1,4})(?!\d{1,9}:\d)"""
    r"""(?P<login>[^\s:"']{0,200}:)(?=[^\s:/"'])"""  # -u user:x
    r"""|(?P<option>(?<!\S)-[\w-]++)\s{1,4}(?=[^\s-])"""  # --password x
    r"""|["'](?P<word>-[\w-]++)["'],\s{0,4}(?=["'][^-])"""  # ['--password', 'x']
    r"""|(?P<scheme>(?<![\w-])(?:[Bb]earer\s{1,4}(?=[^\s\d]{0,300}\d)"""
    r"""|[Bb]asic\s{1,4}(?=[A-Za-z+/]{0,300}[\d=])(?=[\w+/]{8})))"""
    r"""|(?<=[\[(])b?\\{0,8}["'](?P<pair>\w[\w.-]*+)\\{0,8}["'],\s{0,4}(?=\\{0,8}b?["'])"""
    r"""|["'](?:name|key|field|header)\\{0,8}["']:\s{0,4}\\{0,8}["'](?P<named>\w[\w.-]*+)"""
    r"""\\{0,8}["'],\s{0,4}\\{0,8}["']val(?:ue)?\\{0,8}["']:\s{0,4}"""
)
_VALUE = re.compile(
    r"""(?:(?:bearer|basic|token|digest)\s{1,4})?(?:"""
    r"""\\{1,8}["'].*?\\{1,8}["']"""  # inside another text
    r"""|[bru]{0,2}"(?:[^"\\]|\\.){0,4000}+"|[bru]{0,2}'(?:[^'\\]|\\.){0,4000}+'"""
    r"""|\\{0,8}[bru]{0,2}["'][^\n]++"""  # cut off
    r"""|[\[{(][^\n\]})]*+[\]})]?"""
    r"""|[^\s,;&"']++)""",
    re.IGNORECASE | re.DOTALL,
)
_REST_OF_WORD = re.compile(r"""[^\s"',;]++""")
_END_OF_PAIR = re.compile(r"\s{0,4},?\s{0,4}[\])]")
_REST_OF_LINE = re.compile(r"""(?!\\{0,8}(?:b?["']|[\[{(]))[^\n]++""")
# Up to the last @ before the path: a password may contain one, and a user may be a token. After a
# colon that begins no port, a password may contain a slash, too.
_CREDENTIALS = re.compile(
    r"""(?<=://)(?:[^/\s?#]+|[^/\s?#:@\[]{0,100}:(?!\d{1,5}[/?#])[^\s"'<>]{1,200})(?=@)"""
)
_KEY_BLOCK = re.compile(
    r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)(?:[\w\s+/=\\:,.|…]|-(?!----))++"
)
_OPTION = re.compile(r"-[\w-]++")
_ASSIGNMENT = re.compile(r"([\w-]++)=")
_LOGIN = re.compile(r"(?!\d+:\d+\Z)[^:]*+:(?!//)(?=.)", re.DOTALL)
_LOGIN_OPTIONS = frozenset({"-u", "-U", "--user", "--proxy-user"})
_PORTS = re.compile(r"[\d.:]++(?:/\w++)?")
# Programs that take a password as -p secret or -psecret.
_CLIENT = re.compile(r"(?:mysql|mariadb)[\w-]{0,30}|sshpass")
_LINE_OF_CLIENT = re.compile(rf"""(?<![\w.-])(?:{_CLIENT.pattern})(?=[\s"'])[^\n]++""")
_PASSWORD_OF_CLIENT = re.compile(
    r"""(?<![^\s"'])(-p(?:["'],\s{0,4}["'](?!-)|\s{1,4}(?![\s-]))?)"""
    r"""(?:[^\s"',]++|"(?!,)[^"\n]{1,300}"|'(?!,)[^'\n]{1,300}')"""
)


def is_sensitive(key: str) -> bool:
    """Whether a key names a secret, judged by its words, however they are joined."""
    joined = _BETWEEN.sub("_", _HUMP.sub("_", key[-LONGEST_KEY:])).lower()
    return _is_sensitive(joined, _own_words())


@lru_cache(maxsize=1024)
def _is_sensitive(joined: str, own: tuple[str, ...]) -> bool:
    if _ANYWHERE.search(joined):
        return True
    plain, bare = f"_{joined}_", f"_{_BETWEEN_LETTERS.sub('_', joined)}_"
    return any(f"_{word}_" in bare for word in _WORDS) or any(
        f"_{_joined(word)}_" in plain for word in own
    )


def _joined(word: str) -> str:
    return _BETWEEN.sub("_", _HUMP.sub("_", word)).strip("_").lower()


def _own_words() -> tuple[str, ...]:
    try:
        return get_settings().redact_keys
    except ImproperlyConfigured:  # reporting an error must not raise another one
        return ()


def redacted(value: Any) -> Any:
    """A value without its secrets, in the same shape."""
    if isinstance(value, dict):
        named = _is_named_as_secret(value)
        return {
            key: HIDDEN
            if is_sensitive(key) or (named and key.lower() in _VALUES)
            else redacted(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return _redacted_list(value)
    return scrubbed(value) if isinstance(value, str) else value


def _is_named_as_secret(fields: dict[str, Any]) -> bool:
    """Whether a dict is an item such as ``{"name": "password", "value": "x"}``."""
    if not any(key.lower() in _VALUES for key in fields):
        return False
    return any(key.lower() in _NAMES and _is_sensitive_name(fields[key]) for key in fields)


def _is_sensitive_name(value: Any) -> bool:
    # A sentence with such a word in it is not a name.
    return isinstance(value, str) and len(value.split()) == 1 and is_sensitive(value)


def _redacted_list(items: list[Any]) -> list[Any]:
    """A list, which may hold pairs of name and value, or the words of a command line."""
    shown: list[Any] = []
    before, of_client = None, False
    for item in items:
        shown.append(_redacted_item(item, before, of_client=of_client))
        before = item
        of_client = of_client or (
            isinstance(item, str) and bool(_CLIENT.fullmatch(item.rpartition("/")[2]))
        )
    return shown


def _redacted_item(item: Any, before: Any, *, of_client: bool) -> Any:
    """An item of a list, which may be a command line: ``--password=x``, ``--password x``."""
    if not isinstance(item, str):
        is_pair = isinstance(item, list) and len(item) == len(("name", "value"))
        if is_pair and not str(item[0]).startswith("-") and _is_sensitive_name(item[0]):
            return [item[0], HIDDEN]
        return redacted(item)
    if isinstance(before, str) and not item.startswith("-"):
        if _asks_for_a_secret(before) and (of_client or not _is_port(before, item)):
            return HIDDEN
        if before in _LOGIN_OPTIONS and (login := _LOGIN.match(item)):
            return f"{login[0]}{HIDDEN}"
    return _redacted_word(item, of_client=of_client)


def _redacted_word(item: str, *, of_client: bool) -> str:
    """A word that contains both name and value."""
    if of_client and _PASSWORD_OF_CLIENT.match(item):
        return f"-p{HIDDEN}"
    match = _ASSIGNMENT.match(item)
    return f"{match[0]}{HIDDEN}" if match and is_sensitive(match[1]) else scrubbed(item)


def _asks_for_a_secret(option: str) -> bool:
    # The meaning of -p depends on the program; for database clients it is the password.
    return option == "-p" or (_OPTION.fullmatch(option) is not None and is_sensitive(option))


def _is_port(option: str, word: str) -> bool:
    return option == "-p" and _PORTS.fullmatch(word) is not None


def scrubbed(text: str) -> str:
    """A message without its secrets: values after sensitive words, and credentials in URLs."""
    text = _CREDENTIALS.sub(HIDDEN, without_key_blocks(text))
    text = _LINE_OF_CLIENT.sub(_without_password, text)
    parts: list[str] = []
    kept = at = 0
    while place := _PLACE.search(text, at):
        at = place.end()
        if value := _secret_at(text, place):
            parts += (text[kept:at], HIDDEN)
            kept = at = value.end()
    return "".join((*parts, text[kept:]))


def without_key_blocks(text: str) -> str:
    """A text without the contents of private keys. They span lines, so call it before cutting."""
    return _KEY_BLOCK.sub(rf"\1{HIDDEN}", text)


def _without_password(line: re.Match[str]) -> str:
    return _PASSWORD_OF_CLIENT.sub(rf"\1{HIDDEN}", line.group())


def _secret_at(text: str, place: re.Match[str]) -> re.Match[str] | None:
    if place["scheme"]:
        return _VALUE.match(text, place.end())
    if place["login"]:
        return _REST_OF_WORD.match(text, place.end())
    key = place[place.lastgroup or 0]
    if not (is_sensitive(key) or _is_sensitive_in_query(text, place)):
        return None
    name = key.lower()
    if place["key"] and name.endswith(_ERRORS):  # the name of an error: AuthError, not auth
        return None
    # A header has parameters: the rest of its line belongs to it.
    line = _REST_OF_LINE.match(text, place.end()) if name.endswith(_HEADERS) else None
    value = line or _VALUE.match(text, place.end())
    if place["pair"] and value and not _END_OF_PAIR.match(text, value.end()):
        return None  # a list of words
    return value


def _is_sensitive_in_query(text: str, place: re.Match[str]) -> bool:
    return (
        text[place.start() - 1 : place.start()] in {"?", "&"}
        and (place["key"] or "").lower() in _IN_QUERIES
    )


def field_of(body: str, name: str) -> Any:
    """A field of a body, redacted; None if it is missing or the body cannot be read."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return redacted(fields.get(name)) if isinstance(fields, dict) else None


def laid_out(value: Any) -> str:
    """Indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False)
