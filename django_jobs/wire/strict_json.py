"""Strict JSON, which every parser reads alike.

The standard module accepts NaN, duplicate keys, keys that are no strings, lone
surrogates and any depth; each of these reads back differently on some store or some Python. Here
they are refused: on the way out with a message for the caller, on the way in with one for the
dead letter.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any, NoReturn

MAX_DEPTH = 64
_SHOWN_LENGTH = 60
# CPython refuses to convert longer digit strings to integers; so do we, on every version.
MAX_INTEGER_DIGITS = 4300
_INTEGER_BOUND = 10**MAX_INTEGER_DIGITS

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_ESCAPED_SURROGATE = re.compile(
    r"\\\\|\\u(d[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|d[89a-f][0-9a-f]{2})", re.IGNORECASE
)
_encoder = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


class NotStrictJson(ValueError):
    """A value or text is not strict JSON; the message says where and why."""


def dumps(value: Any, where: str = "payload") -> str:
    """ASCII JSON text of a plain value; raises NotStrictJson naming the culprit."""
    if not _is_plain(value, MAX_DEPTH - 1):
        _check_value(value, where, MAX_DEPTH - 1)
    text = _encoded(value)
    _refuse_odd_characters(text, where)
    return text


# The standard encoder makes a new one for every value, which costs more than encoding.
_make: Any = getattr(json.encoder, "c_make_encoder", None)
_chunks = _make and _make(
    markers=None,
    default=_encoder.default,
    encoder=json.encoder.encode_basestring_ascii,
    indent=None,
    key_separator=":",
    item_separator=",",
    sort_keys=False,
    skipkeys=False,
    allow_nan=False,
)


def _encoded(value: Any) -> str:
    if _chunks is None or isinstance(value, str):
        return _encoder.encode(value)
    return "".join(_chunks(value, 0))


WIDEST = 3
"""An escaped character takes at most this many times its bytes in UTF-8."""
_ESCAPED_BY_MUST = ("\\u000", "\\u001", "\\u007")
_OF_TWO_BYTES = (*(f"\\u0{n}" for n in range(8)), *(f"\\ud{n}" for n in "89abcdef"))


def size(text: str) -> int:
    """The bytes that a text of ``dumps`` would have as UTF-8 with only the necessary escapes.

    So a Greek letter counts as much as in any other JSON. ``len(text)`` is never less, and
    never more than ``WIDEST`` times as much.
    """
    left = text.replace("\\\\", "")  # what follows an escaped backslash is no escape
    by_must = sum(map(left.count, _ESCAPED_BY_MUST))
    twos = sum(map(left.count, _OF_TWO_BYTES)) - by_must  # a pair of surrogates makes four bytes
    threes = left.count("\\u") - twos - by_must
    return len(text) - 4 * twos - 3 * threes


def loads(text: str) -> Any:
    """Parse JSON text strictly; raises NotStrictJson."""
    _refuse_odd_text(text)
    try:
        return _decoded(text)
    except NotStrictJson:
        raise
    except (ValueError, RecursionError) as error:
        raise NotStrictJson(f"the text is not JSON: {error}") from error


def value_at(text: str, start: int) -> tuple[Any, int]:
    """The value that begins at ``start`` of a strict text, and where it ends.

    Raises NotStrictJson if any part of the text is not strict, and ValueError where no valid
    value begins.
    """
    _refuse_odd_text(text)
    try:
        value, end = _scan(text, start)
    except (StopIteration, RecursionError) as error:
        raise NotStrictJson(f"at {start} begins no value") from error
    return value, end


def _refuse_odd_text(text: str) -> None:
    if not text.isascii():
        raise NotStrictJson("the text is not ASCII")
    _refuse_deep_text(text)
    _refuse_odd_characters(text, "the text")


def _decoded(text: str) -> Any:
    # The decoder's public method costs more than parsing a small body.
    try:
        value, end = _scan(text, 0)
    except StopIteration:  # the decoder reports what is wrong, or skips the space
        return _decoder.decode(text)
    return value if end == len(text) else _decoder.decode(text)


_EASY = frozenset({str, bool, type(None)})
_SMALL = 1 << 62


def _is_plain(value: Any, depth: int) -> bool:  # noqa: C901 - once a value: flat, for speed
    """Whether a value is certainly valid. If not, the slower check decides."""
    kind = type(value)
    if kind is int:
        return bool(-_SMALL < value < _SMALL)
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return False
        value = value.values()
    elif kind is not list and kind is not tuple:
        return kind in _EASY or (kind is float and isfinite(value))
    if depth <= 0:
        return False
    for item in value:  # noqa: SIM110 - a generator costs more than the look itself
        if type(item) not in _EASY and not _is_plain(item, depth - 1):
            return False
    return True


def _check_value(value: Any, where: str, depth: int) -> None:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if kind is int:
        if not -_INTEGER_BOUND < value < _INTEGER_BOUND:
            raise NotStrictJson(f"{where} is an integer of more than {MAX_INTEGER_DIGITS} digits")
        return
    if kind is float:
        if value != value or value in {float("inf"), float("-inf")}:  # noqa: PLR0124 - the NaN test
            raise NotStrictJson(f"{where} is {value!r}, which JSON cannot carry")
        return
    _check_container(value, where, depth)


def _check_container(value: Any, where: str, depth: int) -> None:
    if isinstance(value, dict | list | tuple) and depth == 0:
        raise NotStrictJson(f"{_shorten(where)} is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotStrictJson(
                    f"{where} has the key {key!r} of type {type(key).__name__}; "
                    "JSON keys are strings, so write it as one"
                )
            _check_value(item, f"{where}.{key}", depth - 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_value(item, f"{where}[{index}]", depth - 1)
    else:
        _check_scalar_subclass(value, where)


def _check_scalar_subclass(value: Any, where: str) -> None:
    """Subclasses of the plain types (an enum member, a SafeString) travel as their value."""
    if isinstance(value, int):
        _check_value(int(value), where, 0)
    elif isinstance(value, float):
        _check_value(float(value), where, 0)
    elif not isinstance(value, str):
        raise NotStrictJson(
            f"{where} is of type {type(value).__name__}, which is not JSON; "
            "use plain values (a primary key, an ISO date, a string)"
        )


def _shorten(where: str) -> str:
    return where if len(where) <= _SHOWN_LENGTH else f"{where[:40]}…{where[-15:]}"


def _refuse_odd_characters(text: str, where: str) -> None:
    """NUL and lone surrogates parse as JSON, but no database stores them."""
    if "\\u0000" in text and _NUL.search(text):
        raise NotStrictJson(f"{where} holds a NUL character (\\u0000)")
    if "\\ud" in text or "\\uD" in text:
        for match in _ESCAPED_SURROGATE.finditer(text):
            escape = match.group(1)
            if escape is not None and len(escape) == len("d83d"):
                raise NotStrictJson(f"{where} holds half a surrogate pair (\\u{escape})")


# An unterminated string matches too: searching for its end from every quote inside would take
# quadratic time.
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)


def _refuse_deep_text(text: str) -> None:
    # Counted before parsing, because the depth limit of the standard parser differs between
    # Python versions. With few brackets in total there is nothing to walk.
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for match in _STRUCTURE.finditer(text):
        mark = match.group()
        if mark in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise NotStrictJson(f"the text is nested deeper than {MAX_DEPTH} levels")
        elif mark in "]}":
            depth -= 1


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise NotStrictJson(f"the key {twice[:_SHOWN_LENGTH]!r} occurs twice in one object")
    return result


def _no_constant(name: str) -> NoReturn:
    raise NotStrictJson(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if value in {float("inf"), float("-inf")}:
        raise NotStrictJson(f"the number {digits[:40]} is out of range")
    return value


_decoder = json.JSONDecoder(
    object_pairs_hook=_no_duplicates,
    parse_constant=_no_constant,
    parse_float=_finite,
)
_scan: Any = _decoder.scan_once  # type: ignore[attr-defined]  # not in the stubs
