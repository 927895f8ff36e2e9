from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fleet import PROXIES, Fleet, Front, fleet


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest.fixture(params=PROXIES)
def front(request: pytest.FixtureRequest, whole: Fleet) -> Front:
    return whole.fronts[request.param]
