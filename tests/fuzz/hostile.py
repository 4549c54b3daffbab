"""Messages that must never run, made from sound ones: malformed but well signed, or forged.

What makes a body malformed is written down here a second time, from the documentation of
the wire format, and shares nothing with the code that is tested.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from django_jobs.testing.factories import make_outgoing, make_signer
from django_jobs.wire.signing import Signer, SigningKey

if TYPE_CHECKING:
    from django_jobs.wire.envelope import Outgoing

JOBS = ("fuzz.function", "fuzz.typed", "command", "shell", "event", "url")
ALLOWED_URL = "https://hooks.example.com/orders"
SOUND_PAYLOADS: dict[str, Any] = {
    "fuzz.function": {"args": [1, "a"], "kwargs": {"b": None}},
    "fuzz.typed": {"to": "a@b", "copies": 2},
    "command": ["clearsessions"],
    "shell": ["/bin/true", "-v"],
    "event": {"name": "fuzz.event", "data": [1]},
    "url": {"method": "POST", "url": ALLOWED_URL, "body": {"id": 7}},
}

SIGNER = make_signer()


@dataclass(frozen=True)
class Place:
    """Where a message is to be believed: whose messages are sound there."""

    site: str = "tests.settings"
    backend: str = "default"
    queue: str = "default"
    signer: Signer = SIGNER

    def sound(self, job: str = JOBS[0], payload: Any = ..., **terms: Any) -> Outgoing:
        payload = SOUND_PAYLOADS[job] if payload is ... else payload
        stated = {
            "job": job,
            "backend": self.backend,
            "site": self.site,
            "max_retries": 3,
            "retry": "none",
        }
        return make_outgoing(self.queue, payload, signer=self.signer, **{**stated, **terms})

    def signed(self, outgoing: Outgoing, body: str) -> Outgoing:
        signature = self.signer.sign(body)
        return outgoing._replace(body=body, signature=signature, key_id=self.signer.key_id)


@dataclass(frozen=True)
class Hostile:
    """One message, how it was spoiled, and whether its signature is right all the same."""

    how: str
    signed: bool
    message: Outgoing


# -- values ------------------------------------------------------------------------------------

letters = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | letters
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(letters, inner, max_size=4),
    max_leaves=8,
)
some = anything.filter(lambda value: value is not None)


def but(kind: type | tuple[type, ...]) -> st.SearchStrategy[Any]:
    """Anything of another type. A bool is no number."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return some.filter(lambda value: type(value) not in kinds)


def text(limit: int) -> st.SearchStrategy[Any]:
    return but(str) | st.sampled_from(["", "x" * (limit + 1)])


def whole(low: int, high: int) -> st.SearchStrategy[Any]:
    return but(int) | st.integers(max_value=low - 1) | st.integers(min_value=high + 1)


seconds = but((int, float)) | st.floats(max_value=-1e-9, allow_infinity=False) | st.just(1e10)
moment = whole(0, 2**53 - 1)
ids = but(str) | st.sampled_from(["", "5", "018bcfe5-687b-4abc-8def-0123456789ab", "x" * 36])
WRONG: dict[str, st.SearchStrategy[Any]] = {
    "v": anything.filter(lambda v: type(v) is not int) | st.integers(max_value=0),
    "identifier": ids | st.none(),
    "enqueuedAt": moment | st.none(),
    "job": text(255) | st.none(),
    "queue": text(64) | st.none(),
    "backend": text(64) | st.none(),
    "site": text(255) | st.none(),
    "priority": whole(-100, 100),
    "maxRetries": whole(0, 2**31 - 2),
    "maxCrashes": whole(1, 2**31 - 1),
    "name": text(255),
    "schedule": moment,
    "delay": seconds,
    "expiresAt": moment,
    "timeout": seconds,
    "retry": but((str, list, dict)) | st.sampled_from(["", [], ["x"], {"STRATEGY": "no"}, [-1]]),
    "idempotencyKey": text(255),
    "uniqueKey": text(255),
    "singleInstance": text(255),
    "concurrencyKey": text(255),
    "concurrency": whole(1, 2**31 - 1),
    "atomic": but(bool),
    "resultTtl": seconds,
    "tenant": text(255),
    "meta": but(dict),
    "traceId": text(64),
    "replayOf": ids,
}
REQUIRED = ("v", "identifier", "payload", "enqueuedAt", "job", "queue", "backend", "site")


