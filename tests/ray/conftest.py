from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster import Cluster
from cluster import cluster as make_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with make_cluster() as made:
        yield made


@pytest.fixture
def fleet(cluster: Cluster) -> Cluster:
    """With both replicas there, whatever a test before has done to them."""
    cluster.wait_for_replicas()
    return cluster
