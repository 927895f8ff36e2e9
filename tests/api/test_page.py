"""The page as it is served: types, caching, policy, prefix, and that a wheel has all of it. What it
does in a browser is in tests/page (`make page`)."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest
from support import running

from phonate.api.page import FILES
from phonate.engine.scripted import ScriptedEngine

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "server" / "phonate" / "page"
NAMES = sorted(FILES)


@pytest.fixture(scope="module")
def page():
    with running(ScriptedEngine()) as server, httpx.Client(base_url=server.address) as client:
        yield client


def test_every_file_of_the_folder_is_served():
    assert sorted(path.name for path in FOLDER.iterdir()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_types_and_headers(page, name):
    answer = page.get("/" if name == "index.html" else f"/page/{name}")
    assert answer.status_code == 200
    assert answer.content == (FOLDER / name).read_bytes()
    suffix = name.rpartition(".")[2]
    assert answer.headers["content-type"] == {
        "html": "text/html; charset=utf-8",
        "css": "text/css; charset=utf-8",
        "js": "text/javascript; charset=utf-8",
        "svg": "image/svg+xml",
    }.get(suffix)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-request-id"]
    assert "microphone=(self)" in answer.headers["permissions-policy"]


def test_the_policy_lets_nothing_in_from_elsewhere(page):
    header = page.get("/").headers["content-security-policy"]
    policy = dict(part.split(" ", 1) for part in header.split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in header
    assert "http" not in header
    assert "*" not in header


def test_nothing_is_inline_and_nothing_from_outside():
    html = FILES["index.html"].content.decode()
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", html)
    assert re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL) == [""]
    for name, file in FILES.items():
        addresses = re.findall(r"""\bhttps?://[^\s"'`]+""", file.content.decode())
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}, name


def test_addresses_are_relative_and_lead_to_files():
    html = FILES["index.html"].content.decode()
    addresses = re.findall(r'(?:href|src)="([^"#][^"]*)"', html)
    assert "page/app.js" in addresses
    for address in addresses:
        assert address.removeprefix("page/") in FILES, address
    for name, file in FILES.items():
        for module in re.findall(r'from "\./([^"]+)"', file.content.decode()):
            assert module in FILES, f"{name} imports {module}"


def test_a_known_version_is_not_sent_again(page):
    first = page.get("/page/app.js")
    etag = first.headers["etag"]
    assert first.headers["cache-control"] == "no-cache"
    for known in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        again = page.get("/page/app.js", headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b""), known
        assert again.headers["etag"] == etag
        assert "content-security-policy" in again.headers
    assert page.get("/page/app.js", headers={"If-None-Match": '"other"'}).status_code == 200
    assert page.get("/page/server.js").headers["etag"] != etag


def test_head_tells_the_length_without_the_content(page):
    answer = page.head("/")
    assert answer.status_code == 200
    assert answer.content == b""
    assert int(answer.headers["content-length"]) == len(FILES["index.html"].content)


@pytest.mark.parametrize(
    "path",
    ["/page/", "/page", "/page/nothing.js", "/page/a/b.js", "/page/../app.py",
     "/page/%2e%2e%2fapp.py", "/index.html"],
)  # fmt: skip
def test_there_is_nothing_else(page, path):
    answer = page.get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "not_found_error"
    assert page.post("/").status_code == 405


def test_the_page_is_open_and_asks_for_the_key():
    with running(ScriptedEngine(), api_key="sesame", protect_listings=True) as server:
        for path in ("/", "/page/app.js", "/v1/capabilities"):
            assert httpx.get(server.address + path).status_code == 200, path
        assert httpx.get(f"{server.address}/v1/audio/voices").status_code == 401
        assert httpx.get(f"{server.address}/v1/capabilities").json()["needs_key"] is True
        # The page tries a key here: it costs nothing, and is never open.
        consents = f"{server.address}/v1/audio/voice_consents?limit=1"
        assert httpx.get(consents).status_code == 401
        right = {"Authorization": "Bearer sesame"}
        assert httpx.get(consents, headers=right).status_code == 200


def test_without_a_key_capabilities_say_so(page):
    assert page.get("/v1/capabilities").json()["needs_key"] is False


def test_a_foreign_host_gets_no_page(page):
    """DNS rebinding: the page could otherwise be scripted from elsewhere."""
    assert page.get("/", headers={"Host": "evil.example"}).status_code == 403


def test_a_wheel_has_the_page(tmp_path):
    build = (
        "import sys; from scikit_build_core.build import build_wheel; "
        "build_wheel(sys.argv[1], {'wheel.cmake': 'false'})"
    )
    command = [sys.executable, "-c", build, str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in NAMES:
            assert archive.read(f"phonate/page/{name}") == FILES[name].content
