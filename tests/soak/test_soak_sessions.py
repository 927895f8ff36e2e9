"""A short soak in every test run; soak_sessions.py by hand goes on for 2,000 sessions."""

from __future__ import annotations

import pytest
from soak_sessions import WAYS, Soak


@pytest.mark.timeout(120)
async def test_sixty_sessions_leave_nothing_behind() -> None:
    soak = Soak(60, 20, seed=1)
    counts = await soak.run()
    assert sum(counts.values()) == 60
    assert set(counts) <= set(WAYS)
    assert soak.heard_whole > 10
