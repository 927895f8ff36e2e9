"""The look at the locked packages, with an index of the test's own."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tools"))

import check_lock

FILES = {
    "good": [{"filename": "good-1.0-py3-none-any.whl", "yanked": False}],
    "bad": [
        {"filename": "bad-2.0.tar.gz", "yanked": "broken metadata"},
        {"filename": "bad-2.0-py3-none-any.whl", "yanked": True},
        {"filename": "bad-2.1.tar.gz", "yanked": False},
    ],
    "half": [
        {"filename": "half-1.0-cp310-none-any.whl", "yanked": True},
        {"filename": "half-1.0.tar.gz", "yanked": False},
    ],
}


class Index(BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.strip("/").rpartition("/")[2]
        found = name in FILES
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"files": FILES.get(name, [])}).encode())

    def log_message(self, *args):
        pass


@pytest.fixture
def index():
    server = HTTPServer(("127.0.0.1", 0), Index)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    thread.join()
    server.server_close()


def run(tmp_path, capsys, text, *arguments):
    lock = tmp_path / "requirements.lock"
    lock.write_text(text)
    code = check_lock.main([str(lock), *arguments])
    return code, capsys.readouterr().out


@pytest.mark.parametrize(
    "line", ["good", "good>=1", "good==1.*", "good>=1,<2", "good==1,!=2", "=="]
)
def test_a_line_that_pins_nothing_is_named(tmp_path, capsys, line):
    code, out = run(tmp_path, capsys, f"fine==1.0\n{line}\n", "--offline")
    assert code == 1
    assert f"line 2: {line!r}" in out


def test_pins_with_markers_extras_and_comments_are_fine(tmp_path, capsys):
    text = "# a comment\na==1.0 ; python_version < '3.11'\nb[x]==2.0  # via a\n\nc===3\n"
    code, out = run(tmp_path, capsys, text, "--offline")
    assert code == 0
    assert "3 packages" in out
    assert "yanked: not looked at (--offline)" in out


def test_prereleases_are_named(tmp_path, capsys):
    code, out = run(tmp_path, capsys, "a==1.0rc1\nb==1.0.post1\n", "--offline")
    assert code == 1
    assert "a 1.0rc1 is a pre-release" in out
    assert "!! b" not in out


def test_yanked_versions_are_named(tmp_path, capsys, index, monkeypatch):
    monkeypatch.setattr(check_lock, "audit", lambda lock: ([], "not looked at"))
    text = "good==1.0\nbad==2.0\nhalf==1.0\nnowhere==1\n"
    code, out = run(tmp_path, capsys, text, "--index", index)
    assert code == 1
    assert "!! bad 2.0 was yanked (broken metadata)" in out
    assert "!! half" not in out
    assert "nothing about 1" in out
    code, out = run(tmp_path, capsys, "bad==2.1\n", "--index", index)
    assert code == 0


def test_an_index_that_does_not_answer_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(check_lock, "audit", lambda lock: ([], "not looked at"))
    code, out = run(tmp_path, capsys, "good==1.0\n", "--index", "http://127.0.0.1:9")
    assert code == 0
    assert "the package index does not answer" in out


@pytest.mark.parametrize(
    ("licence", "copyleft"),
    [
        ("MIT", False), ("Apache-2.0", False), ("LGPL-2.1-or-later", False),
        ("GNU Lesser General Public License v3 (LGPLv3)", False),
        ("GPL-3.0-only", True), ("AGPL-3.0", True), ("GPLv2", True),
        ("GNU General Public License v3 (GPLv3)", True),
        ("GNU Affero General Public License v3", True),
        ("MIT OR GPL-2.0-only", False), ("BSD-3-Clause AND GPL-2.0-only", True),
    ],
)  # fmt: skip
def test_which_licences_are_not_for_the_default_install(licence, copyleft):
    assert check_lock.is_copyleft(licence) == copyleft


def test_the_default_install_is_without_gpl_and_without_extras():
    names, missing = check_lock.default_install()
    assert missing == set()
    assert {"fastapi", "uvicorn", "av", "starlette"} <= names
    assert "pytest" not in names
    assert check_lock.licences(names)[0] == []


def test_the_projects_own_lock_is_pinned():
    locked, wrong = check_lock.pins(check_lock.LOCK.read_text())
    assert wrong == []
    assert len(locked) > 50
    assert check_lock.prereleases(locked) == []


def test_without_an_index_it_says_how_to_name_one(capsys, monkeypatch):
    monkeypatch.setattr(check_lock, "INDEX", None)
    with pytest.raises(SystemExit) as raised:
        check_lock.main([])
    assert raised.value.code == 2
    assert "--index" in capsys.readouterr().err
