"""Frames come out as they went in, and what is no frame is told apart."""

from __future__ import annotations

import io
import os
import struct
import threading

import pytest

from phonate.engine.isolated.wire import MAX_BODY, Kind, Outgoing, WireError, read_frame


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    out = Outgoing(os.fdopen(writing, "wb", buffering=0))
    with os.fdopen(reading, "rb") as frames:
        yield frames, out
    out.close()


@pytest.mark.parametrize(
    "fields",
    [
        None,
        {"text": 'quotes " and \ud800 and \0 and 世界'},
        {"seed": -(2**63)},
        {"t": float("inf")},
    ],
)
def test_a_frame_comes_out_as_it_went_in(pipe, fields):
    frames, out = pipe
    out.send(Kind.CHUNK, 2**32 - 1, fields, b"\0\n\xff")
    frame = read_frame(frames)
    assert frame.kind is Kind.CHUNK
    assert (frame.call, frame.fields, frame.body) == (2**32 - 1, fields or {}, b"\0\n\xff")


def test_frames_of_many_threads_stay_whole(pipe):
    """Bodies far beyond what a pipe takes at once."""
    frames, out = pipe

    def write(n):
        for _ in range(20):
            out.send(Kind.CHUNK, n, {"n": n}, bytes([n]) * 200_000)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(80):
        frame = read_frame(frames)
        assert frame.fields == {"n": frame.call}
        assert frame.body == bytes([frame.call]) * 200_000
    for thread in threads:
        thread.join()


def test_the_end_is_none_also_in_the_middle_of_a_frame():
    whole = struct.pack("<BIII", Kind.CHUNK, 1, 2, 3) + b"{}abc"
    assert read_frame(io.BytesIO(whole)).body == b"abc"
    for cut in range(len(whole)):
        assert read_frame(io.BytesIO(whole[:cut])) is None


@pytest.mark.parametrize(
    ("head", "rest", "words"),
    [
        ((99, 0, 0, 0), b"", "kind 99"),
        ((Kind.CHUNK, 0, 0, MAX_BODY + 1), b"", "too long"),
        ((Kind.CHUNK, 0, 2**31, 0), b"", "too long"),
        ((Kind.DONE, 0, 2, 0), b"{'", "not JSON"),
        ((Kind.DONE, 0, 2, 0), b"\xff\xff", "not JSON"),
        ((Kind.DONE, 0, 2, 0), b"[]", "no object"),
    ],
)
def test_what_is_no_frame_is_told_apart(head, rest, words):
    with pytest.raises(WireError, match=words):
        read_frame(io.BytesIO(struct.pack("<BIII", *head) + rest))


def test_nothing_is_written_after_the_close(pipe):
    _, out = pipe
    out.close()
    out.close()
    with pytest.raises(BrokenPipeError):
        out.send(Kind.CANCEL)
