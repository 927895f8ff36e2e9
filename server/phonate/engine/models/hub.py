"""Downloads from the Hugging Face hub, with its errors said in words.

The hub's own client does the work: its cache, its resuming of a broken connection, HF_HUB_OFFLINE,
HF_ENDPOINT, HF_TOKEN and the like mean what they mean everywhere.
"""

from __future__ import annotations

import importlib
import inspect
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from phonate.engine.models.progress import Progress, silent
from phonate.errors import SetupError

_WITHOUT_NETWORK = (
    "Without a network: copy the two GGUF files here and give --talker and --codec, or make them "
    "from a checkpoint with `phonate convert`."
)


@dataclass(frozen=True, slots=True)
class HubOptions:
    """`cache_dir` None is the hub's own; `local_files_only` never opens a connection."""

    cache_dir: Path | None = None
    local_files_only: bool = False


def download(
    repo: str,
    filename: str,
    revision: str | None,
    options: HubOptions,
    progress: Progress = silent,
) -> Path:
    """The file's path in the cache. Raises SetupError."""
    import huggingface_hub

    extra: dict[str, Any] = {}
    if "tqdm_class" in inspect.signature(huggingface_hub.hf_hub_download).parameters:
        extra["tqdm_class"] = _bar_class(filename, progress)
    try:
        path = huggingface_hub.hf_hub_download(
            repo,
            filename,
            revision=revision,
            cache_dir=options.cache_dir,
            local_files_only=options.local_files_only,
            **extra,
        )
    # The client raises its own errors, those of whichever HTTP library it uses, and OSError.
    except Exception as error:
        _explain(error, repo, filename, revision, options)
    return Path(str(path))


def list_gguf_files(repo: str, revision: str | None, options: HubOptions) -> list[str]:
    """Names of a repository's .gguf files, sorted; asks the hub. Raises SetupError."""
    import huggingface_hub

    if options.local_files_only:
        raise SetupError(
            f"{repo}: without the hub nobody knows which files it has (--local-files-only). "
            "Name the model, as in owner/repo:0.6b-base, or give --talker and --codec.",
            param="model",
        )
    try:
        names = huggingface_hub.HfApi().list_repo_files(repo, revision=revision)
    except Exception as error:
        _explain(error, repo, "its list of files", revision, options)
    return sorted(name for name in names if name.endswith(".gguf"))


def _explain(
    error: Exception, repo: str, filename: str, revision: str | None, options: HubOptions
) -> NoReturn:
    from huggingface_hub import errors

    at = f"{repo}@{revision}" if revision else repo
    what = f"Cannot get {filename} of {at}"
    table: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
        (
            (errors.GatedRepoError,),
            "the repository wants you to accept its terms: do so on its page, then set HF_TOKEN.",
        ),
        (
            (errors.RepositoryNotFoundError,),
            "there is no such repository, or it is private: check the name, or set HF_TOKEN.",
        ),
        ((errors.RevisionNotFoundError,), "there is no such revision."),
        (
            (errors.HFValidationError,),
            "that is not a name the hub could have.",
        ),
        (
            (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError),
            _offline_reason(error, options),
        ),
        (
            (errors.EntryNotFoundError,),
            "the repository has no such file: choose another --quant or model.",
        ),
    )
    for kinds, reason in table:
        if isinstance(error, kinds):
            raise SetupError(f"{what}: {reason}", param="model") from error
    detail = str(error).strip().split("\n")[0] or type(error).__name__
    raise SetupError(
        f"{what}: {detail.rstrip('.')}. Try again (`phonate pull`). {_WITHOUT_NETWORK}",
        param="model",
    ) from error


def _offline_reason(error: Exception, options: HubOptions) -> str:
    if options.local_files_only:
        why = "it is not in the cache, and --local-files-only forbids to download it"
    elif _is_offline():
        why = "it is not in the cache, and HF_HUB_OFFLINE forbids to download it"
    else:
        why = "it is not in the cache, and the hub does not answer"
    return f"{why}. {_WITHOUT_NETWORK}"


def _is_offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _bar_class(label: str, progress: Progress) -> type[Any]:
    """A tqdm that draws nothing and tells `progress`."""
    # The module, not the class of the same name that the package puts in its place.
    base: Any = importlib.import_module("huggingface_hub.utils.tqdm").tqdm

    class Bar(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # Drawing goes nowhere; a disabled bar would not count.
            kwargs |= {"file": io.StringIO(), "disable": False, "mininterval": 1e9}
            super().__init__(*args, **kwargs)
            self._tell()

        def update(self, n: float | None = 1) -> bool | None:
            drawn: bool | None = super().update(n)
            self._tell()
            return drawn

        def _tell(self) -> None:
            progress(label, int(self.n), int(self.total or 0))

    return Bar
