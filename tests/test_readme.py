"""The README is true: its commands exist, its options are options. test_docs_examples runs it."""

import re
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from phonate.cli import cli
from phonate.settings import Settings, flag_name

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_make_targets_exist(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"\bmake ([a-z-]+)\b(?!:)", _code(page.read_text())):
        assert target in targets, target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_options_exist(page):
    known = {flag_name(name) for name in Settings.model_fields} | {"--help", "--version"}
    known |= options_of(get_command(cli))
    code = _code(page.read_text())
    for tool, options in re.findall(r"\bpython (tools/\S+\.py)(.*)", code):
        source = (ROOT / tool).read_text()
        assert all(f'"{flag}"' in source for flag in FLAG.findall(options)), options
    for flag in FLAG.findall(re.sub(r"\bpython tools/.*", "", code)):
        assert flag in known, flag


def options_of(command):
    """Of a command and those below it."""
    found = {option for p in command.params for option in p.opts if option.startswith("--")}
    return found.union(*(options_of(c) for c in getattr(command, "commands", {}).values()))


def test_commands_exist():
    known = set(get_command(cli).commands)
    for command in re.findall(r"phonate ([a-z]+)\b", _code(README)):
        assert command in known, command


def _code(text):
    """What stands in backticks or is indented."""
    blocks = re.findall(r"`[^`]+`|^    .+$", text, re.MULTILINE)
    return "\n".join(blocks)


def test_python_of_the_readme_is_the_one_tested():
    low = re.search(r"Python (3\.\d+) or newer", README)[1]
    assert f'requires-python = ">={low}"' in (ROOT / "pyproject.toml").read_text()
    assert sys.version_info >= tuple(map(int, low.split(".")))
