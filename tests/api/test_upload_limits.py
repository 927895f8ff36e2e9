"""Bodies made to be expensive: many parts, large parts, bombs that decode into hours."""

from __future__ import annotations

import dataclasses
import gzip
import io
import resource
import time
from collections.abc import Iterator

import av
import httpx
import numpy as np
import pytest
from support import Running, running

from phonate.engine.scripted import DEFAULT_INFO, ScriptedEngine

CLONING = dataclasses.replace(DEFAULT_INFO, can_clone=True, embedding_dim=8)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(ScriptedEngine(info=CLONING)) as server:
        yield server


def upload(server: Running, audio: bytes) -> httpx.Response:
    return httpx.post(
        f"{server.address}/v1/audio/voices",
        data={"name": "anna"},
        files={"audio_sample": ("a.flac", audio)},
        timeout=30,
    )


def refused(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"
    return str(answer.json()["error"]["message"])


# Compressed bodies --------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "GZIP", "identity, gzip", "zstd"])
@pytest.mark.parametrize("path", ["/v1/audio/speech", "/v1/audio/voices", "/v1/text/languages"])
def test_a_compressed_body_is_415(server, path, coding):
    bomb = gzip.compress(b" " * 10_000_000)
    headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
    answer = httpx.post(server.address + path, content=bomb, headers=headers)
    assert "Content-Encoding" in refused(answer, 415)


def test_identity_is_fine(server):
    answer = httpx.post(
        f"{server.address}/v1/audio/speech",
        json={"input": "Hi."},
        headers={"Content-Encoding": "identity"},
    )
    assert answer.status_code == 200


# Forms --------------------------------------------------------------------------------------------


def test_too_many_fields_and_files(server):
    url = f"{server.address}/v1/audio/voices"
    fields = {f"f{i}": "x" for i in range(100)}
    assert "fields" in refused(httpx.post(url, data=fields, files={"a": b"x"}), 400)
    files = [(f"f{i}", (f"{i}.wav", b"x")) for i in range(10)]
    assert "files" in refused(httpx.post(url, files=files), 400)


def test_a_large_field_and_a_large_file(server):
    url = f"{server.address}/v1/audio/voices"
    answer = httpx.post(url, data={"name": "x" * 2_000_000}, files={"a": b"x"})
    assert "maximum size" in refused(answer, 400)
    assert "10 MiB" in refused(upload(server, bytes(10 * 2**20 + 1)), 413)


@pytest.mark.parametrize("part", ["name", "value"])
def test_endless_headers_of_a_part(server, part):
    line = b"X-" + b"a" * 3_000_000 + b": x" if part == "name" else b"X-A: " + b"a" * 3_000_000
    body = b"--b\r\n" + line + b'\r\nContent-Disposition: form-data; name="n"\r\n\r\nx\r\n--b--\r\n'
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    answer = httpx.post(
        f"{server.address}/v1/audio/voices",
        content=body,
        headers={"Content-Type": "multipart/form-data; boundary=b"},
        timeout=30,
    )
    assert answer.status_code == 400
    assert time.monotonic() - began < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


# Bombs --------------------------------------------------------------------------------------------


def encoded(container: str, codec: str, seconds: int, rate: int) -> bytes:
    """Silence, which packs best."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate, layout="mono")
        block = np.zeros((1, rate * 10), np.float32)
        resampler = av.AudioResampler(stream.format.name, "mono", rate, stream.frame_size or 4096)
        for _ in range(seconds // 10):
            frame = av.AudioFrame.from_ndarray(block, format="flt", layout="mono")
            frame.sample_rate = rate
            for piece in resampler.resample(frame):
                output.mux(stream.encode(piece))
        output.mux(stream.encode(None))
    return buffer.getvalue()


@pytest.mark.parametrize(("container", "codec", "seconds"),
                         [("flac", "flac", 3600), ("ogg", "libopus", 300)])  # fmt: skip
def test_an_hour_in_a_small_file_is_given_up_early(server, container, codec, seconds):
    bomb = encoded(container, codec, seconds, 8000)
    assert len(bomb) < 4_000_000
    began = time.monotonic()
    message = refused(upload(server, bomb), 400)
    assert "longer than 30 s" in message
    assert time.monotonic() - began < 5


def test_a_tiny_flac_that_claims_days(server):
    honest = bytearray(encoded("flac", "flac", 10, 8000))
    at = honest.index(b"fLaC") + 8  # STREAMINFO follows its four bytes of header
    # total_samples: 36 bits, from the low four of byte 13 on
    honest[at + 13] |= 0x0F
    honest[at + 14 : at + 18] = b"\xff\xff\xff\xff"
    began = time.monotonic()
    assert refused(upload(server, bytes(honest)), 400)
    assert time.monotonic() - began < 5


def test_an_ogg_that_claims_days(server):
    honest = bytearray(encoded("ogg", "libopus", 10, 8000))
    last = honest.rindex(b"OggS")
    honest[last + 6 : last + 14] = (48_000 * 86_400 * 9).to_bytes(8, "little")
    assert refused(upload(server, bytes(honest)), 400)
    assert httpx.get(f"{server.address}/health").status_code == 200


def test_json_that_nests_or_counts_for_ever(server):
    url = f"{server.address}/v1/audio/speech"
    headers = {"Content-Type": "application/json"}
    for body in (b"[" * 200_000, b'{"input":' * 50_000, b'{"seed":' + b"9" * 100_000 + b"}"):
        answer = httpx.post(url, content=body, headers=headers, timeout=20)
        assert answer.status_code == 400, body[:20]
