"""Reference URLs: what is fetched, and the many ways in which somebody may try to reach inside."""

import asyncio
import contextlib

import pytest

from phonate.api import fetch
from phonate.api.fetch import ReferenceFetcher, is_public
from phonate.errors import InvalidRequest, TooLarge


@contextlib.asynccontextmanager
async def web(answers):
    """A tiny server; `answers` maps a path to the raw bytes of a response, or to a callable."""
    asked = []
    tasks = set()

    async def serve(reader, writer):
        tasks.add(asyncio.current_task())
        try:
            await answer_one(reader, writer)
        finally:
            writer.close()

    async def answer_one(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        asked.append(head)
        answer = answers[path]
        with contextlib.suppress(ConnectionError):
            if callable(answer):
                await answer(writer)
            else:
                writer.write(answer)
                await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def ok(body):
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def moved(where):
    return b"HTTP/1.1 302 Found\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % where.encode()


def fetcher(*hosts, check=lambda address: True, address="127.0.0.1"):
    async def resolver(host, port):
        return [address]

    return ReferenceFetcher(hosts, resolver, check)


async def test_an_allowed_host_is_asked_under_its_own_name():
    async with web({"/a.wav": ok(b"RIFF")}) as (port, asked):
        got = await fetcher("voices.example").fetch(f"http://voices.example:{port}/a.wav")
    assert got == b"RIFF"
    assert f"Host: voices.example:{port}" in asked[0]


async def test_other_hosts_and_schemes_are_not():
    target = fetcher("voices.example")
    for url in (
        "http://other.example/a", "ftp://voices.example/a", "file:///etc/passwd",
        "http://voices.example.evil.example/", "http://user@other.example/", "gopher://x", "http://",
        "http://voices.example@other.example/",
    ):  # fmt: skip
        with pytest.raises(InvalidRequest) as caught:
            await target.fetch(url)
        assert caught.value.param == "ref_audio"


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "::1",
     "fe80::1", "fc00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "100.64.0.1", "224.0.0.1",
     "2002:7f00:1::", "255.255.255.255"],
)  # fmt: skip
async def test_private_addresses_are_never_asked(address):
    assert not is_public(address)
    target = fetcher("voices.example", check=is_public, address=address)
    with pytest.raises(InvalidRequest, match="public address"):
        await target.fetch("http://voices.example/a.wav")


def test_public_addresses():
    assert is_public("1.1.1.1")
    assert is_public("2606:4700:4700::1111")


async def test_one_private_address_among_public_ones_is_enough_to_refuse():
    async def resolver(host, port):
        return ["1.1.1.1", "127.0.0.1"]

    with pytest.raises(InvalidRequest, match="public address"):
        await ReferenceFetcher(["voices.example"], resolver).fetch("http://voices.example/")


async def test_a_name_that_changes_its_address_gains_nothing():
    """The connection goes to the address that was checked, whatever the name says later."""
    lookups = []

    async def resolver(host, port):
        lookups.append(host)
        return ["127.0.0.1"] if len(lookups) == 1 else ["127.0.0.2"]

    async with web({"/a": ok(b"x")}) as (port, _):
        target = ReferenceFetcher(["voices.example"], resolver, lambda a: a == "127.0.0.1")
        assert await target.fetch(f"http://voices.example:{port}/a") == b"x"
    assert lookups == ["voices.example"]


async def test_redirects_are_checked_like_the_first_address():
    async with web({}) as (port, _):
        answers = {
            "/in": moved("/out"),
            "/out": ok(b"there"),
            "/evil": moved(f"http://127.0.0.1:{port}/secret"),
            "/file": moved("file:///etc/passwd"),
            "/round": moved("/round"),
        }
    async with web(answers) as (port, _):
        target = fetcher("voices.example")
        base = f"http://voices.example:{port}"
        assert await target.fetch(f"{base}/in") == b"there"
        for path in ("/evil", "/file"):
            with pytest.raises(InvalidRequest, match="does not fetch"):
                await target.fetch(base + path)
        with pytest.raises(InvalidRequest, match="redirects"):
            await target.fetch(f"{base}/round")


async def test_huge_bodies_are_cut_off(monkeypatch):
    monkeypatch.setattr(fetch, "MAX_BYTES", 1000)

    async def endless(writer):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 500)
            await writer.drain()

    async with web({"/a": endless}) as (port, _):
        with pytest.raises(TooLarge):
            await fetcher("voices.example").fetch(f"http://voices.example:{port}/a")


async def test_slow_bodies_run_out_of_time(monkeypatch):
    monkeypatch.setattr(fetch, "TIMEOUT_S", 0.2)

    async def slow(writer):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(100):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with web({"/a": slow}) as (port, _):
        with pytest.raises(InvalidRequest, match="longer than"):
            await fetcher("voices.example").fetch(f"http://voices.example:{port}/a")


async def test_an_answer_that_is_no_success_and_a_dead_port():
    async with web({"/a": b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"}) as (port, _):
        with pytest.raises(InvalidRequest, match="404"):
            await fetcher("voices.example").fetch(f"http://voices.example:{port}/a")
    with pytest.raises(InvalidRequest, match="cannot be fetched"):
        await fetcher("voices.example").fetch("http://voices.example:9/a")
