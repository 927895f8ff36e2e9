"""The sampler against a numpy statement of Hugging Face's rules, and Philox against Random123."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
import testhooks
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from testhooks import pointer

F32 = np.float32
C = ctypes


def uniform(seed: int, frame: int, codebook: int) -> float:
    lib = testhooks.load()
    lib.hook_uniform.restype = C.c_double
    return float(lib.hook_uniform(C.c_uint64(seed), C.c_uint32(frame), C.c_uint32(codebook)))


def choose(logits, *, sample=True, temperature=1.0, top_k=0, top_p=1.0, random=0.5):
    """(index chosen, logits as the rules left them)"""
    work = np.array(logits, F32)
    index = testhooks.load().hook_choose(
        pointer(work), len(work), int(sample), C.c_float(temperature), top_k, C.c_float(top_p),
        C.c_double(random),
    )  # fmt: skip
    return index, work


def oracle(logits: np.ndarray, temperature: float, top_k: int, top_p: float) -> np.ndarray:
    """Temperature, top_k and top_p as transformers' logits processors apply them."""
    kept = logits.astype(F32) / F32(temperature)
    if top_k:
        kept = np.where(kept < np.sort(kept)[-min(top_k, len(kept))], F32(-np.inf), kept)
    if top_p < 1:
        order = np.argsort(kept, kind="stable")
        p = np.exp(kept[order].astype(np.float64) - kept.max())
        drop = np.cumsum(p / p.sum()) <= 1 - np.float64(F32(top_p))
        drop[-1] = False
        kept[order[drop]] = -np.inf
    return kept


