"""What `--model` can mean, and how it becomes two files on this disk.

    0.6b-base                              a short name, with --quant
    Qwen/Qwen3-TTS-12Hz-0.6B-Base          the official id of the same
    owner/repo                             a hub repository with one pair of GGUF files per quant
    owner/repo:1.7b-base  owner/repo@REV   one model of several; a branch, tag or commit
    DIR                                    a folder, as `phonate convert` fills it
    TALKER.gguf with --codec CODEC.gguf    two files; so does --talker with --codec

`parse` reads the words and touches nothing; `resolve` goes on to the files, downloading what the
hub's cache lacks. Everything that can go wrong is a SetupError that says what to do.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from phonate.engine.models.hub import HubOptions, download, list_gguf_files
from phonate.engine.models.model_files import ModelFiles, check_gguf
from phonate.engine.models.progress import Progress, silent
from phonate.errors import SetupError

GGUF_REPO = "Serveurperso/Qwen3-TTS-GGUF"
QUANTS = ("F32", "BF16", "Q8_0", "Q4_K_M")
"""What that repository holds of every model."""
DEFAULT_QUANT = "Q8_0"

OFFICIAL_IDS = {
    "0.6b-base": "Qwen/Qwen3-TTS-12Hz-0.6B-Base",
    "1.7b-base": "Qwen/Qwen3-TTS-12Hz-1.7B-Base",
    "0.6b-customvoice": "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice",
    "1.7b-customvoice": "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice",
    "1.7b-voicedesign": "Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign",
}
"""Short name -> official id."""

_SHORT_NAMES = {official.lower(): short for short, official in OFFICIAL_IDS.items()} | {
    short: short for short in OFFICIAL_IDS
}

_HUB_ID = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(:(?P<short>[\w.-]+))?(@(?P<revision>[\w./-]+))?")
_CODEC_NAME = re.compile(r"codec|tokenizer", re.IGNORECASE)
_TALKER_NAME = re.compile(r"talker", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LocalModel:
    """Two files that are here; the id is what the model is served as."""

    talker: Path
    codec: Path
    id: str


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository; `short` None means the only model in it."""

    repo: str
    short: str | None
    quant: str
    revision: str | None
    id: str


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    files: ModelFiles
    id: str


def parse(
    model: str | None,
    *,
    talker: Path | None = None,
    codec: Path | None = None,
    quant: str = DEFAULT_QUANT,
    revision: str | None = None,
) -> LocalModel | HubModel:
    """Raises SetupError, naming the option, for what is unknown or does not go together."""
    if talker is not None:
        if model is not None:
            raise SetupError("Give --model or --talker, not both.", param="model")
        return _pair(talker, codec)
    if not model:
        raise SetupError("Give --model, or --talker and --codec.", param="model")
    # os.path, unlike Path, answers False to names that no file can have.
    expanded = os.path.expanduser(model)
    path = Path(expanded)
    if path.suffix == ".gguf" or os.path.isfile(expanded):
        return _pair(path, codec)
    if codec is not None:
        raise SetupError(
            "--codec belongs to the path of a talker GGUF (--talker, or --model TALKER.gguf); "
            f"{model!r} brings its own.",
            param="codec",
        )
    if os.path.isdir(expanded):
        return _folder(path, quant)
    return _hub_model(model, quant, revision)


def resolve(
    model: str | None,
    *,
    talker: Path | None = None,
    codec: Path | None = None,
    quant: str = DEFAULT_QUANT,
    revision: str | None = None,
    hub: HubOptions | None = None,
    progress: Progress = silent,
) -> ResolvedModel:
    """The files, checked to be GGUFs; downloads them first if need be."""
    wanted = parse(model, talker=talker, codec=codec, quant=quant, revision=revision)
    if isinstance(wanted, LocalModel):
        files = ModelFiles(wanted.talker, wanted.codec)
    else:
        files = pull(wanted, hub or HubOptions(), progress)
    check_gguf(files.talker, "talker")
    check_gguf(files.codec, "codec")
    return ResolvedModel(files, wanted.id)