def fits(job: str, payload: Any) -> bool:
    """Whether a handler takes a payload, or might."""
    match job, payload:
        case "fuzz.function", {"args": list(), "kwargs": dict()}:
            return len(payload) == len({"args", "kwargs"})
        case "fuzz.typed", {"to": str()}:
            return payload.keys() <= {"to", "copies"} and type(payload.get("copies", 1)) is int
        case "command", ["clearsessions"] | "clearsessions":
            return True
        case "shell", ["/bin/true", *_]:
            return True
        case "event", {"name": "fuzz.event"}:
            return payload.keys() <= {"name", "data"}
        case "url", {"url": str(url)}:
            return url.startswith("https://hooks.example.com/")
    return isinstance(payload, str) and job in {"command", "shell"} and bool(payload.split())


# -- correctly signed, and malformed -----------------------------------------------------------


@st.composite
def with_a_wrong_field(draw: Any, place: Place) -> Hostile:
    name = draw(st.sampled_from(sorted(WRONG)))
    sound = place.sound()
    fields = {**json.loads(sound.body), name: draw(WRONG[name])}
    return Hostile(f"wrong {name}", True, place.signed(sound, json.dumps(fields)))


@st.composite
def without_a_field(draw: Any, place: Place) -> Hostile:
    name = draw(st.sampled_from(REQUIRED))
    sound = place.sound()
    fields = json.loads(sound.body)
    del fields[name]
    return Hostile("field missing", True, place.signed(sound, json.dumps(fields)))


@st.composite
def with_a_wrong_payload(draw: Any, place: Place) -> Hostile:
    job = draw(st.sampled_from(JOBS))
    payload = draw(anything.filter(lambda payload: not fits(job, payload)))
    sound = place.sound(job)
    fields = {**json.loads(sound.body), "payload": payload}
    return Hostile(f"wrong payload of {job}", True, place.signed(sound, json.dumps(fields)))


ELSEWHERE = [
    "http://hooks.example.com/orders", "https://hooks.example.com:8443/orders",
    "https://hooks.example.com@10.0.0.1/orders", "https://10.0.0.1#@hooks.example.com/orders",
    "https://hooks.example.com.evil.example/orders", "https://evil.example\\@hooks.example.com/",
    "https://127.0.0.1/", "https://[::1]/", "https://0x7f.1/", "https://2130706433/",
    "http://169.254.169.254/latest/meta-data/", "https://hooks.example.com/../orders\r\nHost: a",
    "file:///etc/passwd", "gopher://hooks.example.com/", "//hooks.example.com/orders", "",
    "https://hooks.example.com\u3002evil.example/", "https://ⓗooks.example.com/orders",
]  # fmt: skip


@st.composite
def with_a_call_elsewhere(draw: Any, place: Place) -> Hostile:
    """A request that is written as requests are, and leads where nothing is allowed."""
    sound = place.sound("url")
    url = draw(st.sampled_from(ELSEWHERE))
    spoiled = st.sampled_from(
        [
            {"url": url},
            {"url": ALLOWED_URL, "method": draw(st.sampled_from(["GET", "PUT", "CONNECT", ""]))},
            {"url": ALLOWED_URL, "headers": {"Host": "evil.example"}},
            {"url": ALLOWED_URL, "headers": {"X-A": "b\r\nHost: evil.example"}},
            {"url": ALLOWED_URL, draw(letters): True},
        ]
    )
    payload = {"method": "POST", **draw(spoiled)}
    fields = {**json.loads(sound.body), "payload": payload}
    return Hostile("call elsewhere", True, place.signed(sound, json.dumps(fields)))


@st.composite
def cut_short(draw: Any, place: Place) -> Hostile:
    sound = place.sound(draw(st.sampled_from(JOBS)))
    body = sound.body[: draw(st.integers(0, len(sound.body) - 1))]
    return Hostile("truncated", True, place.signed(sound, body))


def is_json(body: str) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


@st.composite
def scratched(draw: Any, place: Place) -> Hostile:
    """Some characters changed, lost or added, so that it is no JSON any more."""
    sound = place.sound(draw(st.sampled_from(JOBS)))
    at = draw(st.integers(0, len(sound.body)))
    lost = draw(st.integers(0, 3))
    new = draw(st.text(st.sampled_from('{}[]",:\\0é\x00\x1b\n u-.e'), max_size=3))
    body = sound.body[:at] + new + sound.body[at + lost :]
    if is_json(body):
        body += draw(st.sampled_from("{}[],:x"))
    return Hostile("scratched", True, place.signed(sound, body))


