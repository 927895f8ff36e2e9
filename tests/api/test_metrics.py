import dataclasses

import httpx
import pytest
from support import running

from phonate.engine.scripted import DEFAULT_INFO, Emit, Fail, ScriptedEngine
from phonate.errors import EngineFailure


def scrape(server, **headers):
    return httpx.get(f"{server.address}/metrics", headers=headers)


def value(text, line):
    found = [row for row in text.splitlines() if row.startswith(line + " ")]
    return float(found[0].rpartition(" ")[2]) if found else 0.0


def ask(server, text, **body):
    return httpx.post(
        f"{server.address}/v1/audio/speech", json={"input": text, "response_format": "pcm", **body}
    )


def test_what_is_counted():
    engine = ScriptedEngine({"quiet": [Emit.silence(1)], "bad": [Fail(EngineFailure("x"))]})
    with running(engine) as server:
        ask(server, "Hello there.")
        ask(server, "quiet")
        ask(server, "bad")
        text = scrape(server).text
    assert value(text, 'phonate_utterances_total{outcome="stop"}') == 1
    assert value(text, 'phonate_utterances_total{outcome="silent"}') == 1
    assert value(text, 'phonate_utterances_total{outcome="failed"}') == 1
    assert value(text, 'phonate_utterances_cut_total{cause="engine_failure",outcome="failed"}') == 1
    assert value(text, "phonate_first_audio_seconds_count") == 1
    assert value(text, "phonate_real_time_factor_count") == 1
    assert value(text, "phonate_queue_seconds_count") == 3
    assert value(text, "phonate_audio_seconds_total") > 0.5
    assert value(text, "phonate_active_requests") == 0
    assert value(text, "phonate_audible_onset_seconds_count") == 1
    assert value(text, 'phonate_answers_total{status="200"}') == 1
    assert value(text, 'phonate_answers_total{status="502"}') == 2
    assert value(text, 'phonate_sent_bytes_total{transport="http"}') > 24_000
    assert value(text, "phonate_engine_stalls_total") == 0
    assert value(text, "phonate_voices") == 0
    assert 'engine="scripted"' in text


def test_lanes_are_told_one_by_one():
    """Two requests at once on three lanes: two are busy, and then two were used."""
    info = dataclasses.replace(DEFAULT_INFO, max_batch=3)
    engine = ScriptedEngine({"long": [Emit.tone(60, pace_s=0.05)]}, info)
    body = {"input": "long", "response_format": "pcm"}
    with running(engine, max_batch=3) as server:
        address = f"{server.address}/v1/audio/speech"
        with (
            httpx.stream("POST", address, json=body) as first,
            httpx.stream("POST", address, json=body) as second,
        ):
            pieces = first.iter_raw(), second.iter_raw()
            for each in pieces:
                next(each)
            during = scrape(server).text
        text = scrape(server).text
        while value(text, 'phonate_lane_busy{lane="0"}') or value(
            text, 'phonate_lane_busy{lane="1"}'
        ):
            text = scrape(server).text
    assert [value(during, f'phonate_lane_busy{{lane="{i}"}}') for i in range(3)] == [1, 1, 0]
    assert [value(text, f'phonate_lane_uses_total{{lane="{i}"}}') for i in range(3)] == [1, 1, 0]
    assert value(text, 'phonate_lane_held_seconds_total{lane="0"}') > 0
    assert value(text, 'phonate_lane_held_seconds_total{lane="2"}') == 0
    assert 'lane="3"' not in text


def test_clients_cannot_make_labels():
    with running(ScriptedEngine()) as server:
        for i in range(5):
            ask(server, "Hi.", voice=f"nobody{i}", model="tts-1")
            httpx.get(f"{server.address}/{i}")
        text = scrape(server).text
    assert "nobody" not in text


def test_metrics_need_a_key_where_there_is_one():
    with running(ScriptedEngine(), api_key="k", metrics_key="m") as server:
        assert scrape(server).status_code == 401
        assert scrape(server, authorization="Bearer m").status_code == 200
        assert scrape(server, authorization="Bearer k").status_code == 200
        answer = httpx.get(f"{server.address}/v1/models", headers={"authorization": "Bearer m"})
        assert answer.status_code == 200  # listings are open anyway
        speech = httpx.post(
            f"{server.address}/v1/audio/speech", json={"input": "x"},
            headers={"authorization": "Bearer m"},
        )  # fmt: skip
        assert speech.status_code == 401


def test_metrics_can_be_switched_off():
    with running(ScriptedEngine(), metrics=False) as server:
        assert scrape(server).status_code == 404


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_they_answer_while_the_engine_is_busy(path):
    with running(ScriptedEngine({"long": [Emit.tone(60, pace_s=0.05)]})) as server:
        body = {"input": "long", "response_format": "pcm"}
        with httpx.stream("POST", f"{server.address}/v1/audio/speech", json=body) as answer:
            pieces = answer.iter_raw()
            next(pieces)
            assert httpx.get(server.address + path).status_code == 200
