"""A Qwen3-TTS checkpoint directory, read: configurations, tokenizer, weights.

    config.json  generation_config.json  vocab.json  merges.txt  tokenizer_config.json
    model.safetensors, or shards with model.safetensors.index.json
    speech_tokenizer/config.json  speech_tokenizer/model.safetensors

Everything wrong with a directory is a SetupError that names the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from phonate.engine.models.safetensors_file import SafetensorsFile, TensorEntry
from phonate.engine.models.talker_tensors import Config, TensorSpec
from phonate.errors import SetupError

KINDS = ("base", "custom_voice", "voice_design")
TALKER_MODEL_TYPE = "qwen3_tts"
CODEC_MODEL_TYPE = "qwen3_tts_tokenizer_12hz"


@dataclass(frozen=True, slots=True)
class AddedToken:
    content: str
    special: bool


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Byte-level BPE: `vocab` piece -> id, `merges` "left right" in rank order, `added` id ->
    token beside the vocabulary."""

    vocab: dict[str, int]
    merges: list[str]
    added: dict[int, AddedToken]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    directory: Path
    config: Config
    generation: Config
    codec_config: Config
    tokenizer: Tokenizer

    @property
    def kind(self) -> str:
        return str(self.config["tts_model_type"])


def read_checkpoint(directory: Path) -> Checkpoint:
    """Read and check all but the weights."""
    if not directory.is_dir():
        raise SetupError(
            f"{directory} is not a directory. Give the folder of a Qwen3-TTS checkpoint, "
            "the one with config.json and model.safetensors in it."
        )
    config = _read_json(directory / "config.json")
    codec = _read_json(directory / "speech_tokenizer" / "config.json")
    _expect(directory / "config.json", config, "model_type", (TALKER_MODEL_TYPE,))
    _expect(directory / "config.json", config, "tokenizer_type", (CODEC_MODEL_TYPE,))
    _expect(directory / "config.json", config, "tts_model_type", KINDS)
    codec_path = directory / "speech_tokenizer" / "config.json"
    _expect(codec_path, codec, "model_type", (CODEC_MODEL_TYPE,))
    if config["tts_model_type"] == "base" and "speaker_encoder_config" not in config:
        raise SetupError(
            f"{directory / 'config.json'} has no speaker_encoder_config, which a base model needs."
        )
    generation = directory / "generation_config.json"
    return Checkpoint(
        directory,
        config,
        _read_json(generation) if generation.exists() else {},
        codec,
        _read_tokenizer(directory),
    )


def _expect(path: Path, config: Config, key: str, allowed: tuple[str, ...]) -> None:
    if config.get(key) not in allowed:
        raise SetupError(
            f"{path}: {key} is {config.get(key)!r}; this converter knows "
            f"{', '.join(map(repr, allowed))}. Is it a Qwen3-TTS 12 Hz checkpoint?"
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SetupError(
            f"Cannot read {path}: {error.strerror}. A Qwen3-TTS checkpoint has this file."
        ) from error
    except ValueError as error:
        raise SetupError(f"{path} is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise SetupError(f"{path} holds no JSON object.")
    return value


def _read_tokenizer(directory: Path) -> Tokenizer:
    settings_path = directory / "tokenizer_config.json"
    vocab = {str(piece): int(i) for piece, i in _read_json(directory / "vocab.json").items()}
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise SetupError(f"{directory / 'vocab.json'}: the ids are not 0 to {len(vocab) - 1}.")
    try:
        added = {
            int(i): AddedToken(str(token["content"]), bool(token.get("special", False)))
            for i, token in _read_json(settings_path)["added_tokens_decoder"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SetupError(f"{settings_path}: added_tokens_decoder is missing or wrong.") from error
    return Tokenizer(vocab, _read_merges(directory / "merges.txt"), added)


def _read_merges(path: Path) -> list[str]:
    """One pair per line. Only the first line can be a comment: 96 real pairs begin with '#'."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise SetupError(f"Cannot read {path}: {error.strerror}.") from error
    if lines and lines[0].startswith("#version"):
        del lines[0]
    merges = [line for line in lines if line]
    for number, merge in enumerate(merges, start=1):
        if merge.count(" ") != 1:
            raise SetupError(f"{path}: pair {number} is {merge!r}, not two pieces and a space.")
    return merges


class Weights:
    """The tensors of one directory: model.safetensors, or the shards of its index."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._stack = ExitStack()
        self._home: dict[str, SafetensorsFile] = {}
        try:
            for path in self._files():
                file = self._stack.enter_context(SafetensorsFile(path))
                self._home.update(dict.fromkeys(file.tensors, file))
        except BaseException:
            self._stack.close()
            raise

    def _files(self) -> list[Path]:
        index = self.directory / "model.safetensors.index.json"
        if not index.exists():
            return [self.directory / "model.safetensors"]
        shards = _read_json(index).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise SetupError(f"{index}: weight_map is missing.")
        names = {str(shard) for shard in shards.values()}
        if any(Path(name).name != name for name in names):
            raise SetupError(f"{index}: weight_map names files outside its directory.")
        return [self.directory / name for name in sorted(names)]

    def file_of(self, name: str) -> SafetensorsFile:
        return self._home[name]

    def entry(self, name: str) -> TensorEntry:
        return self._home[name].tensors[name]

    def check(self, specs: Iterable[TensorSpec]) -> None:
        """SetupError for the first tensor that is missing, has another shape, or is not known."""
        known = {spec.name: spec.shape for spec in specs}
        for name, shape in known.items():
            if name not in self._home:
                raise SetupError(
                    f"{self.directory} lacks the tensor {name}, which its config.json calls for."
                )
            found = self.entry(name).shape
            if found != shape:
                raise SetupError(
                    f"{self.directory}: tensor {name} has shape {list(found)}; "
                    f"its config.json calls for {list(shape)}."
                )
        unknown = sorted(set(self._home) - set(known))
        if unknown:
            raise SetupError(
                f"{self.directory} holds {len(unknown)} tensors that this converter does not know, "
                f"the first is {unknown[0]}. Is it a newer kind of model?"
            )

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Weights:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