LOOSE = [
    '{"a":1,"a":1}', "NaN", "Infinity", "-Infinity", "1e999", '"\\u0000"', '"\\ud800"', '"é"',
    "[" * 80 + "]" * 80, "9" * 5000, '{"\\udfff":1}', '"\\u0000é"', "[" * 3000, "'a'", "01", "+1",
]  # fmt: skip


@st.composite
def with_loose_json(draw: Any, place: Place) -> Hostile:
    """What some parsers accept; in the payload, in meta, or where nobody looks."""
    sound = place.sound()
    name = draw(st.sampled_from(["payload", "meta", "later"]))
    loose = draw(st.sampled_from(LOOSE))
    body = sound.body[:-1] + f',"{name}x":{loose}}}'
    if name == "payload":
        body = sound.body.replace('"args":[1', f'"args":[{loose}', 1)
    return Hostile("loose JSON", True, place.signed(sound, body))


@st.composite
def of_another_form(draw: Any, place: Place) -> Hostile:
    sound = place.sound()
    body = json.dumps(draw(anything.filter(lambda value: not isinstance(value, dict))))
    return Hostile("no object", True, place.signed(sound, body))


@st.composite
def moved(draw: Any, place: Place) -> Hostile:
    """A sound body, made for elsewhere or for something else than its columns say."""
    sound = place.sound()
    names = letters.filter(lambda name: name not in {"", place.backend, place.queue})
    changes = {
        "site": names, "backend": names, "queue": names,
        "job": st.sampled_from(["command", "shell", "os.system"]), "priority": st.integers(1, 100),
        "tenant": st.just("acme"), "uniqueKey": st.just("k"), "expiresAt": st.just(2**50),
        "concurrencyKey": st.just("c"), "schedule": st.just(2**53 - 1), "name": st.just("n"),
        "traceId": st.just("t"),
    }  # fmt: skip
    name = draw(st.sampled_from(sorted(changes)))
    fields = {**json.loads(sound.body), name: draw(changes[name])}
    return Hostile(f"moved {name}", True, place.signed(sound, json.dumps(fields)))


def too_large(place: Place) -> Hostile:
    sound = place.sound()
    return Hostile("too large", True, place.signed(sound, sound.body + " " * 900_000))


# -- forged ------------------------------------------------------------------------------------

STRANGER = Signer([SigningKey.unnamed("another secret that nobody here knows")])


@st.composite
def forged(draw: Any, place: Place) -> Hostile:
    """A body that was changed, or a signature that was."""
    sound = place.sound(draw(st.sampled_from(JOBS)))
    how = draw(st.sampled_from(["body", "signature", "stranger", "key id", "swapped", "cut"]))
    signature, key_id = sound.signature, sound.key_id
    message = sound
    if how == "body":
        fields = {**json.loads(sound.body), draw(st.sampled_from(sorted(WRONG))): draw(anything)}
        message = sound._replace(body=json.dumps(fields, separators=(", ", ":")))
    elif how == "signature":
        other = draw(
            st.text("0123456789abcdefG é\x00", max_size=70).filter(lambda s: s != signature)
        )
        message = sound._replace(signature=other)
    elif how == "stranger":
        message = sound._replace(
            signature=STRANGER.sign(sound.body),
            key_id=draw(st.sampled_from([key_id, STRANGER.key_id])),
        )
    elif how == "key id":
        message = sound._replace(key_id=draw(letters.filter(lambda other: other != key_id)))
    elif how == "swapped":
        message = sound._replace(body=place.sound("shell").body)
    else:
        message = sound._replace(signature=signature[: draw(st.integers(0, len(signature) - 1))])
    return Hostile(f"forged: {how}", False, message)


def hostile(place: Place) -> st.SearchStrategy[Hostile]:
    """Any of them; the forged ones are a third at most."""
    makers = (
        with_a_wrong_field, with_a_wrong_field, without_a_field, with_a_wrong_payload,
        with_a_wrong_payload, with_a_call_elsewhere, cut_short, scratched, with_loose_json,
        of_another_form, moved,
        forged, forged, forged,
    )  # fmt: skip
    return st.one_of(*(maker(place) for maker in makers))
