"""From a stored voice to what an engine speaks with, made once and kept.

Three places, fastest first: memory (a few hundred voices), the store's cache of latents (survives
restarts), the engine's encoder. A `Reference` never changes, so an utterance that began with one
keeps it whatever happens to the voice.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from phonate.audio.reference import with_silent_end
from phonate.engine.base import CloneMode, EngineInfo, Reference, Samples
from phonate.errors import UnsupportedOperation
from phonate.voices.inventory import Entry
from phonate.voices.latent_cache import latents_key
from phonate.voices.latents import check_codes, check_embedding, unpack_rvq, unpack_spk
from phonate.voices.recording import SAMPLE_RATE, unpack_wav
from phonate.voices.voice import Material, Voice

RECIPE = "1"
"""Changes when the same recording would be prepared differently for the encoder."""

MAX_IN_MEMORY = 256
"""At 32 KB (2,048 floats, 30 s of codes) this is 8 MB."""

_Key: TypeAlias = "tuple[str, str | None]"
"""Folder of the version, transcript it was made with."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """How an engine makes latents, and everything that decides what they are."""

    encode: Callable[[Samples, str | None], Reference]
    """Mono 24 kHz audio, transcript or None -> latents. Blocks; waits for the engine by itself."""
    embedding_dim: int
    can_icl: bool
    model: str
    quantisation: str = ""
    abi: str = ""

    @classmethod
    def of(
        cls, info: EngineInfo, encode: Callable[[Samples, str | None], Reference]
    ) -> Encoder | None:
        """None for an engine that cannot clone."""
        if not info.can_clone:
            return None
        details = info.details
        return cls(
            encode,
            embedding_dim=info.embedding_dim,
            can_icl=info.can_icl,
            model=info.model,
            quantisation=details.get("quantisation", ""),
            abi=details.get("abi", ""),
        )

    def icl_text(self, voice: Voice, clone_mode: CloneMode) -> str | None:
        """The transcript to clone with; None means x-vector only."""
        return voice.ref_text if self.can_icl and clone_mode == "auto" else None

    def key(self, entry: Entry[Voice], text: str | None) -> str:
        """The cache key of latents made from this entry's recording."""
        recording = entry.files["reference.wav"].sha256
        return latents_key(RECIPE, recording, text, self.model, self.quantisation, self.abi)

    def from_recording(self, wav: bytes, text: str | None) -> Reference:
        """Encode, and trust nothing: what comes back is checked and made read-only."""
        audio = unpack_wav(wav)
        if text is not None:
            audio = with_silent_end(audio, SAMPLE_RATE)
        made = self.encode(audio, text)
        embedding = check_embedding(made.embedding, dim=self.embedding_dim, param="audio_sample")
        if text is None or made.codes is None:
            return Reference(embedding)
        return Reference(embedding, check_codes(made.codes, param="audio_sample"), text)

    def from_latents(self, voice: Voice, files: dict[str, bytes], text: str | None) -> Reference:
        """Of a voice that was stored as latents or as an embedding."""
        embedding = unpack_spk(files["voice.spk"])
        if self.embedding_dim and len(embedding) != self.embedding_dim:
            raise UnsupportedOperation(
                f"The voice {voice.name!r} was made for a model whose speakers have "
                f"{len(embedding)} numbers; {self.model} has {self.embedding_dim}. Register it "
                "again from a recording, or with latents of this model.",
                param="voice",
            )
        if voice.material is Material.LATENTS and text is not None:
            return Reference(embedding, unpack_rvq(files["voice.rvq"]), text)
        return Reference(embedding)


class ReferenceMemory:
    """The loaded references, least recently used thrown out. Any thread."""

    def __init__(self, capacity: int = MAX_IN_MEMORY) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Key, Reference] = OrderedDict()
        self._making: dict[_Key, threading.Lock] = {}

    def get(self, folder: str, text: str | None) -> Reference | None:
        """The reference of one version of a voice, made with this transcript."""
        with self._lock:
            key = (folder, text)
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, folder: str, text: str | None, reference: Reference) -> None:
        with self._lock:
            self._kept[folder, text] = reference
            self._kept.move_to_end((folder, text))
            while len(self._kept) > self._capacity:
                self._kept.popitem(last=False)

    def get_or_make(
        self, folder: str, text: str | None, make: Callable[[], Reference]
    ) -> Reference:
        """Ten requests for a new voice at once encode it once."""
        found = self.get(folder, text)
        if found is not None:
            return found
        with self._lock:
            turn = self._making.setdefault((folder, text), threading.Lock())
        try:
            with turn:
                found = self.get(folder, text)
                if found is None:
                    found = make()
                    self.put(folder, text, found)
                return found
        finally:
            with self._lock:
                self._making.pop((folder, text), None)

    def keep_only(self, folders: Collection[str]) -> None:
        """Forget versions that are no longer served."""
        with self._lock:
            for key in [key for key in self._kept if key[0] not in folders]:
                del self._kept[key]

    def __len__(self) -> int:
        return len(self._kept)
