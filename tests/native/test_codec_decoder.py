"""The streaming codec decoder: against the official package, the numpy oracle, and itself."""

from __future__ import annotations

import ctypes as C
from pathlib import Path

import numpy as np
import pytest
import testhooks
from hypothesis import given, settings
from hypothesis import strategies as st
from testhooks import pointer

GOLDEN = Path(__file__).parents[1] / "golden"


class Decoder:
    """A qt::CodecDecoder of a GGUF file with a pool of `threads`."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        self.lib = testhooks.load()
        for name in ("new", "state", "state_copy"):
            getattr(self.lib, f"hook_codec_{name}").restype = C.c_void_p
        self.handle = C.c_void_p(self.lib.hook_codec_new(str(path).encode(), threads))
        if not self.handle:
            raise RuntimeError(testhooks.error())
        shape = np.zeros(4, np.int32)
        self.lib.hook_codec_shape(self.handle, pointer(shape))
        self.groups, self.codebook_size, self.hop, self.sample_rate = map(int, shape)

    def stream(self) -> Stream:
        return Stream(self, C.c_void_p(self.lib.hook_codec_state(self.handle)))

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        return self.stream().decode(codes)


class Stream:
    """One state of a decoder."""

    def __init__(self, decoder: Decoder, state: C.c_void_p) -> None:
        self.decoder, self.state = decoder, state

    def __del__(self) -> None:
        self.decoder.lib.hook_codec_state_free(self.state)

    def copy(self) -> Stream:
        return Stream(self.decoder, C.c_void_p(self.decoder.lib.hook_codec_state_copy(self.state)))

    def _run(self, codes: np.ndarray, audio: np.ndarray | None) -> None:
        codes = np.ascontiguousarray(codes, np.int32)
        out = None if audio is None else pointer(audio)
        lib = self.decoder.lib
        args = (self.decoder.handle, self.state, pointer(codes), len(codes), out)
        if lib.hook_codec_decode(*args) != 0:
            raise RuntimeError(testhooks.error())

    def decode(self, codes: np.ndarray) -> np.ndarray:
        audio = np.full(len(codes) * self.decoder.hop, np.nan, np.float32)
        self._run(codes, audio)
        return audio

    def prime(self, codes: np.ndarray) -> None:
        self._run(codes, None)


def random_codes(frames: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2048, (frames, 16))


@pytest.fixture(scope="module")
def decoder(made) -> Decoder:
    return Decoder(made("tiny-base").codec)


def test_shape(decoder: Decoder) -> None:
    shape = (decoder.groups, decoder.codebook_size, decoder.hop, decoder.sample_rate)
    assert shape == (16, 2048, 1920, 24000)


def test_equals_the_official_package(decoder: Decoder) -> None:
    import golden_cases

    official = np.load(GOLDEN / "tiny-base.npz")["codec_audio_every32"]
    audio = decoder(golden_cases.random_codes(golden_cases.CODEC_FRAMES))[::32]
    assert np.abs(official).max() > 0.1
    # 1e-4 is the target, about 3e-6 what fp32 gives.
    assert np.abs(audio - official).max() < 1e-5


@pytest.mark.parametrize("file_type", ["F32", "F16", "BF16", "Q8_0", "Q4_0"])
def test_equals_the_oracle_on_every_weight_type(made, file_type: str) -> None:
    import oracle_codec

    path = made("tiny-base", file_type).codec
    codes = random_codes(9, 1)
    want = oracle_codec.Codec(path).decode(codes)
    assert np.abs(Decoder(path)(codes) - want).max() < 1e-5


def test_one_thread_equals_many(made) -> None:
    codes = random_codes(11, 2)
    path = made("tiny-base").codec
    np.testing.assert_array_equal(Decoder(path)(codes), Decoder(path, 3)(codes))


@pytest.mark.parametrize("file_type", ["F32", "Q8_0"])
def test_frame_by_frame_equals_one_pass(made, file_type: str) -> None:
    decoder = Decoder(made("tiny-base", file_type).codec)
    codes = random_codes(150, 3)  # beyond the window, and beyond the room of the cache
    stream = decoder.stream()
    pieces = [stream.decode(codes[t : t + 1]) for t in range(150)]
    np.testing.assert_array_equal(np.concatenate(pieces), decoder(codes))


@settings(deadline=None, max_examples=25)
@given(cuts=st.lists(st.integers(0, 40), max_size=8))
def test_any_cutting_equals_one_pass(decoder: Decoder, cuts: list[int]) -> None:
    codes = random_codes(40, 4)
    stream = decoder.stream()
    pieces = [stream.decode(part) for part in np.split(codes, sorted(cuts))]
    np.testing.assert_array_equal(np.concatenate(pieces), decoder(codes))


@pytest.mark.parametrize("primed", [0, 1, 5, 9, 10, 11, 30, 64, 65, 140])
def test_priming_equals_decoding(decoder: Decoder, primed: int) -> None:
    codes = random_codes(primed + 12, 5)
    stream = decoder.stream()
    stream.prime(codes[:primed])
    np.testing.assert_array_equal(
        stream.decode(codes[primed:]), decoder(codes)[primed * decoder.hop :]
    )


def test_a_copied_state_goes_its_own_way(decoder: Decoder) -> None:
    codes, other = random_codes(6, 6), random_codes(6, 7)
    first = decoder.stream()
    first.decode(codes[:3])
    second = first.copy()
    rest = first.decode(codes[3:])
    changed = second.decode(other[3:])
    np.testing.assert_array_equal(rest, decoder(codes)[3 * decoder.hop :])
    mixed = np.concatenate([codes[:3], other[3:]])
    np.testing.assert_array_equal(changed, decoder(mixed)[3 * decoder.hop :])


@pytest.mark.parametrize("value", [-1, 2048, 2**31 - 1, -(2**31)])
def test_codes_outside_the_codebook_are_refused(decoder: Decoder, value: int) -> None:
    codes = random_codes(3, 8)
    codes[2, 5] = value
    stream = decoder.stream()
    with pytest.raises(
        RuntimeError, match=rf"frame 2, codebook 5 holds {value}, expected 0 to 2047"
    ):
        stream.decode(codes)
    # Nothing was decoded: the state is as before.
    np.testing.assert_array_equal(stream.decode(codes[:1]), decoder(codes[:1]))


def test_a_wrong_file_is_refused(made) -> None:
    with pytest.raises(RuntimeError, match="qwen3-tts-tokenizer"):
        Decoder(made("tiny-base").talker)
