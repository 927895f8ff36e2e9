"""Downloads from a fake hub on 127.0.0.1: the real client, the real cache, real broken sockets."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fake_hub import COMMIT, FakeHub, fake_hub

from phonate.engine.models.hub import HubOptions
from phonate.engine.models.resolve import GGUF_REPO, hub_names, parse, pull, resolve
from phonate.errors import SetupError

NAMES = hub_names("0.6b-base", "Q8_0")
FILES = {
    NAMES.talker: b"GGUF" + bytes(range(256)) * 4000,
    NAMES.codec: b"GGUF" + b"codec" * 1000,
}


@pytest.fixture
def hub():
    with fake_hub(FakeHub(GGUF_REPO, dict(FILES))) as running:
        yield running


@pytest.fixture
def get(hub, tmp_path, monkeypatch):
    """resolve() against the fake hub, with a cache of its own."""
    from huggingface_hub import constants, file_download

    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE
    path = template[template.index("/{repo_id}") :]
    for module in (constants, file_download):
        if hasattr(module, "HUGGINGFACE_CO_URL_TEMPLATE"):
            monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + path)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)

    def call(model="0.6b-base", *, progress=lambda *_: None, offline=False, **options):
        hub_options = HubOptions(tmp_path / "cache", offline)
        return resolve(model, hub=hub_options, progress=progress, **options)

    return call


def contents(resolved) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (resolved.files.talker, resolved.files.codec)}


def test_both_files_come_whole_and_only_once(get, hub):
    first = get()
    assert contents(first) == FILES
    assert first.id == "Qwen3-TTS-12Hz-0.6B-Base"
    n = len(hub.gets(NAMES.talker))
    assert contents(get()) == FILES
    assert len(hub.gets(NAMES.talker)) == n


def test_progress_counts_every_byte(get):
    heard = []
    get(progress=lambda *event: heard.append(event))
    for name, data in FILES.items():
        events = [event for event in heard if event[0] == name]
        assert events[0][1] == 0
        assert events[-1] == (name, len(data), len(data))


def test_a_broken_connection_resumes_where_it_broke(get, hub, monkeypatch):
    from huggingface_hub import constants

    # What it has not yet written when a connection breaks it asks for again: 10 MB at most.
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 100_000)
    monkeypatch.setattr("time.sleep", lambda _: None)  # the client waits a second between tries
    hub.cut_after += [300_000, 250_000]
    assert contents(get()) == FILES
    assert hub.gets(NAMES.talker) == [None, "bytes=300000-", "bytes=500000-"]


def test_a_file_that_is_not_there_names_the_way_out(get, hub):
    with pytest.raises(SetupError, match=r"0.6b-base-BF16.gguf .* no such file: choose another"):
        get(quant="BF16")
    del hub.files[NAMES.codec]
    with pytest.raises(SetupError, match=rf"{NAMES.codec} .* no such file"):
        get()


def test_a_repository_that_is_not_there(get):
    with pytest.raises(
        SetupError, match=r"nobody/nothing: .* no such repository, or it is private"
    ):
        get("nobody/nothing:0.6b-base")


def test_a_gated_repository(get, hub):
    hub.status, hub.error_code = 403, "GatedRepo"
    with pytest.raises(SetupError, match="accept its terms"):
        get()


def test_revisions(get, hub):
    assert contents(get(revision="v1")) == FILES
    assert contents(get(revision=COMMIT)) == FILES
    assert any(f"/resolve/v1/{NAMES.talker}" in path for _, path, _ in hub.seen)
    with pytest.raises(SetupError, match=r"@v9: there is no such revision"):
        get(revision="v9")


def test_local_files_only_never_calls_out(get, hub):
    with pytest.raises(
        SetupError, match=r"--local-files-only forbids .* --talker and --codec.*convert"
    ):
        get(offline=True)
    assert hub.seen == []
    get()
    hub.seen.clear()
    assert contents(get(offline=True)) == FILES
    assert hub.seen == []


def test_hf_hub_offline_is_obeyed(get, hub, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SetupError, match=r"HF_HUB_OFFLINE forbids .* --talker and --codec"):
        get()
    assert hub.seen == []


def test_a_hub_that_fails_is_not_needed_for_what_is_cached(get, hub, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    get()
    hub.status = 503
    assert contents(get()) == FILES


def test_a_hub_that_is_down(get, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr("time.sleep", lambda _: None)
    for name, value in (("ENDPOINT", "http://127.0.0.1:9"),):
        monkeypatch.setattr(constants, name, value)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE
    path = template[template.index("/{repo_id}") :]
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9" + path)
    with pytest.raises(SetupError, match=r"the hub does not answer\. Without a network: copy"):
        get()


def test_something_that_is_no_gguf(get, hub):
    hub.files[NAMES.talker] = b"<html>please log in</html>"
    with pytest.raises(SetupError, match="is not a GGUF file"):
        get()


# ---------------------------------------------------------------- other repositories


@pytest.fixture
def other(hub):
    hub.repo = "me/mine"
    hub.files = {
        "README.md": b"",
        "voice-talker-Q8_0.gguf": b"GGUFt8",
        "voice-codec-Q8_0.gguf": b"GGUFc8",
        "voice-talker-F16.gguf": b"GGUFt16",
        "voice-codec-F16.gguf": b"GGUFc16",
    }
    return hub


def test_the_only_pair_of_a_quant_is_found(get, other):
    found = get("me/mine", quant="F16")
    assert contents(found) == {k: v for k, v in other.files.items() if "F16" in k}
    assert found.id == "mine"


def test_several_pairs_are_listed(get, other):
    other.files["second-talker-Q8_0.gguf"] = b"GGUF"
    with pytest.raises(SetupError, match=r"me/mine holds 2 talkers and 1 codecs of --quant Q8_0"):
        get("me/mine")


def test_a_repository_that_cannot_be_listed(get, other):
    with pytest.raises(SetupError, match=r"list of files of me/other"):
        get("me/other")
    with pytest.raises(SetupError, match="nobody knows which files it has"):
        get("me/mine", offline=True)


# ---------------------------------------------------------------- from outside


def test_the_environment_alone_points_to_another_hub(hub, tmp_path):
    """HF_ENDPOINT is read when the client is imported: a process of its own."""
    script = (
        "from phonate.engine.models.hub import HubOptions\n"
        "from phonate.engine.models.resolve import resolve\n"
        "print(resolve('0.6b-base', hub=HubOptions()).files.talker)"
    )
    environment = os.environ | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "0",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.strip())
    assert path.is_relative_to(tmp_path)
    assert path.read_bytes() == FILES[NAMES.talker]


def test_pull_takes_what_parse_gives(get, hub, tmp_path):
    model = replace(parse("0.6b-base"), quant="Q8_0")
    files = pull(model, HubOptions(tmp_path / "cache"))
    assert files.talker.read_bytes() == FILES[NAMES.talker]
