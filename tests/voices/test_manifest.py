from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from voice_samples import recorded

from phonate.errors import PhonateError
from phonate.voices.manifest import Damaged, FileSeal, FromTheFuture, Manifest
from phonate.voices.store import voice_from_dict, voice_to_dict

WHOLE = Manifest("f", 1, {"a": ["ü", 1, None]}, {"x.wav": FileSeal.of(b"123")})

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def read(data: bytes) -> Manifest:
    return Manifest.from_bytes(data, format="f", version=1)


def test_a_manifest_comes_back() -> None:
    assert read(WHOLE.to_bytes()) == WHOLE


def test_layout_and_order_do_not_matter_and_every_value_does() -> None:
    body = json.loads(WHOLE.to_bytes())
    shuffled = dict(reversed(body.items()))
    assert read(json.dumps(shuffled).encode()) == WHOLE
    for key in ("value", "files", "checksum"):
        with pytest.raises(Damaged):
            read(json.dumps({**body, key: body["format"]}).encode())
        with pytest.raises(Damaged):
            read(json.dumps({k: v for k, v in body.items() if k != key}).encode())
    with pytest.raises(Damaged, match="own checksum"):
        read(json.dumps({**body, "more": 1}).encode())


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_changed_byte_goes_unnoticed(position: int, change: int) -> None:
    data = bytearray(WHOLE.to_bytes())
    data[position % len(data)] ^= change
    with contextlib.suppress(Damaged, FromTheFuture):
        assert read(bytes(data)) == WHOLE, "only white space may change"


def test_the_future_is_told_from_damage() -> None:
    newer = Manifest("f", 2, {}, {}).to_bytes()
    with pytest.raises(FromTheFuture, match="format version 2, known here: 1"):
        read(newer)
    assert Manifest.from_bytes(newer, format="f", version=2).version == 2
    for version in (0, -1, True, 1.0, "1", None):
        with pytest.raises(Damaged, match="no version"):
            read(json.dumps({"format": "f", "version": version}).encode())


@given(st.binary(max_size=100) | json_values.map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_damage(data: bytes) -> None:
    with pytest.raises(Damaged):
        read(data)


@pytest.mark.parametrize("depth", [1000, 100_000])
def test_deep_nesting_is_damage(depth: int) -> None:
    with pytest.raises(Damaged):
        read(b'{"format":"f","version":1,"value":' + b"[" * depth)


@pytest.mark.parametrize(
    "name", ["../x.wav", "/etc/passwd", "x", ".lock", "a/b.wav", "X.wav", "x.wav\n", ""]
)
def test_a_sealed_manifest_cannot_name_other_files(name: str) -> None:
    evil = Manifest("f", 1, {}, {name: FileSeal.of(b"")}).to_bytes()
    with pytest.raises(Damaged, match="impossible file"):
        read(evil)


GOOD = voice_to_dict(recorded("Anna", ref_text="Hm.").to_voice(5))
SEALS = {"reference.wav": FileSeal.of(b"")}


def test_a_voice_comes_back_from_its_value() -> None:
    assert voice_to_dict(voice_from_dict(GOOD, SEALS)) == GOOD


@given(st.sampled_from(sorted(GOOD)), json_values)
def test_no_value_makes_an_impossible_voice(key: str, value: Any) -> None:
    try:
        voice = voice_from_dict({**GOOD, key: value}, SEALS)
    except (Damaged, PhonateError, KeyError, TypeError, ValueError):
        return
    assert voice_to_dict(voice) == {k: v for k, v in {**GOOD, key: value}.items() if v is not None}
