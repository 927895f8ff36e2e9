"""POST /v1/audio/speech, beyond what the official client sends."""

import http.client
import json
import socket
import threading
import time
from dataclasses import replace

import httpx
import pytest
from support import decode, pcm_floats, running

from phonate.engine.scripted import (
    DEFAULT_INFO,
    Emit,
    Fail,
    Finish,
    Hang,
    ScriptedEngine,
    Wait,
    duration_of,
)
from phonate.errors import EngineFailure

TEXT = "Hello there, this is a test."


def ask(server, **body):
    body = {"input": TEXT, "response_format": "pcm", **body}
    return httpx.post(f"{server.address}/v1/audio/speech", json=body, timeout=30)


def refused(answer, status, **expected):
    """The one envelope, whatever went wrong."""
    assert answer.status_code == status, answer.text
    assert answer.headers["x-request-id"]
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    for key, value in expected.items():
        assert error[key] == value, error
    return error["message"]


def test_headers_say_what_the_bytes_are(scripted):
    answer = ask(scripted, seed=42, voice="alloy")
    headers = answer.headers
    assert headers["content-type"] == "audio/pcm"
    assert headers["x-audio-encoding"] == "s16le"
    assert headers["x-audio-channels"] == "1"
    assert headers["x-audio-bits-per-sample"] == "16"
    assert headers["x-voice"] == "tone"
    assert headers["x-seed"] == "42"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert headers["transfer-encoding"] == "chunked"


def test_a_drawn_seed_is_told_and_replays(scripted):
    first = ask(scripted)
    again = ask(scripted, seed=int(first.headers["x-seed"]))
    assert again.headers["x-seed"] == first.headers["x-seed"]
    assert scripted.engine.calls[0].request.seed == scripted.engine.calls[1].request.seed


def test_every_field_null_is_as_if_absent(scripted):
    fields = [
        "voice", "model", "speed", "instructions", "stream", "stream_format", "language", "seed",
        "temperature", "top_k", "top_p", "do_sample", "max_new_tokens", "sample_rate", "split",
        "clone_mode", "repetition_penalty", "subtalker_top_k", "speaker",
    ]  # fmt: skip
    answer = ask(scripted, response_format=None, **dict.fromkeys(fields))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "audio/mpeg"


@pytest.mark.parametrize(
    "voice",
    ["alloy", "ALLOY", "Cedar", "default", "tone", "TONE ", {"id": "tone", "name": "x", "more": 1}],
)
def test_voices_by_their_many_names(scripted, voice):
    answer = ask(scripted, voice=voice)
    assert answer.status_code == 200
    assert answer.headers["x-voice"] == "tone"


def test_speaker_is_another_word_for_voice(scripted):
    assert ask(scripted, speaker="ton").headers["x-voice"] == "ton"


@pytest.mark.parametrize("model", ["tts-1", "tts-1-hd", "gpt-4o-mini-tts-2025-12-15", "scripted"])
def test_models_by_their_many_names(scripted, model):
    assert ask(scripted, model=model).status_code == 200


def test_unknown_fields_are_ignored(scripted):
    assert ask(scripted, user="me", metadata={"a": 1}).status_code == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": "  \n\t "}, "input"),
        ({"input": None}, "input"),
        ({"input": 7}, "input"),
        ({"input": ["a"]}, "input"),
        ({"input": "x" * 4097}, "input"),
        ({"voice": "nobody"}, "voice"),
        ({"voice": {"name": "x"}}, "voice"),
        ({"voice": 1}, "voice"),
        ({"response_format": "midi"}, "response_format"),
        ({"response_format": 3}, "response_format"),
        ({"stream_format": "carrier-pigeon"}, "stream_format"),
        ({"stream": "yes"}, "stream"),
        ({"speed": 0}, "speed"),
        ({"speed": 4.01}, "speed"),
        ({"speed": "fast"}, "speed"),
        ({"speed": True}, "speed"),
        ({"sample_rate": 11025}, "sample_rate"),
        ({"seed": 2**63}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 0.5}, "temperature"),  # the scripted engine has no such control
        ({"instructions": "Whisper."}, "instructions"),
        ({"instructions": "x" * 501}, "instructions"),
        ({"clone_mode": "twice"}, "clone_mode"),
        ({"split": "all"}, "split"),
        ({"language": "klingon"}, "language"),
    ],
)
def test_a_wrong_field_is_400_and_named(scripted, body, param):
    assert refused(ask(scripted, **body), 400, param=param)


