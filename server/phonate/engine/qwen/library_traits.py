"""How the kinds of native library differ in behaviour: one table, by ABI version.

Measured on the libraries themselves; code asks a trait, never which library it has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from phonate.engine.base import TextLayout


@dataclass(frozen=True, slots=True)
class Traits:
    """How one kind of library behaves; what it may be passed."""

    label: str
    abi: int
    context_limit: int
    """Prompt rows + frames; 0 = what it was told at init. Beyond it qwentts.cpp fails in
    mid-stream, and takes the other lanes of a batch with it."""
    min_reference_samples: int = 1920
    """Shorter reference audio ends the process (500 samples), or is an error (100)."""
    checks_values: bool = False
    """False: NaN, a penalty of 0 and codes out of range end the process. Everything is checked
    here whichever it is; this says how wide the numbers may be."""
    obeys_special_tokens: bool = True
    """`<|im_end|>` in a text ends it; see `spoken` in qwen_checks."""
    subtalker_filters: bool = False
    """subtalker_top_k and subtalker_top_p have an effect."""
    onset_silence_ids: int = 0
    """How many codes may be banned at the start; 0: it cannot do this."""
    onset_silence_frames: int = 0
    first_chunk_frames: bool = False
    text_layouts: tuple[TextLayout, ...] = ("auto", "non_streaming")
    any_codec_size: bool = False
    """Reads the codec's sizes from the file instead of having them built in."""
    reports_results: bool = False
    """qt_last_result tells frames, tokens and why it ended."""
    has_flow: bool = False
    """A lane can say "wait" without blocking the others."""
    waits_for_place: bool = False
    """Takes any number of calls at once and queues them; the others take max_batch."""
    n_threads_at_init: bool = False


TRAITS = {
    4: (_qwentts := Traits("qwentts.cpp", abi=4, context_limit=4096)),
    5: replace(
        _qwentts,
        label="qwentts.cpp (RealtimeTTS)",
        abi=5,
        onset_silence_ids=256,
        onset_silence_frames=16,
    ),
    6: Traits(
        "phonate",
        abi=6,
        context_limit=0,
        checks_values=True,
        obeys_special_tokens=False,
        subtalker_filters=True,
        onset_silence_ids=1024,
        onset_silence_frames=64,
        first_chunk_frames=True,
        text_layouts=("auto", "streaming", "non_streaming"),
        any_codec_size=True,
        reports_results=True,
        has_flow=True,
        waits_for_place=True,
        n_threads_at_init=True,
    ),
}
