import base64
import json
import socket

import httpx
import pytest
from support import decode, loudest_hz, running

from phonate.engine.scripted import Emit, Fail, ScriptedEngine, frequency_of
from phonate.errors import EngineFailure


def ask(server, body):
    return httpx.post(f"{server.address}/v1/audio/speech/batch", json=body, timeout=60)


def test_each_item_has_its_own_result_in_the_order_of_the_items():
    engine = ScriptedEngine({"bad": [Fail(EngineFailure("boom"))]})
    with running(engine) as server:
        body = {
            "voice": "tone",
            "response_format": "wav",
            "items": [
                {"input": "The first of the texts."},
                {"input": "bad"},
                {"input": "The third.", "response_format": "flac", "voice": "ton"},
                {"input": ""},
                {"input": "x", "voice": "nobody"},
                {"input": "The last.", "voice": None, "seed": 5},
            ],
        }
        answer = ask(server, body).json()
    results = answer["results"]
    assert [r["index"] for r in results] == list(range(6))
    assert [r["status"] for r in results] == [
        "success", "error", "success", "error", "error", "success",
    ]  # fmt: skip
    assert (answer["total"], answer["succeeded"], answer["failed"]) == (6, 3, 3)
    for i, media in ((0, "audio/wav"), (2, "audio/flac"), (5, "audio/wav")):
        samples, rate = decode(base64.b64decode(results[i]["audio_data"]))
        assert results[i]["media_type"] == media
        assert loudest_hz(samples, rate) == pytest.approx(
            frequency_of(body["items"][i]["input"]), abs=5
        )
        assert results[i]["usage"]["output_tokens"] > 0
    assert results[1]["error"]["message"] == "boom"
    assert results[3]["error"]["param"] == "input"
    assert results[4]["error"]["param"] == "voice"
    assert results[5]["seed"] == 5


def test_a_bug_in_the_engine_costs_one_item():
    engine = ScriptedEngine({"bad": [Fail(ZeroDivisionError("secret detail"))]})
    with running(engine) as server:
        answer = ask(server, {"items": [{"input": "bad"}, {"input": "good"}]})
    assert answer.status_code == 200
    bad, good = answer.json()["results"]
    assert bad["error"]["code"] == "internal_error"
    assert "secret" not in answer.text
    assert good["status"] == "success"


@pytest.mark.parametrize(
    "items", [None, [], "x", [1], [{"input": "a"}] * 33], ids=["no", "empty", "str", "int", "33"]
)
def test_a_list_that_is_none(scripted, items):
    answer = ask(scripted, {"items": items})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "items"


def test_a_batch_queues_like_everybody_and_fits_where_one_may_wait():
    with running(ScriptedEngine(), max_queued_requests="1") as server:
        answer = ask(server, {"items": [{"input": f"Text {i}."} for i in range(32)]}).json()
        assert answer["succeeded"] == 32
        assert server.engine.max_in_flight == 1


def test_a_client_that_leaves_stops_the_whole_batch():
    engine = ScriptedEngine(lambda request: [Emit.tone(100, pace_s=0.05)])
    with running(engine) as server:
        body = json.dumps({"items": [{"input": "one"}, {"input": "two"}]}).encode()
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.sendall(
                b"POST /v1/audio/speech/batch HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(body), body)
            )
            assert engine.wait_for_calls(1)
        assert engine.wait_until_idle(5)
        assert httpx.get(f"{server.address}/health").json()["active_requests"] == 0
        assert len(engine.calls) <= 2
