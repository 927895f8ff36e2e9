"""All the voices a server has besides its engine's own: registered ones and starters, ready to
speak with.

The app makes one, tells it the engine's encoder, and asks `reference_for` on a worker thread before
an utterance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from phonate.engine.base import CloneMode, Reference, Speaker
from phonate.errors import Conflict, NotFound, StorageError, UnsupportedOperation, VoiceNotFound
from phonate.voices.draft import Draft
from phonate.voices.inventory import why
from phonate.voices.latents import unpack_spk
from phonate.voices.manifest import Damaged
from phonate.voices.references import Encoder, ReferenceMemory
from phonate.voices.starters import StarterVoices
from phonate.voices.store import StoredVoice, VoiceStore, id_for
from phonate.voices.voice import Material, Voice, name_key


class VoiceLibrary:
    """Blocking; any thread. `encoder` is None while the engine cannot clone: voices are kept all
    the same, and speaking with one is a clear UnsupportedOperation."""

    def __init__(
        self,
        store: VoiceStore,
        *,
        model: str,
        encoder: Encoder | None = None,
        starters: StarterVoices | None = None,
        built_in: Iterable[Speaker] = (),
    ) -> None:
        self.store = store
        self._model = model
        self._encoder = encoder
        self._starters: Mapping[str, StoredVoice] = starters.entries() if starters else {}
        self._starter_voices = starters
        self._built_in = {name_key(n): s.id for s in built_in for n in (s.id, s.name)}
        self._memory = ReferenceMemory()
        self._last_seen: Mapping[str, StoredVoice] = {}
        store.sweep_latents(also_live=self._starters)

    @property
    def can_clone(self) -> bool:
        return self._encoder is not None

    def voices(self) -> tuple[Voice, ...]:
        """Starters first, then registered ones, oldest first; one of each name."""
        registered = self.store.voices()
        taken = {voice.id for voice in registered}
        starters = (e.value for e in self._starters.values() if e.id not in taken)
        return (*starters, *registered)

    def find(self, name_or_id: str) -> Voice | None:
        """By id or name, in any case. InvalidRequest for a name that could never be one."""
        entry = self._entry(name_or_id)
        return entry.value if entry else None

    def reference_for(self, name_or_id: str, clone_mode: CloneMode = "auto") -> Reference:
        """What the engine speaks with. May encode, hence block for seconds, the first time.
        Raises VoiceNotFound, UnsupportedOperation, StorageError for a damaged voice."""
        entry = self._entry(name_or_id)
        while entry is not None:
            reference = self._reference(entry, clone_mode)
            if reference is not None:
                return reference
            entry = self._entry(name_or_id)  # replaced or removed while we read it
        raise VoiceNotFound(name_or_id, [voice.name for voice in self.voices()])

    def register(self, draft: Draft, *, replace: bool = True) -> Voice:
        """Encode if there is an engine for it, then keep. Any error leaves everything as it was."""
        speaker = self._built_in.get(name_key(draft.name))
        if speaker is not None:
            raise Conflict(
                f"{draft.name!r} is a built-in speaker of {self._model}. Choose another name.",
                param="name",
            )
        encoder, reference, text = self._encoder, None, None
        if encoder is not None:
            text = encoder.icl_text(draft.to_voice(0), "auto")
            if draft.material is Material.REFERENCE:
                reference = encoder.from_recording(draft.files["reference.wav"], text)
            else:
                param = "spk_b64" if draft.material is Material.LATENTS else "speaker_embedding"
                unpack_spk(draft.files["voice.spk"], dim=encoder.embedding_dim, param=param)
        entry = self.store.add(draft, replace=replace)
        if encoder is not None and reference is not None:
            self.store.keep_latents(entry, encoder.key(entry, text), reference)
            self._memory.put(entry.folder, text, reference)
        self._forget_stale(force=True)
        return entry.value

    def remove(self, name_or_id: str) -> str:
        """Remove a voice with everything derived from it; its id. Raises NotFound, Conflict for a
        voice that is not the user's to remove."""
        id = id_for(name_or_id)
        removed = self.store.remove(id)
        self._forget_stale(force=True)
        if removed:
            return id
        if id in self._starters or name_key(name_or_id.strip()) in self._built_in:
            raise Conflict("This voice comes with the server and cannot be deleted.", param="voice")
        raise NotFound("There is no registered voice of this name or id.", param="voice")

    def reload(self) -> None:
        """Look at the folder now, and forget what is served no more."""
        self.store.reload()
        self._forget_stale(force=True)

    def _entry(self, name_or_id: str) -> StoredVoice | None:
        id = id_for(name_or_id)
        return self.store.entries().get(id) or self._starters.get(id) or self.store.get(id)

    def _reference(self, entry: StoredVoice, clone_mode: CloneMode) -> Reference | None:
        """None when the entry is not current any more."""
        encoder = self._encoder
        if encoder is None:
            raise UnsupportedOperation(
                f"The voice {entry.value.name!r} is registered, but the model {self._model} cannot "
                "speak with cloned voices. Start the server with a Qwen3-TTS base model.",
                param="voice",
            )
        text = encoder.icl_text(entry.value, clone_mode)
        if text is None and entry.value.ref_text is not None:
            fuller = self._memory.get(entry.folder, entry.value.ref_text)
            if fuller is not None:
                return Reference(fuller.embedding)
        try:
            reference = self._memory.get_or_make(
                entry.folder, text, lambda: self._make(entry, encoder, text)
            )
        except _NotCurrent:
            return None
        finally:
            self._forget_stale()
        return reference

    def _make(self, entry: StoredVoice, encoder: Encoder, text: str | None) -> Reference:
        if entry.value.material is not Material.REFERENCE:
            return encoder.from_latents(entry.value, self._files(entry), text)
        key = encoder.key(entry, text)
        reference = self.store.cached_latents(entry, key, text)
        if reference is None or len(reference.embedding) != encoder.embedding_dim:
            reference = encoder.from_recording(self._files(entry)["reference.wav"], text)
            self.store.keep_latents(entry, key, reference)
            self._last_seen = {}  # the voice may be gone again: look once more
        return reference

    def _files(self, entry: StoredVoice) -> dict[str, bytes]:
        if entry.is_starter and self._starter_voices is not None:
            try:
                return self._starter_voices.files(entry)
            except (Damaged, OSError) as error:
                raise StorageError(
                    f"The starter voice {entry.value.name!r} cannot be read: {why(error)}"
                ) from error
        files = self.store.files(entry)
        if files is None:
            raise _NotCurrent
        return files

    def _forget_stale(self, *, force: bool = False) -> None:
        """Memory holds versions that are served, nothing else."""
        now = self.store.entries()
        if force or now is not self._last_seen:
            served = (*now.values(), *self._starters.values())
            self._memory.keep_only({entry.folder for entry in served})
            self._last_seen = now


class _NotCurrent(Exception):
    """The entry was replaced or removed between finding and reading it."""


def describe(voice: Voice) -> dict[str, Any]:
    """A voice as its owner sees it: OpenAI's fields, then ours; absent ones left out."""
    fields = {
        **listing(voice),
        "object": "audio.voice",
        "description": voice.description,
        "ref_text": voice.ref_text,
        "consent": voice.consent,
        "material": voice.material.value,
    }
    return {key: value for key, value in fields.items() if value is not None}


def listing(voice: Voice) -> dict[str, Any]:
    """A voice as anybody sees it: what is said in a recording is not for a public list."""
    fields = {
        "id": voice.id,
        "name": voice.name,
        "kind": voice.kind,
        "language": voice.language,
        "created_at": voice.created_at,
    }
    return {key: value for key, value in fields.items() if value is not None}
