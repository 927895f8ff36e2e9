from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pytest
import soundfile
from click.testing import Result
from typer.testing import CliRunner

from phonate.cli_voices import voices
from phonate.errors import Conflict, InvalidRequest, NotFound, SetupError, TooLarge


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    time = np.arange(48_000) / 24_000
    path = tmp_path / "anna.flac"
    soundfile.write(path, 0.3 * np.sin(2 * np.pi * 200 * time), 24_000)
    return path


def run(folder: Path, *words: object, code: int = 0, stdin: bytes | None = None) -> Result:
    arguments = [str(word) for word in words]
    result = CliRunner().invoke(voices, [*arguments, "--voice-dir", str(folder)], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def test_a_voice_from_cradle_to_grave(folder: Path, recording: Path, tmp_path: Path) -> None:
    assert "does not exist yet" in run(folder, "list").output
    run(folder, "add", "Anna [old]", recording, "--ref-text", "Hm.", "--language", "german")
    shown = run(folder, "list").stdout
    assert "Anna [old]" in shown
    assert "german" in shown
    (line,) = run(folder, "list", "--json").stdout.splitlines()
    voice = json.loads(line)
    assert voice["ref_text"] == "Hm."
    file = tmp_path / "out.jsonl"
    run(folder, "export", file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    run(folder, "remove", voice["id"])
    assert run(folder, "list").stdout == "no voices\n"
    run(folder, "import", file)
    assert json.loads(run(folder, "list", "--json").stdout) == voice
    piped = run(folder, "export", "-").stdout_bytes
    assert piped == file.read_bytes()
    run(folder / "other", "import", "-", stdin=piped)
    assert json.loads(run(folder / "other", "list", "--json").stdout) == voice


def test_an_existing_voice_is_kept_unless_told(folder: Path, recording: Path) -> None:
    run(folder, "add", "Anna", recording)
    with pytest.raises(Conflict, match="already a voice"):
        run(folder, "add", "ANNA", recording)
    run(folder, "add", "ANNA", recording, "--replace")
    result = run(folder, "import", folder, code=1)
    assert "not imported: ANNA" in result.output
    run(folder, "import", folder, "--replace")


def test_latents_from_files(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.spk").write_bytes(np.arange(1, 5, dtype="<f4").tobytes())
    (tmp_path / "a.rvq").write_bytes(bytes(22))
    run(folder, "add", "Lat", "--spk", tmp_path / "a.spk", "--rvq", tmp_path / "a.rvq")
    assert '"material": "latents"' in run(folder, "list", "--json").stdout


def test_wrong_use_is_one_clear_error(folder: Path, recording: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no voice 'Bob'"):
        run(folder, "remove", "Bob")
    with pytest.raises(InvalidRequest, match="nothing to make a voice from"):
        run(folder, "add", "Bob")
    with pytest.raises(SetupError, match="cannot be read: no such file"):
        run(folder, "add", "Bob", tmp_path / "nothing.wav")
    (tmp_path / "huge.wav").write_bytes(bytes(10 * 2**20 + 1))
    with pytest.raises(TooLarge):
        run(folder, "add", "Bob", tmp_path / "huge.wav")
    with pytest.raises(SetupError, match="cannot be read"):
        run(folder, "import", tmp_path / "nothing.jsonl")
    with pytest.raises(InvalidRequest, match="not an archive"):
        run(folder, "import", recording)
    with pytest.raises(InvalidRequest, match="no consent"):
        run(folder, "add", "Bob", recording, "--consent", "cons_1")
    run(folder, "add", "Anna", recording)
    with pytest.raises(SetupError, match="cannot be written"):
        run(folder, "export", tmp_path / "no folder" / "out.jsonl")
    with pytest.raises(NotFound):
        run(folder, "export", tmp_path / "out.jsonl", "Bob")
    assert not list(tmp_path.glob("*.part"))
    assert not list(tmp_path.glob(".*.part"))


def test_what_is_not_served_is_told(folder: Path, recording: Path) -> None:
    run(folder, "add", "Anna", recording)
    (path,) = folder.glob("voice_*/voice.json")
    path.write_text("{}")
    assert "not served" in run(folder, "list").stderr