@pytest.mark.parametrize("instructions", ["", "   ", "None"])
def test_instructions_that_say_nothing_are_absent(scripted, instructions):
    assert ask(scripted, instructions=instructions).status_code == 200


def test_an_unknown_voice_names_the_voices(scripted):
    message = refused(ask(scripted, voice="x"), 400, param="voice", code="voice_not_found")
    assert "tone" in message
    assert "ton" in message


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b"null", b"\xff\xfe", b'{"input": "a\\ud800b"}', b"nan"],
    ids=repr,
)
def test_a_body_that_is_no_request(scripted, body):
    answer = httpx.post(
        f"{scripted.address}/v1/audio/speech", content=body,
        headers={"content-type": "application/json"},
    )  # fmt: skip
    if b"ud800" in body:  # a lone surrogate is strange text, not a broken request
        assert answer.status_code in (200, 400)
    else:
        refused(answer, 400)


def test_a_body_over_the_limit_is_413_declared_or_not():
    with running(ScriptedEngine(), max_request_bytes="2048") as server:
        refused(ask(server, input="x" * 3000), 413)

        def pieces():
            yield b'{"input": "'
            for _ in range(40):
                yield b"x" * 100
            yield b'"}'

        answer = httpx.post(
            f"{server.address}/v1/audio/speech", content=pieces(),
            headers={"content-type": "application/json"},
        )  # fmt: skip
        refused(answer, 413)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("GET", "/v1/audio/speech", 405), ("POST", "/health", 405),
     ("GET", "/v1/models/gpt-5", 404), ("GET", "/v1/readyz", 404)],
)  # fmt: skip
def test_the_envelope_is_everywhere(scripted, method, path, status):
    refused(httpx.request(method, scripted.address + path), status)


def test_request_ids_are_kept_when_well_formed(scripted):
    url = f"{scripted.address}/health"
    assert httpx.get(url, headers={"x-request-id": "my.id:1"}).headers["x-request-id"] == "my.id:1"
    for bad in ("a b", "x" * 129, "né"):
        got = httpx.get(url, headers={"x-request-id": bad.encode()}).headers["x-request-id"]
        assert got.startswith("req_")


def test_a_failure_before_any_audio_has_its_true_status():
    engine = ScriptedEngine({TEXT: [Wait(0.05), Fail(EngineFailure("The weights are gone."))]})
    with running(engine) as server:
        message = refused(ask(server), 502, type="server_error")
        assert message == "The weights are gone."


def test_an_unexpected_exception_is_a_500_without_its_details():
    engine = ScriptedEngine({TEXT: [Fail(ZeroDivisionError("secret detail"))]})
    with running(engine) as server:
        message = refused(ask(server), 500, code="internal_error")
        assert "secret" not in message
        assert ask(server, input="still alive").status_code == 200


@pytest.mark.parametrize("steps", [[Emit.silence(2)], [Emit.nan(2)], []], ids=["0", "nan", "none"])
@pytest.mark.parametrize("stream", [None, False])
def test_nothing_audible_is_a_502_and_health_stays_good(steps, stream):
    with running(ScriptedEngine({TEXT: steps})) as server:
        refused(ask(server, stream=stream), 502, type="output_error")
        health = httpx.get(f"{server.address}/health")
        assert health.status_code == 200
        assert health.json()["unusable_outputs_total"] == 1


def test_a_failure_after_bytes_were_sent_breaks_the_connection():
    steps = [Emit.tone(1.0), Wait(0.1), Fail(EngineFailure("boom"))]
    with running(ScriptedEngine({TEXT: steps})) as server:
        with pytest.raises(httpx.RemoteProtocolError):
            ask(server)
        assert ask(server, input="still alive").status_code == 200


