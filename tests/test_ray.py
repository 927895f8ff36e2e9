"""The parts of `phonate.ray` that need no Ray. With it: tests/ray."""

import builtins
from types import SimpleNamespace

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

import phonate.ray
from phonate.errors import SetupError
from phonate.ray.edge import Edge
from phonate.ray.options import deployment_options, read_arguments, warnings_for
from phonate.ray.replica import OnRay, Unhealthy


def options(**arguments):
    loaded, fleet = read_arguments(arguments, {})
    return deployment_options(loaded.settings, fleet)


def test_arguments_are_options_and_the_fleet(tmp_path):
    file = tmp_path / "phonate.toml"
    file.write_text("max_batch = 3\nmax_sessions = 7\n")
    loaded, fleet = read_arguments(
        {"config": str(file), "max-batch": "4", "alias": "a, b", "min_replicas": "2"},
        {"PHONATE_MAX_QUEUED_REQUESTS": "5"},
    )
    got = loaded.settings
    assert (got.max_batch, got.max_sessions, got.max_queued_requests) == (4, 7, 5)
    assert got.alias == ["a", "b"]
    assert (fleet.min_replicas, fleet.most) == (2, 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"max_replica": "2"}, "max_replica=2"),
        ({"min_replicas": "0"}, "min_replicas=0"),
        ({"max_batch": "0"}, "--max-batch"),
    ],
)
def test_a_wrong_argument_is_named(arguments, said):
    with pytest.raises(SetupError, match=said):
        read_arguments(arguments, {})


def test_ray_lets_the_app_refuse():
    """Whatever the app may hold at a time is below Ray's own limit."""
    got = options(max_batch=8, max_queued_requests=100, max_connections=400, max_sessions=256)
    assert got["max_ongoing_requests"] > 400 > 8 + 100 + 256
    assert got["max_queued_requests"] == -1


def test_a_leaving_replica_has_time_for_what_it_speaks():
    assert options(shutdown_timeout=100)["graceful_shutdown_timeout_s"] > 110


def test_the_number_of_replicas_is_fixed_or_follows_the_load():
    fixed = options(min_replicas=3)
    assert fixed["num_replicas"] == 3
    assert "autoscaling_config" not in fixed
    scaled = options(min_replicas=2, max_replicas=5, max_batch=4)
    assert "num_replicas" not in scaled
    assert scaled["autoscaling_config"]["max_replicas"] == 5
    assert scaled["autoscaling_config"]["target_ongoing_requests"] == 4
    asked = options(max_replicas=5, target_requests="1.5")
    assert asked["autoscaling_config"]["target_ongoing_requests"] == 1.5


def test_a_replica_asks_for_what_its_engine_uses():
    assert options()["ray_actor_options"] == {"num_cpus": 1, "num_gpus": 0}
    assert options(cpu_threads=4)["ray_actor_options"]["num_cpus"] == 4
    assert options(device="gpu")["ray_actor_options"]["num_gpus"] == 1
    given = options(replica_cpus="0.5", replica_gpus="0.25", device="gpu")
    assert given["ray_actor_options"] == {"num_cpus": 0.5, "num_gpus": 0.25}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"max_replicas": 2}, "s3://"),
        ({"port": "9000"}, "http_options"),
        ({"api_key": "secret"}, "api_key_file"),
    ],
)
def test_what_may_not_be_meant_is_said(arguments, word):
    (warning,) = warnings_for(*read_arguments(arguments, {}))
    assert word in warning
    assert "secret" not in warning


def test_a_fleet_with_a_bucket_has_no_warning():
    arguments = {"max_replicas": 2, "voice_dir": "s3://bucket/voices", "api_key_file": "/keys"}
    assert not list(warnings_for(*read_arguments(arguments, {})))