@pytest.mark.parametrize(
    ("counter", "key", "words"),  # Random123's kat_vectors for philox4x32-10
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_known_answers(counter, key, words) -> None:
    out = np.zeros(4, np.uint32)
    c, k = np.array(counter, np.uint32), np.array(key, np.uint32)
    testhooks.load().hook_philox(pointer(c), pointer(k), pointer(out))
    assert out.tolist() == words


def test_random_numbers_are_uniform_and_independent_of_order() -> None:
    u = np.array([[uniform(7, f, c) for c in range(16)] for f in range(2000)])
    assert u.min() >= 0
    assert u.max() < 1
    assert len(np.unique(u)) == u.size
    assert abs(u.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(u[:, 0], u[:, 1])[0, 1]) < 0.1
    counts = np.histogram(u, 100, (0, 1))[0]
    # chi-square with 99 degrees of freedom: 148 is the 0.999 quantile
    assert ((counts - u.size / 100) ** 2 / (u.size / 100)).sum() < 148
    assert uniform(7, 1999, 15) == u[1999, 15] != uniform(8, 1999, 15)
    assert uniform(2**32 + 7, 0, 0) != uniform(7, 0, 0)


def test_exp_is_exp() -> None:
    lib = testhooks.load()
    lib.hook_exp.restype = C.c_double
    for x in np.linspace(0, -699, 5000):
        assert lib.hook_exp(C.c_double(x)) == pytest.approx(math.exp(x), rel=2e-15, abs=0)
    assert lib.hook_exp(C.c_double(0)) == 1
    assert lib.hook_exp(C.c_double(-1e300)) == lib.hook_exp(C.c_double(-math.inf)) == 0


finite = hnp.arrays(F32, st.integers(1, 60), elements=st.floats(-20, 20, width=32))
tied = hnp.arrays(F32, st.integers(1, 30), elements=st.sampled_from([-2.0, 0.0, 0.5, 1.0, -np.inf]))


@settings(deadline=None, max_examples=500)
@given(
    logits=st.one_of(finite, tied),
    temperature=st.sampled_from([0.1, 0.7, 0.9, 1.0, 1.5]),
    top_k=st.integers(0, 70),
    top_p=st.sampled_from([1.0, 0.95, 0.8, 0.493, 0.05]),
    random=st.floats(0, 1, exclude_max=True),
)
def test_rules_equal_the_oracle(logits, temperature, top_k, top_p, random) -> None:
    index, kept = choose(logits, temperature=temperature, top_k=top_k, top_p=top_p, random=random)
    if np.isneginf(logits).all():
        assert index == -1
        return
    expected = oracle(logits, temperature, top_k, top_p)
    np.testing.assert_array_equal(kept, expected)
    p = np.exp(expected.astype(np.float64) - expected.max())
    cumulative = np.cumsum(p / p.sum())
    assert p[index] > 0
    assert cumulative[index] >= random - 1e-12
    assert index == 0 or cumulative[index - 1] <= random + 1e-12


@settings(deadline=None)
@given(logits=finite, penalty=st.sampled_from([1.0, 1.05, 1.5, 0.8]), data=st.data())
def test_repetition_penalty(logits, penalty, data) -> None:
    seen = data.draw(st.sets(st.integers(0, len(logits) - 1)))
    bits = np.zeros((len(logits) + 63) // 64, np.uint64)
    for i in seen:
        bits[i // 64] |= np.uint64(1) << np.uint64(i % 64)
    work = logits.copy()
    testhooks.load().hook_penalty(
        pointer(work), len(work), pointer(bits), len(bits), C.c_float(penalty)
    )
    r = F32(penalty)
    for i, logit in enumerate(logits):
        expected = logit if i not in seen else logit * r if logit < 0 else logit / r
        assert work[i] == expected


def test_suppress_keeps_one_and_stays_inside() -> None:
    logits = np.arange(10, dtype=F32)
    testhooks.load().hook_suppress(pointer(logits), 10, 4, 99, 6)
    assert [i for i in range(10) if logits[i] == i] == [0, 1, 2, 3, 6]
    assert np.isneginf(logits[[4, 5, 7, 8, 9]]).all()


def test_greedy_takes_the_first_of_equals_and_ignores_nan() -> None:
    assert choose([1, 3, 3, 2], sample=False)[0] == 1
    assert choose([np.nan, -5, np.nan], sample=False)[0] == 1
    assert choose([-np.inf, np.nan], sample=False)[0] == -1
    assert choose([-np.inf, np.nan], sample=True)[0] == -1
    assert choose([0, np.inf, 5], sample=True, random=0.99)[0] == 1
    assert choose([0, np.nan, 0], sample=True, random=0.99)[0] == 2
    assert choose([3e38, 2e38], temperature=1e-3)[0] == 0


def test_ties_at_the_kth_are_kept() -> None:
    assert np.isfinite(choose([5, 1, 3, 3, 0], top_k=2)[1]).tolist() == [
        True,
        False,
        True,
        True,
        False,
    ]


def test_top_p_keeps_at_least_one() -> None:
    assert np.isfinite(choose([1, 1, 1], top_p=0.0)[1]).sum() == 1


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(0.9, 50, 1.0), (0.7, 0, 0.8), (1.3, 10, 0.95)]
)
def test_draws_follow_the_distribution(temperature, top_k, top_p) -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 2, 300).astype(F32)
    draws = np.zeros(50_000, np.int32)
    testhooks.load().hook_choose_many(
        pointer(logits), 300, C.c_float(temperature), top_k, C.c_float(top_p), C.c_uint64(11),
        len(draws), pointer(draws),
    )  # fmt: skip
    kept = oracle(logits, temperature, top_k, top_p).astype(np.float64)
    p = np.exp(kept - kept.max())
    expected = p / p.sum() * len(draws)
    counts = np.bincount(draws, minlength=300)
    assert counts[expected == 0].sum() == 0
    often = expected >= 5
    chi2 = ((counts - expected)[often] ** 2 / expected[often]).sum()
    k = often.sum() - 1
    assert chi2 < k + 4 * math.sqrt(2 * k)  # four standard deviations above the mean
