"""The model, slowly and plainly in numpy, from the two GGUF files: the obvious version.

It says what an engine must compute, and shows that a converted file holds the right numbers under
the right names: the goldens of the official package are compared with it. Shapes in comments;
T rows, H hidden, everything float32. One instance per model; nothing here is fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import erf
from pathlib import Path
from typing import Any

import gguf
import numpy as np

N_GROUPS = 16


class Gguf:
    """A file as {name: float32 array in torch's shape} and {key: value}."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.meta = {key: field.contents() for key, field in reader.fields.items()}
        self.tensors = {t.name: self._float32(t) for t in reader.tensors}

    @staticmethod
    def _float32(tensor: Any) -> np.ndarray:
        shape = [int(n) for n in tensor.shape][::-1]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return np.array(values, np.float32).reshape(shape)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tensors


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


_erf = np.vectorize(erf, otypes=[np.float32])


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + _erf(x / np.sqrt(np.float32(2))))


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return weight * (x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(eps)))


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(eps)) * weight + bias


def rope(x: np.ndarray, positions: np.ndarray, theta: float) -> np.ndarray:
    """x [T, heads, d]; element i turns with element i + d/2."""
    half = x.shape[-1] // 2
    angle = positions[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(np.float32)


def attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, first: int, window: int | None = None
) -> np.ndarray:
    """q [T, heads, d] at rows first.. of k, v [N, kv_heads, d] -> [T, heads * d]. Causal."""
    group = q.shape[1] // k.shape[1]
    i, j = first + np.arange(len(q))[:, None], np.arange(len(k))[None]
    seen = (j <= i) & (j > i - window if window else True)
    out = np.empty_like(q)
    for head in range(q.shape[1]):
        scores = q[:, head] @ k[:, head // group].T / np.sqrt(np.float32(q.shape[-1]))
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, head] = weights / weights.sum(-1, keepdims=True) @ v[:, head // group]
    return out.reshape(len(q), -1)


class Transformer:
    """The Qwen3 block stack of talker and code predictor, with its KV cache."""

    def __init__(self, file: Gguf, part: str) -> None:
        meta = f"qwen3-tts.{part}."
        self._file, self._part = file, part
        self._n_layers = file.meta[meta + "block_count"]
        self._head_dim = file.meta[meta + "attention.key_length"]
        self._theta = file.meta[meta + "rope.freq_base"]
        self._eps = file.meta[meta + "attention.layer_norm_rms_epsilon"]
        self.reset()

    def reset(self) -> None:
        self._kv: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._n = 0
        self.layers: list[np.ndarray] = []

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """x [T, H] -> [T, H] after the final norm; `layers` keeps each layer's output."""
        positions, self.layers = self._n + np.arange(len(x)), []
        for i in range(self._n_layers):
            x = self._layer(x, i, positions)
            self.layers.append(x)
        self._n += len(x)
        return rms_norm(x, self._file[f"{self._part}.output_norm.weight"], self._eps)

    def _layer(self, x: np.ndarray, i: int, positions: np.ndarray) -> np.ndarray:
        def w(name: str) -> np.ndarray:
            return self._file[f"{self._part}.blk.{i}.{name}.weight"]

        y = rms_norm(x, w("attn_norm"), self._eps)
        q, k, v = (
            (y @ w(f"attn_{n}").T).reshape(len(x), -1, self._head_dim) for n in ("q", "k", "v")
        )
        q = rope(rms_norm(q, w("attn_q_norm"), self._eps), positions, self._theta)
        k = rope(rms_norm(k, w("attn_k_norm"), self._eps), positions, self._theta)
        if i in self._kv:
            k = np.concatenate([self._kv[i][0], k])
            v = np.concatenate([self._kv[i][1], v])
        self._kv[i] = (k, v)
        x = x + attend(q, k, v, self._n) @ w("attn_output").T
        y = rms_norm(x, w("ffn_norm"), self._eps)
        return x + (silu(y @ w("ffn_gate").T) * (y @ w("ffn_up").T)) @ w("ffn_down").T


class Talker:
    """Prompt rows and greedy generation."""

    def __init__(self, path: Path) -> None:
        self.file = Gguf(path)
        self.transformer = Transformer(self.file, "talker")
        self.predictor = Transformer(self.file, "code_pred")
        self._codec_ids = {
            key.rsplit(".", 1)[1].removesuffix("_id"): value
            for key, value in self.file.meta.items()
            if key.startswith("qwen3-tts.codec.") and key.endswith("_id")
        }
        meta = self.file.meta
        self._languages = dict(
            zip(
                meta["qwen3-tts.codec.language_names"],
                meta["qwen3-tts.codec.language_ids"],
                strict=True,
            )
        )
        text = [meta[f"qwen3-tts.text.tts_{name}_id"] for name in ("pad", "bos", "eos")]
        self.pad, self.bos, self.eos = self.text_rows(text)

    def text_rows(self, ids: Sequence[int]) -> np.ndarray:
        """P: token ids -> [n, H]."""
        f = self.file
        x = f["talker.text_embd.weight"][np.asarray(ids, int)]
        x = silu(x @ f["talker.text_proj.fc1.weight"].T + f["talker.text_proj.fc1.bias"])
        return x @ f["talker.text_proj.fc2.weight"].T + f["talker.text_proj.fc2.bias"]

    def codec_row(self, name_or_id: str | int) -> np.ndarray:
        i = self._codec_ids[name_or_id] if isinstance(name_or_id, str) else name_or_id
        return self.file["talker.codec_embd.weight"][i]

    def frame_row(self, codes: Sequence[int]) -> np.ndarray:
        """The sum of a frame's 16 embeddings, in order."""
        row = self.codec_row(int(codes[0]))
        for i in range(1, N_GROUPS):
            row = row + self.file[f"code_pred.codec_embd.{i - 1}.weight"][codes[i]]
        return row

    def prompt(
        self,
        ids: Sequence[int],
        *,
        language: str = "auto",
        speaker: str | None = None,
        embedding: np.ndarray | None = None,
        instruct_ids: Sequence[int] = (),
        ref_ids: Sequence[int] = (),
        ref_codes: np.ndarray | None = None,
        streaming: bool,
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """(prefill rows [T, H], text rows still to come)."""
        tags = self._tags(language, speaker)
        if speaker is not None:
            tags.append(self.codec_row(self._speaker(speaker, "ids")))
        if embedding is not None:
            tags.append(embedding)
        tags += [self.codec_row("pad"), self.codec_row("bos")]
        n = len(tags)
        rows = [*self.text_rows(instruct_ids)] if len(instruct_ids) else []
        rows += [*self.text_rows(ids[:3])]
        rows += [(self.pad if i < n - 2 else self.bos) + tags[i] for i in range(n - 1)]
        text = [*self.text_rows(ids[3:-5])]
        if ref_codes is not None:
            more, trailing = self._in_context(
                [*self.text_rows(ref_ids[3:-2]), *text, self.eos], ref_codes, streaming=streaming
            )
        elif streaming:
            more, trailing = [text[0] + self.codec_row("bos")], [*text[1:], self.eos]
        else:
            more = [row + self.codec_row("pad") for row in [*text, self.eos]]
            more.append(self.pad + self.codec_row("bos"))
            trailing = [self.pad]
        return np.array(rows + more, np.float32), trailing

    def _tags(self, language: str, speaker: str | None) -> list[np.ndarray]:
        language = language.lower()
        dialect = self._speaker(speaker, "dialects") if speaker else ""
        if dialect and language in {"auto", "chinese"}:
            language = dialect
        if language == "auto":
            return [self.codec_row(name) for name in ("nothink", "think_bos", "think_eos")]
        names = ("think", "think_bos", self._languages[language], "think_eos")
        return [self.codec_row(name) for name in names]

    def _speaker(self, name: str, column: str) -> Any:
        index = self.file.meta["qwen3-tts.codec.speaker_names"].index(name.lower())
        return self.file.meta[f"qwen3-tts.codec.speaker_{column}"][index]

    def _in_context(
        self, text: list[np.ndarray], codes: np.ndarray, *, streaming: bool
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        audio = [self.codec_row("bos"), *(self.frame_row(frame) for frame in codes)]
        if not streaming:
            rows = [row + self.codec_row("pad") for row in text]
            return rows + [row + self.pad for row in audio], [self.pad]
        trailing = text[len(audio) :] if len(text) > len(audio) else [self.pad]
        text = text + [self.pad] * (len(audio) - len(text))
        return [a + b for a, b in zip(text, audio, strict=False)], trailing

    def project(self, x: np.ndarray) -> np.ndarray:
        if "code_pred.mtp_proj.weight" not in self.file:
            return x
        f = self.file
        return x @ f["code_pred.mtp_proj.weight"].T + f["code_pred.mtp_proj.bias"]

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        return hidden @ self.file["talker.codec_head.weight"].T

    def predict(self, hidden: np.ndarray, c0: int) -> tuple[list[int], dict[str, np.ndarray]]:
        """The frame's other 15 codes, greedily, and what the predictor saw and made."""
        self.predictor.reset()
        x = self.project(np.stack([hidden, self.codec_row(c0)]))
        codes, inputs, hiddens = [c0], [x], []
        for i in range(N_GROUPS - 1):
            out = self.predictor(x)[-1]
            hiddens.append(out)
            codes.append(int((out @ self.file[f"code_pred.lm_head.{i}.weight"].T).argmax()))
            if i < N_GROUPS - 2:
                x = self.project(self.file[f"code_pred.codec_embd.{i}.weight"][codes[-1]][None])
                inputs.append(x)
        return codes, {"inputs": np.concatenate(inputs), "hidden": np.stack(hiddens)}

    def generate(
        self,
        rows: np.ndarray,
        trailing: list[np.ndarray],
        max_frames: int,
        penalty: float = 1.05,
    ) -> np.ndarray:
        """Greedy codes [N, 16]."""
        eos = self._codec_ids["eos"]
        self.transformer.reset()
        hidden = self.transformer(rows)[-1]
        frames: list[list[int]] = []
        while len(frames) < max_frames:
            logits = self.logits(hidden)
            for c in {frame[0] for frame in frames}:
                logits[c] = logits[c] * penalty if logits[c] < 0 else logits[c] / penalty
            end = logits[eos] if len(frames) >= 2 else -np.inf
            logits[2048:] = -np.inf
            logits[eos] = end
            c0 = int(logits.argmax())
            if c0 == eos:
                break
            codes, _ = self.predict(hidden, c0)
            t = len(frames)
            frames.append(codes)
            text = trailing[t] if t < len(trailing) else self.pad
            hidden = self.transformer((self.frame_row(codes) + text)[None])[-1]
        return np.array(frames, np.int32).reshape(-1, N_GROUPS)
