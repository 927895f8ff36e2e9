from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from phonate.engine.base import Reference
from phonate.voices.latent_cache import LatentCache, latents_key

VOICE = "voice_" + 24 * "a"


def reference(*, icl: bool, seed: int = 0) -> Reference:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2048, (5, 16)).astype(np.int32) if icl else None
    return Reference(rng.normal(size=8).astype(np.float32), codes, "hello" if icl else None)


def same(one: Reference | None, other: Reference) -> bool:
    return (
        one is not None
        and np.array_equal(one.embedding, other.embedding)
        and ((one.codes is None) == (other.codes is None))
        and (one.codes is None or np.array_equal(one.codes, other.codes))
        and one.text == other.text
    )


@pytest.mark.parametrize("icl", [True, False])
def test_latents_come_back(tmp_path: Path, icl: bool) -> None:
    made = reference(icl=icl)
    LatentCache(tmp_path / "cache").put(VOICE, "key", made)
    assert same(LatentCache(tmp_path / "cache").get(VOICE, "key", "hello"), made)


def test_another_key_finds_nothing_even_under_a_renamed_file(tmp_path: Path) -> None:
    cache = LatentCache(tmp_path)
    cache.put(VOICE, "key", reference(icl=True))
    os.rename(tmp_path / VOICE / "key.latents", tmp_path / VOICE / "other.latents")
    assert cache.get(VOICE, "key", None) is None
    assert cache.get(VOICE, "other", None) is None


def test_every_part_decides_the_key() -> None:
    keys = {
        latents_key(*parts)
        for parts in (("a", "b"), ("a", None), ("a", ""), ("ab",), ("a", "b", ""), ("b", "a"))
    }
    assert len(keys) == 6


def test_no_flipped_or_missing_byte_is_believed(tmp_path: Path) -> None:
    cache = LatentCache(tmp_path)
    cache.put(VOICE, "key", reference(icl=True))
    path = tmp_path / VOICE / "key.latents"
    whole = path.read_bytes()
    for position in range(len(whole)):
        data = bytearray(whole)
        data[position] ^= 1
        path.write_bytes(data)
        assert cache.get(VOICE, "key", None) is None, position
        path.write_bytes(whole[:position])
        assert cache.get(VOICE, "key", None) is None, position
    path.write_bytes(whole + b"\0")
    assert cache.get(VOICE, "key", None) is None
    path.write_bytes(whole)
    assert cache.get(VOICE, "key", None) is not None


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = LatentCache(tmp_path, max_bytes=600)  # one is 32 + 8 + 32 + 110 = 182 bytes
    for n in range(3):
        cache.put(f"{VOICE[:-1]}{n}", "key", reference(icl=True, seed=n))
        os.utime(tmp_path / f"{VOICE[:-1]}{n}" / "key.latents", ns=(n, n))
    assert cache.get(f"{VOICE[:-1]}0", "key", None) is not None, "and is now the latest used"
    cache.put(f"{VOICE[:-1]}3", "key", reference(icl=True, seed=3))
    left = {n for n in range(4) if cache.get(f"{VOICE[:-1]}{n}", "key", None)}
    assert left == {0, 2, 3}


def test_dropping_and_sweeping_leave_nothing(tmp_path: Path) -> None:
    cache = LatentCache(tmp_path)
    for letter in "abc":
        cache.put("voice_" + 24 * letter, "key", reference(icl=False))
    cache.drop("voice_" + 24 * "a")
    cache.drop("voice_" + 24 * "z")
    assert cache.get("voice_" + 24 * "a", "key", None) is None
    cache.sweep({"voice_" + 24 * "c"})
    assert [path.name for path in tmp_path.iterdir()] == ["voice_" + 24 * "c"]
