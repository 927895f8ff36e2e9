"""The speaker encoder and the codec encoder: against the official package and the numpy oracle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import testhooks
from testhooks import pointer

GOLDEN = Path(__file__).parents[1] / "golden"


def speaker(path: Path, audio: np.ndarray, threads: int = 2) -> np.ndarray:
    out = np.zeros(8192, np.float32)
    lib = testhooks.load()
    n = lib.hook_speaker(str(path).encode(), threads, pointer(audio), len(audio), pointer(out))
    if n < 0:
        raise RuntimeError(testhooks.error())
    return out[:n]


def encode(path: Path, audio: np.ndarray, threads: int = 2) -> np.ndarray:
    out = np.full(16 * (len(audio) // 1920 + 2), -1, np.int32)
    lib = testhooks.load()
    n = lib.hook_encode(str(path).encode(), threads, pointer(audio), len(audio), pointer(out))
    if n < 0:
        raise RuntimeError(testhooks.error())
    return out[:n].reshape(-1, 16)


def clip(n: int) -> np.ndarray:
    import golden_cases

    return np.ascontiguousarray(golden_cases.reference_audio(n), np.float32)


def relative(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.abs(got - want).max() / np.abs(want).max())


@pytest.mark.parametrize("n", [1920, 2000, 2047, 2048, 24000, 61440 + 700])
def test_mel_equals_the_oracle(n: int) -> None:
    import oracle_codec

    audio = clip(n)
    want = oracle_codec.mel_spectrogram(audio).T
    out = np.full((len(want) + 1, 128), np.nan, np.float32)
    assert testhooks.load().hook_mel(pointer(audio), n, pointer(out)) == len(want)
    assert np.isnan(out[-1]).all()
    np.testing.assert_allclose(out[:-1], want, rtol=0, atol=2e-6)


@pytest.mark.parametrize("model", ["tiny-base", "tiny-base-proj"])
def test_x_vector_equals_the_official_package(made, model: str) -> None:
    import golden_cases

    audio = np.ascontiguousarray(golden_cases.reference_audio(), np.float32)
    official = np.load(GOLDEN / f"{model}.npz")["speaker_embedding"]
    # 1e-4 is the target.
    assert relative(speaker(made(model).talker, audio), official) < 1e-5


@pytest.mark.parametrize("file_type", ["F32", "Q8_0"])
@pytest.mark.parametrize("n", [1920, 2175, 2176, 9999, 30000])
def test_x_vector_equals_the_oracle(made, n: int, file_type: str) -> None:
    import oracle
    import oracle_codec

    path = made("tiny-base", file_type).talker
    want = oracle_codec.SpeakerEncoder(oracle.Gguf(path))(clip(n))
    assert relative(speaker(path, clip(n)), want) < 1e-5


def test_x_vector_of_silence_is_finite(made) -> None:
    assert np.isfinite(speaker(made("tiny-base").talker, np.zeros(24000, np.float32))).all()


@pytest.mark.parametrize("n", [1, 384, 1279])
def test_too_short_for_an_x_vector(made, n: int) -> None:
    with pytest.raises(RuntimeError, match=rf"{n} samples are too few, at least 1280"):
        speaker(made("tiny-base").talker, clip(n))


def test_shortest_x_vector(made) -> None:
    assert np.isfinite(speaker(made("tiny-base").talker, clip(1280))).all()


@pytest.mark.parametrize("model", ["tiny-base", "tiny-base-proj"])
def test_codes_equal_the_official_package(made, model: str) -> None:
    import golden_cases

    audio = np.ascontiguousarray(golden_cases.reference_audio(), np.float32)
    official = np.load(GOLDEN / f"{model}.npz")["reference_codes"]
    np.testing.assert_array_equal(encode(made(model).codec, audio), official)


# Lengths around whole frames (1920), rows (960) and pieces (19200), where the padding changes.
@pytest.mark.parametrize("n", [1, 3, 959, 960, 961, 1919, 1920, 1921, 2881, 19199, 19201, 40000])
@pytest.mark.parametrize("file_type", ["F32", "Q8_0"])
def test_codes_equal_the_oracle(made, n: int, file_type: str) -> None:
    import oracle_codec

    path = made("tiny-base", file_type).codec
    got, want = encode(path, clip(n)), oracle_codec.Codec(path).encode(clip(n))
    assert got.shape == want.shape == (-(-n // 1920), 16)
    np.testing.assert_array_equal(got, want)


def test_one_thread_equals_many(made) -> None:
    files, audio = made("tiny-base"), clip(50000)
    np.testing.assert_array_equal(speaker(files.talker, audio, 1), speaker(files.talker, audio, 3))
    np.testing.assert_array_equal(encode(files.codec, audio, 1), encode(files.codec, audio, 3))


def test_a_voice_needs_a_base_model(made) -> None:
    with pytest.raises(RuntimeError, match=r"spk_enc\.conv0\.weight"):
        speaker(made("tiny-customvoice").talker, clip(24000))
