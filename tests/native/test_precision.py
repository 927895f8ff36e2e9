"""precision = fast through the C ABI: another sound in the last bits, the same promises."""

from __future__ import annotations

import numpy as np
import qtlib

EXACT, FAST = 0, 1


def test_fast_streams_what_it_buffers_and_is_not_exact(context, voice) -> None:
    request = {"text": "Hello world.", "seed": 7, "max_new_tokens": 9, **voice}
    exact = context("tiny-base", precision=EXACT).buffered(**request)
    fast = context("tiny-base", precision=FAST).buffered(**request)
    assert fast.status == qtlib.OK
    assert np.isfinite(fast.samples).all()
    assert not np.array_equal(fast.samples, exact.samples)
    streamed = context("tiny-base", precision=FAST).streamed(first_chunk_frames=1, **request)
    np.testing.assert_array_equal(streamed.samples, fast.samples)
    threads = context("tiny-base", precision=FAST, n_threads=3).buffered(**request)
    np.testing.assert_array_equal(threads.samples, fast.samples)
