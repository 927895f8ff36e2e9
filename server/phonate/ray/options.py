"""Settings and the size of the fleet become the options of a Ray Serve deployment. No Ray here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from phonate import settings
from phonate.api.wire import SPARE
from phonate.errors import SetupError
from phonate.settings import SPELLINGS, Loaded, Settings
from phonate.voices.place import Bucket

NAME = "phonate"
"""Of the deployment: `deployments: [{name: phonate}]` in a configuration of Ray's."""

HEALTH_PERIOD_S = 2.0
"""How soon Ray notices that a replica is gone. One that is ill three times in a row is replaced."""

GOODBYE_S = 15.0
"""What a replica gets beyond --shutdown-timeout, which is for what it speaks: last events of
sessions, and the engine's end. `phonate serve` asks the same of a service manager."""


class Fleet(BaseModel):
    """How many replicas there are, and what each asks of its machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_replicas: int = Field(1, ge=1, le=10_000)
    max_replicas: int | None = Field(None, ge=1, le=10_000)
    """More than `min_replicas`: Ray scales between them. None: there are `min_replicas`."""
    target_requests: float | None = Field(None, gt=0)
    """Requests and sessions that a replica has on average when there are enough replicas."""
    replica_cpus: float | None = Field(None, ge=0)
    replica_gpus: float | None = Field(None, ge=0)

    @property
    def most(self) -> int:
        return max(self.min_replicas, self.max_replicas or 1)


def read_arguments(
    arguments: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> tuple[Loaded, Fleet]:
    """`name=value` as `serve run` has them, - or _ in names. Raises SetupError."""
    given = {name.replace("-", "_"): value for name, value in arguments.items()}
    file = given.pop("config", None)
    about_fleet = {name: given.pop(name) for name in Fleet.model_fields if name in given}
    flags: dict[str, Any] = {}
    for written, value in given.items():
        name = SPELLINGS.get(written)
        if name is None:
            raise SetupError(
                f"{written}={value}: there is no such option. Options are those of "
                f"`phonate serve`, config, {', '.join(Fleet.model_fields)}."
            )
        flags[name] = _as_flag(name, value)
    loaded = settings.load(flags, environ, Path(file) if file else None)
    try:
        return loaded, Fleet(**about_fleet)
    except ValidationError as error:
        first = error.errors()[0]
        raise SetupError(f"{first['loc'][0]}={first.get('input')}: {first['msg']}.") from None


def _as_flag(name: str, value: Any) -> Any:
    """`serve run` knows only text: a list is separated by commas, as in the environment."""
    kind = getattr(Settings.model_fields[name].annotation, "__origin__", None)
    if kind is list and isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def deployment_options(settings: Settings, fleet: Fleet) -> dict[str, Any]:
    """For `ray.serve.deployment`."""
    cpus = fleet.replica_cpus if fleet.replica_cpus is not None else settings.cpu_threads or 1
    gpus = fleet.replica_gpus if fleet.replica_gpus is not None else settings.device == "gpu"
    options: dict[str, Any] = {
        "name": NAME,
        # What Ray counts as ongoing is all that a replica holds: --max-batch utterances that are
        # spoken, --max-queued-requests that wait, --max-sessions, uploads, slow readers, health
        # checks. The app has a limit and a kind refusal for each, and for their sum
        # --max-connections; Ray's limit is beyond it, so that the app is always there to refuse.
        # Ray's own refusal is plain text, or, without max_queued_requests, a wait without end.
        "max_ongoing_requests": settings.max_connections + SPARE,
        "max_queued_requests": -1,
        "graceful_shutdown_timeout_s": settings.shutdown_timeout + GOODBYE_S,
        "graceful_shutdown_wait_loop_s": 0.5,
        "health_check_period_s": HEALTH_PERIOD_S,
        "health_check_timeout_s": 30.0,
        "ray_actor_options": {"num_cpus": float(cpus), "num_gpus": float(gpus)},
    }
    if fleet.most == fleet.min_replicas:
        return {**options, "num_replicas": fleet.min_replicas}
    autoscaling = {
        "min_replicas": fleet.min_replicas,
        "initial_replicas": fleet.min_replicas,
        "max_replicas": fleet.most,
        # At this many the engine is busy and nobody waits.
        "target_ongoing_requests": fleet.target_requests or float(settings.max_batch),
        # Ray looks at the mean of 30 s and then waits 30 s more, for models that take minutes to
        # load. Who waits here waits for a voice.
        "metrics_interval_s": 2.0,
        "look_back_period_s": 6.0,
        "upscale_delay_s": 5.0,
    }
    return {**options, "autoscaling_config": autoscaling}


_OF_A_PROCESS = ("host", "port", "uds", "header_timeout", "keep_alive_timeout")


def warnings_for(loaded: Loaded, fleet: Fleet) -> Iterator[str]:
    """What is allowed and may not be meant."""
    if fleet.most > 1 and not isinstance(loaded.settings.voice_dir, Bucket):
        yield (
            f"up to {fleet.most} replicas and voices in {loaded.settings.voice_dir}: on several "
            "machines each would have its own. Share them with voice_dir=s3://bucket/prefix."
        )
    for name in _OF_A_PROCESS:
        if loaded.origins[name] != "default":
            yield f"{name} means nothing here: Ray's proxy listens (http_options)."
    if loaded.settings.api_key or loaded.settings.metrics_key:
        yield (
            "keys given as options are kept by Ray with the deployment, readable to whoever may "
            "ask it. Use api_key_file, with the file on every machine."
        )