def test_a_wrong_method_is_told_all_the_right_ones(scripted):
    for path, methods in (
        ("/v1/audio/voices", "GET, POST"),
        ("/v1/audio/voices/x", "DELETE, GET"),
        ("/v1/audio/voice_consents/x", "DELETE, GET, POST"),
        ("/v1/audio/speech", "POST"),
    ):
        answer = httpx.put(scripted.address + path)
        assert answer.status_code == 405
        assert answer.headers["allow"] == methods


def test_an_engine_that_stops_by_itself_is_a_502():
    with running(ScriptedEngine({TEXT: [Finish("cancelled")]})) as server:
        refused(ask(server), 502, code="engine_failure")
        refused(ask(server, stream=False), 502, code="engine_failure")


def events_until_it_breaks(server):
    """(text, headers) of an event stream whose connection breaks off."""
    pieces = []
    body = {"input": TEXT, "stream_format": "sse"}
    with (
        httpx.stream("POST", f"{server.address}/v1/audio/speech", json=body) as answer,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        pieces.extend(answer.iter_text())
    return "".join(pieces), answer.headers


def test_an_unexpected_exception_in_sse_is_an_event_without_its_details():
    steps = [Emit.tone(1.0), Wait(0.1), Fail(ZeroDivisionError("secret detail"))]
    with running(ScriptedEngine({TEXT: steps})) as server:
        text, headers = events_until_it_breaks(server)
    last = json.loads(text.strip().rpartition("data: ")[2])
    assert last["type"] == "speech.audio.error"
    assert last["error"]["code"] == "internal_error"
    assert headers["x-request-id"] in last["error"]["message"]
    assert "secret" not in text


def test_a_failure_in_sse_is_an_event_and_breaks_the_connection():
    steps = [Emit.tone(1.0), Wait(0.1), Fail(EngineFailure("boom"))]
    with running(ScriptedEngine({TEXT: steps})) as server:
        text, _ = events_until_it_breaks(server)
    name, data = text.strip().split("\n\n")[-1].split("\n")
    assert name == "event: speech.audio.error"
    payload = json.loads(data.removeprefix("data: "))
    assert payload["type"] == "speech.audio.error"
    assert payload["error"]["message"] == "boom"


def test_the_first_bytes_do_not_wait_for_the_last():
    with running(ScriptedEngine({TEXT: [Emit.tone(4, pace_s=0.02)]})) as server:
        body = {"input": TEXT, "response_format": "pcm"}
        with httpx.stream("POST", f"{server.address}/v1/audio/speech", json=body) as answer:
            pieces = answer.iter_raw()
            assert next(pieces)
            assert server.engine.in_flight == 1
            assert server.engine.calls[0].n_samples < 2 * 24000


@pytest.mark.parametrize("when", ["before any audio", "in the middle"])
def test_a_client_that_leaves_stops_the_engine(when):
    wait = [Wait(30)] if when == "before any audio" else [Emit.tone(60, pace_s=0.02)]
    engine = ScriptedEngine({TEXT: wait})
    with running(engine) as server:
        body = json.dumps({"input": TEXT, "response_format": "pcm"}).encode()
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.sendall(
                b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(body), body)
            )
            assert engine.wait_for_calls(1)
            if when == "in the middle":
                assert sock.recv(1000).startswith(b"HTTP/1.1 200")
            left = time.monotonic()
        assert engine.wait_until_idle(5)
        stopped_after = time.monotonic() - left
        assert engine.calls[0].cancelled
        # 200 ms is the promise; the bound leaves room for a busy machine.
        assert stopped_after < 1.0
        assert ask(server, input="next").status_code == 200
        assert server.service.health().active_requests == 0


def test_a_full_queue_is_503_with_retry_after():
    hang = Hang(threading.Event(), cancellable=True)
    engine = ScriptedEngine({TEXT: [hang]})
    with running(engine, max_queued_requests="0") as server:
        thread = threading.Thread(target=ask, args=(server,))
        thread.start()
        assert hang.reached.wait(5)
        answer = ask(server, input="me too")
        refused(answer, 503, type="server_busy")
        assert int(answer.headers["retry-after"]) >= 1
        hang.until.set()
        thread.join()


