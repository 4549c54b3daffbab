"""Typed payloads: what was written is read again, and what is not of its type is refused."""

import json
from dataclasses import InitVar, dataclass, make_dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any, Literal, NewType, Optional, Union
from uuid import UUID

import pytest
from django.utils.safestring import mark_safe
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.exceptions import InvalidJob, InvalidPayload
from django_jobs.handlers.payload_types import Payload
from django_jobs.wire import strict_json
from tests.unit.handlers.payloads_of_tests import Colour, Everything, Level, Mail, Tree, Unknown

PAYLOAD = Payload("shop.all", Everything)
GOOD = Everything(
    text="é", number=-(2**70), real=1.5, flag=True,
    moment=datetime(2026, 3, 1, 12, 30, 0, 5, tzinfo=UTC), day=date(2026, 3, 1),
    hour=time(12, 30), price=Decimal("1.10"), id=UUID(int=5), colour=Colour.SEVEN,
    level=Level.HIGH, tree=Tree("a", [Tree("b"), Tree("c", [Tree("d")])]), maybe=None, kind=2,
    either=[1, 2], names=["x"], pair=(1, "a"), row=(Decimal(1), Decimal("NaN")), table={},
    user=7, anything={"a": [None]},
)  # fmt: skip


def travelled(payload, value):
    return payload.read(strict_json.loads(strict_json.dumps(payload.written(value))))


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
numbers = st.integers(-(10**30), 10**30)
zones = st.sampled_from([None, UTC, timezone(timedelta(hours=-5, minutes=30))])
everything = st.builds(
    Everything,
    text=texts, number=numbers, real=st.floats(allow_nan=False, allow_infinity=False),
    flag=st.booleans(), moment=st.datetimes(timezones=zones), day=st.dates(), hour=st.times(),
    price=st.decimals(allow_nan=False), id=st.uuids(), colour=st.sampled_from(Colour),
    level=st.sampled_from(Level), kind=st.sampled_from(["a", 2, None]), user=numbers,
    tree=st.builds(Tree, texts, st.lists(st.builds(Tree, texts))),
    maybe=st.none() | st.builds(Tree, texts),
    either=st.none() | numbers | texts | st.lists(numbers), names=st.lists(texts),
    pair=st.tuples(numbers, texts), row=st.lists(st.decimals(allow_nan=False)).map(tuple),
    table=st.dictionaries(texts, st.dates()), anything=st.none() | texts | st.lists(numbers),
)  # fmt: skip


@given(everything)
def test_what_is_written_is_read_again(value):
    assert travelled(PAYLOAD, value) == value


