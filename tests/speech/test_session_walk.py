"""Random walks through the session; `make fuzz` goes on for longer."""

from __future__ import annotations

import pytest
from session_walk import Walk


@pytest.mark.parametrize("block", range(10))
def test_a_random_session_keeps_its_promises(block: int) -> None:
    for seed in range(block * 20, block * 20 + 20):
        Walk(seed).run()


@pytest.mark.parametrize("block", range(5))
def test_so_does_one_with_nonsense_in_it(block: int) -> None:
    for seed in range(block * 20, block * 20 + 20):
        Walk(seed, steps=40, wild=0.4).run()


@pytest.mark.parametrize("block", range(5))
def test_so_do_vllm_omnis_events(block: int) -> None:
    for seed in range(block * 20, block * 20 + 20):
        Walk(seed, vllm=True).run()
