"""Strict JSON: what is refused on the way out and on the way in, and with which words."""

import enum
import json
import math
from collections import OrderedDict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

import pytest
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy
from hypothesis import example, given
from hypothesis import strategies as st

from django_jobs.wire.strict_json import MAX_DEPTH, WIDEST, NotStrictJson, dumps, loads, size


class Point(NamedTuple):
    x: int
    y: int


class Colour(enum.IntEnum):
    RED = 1


class Size(enum.StrEnum):
    SMALL = "small"


class Weight(float):
    pass


def nested_list(depth: int, core=None):
    value = [] if core is None else [core]
    for _ in range(depth - 1):
        value = [value]
    return value


def nested_dict(depth: int):
    value = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


# -- on the way out ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (-0.5, "-0.5"),
        (1e300, "1e+300"),
        (2**53 + 1, "9007199254740993"),
        ("", '""'),
        ("é", '"\\u00e9"'),
        ("\U0001f600", '"\\ud83d\\ude00"'),
        ("\n\t\x01", '"\\n\\t\\u0001"'),
        ({"a": [1, 2], "b": {}}, '{"a":[1,2],"b":{}}'),
        ((1, (2,)), "[1,[2]]"),
        (Point(1, 2), "[1,2]"),
        (OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        (SafeString("<b>"), '"<b>"'),
        (Colour.RED, "1"),
        (Size.SMALL, '"small"'),
        (Weight(1.5), "1.5"),
        ({Size.SMALL: Colour.RED}, '{"small":1}'),
    ],
    ids=repr,
)
def test_plain_values_are_written_compactly_in_ascii(value, text):
    assert dumps(value) == text


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", [float, Weight])
def test_a_number_that_is_none_is_refused(number, kind):
    with pytest.raises(NotStrictJson, match=r"payload\.rates\[1\] is .*JSON cannot carry"):
        dumps({"rates": [1, kind(number)]})


@pytest.mark.parametrize("key", [1, True, None, 1.5, (1, 2)], ids=repr)
def test_a_key_that_is_no_string_is_refused(key):
    with pytest.raises(NotStrictJson) as refused:
        dumps({"by": {key: 1}})
    assert str(refused.value) == (
        f"payload.by has the key {key!r} of type {type(key).__name__}; "
        "JSON keys are strings, so write it as one"
    )


