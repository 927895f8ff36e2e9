"""The official qwen-tts package, run in float32 with eager attention, and listened to inside.

Only imported where the package is: the environment of tests/parity/requirements.txt. Everything
comes back as numpy arrays.
"""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from golden_cases import CODEC_FRAMES, Case, random_codes, reference_audio


def _stub_torchaudio() -> None:
    """qwen_tts imports torchaudio for its 25 Hz tokenizer, which nothing here uses. transformers
    looks for it too, so it must be imported first."""
    import transformers  # noqa: F401

    try:
        import torchaudio  # noqa: F401
    except ImportError:
        for name in ("torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi"):
            sys.modules[name] = types.ModuleType(name)


@dataclass
class _Heard:
    """Outputs of the submodules during one generate(), in the order of their calls."""

    talker_inputs: list[np.ndarray] = field(default_factory=list)
    talker_layers: list[list[np.ndarray]] = field(default_factory=list)
    talker_hidden: list[np.ndarray] = field(default_factory=list)
    logits: list[np.ndarray] = field(default_factory=list)
    predictor_inputs: list[np.ndarray] = field(default_factory=list)
    predictor_hidden: list[np.ndarray] = field(default_factory=list)
    codes: np.ndarray | None = None
    ids: dict[str, np.ndarray] = field(default_factory=dict)


class Official:
    """One checkpoint in the official package."""

    def __init__(self, checkpoint: Path) -> None:
        _stub_torchaudio()
        import torch
        from qwen_tts import Qwen3TTSModel

        torch.manual_seed(0)
        self.torch = torch
        self.wrapper = Qwen3TTSModel.from_pretrained(
            str(checkpoint), dtype=torch.float32, device_map="cpu", attn_implementation="eager"
        )
        self.model = self.wrapper.model
        self.speech_tokenizer = self.model.speech_tokenizer

    # ------------------------------------------------------------ the parts

    def tokenize(self, text: str) -> np.ndarray:
        return self.wrapper.processor(text=text, return_tensors="np")["input_ids"][0].astype(
            np.int32
        )

    def split(self, text: str) -> list[str]:
        """The pre-tokenizer's pieces, NFC-normalised, in byte-level spelling."""
        backend = self.wrapper.processor.tokenizer.backend_tokenizer
        normal = backend.normalizer.normalize_str(text)
        return [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(normal)]

    def speaker_embedding(self, audio: np.ndarray) -> np.ndarray:
        return self.model.extract_speaker_embedding(audio, 24000).numpy()

    def encode(self, audio: np.ndarray) -> np.ndarray:
        codes = self.speech_tokenizer.encode(audio, sr=24000).audio_codes[0]
        return codes.numpy().astype(np.int32)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        with self.torch.no_grad():
            wavs, rate = self.speech_tokenizer.decode(
                [{"audio_codes": self.torch.tensor(codes, dtype=self.torch.long)}]
            )
        assert rate == 24000
        return np.asarray(wavs[0], np.float32)

    def parts(self, *, with_encoder: bool) -> dict[str, np.ndarray]:
        """Codec decoder, and for base models speaker encoder and codec encoder."""
        found = {"codec_audio": self.decode(random_codes(CODEC_FRAMES))}
        if with_encoder:
            audio = reference_audio()
            found["speaker_embedding"] = self.speaker_embedding(audio)
            found["reference_codes"] = self.encode(audio)
        return found

    # ------------------------------------------------------------ one utterance

    def run(self, case: Case) -> dict[str, np.ndarray]:
        """Greedy generation with everything that was heard inside on the way."""
        heard = _Heard()
        handles = self._listen(heard)
        try:
            audio = self._speak(case, heard)
        finally:
            for handle in handles:
                handle.remove()
        assert heard.codes is not None
        codes = heard.codes
        return {
            **heard.ids,
            "prefill": heard.talker_inputs[0],
            "prefill_layers": np.stack([layer[-1] for layer in heard.talker_layers[0]]),
            "step_inputs": np.concatenate(heard.talker_inputs[1:4]),
            "hidden": np.concatenate([h[-1:] for h in heard.talker_hidden[:4]]),
            "logits": np.concatenate([row[-1:] for row in heard.logits[:4]]),
            "predictor_inputs": np.concatenate(heard.predictor_inputs[:15]),
            "predictor_hidden": np.concatenate([h[-1:] for h in heard.predictor_hidden[:15]]),
            "codes": codes.astype(np.int16),
            "audio": audio,
        }

    def _listen(self, heard: _Heard) -> list[Any]:
        talker = self.model.talker

        def rows(tensor: Any) -> np.ndarray:
            return tensor.detach()[0].float().numpy().copy()

        def talker_in(module: Any, args: Any, kwargs: Any) -> None:
            heard.talker_inputs.append(rows(kwargs["inputs_embeds"]))
            heard.talker_layers.append([])

        def layer_out(module: Any, args: Any, output: Any) -> None:
            heard.talker_layers[-1].append(rows(output[0]))

        def predictor_in(module: Any, args: Any, kwargs: Any) -> None:
            heard.predictor_inputs.append(rows(kwargs["inputs_embeds"]))

        return [
            talker.model.register_forward_pre_hook(talker_in, with_kwargs=True),
            *(layer.register_forward_hook(layer_out) for layer in talker.model.layers),
            talker.model.register_forward_hook(
                lambda m, a, out: heard.talker_hidden.append(rows(out.last_hidden_state))
            ),
            talker.codec_head.register_forward_hook(
                lambda m, a, out: heard.logits.append(rows(out))
            ),
            talker.code_predictor.model.register_forward_pre_hook(predictor_in, with_kwargs=True),
            talker.code_predictor.model.register_forward_hook(
                lambda m, a, out: heard.predictor_hidden.append(rows(out.last_hidden_state))
            ),
        ]

    def _speak(self, case: Case, heard: _Heard) -> np.ndarray:
        wrapper, inner = self.wrapper, self.model.generate

        def generate(**kwargs: Any) -> Any:
            for key in ("input_ids", "ref_ids", "instruct_ids"):
                ids = kwargs.get(key)
                if ids is not None and ids[0] is not None:
                    heard.ids[key] = ids[0][0].numpy().astype(np.int32)
            codes, hidden = inner(**kwargs)
            heard.codes = codes[0].numpy()
            return codes, hidden

        greedy = {
            "do_sample": False,
            "subtalker_dosample": False,
            # One more than the frames wanted: the last token is never expanded into a frame.
            "max_new_tokens": case.max_frames + 1,
            "non_streaming_mode": not case.streaming,
        }
        self.model.generate = generate
        try:
            if case.speaker is not None:
                wavs, _ = wrapper.generate_custom_voice(
                    case.text,
                    speaker=case.speaker,
                    language=case.language,
                    instruct=case.instruct,
                    **greedy,
                )
            elif case.instruct is not None:
                wavs, _ = wrapper.generate_voice_design(
                    case.text, instruct=case.instruct, language=case.language, **greedy
                )
            else:
                wavs, _ = wrapper.generate_voice_clone(
                    case.text,
                    language=case.language,
                    voice_clone_prompt=[self._clone_prompt(case)],
                    **greedy,
                )
        finally:
            self.model.generate = inner
        return np.asarray(wavs[0], np.float32)

    def _clone_prompt(self, case: Case) -> Any:
        audio = reference_audio()
        items = self.wrapper.create_voice_clone_prompt(
            ref_audio=(audio, 24000),
            ref_text=case.ref_text,
            x_vector_only_mode=not case.reference,
        )
        if case.reference:
            items[0].ref_code = items[0].ref_code[: case.reference]
        return items[0]