def pull(model: HubModel, options: HubOptions, progress: Progress = silent) -> ModelFiles:
    """Both files of a hub model in the hub's cache; only what is missing travels."""
    if model.short is not None:
        names = hub_names(model.short, model.quant)
    else:
        listed = list_gguf_files(model.repo, model.revision, options)
        names = _pick_pair(listed, model.quant, model.repo)
    paths = [
        download(model.repo, name, model.revision, options, progress)
        for name in (names.talker, names.codec)
    ]
    return ModelFiles(*paths)


@dataclass(frozen=True, slots=True)
class HubNames:
    talker: str
    codec: str


def hub_names(short: str, quant: str) -> HubNames:
    """The published names. The codec is the same for every model."""
    return HubNames(f"qwen-talker-{short}-{quant}.gguf", f"qwen-tokenizer-12hz-{quant}.gguf")


def _pair(talker: Path, codec: Path | None) -> LocalModel:
    if codec is None:
        raise SetupError(
            f"--talker {talker} needs --codec: the speech tokenizer's GGUF, "
            "qwen-tokenizer-12hz-....gguf or what `phonate convert` calls codec-....gguf.",
            param="codec",
        )
    return LocalModel(talker.expanduser(), codec.expanduser(), talker.stem)


def _folder(path: Path, quant: str) -> LocalModel:
    names = sorted(p.name for p in path.glob("*.gguf"))
    if not names:
        hint = (
            f" It holds a checkpoint: `phonate convert {path} -o {path}` makes the files."
            if (path / "config.json").exists()
            else ""
        )
        raise SetupError(f"--model {path}: no .gguf file in this folder.{hint}", param="model")
    pair = _pick_pair(names, quant, str(path))
    return LocalModel(path / pair.talker, path / pair.codec, path.resolve().name)


def _pick_pair(names: list[str], quant: str, where: str) -> HubNames:
    """The only talker and the only codec of that quant among `names`."""
    of_quant = [name for name in names if _has_quant(name, quant)]
    codecs = [name for name in of_quant if _CODEC_NAME.search(Path(name).name)]
    talkers = [
        name for name in of_quant if name not in codecs and _TALKER_NAME.search(Path(name).name)
    ]
    if len(talkers) == len(codecs) == 1:
        return HubNames(talkers[0], codecs[0])
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    found = f"{len(talkers)} talkers and {len(codecs)} codecs"
    raise SetupError(
        f"{where} holds {found} of --quant {quant}; one of each is needed. "
        f"Files: {shown or 'none'}. Choose another --quant, name one model as in "
        "owner/repo:0.6b-base, or give --talker and --codec.",
        param="model",
    )


def _has_quant(name: str, quant: str) -> bool:
    # Q4_K must not match in Q4_K_M, nor F16 in BF16.
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(quant)}\.gguf$", name, re.IGNORECASE) is not None


def _hub_model(model: str, quant: str, revision: str | None) -> HubModel:
    short = _SHORT_NAMES.get(model.lower())
    if short is not None:
        return HubModel(
            GGUF_REPO, short, _quant(quant), revision, OFFICIAL_IDS[short].split("/")[1]
        )
    match = _HUB_ID.fullmatch(model)
    if match is None or model.startswith((".", "/", "~")):
        raise SetupError(
            f"--model {model}: there is no such file or folder, and it is no name of a model. "
            f"Known names: {', '.join(OFFICIAL_IDS)}; or owner/repo on the hub, or a path.",
            param="model",
        )
    pinned = match["revision"]
    if pinned and revision and pinned != revision:
        raise SetupError(f"--model {model} and --revision {revision} disagree.", param="revision")
    name = match["short"]
    if name is None and match["repo"] == GGUF_REPO:
        raise SetupError(
            f"{GGUF_REPO} holds several models. Choose one: "
            f"{', '.join(f'--model {short}' for short in OFFICIAL_IDS)}.",
            param="model",
        )
    label = name or match["repo"].split("/")[1]
    quant = _quant(quant) if match["repo"] == GGUF_REPO else quant
    return HubModel(match["repo"], name, quant, revision or pinned, label)


def _quant(quant: str) -> str:
    known = {name.lower(): name for name in QUANTS}
    if quant.lower() not in known:
        raise SetupError(f"--quant {quant}: choose one of {', '.join(QUANTS)}.", param="quant")
    return known[quant.lower()]
