"""`phonate doctor --security`: options, files, and a running server seen from outside."""

from __future__ import annotations

import os
import socket

import pytest
from support import running
from typer.testing import CliRunner

from phonate import doctor_security
from phonate.cli import cli
from phonate.doctor_security import doctor_security as look
from phonate.engine.scripted import ScriptedEngine
from phonate.settings import load

LONG = "a-long-enough-key-for-anybody"


@pytest.fixture(autouse=True)
def _not_root(monkeypatch):
    """Tests may run as root; the files they make are then root's, which is us."""
    monkeypatch.setattr(doctor_security, "_user", lambda: doctor_security.Verdict("user", "me"))


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def report(capsys, tmp_path, environ=None, **flags):
    """(safe, what was printed) for these flags, with a port where nothing listens."""
    voices = tmp_path / "voices"
    if "voice_dir" not in flags:
        voices.mkdir(mode=0o700, exist_ok=True)
        flags["voice_dir"] = str(voices)
    flags.setdefault("port", str(free_port()))
    safe = look(load(flags, environ or {}))
    return safe, capsys.readouterr().out


def key_file(tmp_path, text=f"anna:{LONG}\n", mode=0o600):
    file = tmp_path / "keys"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def test_the_defaults_are_safe(capsys, tmp_path):
    safe, out = report(capsys, tmp_path)
    assert safe
    assert "[!!]" not in out
    assert "this machine only" in out
    assert "no phonate answers" in out


def test_a_careful_lan_setup_is_safe(capsys, tmp_path):
    options = {"host": "0.0.0.0", "allow_lan": True, "api_key_file": key_file(tmp_path)}
    safe, out = report(capsys, tmp_path, **options)
    assert safe, out
    assert "TLS" in out
    assert "--max-requests-per-minute" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"host": "0.0.0.0"}, "--allow-lan"),
        ({"host": "0.0.0.0", "allow_lan": True}, "--api-key-file"),
        ({"api_key": LONG}, "PHONATE_API_KEY"),
        ({"cors_origin": ["*"]}, "any web page"),
        ({"cors_origin": ["http://app.example"]}, "https"),
        ({"log_level": "debug"}, "--log-level info"),
        ({"api_key_file": "/nonexistent/keys"}, "No such file"),
    ],
)
def test_what_is_bad_is_said_with_the_way_out(capsys, tmp_path, options, words):
    safe, out = report(capsys, tmp_path, **options)
    assert not safe
    bad = out[out.index("[!!]") :]
    assert words in bad
    assert "\n     -> " in bad


def test_keys_in_the_environment(capsys, tmp_path):
    safe, out = report(capsys, tmp_path, {"PHONATE_API_KEY": LONG})
    assert safe, out
    assert not report(capsys, tmp_path, {"PHONATE_API_KEY": "short"})[0]
    same = {"PHONATE_API_KEY": LONG, "PHONATE_METRICS_KEY": LONG}
    assert "the same as" in report(capsys, tmp_path, same)[1]
    assert LONG not in out


def test_a_key_file_that_others_read_or_with_short_keys(capsys, tmp_path):
    safe, out = report(capsys, tmp_path, api_key_file=key_file(tmp_path, mode=0o644))
    assert not safe
    assert f"chmod 600 {tmp_path / 'keys'}" in out
    file = key_file(tmp_path, f"# people\nanna:{LONG}\nben:abc\n")
    safe, out = report(capsys, tmp_path, api_key_file=file)
    assert not safe
    assert "1 of 2 keys" in out
    assert "abc" not in out


def test_a_voice_folder_that_others_read(capsys, tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o755)
    safe, out = report(capsys, tmp_path, voice_dir=str(folder))
    assert not safe
    assert f"chmod 700 {folder}" in out


def test_root_is_bad(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert doctor_security._user().level == "bad"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert doctor_security._user().level == "ok"


# A server that runs -------------------------------------------------------------------------------


def test_a_running_server_with_a_key(capsys, tmp_path):
    environ = {"PHONATE_API_KEY": LONG}
    with running(ScriptedEngine(), api_key=LONG) as server:
        safe, out = report(capsys, tmp_path, environ, port=str(server.port))
        assert safe, out
        assert "asks everybody else for a key" in out


def test_a_running_server_that_has_other_options(capsys, tmp_path):
    with running(ScriptedEngine()) as server:
        safe, out = report(capsys, tmp_path, port=str(server.port))
        assert safe, out
        assert "no key, loopback only" in out
        safe, out = report(capsys, tmp_path, {"PHONATE_API_KEY": LONG}, port=str(server.port))
        assert not safe
        assert "speaks without a key" in out
        assert "gives /metrics away" in out


def test_a_running_server_that_lists_or_shares_too_much(capsys, tmp_path):
    options = {"api_key": LONG, "cors_origin": ["https://attacker.example"]}
    with running(ScriptedEngine(), **options) as server:
        safe, out = report(
            capsys,
            tmp_path,
            {"PHONATE_API_KEY": LONG},
            port=str(server.port),
            protect_listings=True,
        )
    assert not safe
    assert "lists voices without a key" in out
    assert "any web page read its answers" in out


@pytest.mark.parametrize(("flags", "code"), [([], 0), (["--cors-origin", "*"], 1)])
def test_the_command(tmp_path, flags, code):
    folder = tmp_path / "voices"
    folder.mkdir(mode=0o700)
    arguments = ["doctor", "--security", "--voice-dir", str(folder), "--port", str(free_port())]
    done = CliRunner().invoke(cli, [*arguments, *flags])
    assert done.exit_code == code, done.output


@pytest.mark.parametrize(
    ("address", "fine"),
    [
        ("", True),
        ("https://s3.example.com", True),
        ("http://127.0.0.1:9000", True),
        ("http://s3.example.com", False),
    ],
)
def test_recordings_go_to_a_bucket_encrypted(capsys, tmp_path, monkeypatch, address, fine):
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    safe, out = report(capsys, tmp_path, voice_dir="s3://voices/team")
    assert safe == fine
    assert ("s3://voices/team unencrypted" in out) != fine
    assert "local copy of the voices" in out