def test_keys_that_would_become_one_are_refused_before_they_do():
    with pytest.raises(NotStrictJson, match="key True of type bool"):
        dumps({True: 1, "true": 2})
    with pytest.raises(NotStrictJson, match="key 1 of type int"):
        dumps({"1": 1, 1: 2})


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Decimal("1.5"), "Decimal"),
        (datetime(2025, 1, 1, tzinfo=UTC), "datetime"),
        (date(2025, 1, 1), "date"),
        (timedelta(1), "timedelta"),
        (UUID(int=1), "UUID"),
        (b"bytes", "bytes"),
        ({1, 2}, "set"),
        (frozenset(), "frozenset"),
        (iter([]), "list_iterator"),
        (1j, "complex"),
        (object, "type"),
        (gettext_lazy("later"), "__proxy__"),
        (enum.Enum("Plain", "ONE").ONE, "Plain"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_json_does_not_know_is_refused_with_its_place_and_a_way_out(value, kind):
    with pytest.raises(NotStrictJson) as refused:
        dumps({"args": [0, {"when": value}]})
    assert str(refused.value) == (
        f"payload.args[1].when is of type {kind}, which is not JSON; "
        "use plain values (a primary key, an ISO date, a string)"
    )


def test_the_place_begins_with_the_word_that_the_caller_gives():
    with pytest.raises(NotStrictJson, match=r"^meta\.when is of type date"):
        dumps({"when": date(2025, 1, 1)}, "meta")


@pytest.mark.parametrize("text", ["a\x00b", "\x00"], ids=repr)
def test_nul_is_refused_on_the_way_out(text):
    for value in (text, [text], {"a": text}, {text: 1}):
        with pytest.raises(NotStrictJson, match=r"^payload holds a NUL character"):
            dumps(value)


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\ude00\ud83d", "\ud83d!"], ids=ascii)
def test_half_of_a_surrogate_pair_is_refused_on_the_way_out(text):
    with pytest.raises(NotStrictJson, match=r"^payload holds half a surrogate pair \(\\ud"):
        dumps({"a": [text]})


@pytest.mark.parametrize(
    "text", [r"\u0000", r"\\u0000", r"\ud800", r"a\\\ud800", "\\", '\\"', "\\\n"], ids=ascii
)
def test_text_that_only_looks_like_an_escape_is_kept(text):
    for value in (text, [text], {text: text}):
        assert loads(dumps(value)) == value


@pytest.mark.parametrize("nested", [nested_list, nested_dict])
def test_a_payload_may_use_all_levels_but_the_one_of_the_envelope(nested):
    assert loads(dumps(nested(MAX_DEPTH - 1))) == nested(MAX_DEPTH - 1)
    for depth in (MAX_DEPTH, MAX_DEPTH + 1, 5_000, 100_000):
        with pytest.raises(NotStrictJson, match="is nested deeper than 64 levels"):
            dumps(nested(depth))


@pytest.mark.parametrize("leaf", ["a", SafeString("b"), Colour.RED, Weight(1.5)], ids=repr)
def test_a_plain_value_on_the_deepest_level_is_fine(leaf):
    assert loads(dumps(nested_list(MAX_DEPTH - 1, leaf))) == nested_list(MAX_DEPTH - 1, leaf)


def test_a_wrong_value_on_the_deepest_level_is_called_what_it_is():
    with pytest.raises(NotStrictJson, match="is of type Decimal"):
        dumps(nested_list(MAX_DEPTH - 1, Decimal(1)))


def test_a_value_that_holds_itself_is_refused():
    value = []
    value.append(value)
    with pytest.raises(NotStrictJson, match="nested deeper"):
        dumps(value)


def test_the_place_of_a_deep_mistake_is_shortened():
    with pytest.raises(NotStrictJson) as refused:
        dumps(nested_dict(5_000))
    assert len(str(refused.value)) < 120


# -- integers ------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1])
def test_integers_of_4300_digits_are_exact(sign):
    value = sign * (10**4300 - 1)
    assert loads(dumps([value])) == [value]


@pytest.mark.parametrize("sign", ["", "-"])
def test_integers_of_4301_digits_are_refused(sign):
    value = int(f"{sign}1") * 10**4300
    with pytest.raises(NotStrictJson, match=r"payload\[0\] is an integer of more than 4300 digits"):
        dumps([value])
    with pytest.raises(NotStrictJson, match="is not JSON"):
        loads(f"[{sign}1{'0' * 4300}]")


# -- on the way in -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_names_for_numbers_are_refused(name):
    with pytest.raises(NotStrictJson, match=f"^{name} is not JSON$"):
        loads(f'{{"a":[{name}]}}')


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1.0E+400", f"1{'0' * 400}.5"])
def test_numbers_out_of_range_are_refused(number):
    with pytest.raises(NotStrictJson, match=r"^the number .* is out of range$"):
        loads(number)


@pytest.mark.parametrize("number", ["1e308", "5e-324", "1e-999", "0.1", "-0.0"])
def test_floats_in_range_are_read(number):
    assert loads(number) == float(number)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        '{"a":1,"b":2,"a":1}',
        '{"a":1,"\\u0061":2}',
        '[{"x":{"a":null,"a":null}}]',
    ],
)
def test_a_key_twice_in_one_object_is_refused(text):
    with pytest.raises(NotStrictJson, match=r"^the key 'a' occurs twice in one object$"):
        loads(text)


def test_a_key_may_occur_once_in_each_object():
    assert loads('[{"a":1},{"a":{"a":2}}]') == [{"a": 1}, {"a": {"a": 2}}]


def test_a_long_key_is_shortened_when_it_is_named():
    key = "k" * 10_000
    with pytest.raises(NotStrictJson) as refused:
        loads(f'{{"{key}":1,"{key}":2}}')
    assert len(str(refused.value)) < 120


@pytest.mark.parametrize("text", [r'"\u0000"', r'"a\\\u0000"', r'{"\u0000":1}', r'["\\\\\u0000"]'])
def test_nul_is_refused_on_the_way_in(text):
    with pytest.raises(NotStrictJson, match=r"^the text holds a NUL character"):
        loads(text)


@pytest.mark.parametrize("half", ["ud800", "uDBFF", "udc00", "uDfFf"])
@pytest.mark.parametrize("before", ["", "a", r"\\", r"\n", r"\u00e9", r"\ud83d\ude00", r"\\\\"])
def test_half_of_a_surrogate_pair_is_refused_on_the_way_in(before, half):
    for after in ("", "x", r"\u0041", r"\n", r"\\"):
        with pytest.raises(NotStrictJson, match=rf"half a surrogate pair \(\\{half}\)"):
            loads(f'["{before}\\{half}{after}"]')


