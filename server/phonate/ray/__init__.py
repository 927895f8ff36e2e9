"""phonate on Ray Serve: the same application, one engine in every replica.

    serve run phonate.ray:app                                    one replica
    serve run phonate.ray:app model=0.6b-base max_replicas=4     two names for the fleet, the
                                                                 rest are options of `phonate serve`

Options come from these arguments, PHONATE_* variables where the application is built, and a TOML
file (`config=FILE`), in this order, as everywhere. docs/OPERATIONS.md, "Ray Serve", has the rest.

    options.py   settings -> what Ray is told about the deployment; needs no Ray
    replica.py   what stands around the app inside a replica
    edge.py      what may stand in front of Ray's own proxy
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from phonate.errors import SetupError
from phonate.ray.options import deployment_options, read_arguments, warnings_for

# Ray reads this when its first process starts. Whoever wants to be counted sets it to 1.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

log = logging.getLogger("phonate.ray")


def app(arguments: Mapping[str, Any]) -> Any:
    """Builds the Ray Serve application; `serve` calls it with the arguments of its command line,
    or with `args` of its configuration file. Raises SetupError."""
    loaded, fleet = read_arguments(arguments)
    serve = _ray_serve()
    from phonate.ray.replica import make_replica

    for warning in warnings_for(loaded, fleet):
        log.warning("%s", warning)
    options = deployment_options(loaded.settings, fleet)
    return serve.deployment(make_replica(loaded.settings), **options).bind()


def _ray_serve() -> Any:
    try:
        from ray import serve
    except ImportError as error:
        raise SetupError(
            f"Ray Serve is not installed ({error}): pip install 'phonate[ray]'"
        ) from None
    return serve
