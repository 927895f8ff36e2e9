"""The commands about model files, called as from a shell."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from phonate.cli_models import register
from phonate.engine.models.gguf_types import FILE_TYPES
from phonate.engine.models.resolve import OFFICIAL_IDS
from phonate.errors import SetupError


@pytest.fixture
def run(monkeypatch):
    """Arguments -> result; a SetupError comes through as the exception it is."""
    monkeypatch.setenv("COLUMNS", "200")
    app, dev = typer.Typer(), typer.Typer()
    register(app, dev)
    app.add_typer(dev, name="dev")

    def call(*arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


def test_make_a_model_convert_it_again_and_find_it(run, tmp_path):
    made = run("dev", "make-model", "-o", tmp_path, "--kind", "customvoice", "--type", "q8_0")
    assert made.exit_code == 0
    assert made.stdout == (
        f"--talker {tmp_path / 'talker-Q8_0.gguf'}\n--codec {tmp_path / 'codec-Q8_0.gguf'}\n"
    )
    assert "talker-Q8_0.gguf: 100 %" in made.stderr

    again = run("convert", tmp_path, "--out", tmp_path / "again", "--type", "Q8_0")
    assert again.exit_code == 0
    for name in ("talker-Q8_0.gguf", "codec-Q8_0.gguf"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / name).read_bytes()

    found = run("pull", tmp_path, "--quant", "Q8_0", "--local-files-only")
    assert found.stdout == made.stdout


def test_a_small_type_is_found_by_its_name(run, tmp_path):
    run("dev", "make-model", "-o", tmp_path)
    made = run("convert", tmp_path, "-o", tmp_path, "--type", "p4")
    assert "talker-P4.gguf" in made.stdout
    assert run("pull", tmp_path, "--quant", "P4", "--local-files-only").stdout == made.stdout


def test_codec_of_another_type(run, tmp_path):
    run("dev", "make-model", "-o", tmp_path)
    done = run("convert", tmp_path, "-o", tmp_path, "--type", "Q4_0", "--codec-type", "F16")
    assert "codec-F16.gguf" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("convert", "nowhere", "-o", "out"), "nowhere is not a directory"),
        (("convert", ".", "-o", "out", "--type", "Q3"), "'Q3'. Types that can be written"),
        (("dev", "make-model", "-o", "out", "--size", "9b"), "--size 9b: choose one of tiny"),
        (("pull", "9b", "--local-files-only"), "--model 9b: there is no such file"),
    ],
)
def test_errors_reach_the_caller_as_setup_errors(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SetupError, match=message):
        run(*arguments)


@pytest.mark.parametrize("command", [("pull",), ("convert",), ("dev", "make-model")])
def test_help_names_the_choices(run, command):
    text = run(*command, "--help").stdout
    wanted = {"pull": OFFICIAL_IDS, "convert": FILE_TYPES, "dev": ("tiny-proj", "voicedesign")}
    assert all(name in text for name in wanted[command[0]])