def test_two_halves_in_the_wrong_order_are_refused():
    with pytest.raises(NotStrictJson, match="half a surrogate pair"):
        loads(r'"\ude00\ud83d"')


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\ud83d\ude00"', "\U0001f600"),
        (r'"\uD83D\uDE00\ud83d\ude00"', "\U0001f600\U0001f600"),
        (r'"\\ud800"', r"\ud800"),
        (r'"\\\\ud800"', r"\\ud800"),
        (r'"\\\ud83d\ude00"', "\\\U0001f600"),
        (r'"\\u0000"', r"\u0000"),
        (r'"\\\\u0000"', r"\\u0000"),
        (r'"\u0001"', "\x01"),
    ],
)
def test_whole_pairs_and_escaped_backslashes_are_read(text, value):
    assert loads(text) == value


@pytest.mark.parametrize(
    ("opening", "closing"), [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"]
)
def test_text_may_be_64_levels_deep_and_no_deeper(opening, closing):
    for depth in (1, 63, 64):
        loads(opening * depth + "1" + closing * depth)
    for depth in (65, 5_000, 100_000):
        with pytest.raises(NotStrictJson, match=r"^the text is nested deeper than 64 levels$"):
            loads(opening * depth + "1" + closing * depth)
        with pytest.raises(NotStrictJson, match="nested deeper than 64 levels"):
            loads(opening * depth)


def test_brackets_in_strings_and_beside_each_other_are_no_depth():
    assert loads(json.dumps(["[" * 100, '\\"{' * 100]))
    assert loads(json.dumps([[] for _ in range(500)]))
    assert loads(json.dumps({"{" * i: {} for i in range(100)}))


@pytest.mark.timeout(10)
def test_a_string_without_end_is_refused_in_no_time():
    with pytest.raises(NotStrictJson, match="Unterminated string"):
        loads("[" + "[]," * 65 + '"' + '\\"' * 200_000)
    with pytest.raises(NotStrictJson):
        loads("[" + "[]," * 65 + '"' + "\\" * 200_000 + "u0000")


@pytest.mark.parametrize(
    "text",
    ["", " ", "{", '{"a"', '{"a":1', "[1,]", "{,}", "nul", "01", "+1", "'a'", '"\t"', "1 2", "]"],
    ids=repr,
)
def test_what_is_no_json_is_refused(text):
    with pytest.raises(NotStrictJson, match=r"^the text is not JSON: "):
        loads(text)


@pytest.mark.parametrize(
    "text", ['"é"', "\ufeff1", '"\ud800"', "\u0661", '"\U0001f600"'], ids=ascii
)
def test_text_that_is_not_ascii_is_refused(text):
    with pytest.raises(NotStrictJson, match=r"^the text is not ASCII$"):
        loads(text)


# -- properties ----------------------------------------------------------------------------

plain_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | plain_text,
    lambda inner: st.lists(inner) | st.dictionaries(plain_text, inner),
    max_leaves=20,
)


@given(json_values)
def test_what_is_written_reads_back_as_the_same(value):
    assert loads(dumps(value)) == value


@given(json_values)
def test_what_is_written_is_ascii_and_the_standard_parser_agrees(value):
    assert dumps(value).isascii()
    assert json.loads(dumps(value)) == value


@given(st.text() | st.text('[]{}",:\\u0dD8e1-. '))
@example("[" * 3_000)
@example('"\\ud8')
@example("\\" * 99)
def test_reading_any_text_raises_nothing_but_a_refusal(text):
    try:
        value = loads(text)
    except NotStrictJson:
        return
    assert loads(dumps([value])) == [value]


@given(json_values, st.data())
def test_reading_damaged_json_raises_nothing_but_a_refusal(value, data):
    text = dumps(value)
    cut = data.draw(st.integers(0, len(text)))
    resume = data.draw(st.integers(0, len(text)))
    junk = data.draw(st.text('[]{}",:\\u0dD81eN\n', max_size=8))
    try:
        found = loads(text[:cut] + junk + text[resume:])
    except NotStrictJson:
        return
    assert loads(dumps([found])) == [found]


# -- how large a text is -----------------------------------------------------------------------


@given(json_values)
@example("жук")
@example("\\\\u0436 \\" * 3)
@example(["\\ж", "\\\\ж", '"ж'])
@example("\x01\x1f\x7f\x80\u07ff\u0800\ud7ff\uffff\U00010000\U0010ffff")
def test_the_size_is_that_of_utf_8_without_needless_escapes(value):
    text = dumps(value)
    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert size(text) == len(plain.replace("\x7f", "\\u007f").encode())
    assert size(text) <= len(text) <= WIDEST * size(text)
