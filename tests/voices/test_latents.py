from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from phonate.errors import InvalidRequest
from phonate.voices.latents import (
    BYTES_PER_FRAME,
    check_codes,
    check_embedding,
    pack_rvq,
    pack_spk,
    unpack_rvq,
    unpack_spk,
)


def obvious_pack_rvq(codes: np.ndarray) -> bytes:
    """One bit at a time, as the format's one sentence says it."""
    n_frames = len(codes)
    out = bytearray(BYTES_PER_FRAME * n_frames)
    position = 0
    for codebook in range(16):
        for frame in range(n_frames):
            for bit in range(11):
                out[position // 8] |= ((int(codes[frame, codebook]) >> bit) & 1) << (position % 8)
                position += 1
    return bytes(out)


frames = hnp.arrays(
    np.int32, st.tuples(st.integers(1, 40), st.just(16)), elements=st.integers(0, 2047)
)


def test_spk_bytes_by_hand() -> None:
    assert pack_spk([1.0, -2.0, 0.5]).hex() == "0000803f000000c00000003f"
    assert unpack_spk(bytes.fromhex("0000803f000000c0")).tolist() == [1.0, -2.0]


def test_rvq_bytes_by_hand() -> None:
    codes = np.zeros((2, 16), np.int32)
    codes[0, 0], codes[1, 0], codes[0, 1] = 0x7FF, 0x001, 0x555
    # codebook 0: eleven ones, then 1 and ten zeros; codebook 1: 101 0101 0101, lowest bit first.
    # bits 0..7 = ff; 8..15 = 111 1 0000 -> 0x0f; 16..23: six zeros of the second code, then the
    # third code's bits 1,0 -> 0x40; 24..31: 1,0,1,0,1,0,1,0 -> 0x55; 32: last 1 -> 0x01
    assert pack_rvq(codes) == bytes([0xFF, 0x0F, 0x40, 0x55, 0x01]) + bytes(39)
    assert len(pack_rvq(codes)) == 44
    assert np.array_equal(unpack_rvq(pack_rvq(codes)), codes)


@given(frames)
def test_rvq_equals_the_obvious_packer_and_comes_back(codes: np.ndarray) -> None:
    data = pack_rvq(codes)
    assert data == obvious_pack_rvq(codes)
    assert len(data) == BYTES_PER_FRAME * len(codes)
    back = unpack_rvq(data)
    assert back.dtype == np.int32
    assert np.array_equal(back, codes)


@given(st.integers(1, 20).flatmap(lambda n: st.binary(min_size=22 * n, max_size=22 * n)))
def test_every_rvq_of_whole_frames_is_legal_and_comes_back(data: bytes) -> None:
    assert pack_rvq(unpack_rvq(data)) == data


@given(
    hnp.arrays(
        np.float32,
        st.integers(1, 64),
        elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
    ).filter(lambda vector: bool(vector.any()))
)
def test_spk_comes_back_byte_for_byte(vector: np.ndarray) -> None:
    assert pack_spk(unpack_spk(pack_spk(vector))) == struct.pack(f"<{len(vector)}f", *vector)


@pytest.mark.parametrize("data", [b"", b"123", b"12345", struct.pack("<2f", 1, float("nan"))])
def test_a_wrong_spk_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        unpack_spk(data)
    assert caught.value.param == "spk_b64"


def test_an_embedding_of_another_model_is_refused_with_both_sizes() -> None:
    with pytest.raises(InvalidRequest, match=r"has 3 numbers.*have 1024"):
        unpack_spk(struct.pack("<3f", 1, 2, 3), dim=1024)


@pytest.mark.parametrize("data", [b"", bytes(21), bytes(23), bytes(22 * 401)])
def test_a_wrong_rvq_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        unpack_rvq(data)
    assert caught.value.param == "rvq_b64"


@pytest.mark.parametrize(
    "values",
    [
        [], [[1.0]], [float("nan")], [float("inf")], [1e39], [0.0, 0.0], ["x"], [1] * 8193, 3,
        [[1], [1, 2]], [10**400],
    ],
)  # fmt: skip
def test_a_vector_that_no_talker_can_use_is_refused(values: object) -> None:
    with pytest.raises(InvalidRequest):
        check_embedding(values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "codes",
    [
        np.full((1, 16), 2048),
        np.full((1, 16), -1),
        np.zeros((1, 15), np.int32),
        np.zeros((0, 16), np.int32),
        np.zeros((401, 16), np.int32),
        np.zeros((1, 16), np.float32),
        np.zeros(16, np.int32),
    ],
)
def test_codes_off_the_book_are_refused(codes: np.ndarray) -> None:
    with pytest.raises(InvalidRequest):
        check_codes(codes)


def test_what_is_read_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        unpack_spk(struct.pack("<2f", 1, 2))[0] = 3
    with pytest.raises(ValueError, match="read-only"):
        unpack_rvq(bytes(22))[0, 0] = 3
