import json
import logging

import pytest

from phonate.logs import JsonLines, Redact


def record(message, *args, **extra):
    made = logging.getLogger("phonate.test").makeRecord(
        "phonate.test", logging.INFO, __file__, 1, message, args, None, extra=extra
    )
    Redact().filter(made)
    return made


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ('"WebSocket /v1/x?api_key=s3cret&a=1" [accepted]', "&a=1"),
        ("< GET /x?a=1&API_KEY=s3cret HTTP/1.1", "HTTP/1.1"),
        ("< authorization: Bearer s3cret", "authorization: Bearer ***"),
        ("< Authorization: Basic s3cret", "Basic ***"),
        ("< sec-websocket-protocol: phonate, bearer.s3cret", "phonate"),
    ],
)
def test_keys_do_not_reach_a_log(line, kept):
    message = record("%s", line).getMessage()
    assert "s3cret" not in message
    assert kept in message


def test_other_lines_stay_as_they_are():
    made = record("%d connections", 3)
    assert made.getMessage() == "3 connections"
    assert made.args == (3,)


def test_json_lines_carry_their_fields():
    line = json.loads(JsonLines().format(record("hello %s", "you", request_id="req_1", status=200)))
    assert line["message"] == "hello you"
    assert line["request_id"] == "req_1"
    assert line["status"] == 200
    assert line["level"] == "info"