def test_a_synthesis_that_takes_too_long_is_504():
    with running(ScriptedEngine({TEXT: [Wait(60)]}), synthesis_timeout="0.2") as server:
        refused(ask(server), 504, type="timeout_error")
        assert ask(server, input="next").status_code == 200


def test_http_1_0_gets_a_whole_body(scripted):
    class Old(http.client.HTTPConnection):
        _http_vsn, _http_vsn_str = 10, "HTTP/1.0"

    connection = Old("127.0.0.1", scripted.port)
    connection.request(
        "POST", "/v1/audio/speech", json.dumps({"input": TEXT, "response_format": "wav"}),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert int(answer.headers["content-length"]) == len(body)
    assert answer.headers["x-finish-reason"] == "stop"
    samples, rate = decode(body)
    assert len(samples) / rate == pytest.approx(duration_of(TEXT), abs=0.05)


def test_a_whole_answer_has_usage_and_duration(scripted):
    answer = ask(scripted, stream=False)
    frames = round(duration_of(TEXT) / 0.08)
    assert answer.headers["x-usage-output-tokens"] == str(frames)
    assert int(answer.headers["x-usage-total-tokens"]) == frames + int(
        answer.headers["x-usage-input-tokens"]
    )
    duration = len(answer.content) / 48
    assert int(answer.headers["x-audio-duration-ms"]) == pytest.approx(duration, abs=1)


@pytest.mark.parametrize("speed", [0.25, 0.5, 1.5, 4])
def test_speed_changes_the_length(scripted, speed):
    samples = pcm_floats(ask(scripted, speed=speed).content)
    assert len(samples) / 24000 == pytest.approx(duration_of(TEXT) / speed, abs=0.08)


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 44100, 48000])
def test_sample_rates(scripted, rate):
    answer = ask(scripted, sample_rate=rate)
    assert answer.headers["x-audio-sample-rate"] == str(rate)
    assert len(answer.content) / 2 / rate == pytest.approx(duration_of(TEXT), abs=0.05)


def test_max_new_tokens_ends_it_and_says_so(scripted):
    answer = ask(scripted, max_new_tokens=6, stream=False)
    assert answer.headers["x-finish-reason"] == "length"
    assert len(answer.content) / 48000 == pytest.approx(6 * 0.08, abs=0.03)


def test_audio_without_end_is_bounded():
    engine = ScriptedEngine({TEXT: [Emit.tone(float("inf"))]})
    with running(engine, max_output_bytes="480000") as server:
        refused(ask(server, stream=False), 413, param="input")
        assert engine.wait_until_idle()


def test_leading_silence_is_cut():
    with running(ScriptedEngine({TEXT: [Emit.silence(0.4), Emit.tone(0.6)]})) as server:
        samples = pcm_floats(ask(server).content)
        onset = (abs(samples) > 0.02).argmax() / 24000
        assert onset < 0.04
        assert len(samples) / 24000 == pytest.approx(0.615, abs=0.01)


def test_long_text_is_spoken_in_fragments_by_one_voice_with_one_seed():
    text = "This is one sentence of many, and it goes on a while. " * 20
    engine = ScriptedEngine(info=replace(DEFAULT_INFO, max_text_chars=200))
    with running(engine) as server:
        answer = ask(server, input=text)
        assert answer.status_code == 200
        assert "".join(engine.texts).replace(" ", "") == text.replace(" ", "")
        assert len(engine.texts) > 5
        assert {(c.request.seed, c.request.speaker) for c in engine.calls} == {
            (int(answer.headers["x-seed"]), "tone")
        }


def test_a_slow_reader_does_not_hold_the_engine():
    engine = ScriptedEngine({TEXT: [Emit.tone(60)]})
    with running(engine) as server:
        body = {"input": TEXT, "response_format": "wav"}
        with httpx.stream("POST", f"{server.address}/v1/audio/speech", json=body) as slow:
            pieces = slow.iter_raw()
            first = next(pieces)
            assert engine.wait_until_idle(10)
            assert ask(server, input="next").status_code == 200
            rest = len(first) + sum(map(len, pieces))
        assert rest == 44 + 2 * 24000 * 60