def test_one_example_as_it_travels():
    written = PAYLOAD.written(GOOD)
    assert json.loads(json.dumps(written)) == {
        "text": "é", "number": -(2**70), "real": 1.5, "flag": True,
        "moment": "2026-03-01T12:30:00.000005+00:00", "day": "2026-03-01", "hour": "12:30:00",
        "price": "1.10", "id": "00000000-0000-0000-0000-000000000005", "colour": 7, "level": 2,
        "tree": {"name": "a", "below": [
            {"name": "b", "below": []}, {"name": "c", "below": [{"name": "d", "below": []}]},
        ]},
        "maybe": None, "kind": 2, "either": [1, 2], "names": ["x"], "pair": [1, "a"],
        "row": ["1", "NaN"], "table": {}, "user": 7, "anything": {"a": [None]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("field", "wrong", "told"),
    [
        ("text", 5, "payload.text is of type int, not str"),
        ("text", None, "payload.text is of type NoneType, not str"),
        ("number", True, "payload.number is of type bool, not int"),
        ("number", 1.0, "payload.number is of type float, not int"),
        ("real", True, "payload.real is of type bool, not float"),
        ("real", 10**400, "payload.real is too large for a float"),
        ("flag", 1, "payload.flag is of type int, not bool"),
        ("colour", "blue", "payload.colour is no Colour"),
        ("kind", True, "payload.kind is of type bool, not"),
        ("either", 1.5, "payload.either is of type float, not"),
        ("pair", [1], "payload.pair "),
        ("user", "7", "payload.user is of type str, not int"),
        ("table", {1: date(2026, 3, 1)}, "payload.table "),
        ("tree", {"name": "x", "leaves": 1}, "payload.tree "),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_with_its_place(field, wrong, told):
    for attempt in (
        lambda: PAYLOAD.written(replace(GOOD, **{field: wrong})),
        lambda: PAYLOAD.check({**PAYLOAD.written(GOOD), field: wrong}),
        lambda: PAYLOAD.written({**PAYLOAD.written(GOOD), field: wrong}),
    ):
        with pytest.raises(InvalidPayload) as refused:
            attempt()
        assert str(refused.value).startswith(f"shop.all: {told}")


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("moment", "2026-03-01"), ("moment", "2026-03-01 12:30:00"), ("moment", 5), ("moment", ""),
        ("moment", "2026-02-30T12:30:00"), ("day", "20260301"), ("day", "2026-W01-1"),
        ("hour", "12:30"), ("price", "1,1"), ("price", " 1"), ("price", 1.5), ("id", "5"),
        ("id", "{00000000-0000-0000-0000-000000000005}"), ("price", "0x1"), ("price", "1_0"),
        ("tree", {"name": "a", "below": [{}]}), ("tree", {}), ("tree", []), ("maybe", {"name": 1}),
        ("names", "x"), ("names", ["x", 1]), ("row", ["1", 1]), ("table", {"a": 5}),
        ("either", [1, "2"]), ("level", 3), ("level", "HIGH"), ("colour", ["red"]), ("colour", {}),
    ],
    ids=str,
)  # fmt: skip
def test_only_the_one_written_form_is_read(field, wrong):
    with pytest.raises(InvalidPayload, match=rf"^shop.all: payload\.{field}"):
        PAYLOAD.check({**PAYLOAD.written(GOOD), field: wrong})


def test_an_instance_holds_what_its_annotations_say():
    for field, wrong in {
        "moment": date(2026, 3, 1), "day": datetime(2026, 3, 1, tzinfo=UTC), "price": 1.1,
        "id": "5", "tree": {"name": "x"}, "names": ("x",), "pair": [1, "a"], "row": [Decimal(1)],
        "colour": "red", "table": [],
    }.items():  # fmt: skip
        with pytest.raises(InvalidPayload, match=rf"payload\.{field}"):
            PAYLOAD.written(replace(GOOD, **{field: wrong}))


def test_unknown_and_missing_fields_are_named_and_defaults_need_not_be_said():
    plain = PAYLOAD.written(GOOD)
    with pytest.raises(InvalidPayload, match="payload has the unknown field 'colur'"):
        PAYLOAD.check({**plain, "colur": "red"})
    with pytest.raises(InvalidPayload, match="payload has the unknown field 'made'"):
        PAYLOAD.check({**plain, "made": 3})
    with pytest.raises(InvalidPayload, match="payload has no colour"):
        PAYLOAD.check({name: value for name, value in plain.items() if name != "colour"})
    del plain["anything"]
    assert PAYLOAD.read(plain).anything is None


def test_a_plain_form_is_written_out_in_full_and_asked_for_its_opinion():
    payload = Payload("k", Mail)
    assert payload.written({"to": "a@b"}) == {"to": "a@b", "copies": 1}
    with pytest.raises(InvalidPayload, match="k: payload was refused: to is no address"):
        payload.written({"to": "nobody"})
    payload.check({"to": "nobody"})  # no code of the user's runs here
    with pytest.raises(ValueError, match="to is no address"):
        payload.read({"to": "nobody"})


def test_subclasses_of_plain_types_travel_as_their_value():
    class Word(StrEnum):
        HELLO = "hello"

    written = PAYLOAD.written(replace(GOOD, text=Word.HELLO, number=Level.HIGH, real=3))
    assert (type(written["text"]), written["text"]) == (str, "hello")
    assert (type(written["number"]), written["number"]) == (int, 2)
    assert (type(written["real"]), written["real"]) == (float, 3.0)
    assert type(PAYLOAD.written(replace(GOOD, text=mark_safe("<b>")))["text"]) is str


def test_no_refusal_shows_a_value():
    for wrong in ({"to": 5, "copies": "hunter2"}, {"to": "a@b", "copies": "hunter2"}, "hunter2"):
        with pytest.raises(InvalidPayload) as refused:
            Payload("k", Mail).check(wrong)
        assert "hunter2" not in str(refused.value)


def test_a_refusal_names_the_place_in_the_payload_apart_from_its_text():
    nested = Payload("k", dict[str, list[str] | None])
    for value, where in ((5, "payload"), ({"a": 5}, "payload[…]"), ({"a": [5]}, "payload[…][0]")):
        for attempt in (nested.check, nested.written):
            with pytest.raises(InvalidPayload) as refused:
                attempt(value)
            assert refused.value.where == where
            assert str(refused.value).startswith(f"k: {where} is of type int")
    assert InvalidPayload("too large").where == ""


def test_what_holds_itself_is_refused():
    loop = Tree("a", [])
    loop.below.append(loop)
    with pytest.raises(InvalidPayload, match="nested too deeply"):
        Payload("k", Tree).written(loop)


@pytest.mark.parametrize(
    "kind", [list[int], dict[str, int], tuple[int, ...], int, Any, list, dict], ids=str
)
def test_a_payload_need_not_be_a_dataclass(kind):
    value = {list: [1], dict: {"a": 1}, tuple: (1,)}.get(getattr(kind, "__origin__", kind), 1)
    assert travelled(Payload("k", kind), value) == value


def test_types_of_typing_are_as_good():
    name = NewType("name", str)
    older = Optional[int], Union[int, str]  # noqa: UP007, UP045 - as older code has them
    made = make_dataclass("Made", zip("abcd", (*older, list[name], tuple[()]), strict=True))
    value = made(None, "x", ["y"], ())
    assert travelled(Payload("k", made), value) == value


class Odd(Enum):
    ONE = (1, 2)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (bytes, "bytes"), (object, "object"), (timedelta, "timedelta"), (dict[int, str], "dict"),
        (set[int], "set"), (str | datetime, "look the same"), (int | float, "look the same"),
        (list[int] | tuple[int, ...], "look the same"), (Mail | Tree, "look the same"),
        (Odd, "Odd"), (Literal[b"x"], "plain values"), ("Mail", "Mail"), (Unknown, "TYPE_CHECKING"),
        (make_dataclass("Made", [("file", bytes)]), r"Made\.file: <class 'bytes'> is none of"),
    ],
    ids=str,
)  # fmt: skip
def test_a_type_that_cannot_travel_is_refused_when_it_is_declared(kind, told):
    with pytest.raises(InvalidJob, match=told) as refused:
        Payload("shop.all", kind)
    assert str(refused.value).startswith("the payload of shop.all cannot travel: ")


def test_a_value_for_init_only_is_none_that_could_be_read_again():
    @dataclass
    class Initial:
        a: InitVar[int]

    with pytest.raises(InvalidJob, match="InitVar"):
        Payload("k", Initial)