def test_without_ray_the_way_to_get_it_is_told(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "ray":
            raise ModuleNotFoundError("No module named 'ray'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SetupError, match=r"pip install 'phonate\[ray\]'"):
        phonate.ray.app({})


# In a replica ------------------------------------------------------------------------------------


async def ask(app, path="/", **headers):
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        return await client.get(path, headers=headers)


class Inner:
    """Answers with an id, and remembers whether a request was one too many."""

    def __init__(self):
        self.marked = []
        self.within = None

    async def __call__(self, scope, receive, send):
        self.marked.append(bool(scope.get("state", {}).get("over_capacity")))
        if self.within is not None and len(self.marked) == 1:
            await self.within()
        await JSONResponse({}, headers={"X-Request-ID": "ours"})(scope, receive, send)


async def test_requests_beyond_max_connections_are_marked_for_the_door():
    inner = Inner()
    app = OnRay(inner, max_connections=1)

    async def another():
        await ask(app)

    inner.within = another
    await ask(app)
    await ask(app)
    assert inner.marked == [False, True, False]


async def test_the_id_is_left_to_ray_where_it_gave_one():
    app = OnRay(Inner(), max_connections=9)
    assert "x-request-id" not in (await ask(app, **{"X-Request-ID": "of-ray"})).headers
    assert (await ask(app)).headers["x-request-id"] == "ours"


def test_an_ill_engine_fails_the_health_check_of_ray():
    health = SimpleNamespace(ok=True)
    service = SimpleNamespace(health=lambda: health)
    state = SimpleNamespace(phonate=SimpleNamespace(service=service))
    app = OnRay(SimpleNamespace(state=state), max_connections=9)
    app.check_health()
    health.ok = False
    with pytest.raises(Unhealthy):
        app.check_health()


# In front of Ray's proxy -------------------------------------------------------------------------


async def say_nothing(scope, receive, send):
    """What Ray's proxy does for a replica that died."""


async def plain(request):
    return PlainTextResponse("of Ray", int(request.path_params["status"]))


async def own(request):
    return JSONResponse({"error": "of phonate"}, int(request.path_params["status"]))


BEHIND = Starlette(routes=[Route("/plain/{status}", plain), Route("/own/{status}", own)])


@pytest.mark.parametrize(
    ("sent", "seen", "code"),
    [
        (404, 404, "not_found"),
        (408, 504, "timeout"),
        (500, 503, "not_ready"),
        (503, 503, "not_ready"),
    ],
)
async def test_what_ray_says_gets_our_shape(sent, seen, code):
    answer = await ask(Edge(BEHIND), f"/plain/{sent}")
    assert answer.status_code == seen
    assert answer.json()["error"]["code"] == code
    assert ("retry-after" in answer.headers) == (seen == 503)


async def test_what_the_app_says_passes():
    for status in (200, 404, 503):
        answer = await ask(Edge(BEHIND), f"/own/{status}")
        assert (answer.status_code, answer.text) == (status, '{"error":"of phonate"}')
    assert (await ask(Edge(BEHIND), "/plain/200")).text == "of Ray"


async def test_a_request_whose_replica_died_may_be_tried_again():
    answer = await ask(Edge(say_nothing))
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["type"] == "server_busy"


async def test_an_id_that_is_none_of_ours_does_not_reach_ray():
    seen = []

    async def look(scope, receive, send):
        seen.append([value for name, value in scope["headers"] if name == b"x-request-id"])
        await JSONResponse({})(scope, receive, send)

    await ask(Edge(look), **{"X-Request-ID": "not one of ours"})
    await ask(Edge(look), **{"X-Request-ID": "one-of-ours"})
    assert seen == [[], [b"one-of-ours"]]


@pytest.mark.parametrize("closes", [False, True], ids=["lost", "closed"])
async def test_a_session_that_lost_its_replica_is_not_closed_as_if_it_were_over(closes):
    async def replica(scope, receive, send):
        await send({"type": "websocket.accept"})
        if closes:
            await send({"type": "websocket.close", "code": 1000})

    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/v1/audio/speech-stream", "headers": []}
    await Edge(replica)(scope, receive, send)
    assert sent[-1]["code"] == (1000 if closes else 1012)
    assert len(sent) == 2
