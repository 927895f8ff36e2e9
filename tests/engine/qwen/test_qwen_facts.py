"""What doctor says about Qwen3-TTS, with and without a library and a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from phonate.engine.models.convert import ModelFiles
from phonate.engine.qwen.context import ContextOptions
from phonate.engine.qwen.facts import qwen_facts
from phonate.engine.qwen.library import Library


def test_library_and_model_are_tried(
    library: Library, model_files: Callable[[str], ModelFiles]
) -> None:
    files = model_files("voicedesign")
    facts = qwen_facts(
        wanted_library=str(library.path),
        talker=files.talker,
        codec=files.codec,
        options=ContextOptions(threads=1),
    )
    assert all(fact.ok for fact in facts)
    by_name = {fact.name: fact.value for fact in facts}
    assert by_name["ABI"] == str(library.abi)
    assert by_name["library"] == str(library.path)
    assert "voice_design" in by_name["model"]
    assert by_name["trial"].startswith("2 frames in ")


def test_missing_library_is_a_fact(tmp_path: Path) -> None:
    facts = qwen_facts(wanted_library=str(tmp_path / "libnothing.so"))
    assert facts[-1].name == "library"
    assert not facts[-1].ok
    assert "no such library" in facts[-1].value


def test_without_a_model_there_is_no_trial(library: Library) -> None:
    facts = qwen_facts(wanted_library=str(library.path))
    assert facts[-1].value == "none given"
    assert all(fact.ok for fact in facts)


def test_broken_model_is_a_fact(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "talker.gguf"
    path.write_bytes(b"GGUF but not really")
    facts = qwen_facts(wanted_library=str(library.path), talker=path, codec=path)
    assert facts[-1].name == "model"
    assert not facts[-1].ok
    assert "talker.gguf" in facts[-1].value
