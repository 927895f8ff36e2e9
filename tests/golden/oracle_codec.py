"""The codec and the speaker encoder in numpy, from the GGUF files: the other half of oracle.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from oracle import Gguf, attend, gelu, layer_norm, rms_norm, rope, silu

SAMPLE_RATE = 24000
SAMPLES_PER_FRAME = 1920


def _causal_conv(x: np.ndarray, w: np.ndarray, b: np.ndarray, dilation: int = 1) -> np.ndarray:
    """x [T, in], w [out, in, k] (or [C, 1, k] depthwise) -> [T, out]; zeros before the start."""
    kernel = w.shape[2]
    padded = np.concatenate([np.zeros(((kernel - 1) * dilation, x.shape[1]), np.float32), x])
    out = np.tile(b, (len(x), 1)).astype(np.float32)
    for j in range(kernel):
        part = padded[j * dilation : j * dilation + len(x)]
        out += part * w[:, 0, j] if w.shape[1] == 1 and w.shape[0] > 1 else part @ w[:, :, j].T
    return out


def _transposed_conv(x: np.ndarray, w: np.ndarray, b: np.ndarray, stride: int) -> np.ndarray:
    """x [T, in], w [in, out, k], k = stride or 2 stride -> [T * stride, out]."""
    before = np.concatenate([np.zeros_like(x[:1]), x[:-1]])
    out = np.tile(b, (len(x), stride, 1)).astype(np.float32)
    for j in range(stride):
        out[:, j] += x @ w[:, :, j]
        if w.shape[2] == 2 * stride:
            out[:, j] += before @ w[:, :, j + stride]
    return out.reshape(-1, w.shape[1])


def _snake(x: np.ndarray, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    return (x + np.sin(x * np.exp(alpha)) ** 2 / (np.exp(beta) + np.float32(1e-9))).astype(
        np.float32
    )


class CodecDecoder:
    def __init__(self, file: Gguf) -> None:
        self._f = file
        self._meta = {
            key.rsplit(".", 1)[1]: value
            for key, value in file.meta.items()
            if key.startswith("qwen3-tts-tokenizer.decoder.")
        }

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        """codes [T, 16] -> samples [T * 1920], in one pass over all frames."""
        x = self._conv(self._dequantise(codes), "tok_dec.pre_conv")
        x = self._transformer(x)
        for i, ratio in enumerate(self._meta["upsampling_ratios"]):
            x = self._upsample(x, f"tok_dec.upsample.{i}", ratio)
        x = self._conv(x, "tok_dec.dec.0.conv")
        rates = self._meta["upsample_rates"]
        for i, rate in enumerate(rates, start=1):
            x = self._block(x, f"tok_dec.dec.{i}", rate)
        n = len(rates) + 1
        x = self._conv(self._snake(x, f"tok_dec.dec.{n}.snake"), f"tok_dec.dec.{n + 1}.conv")
        return np.clip(x[:, 0], -1, 1)

    def _conv(self, x: np.ndarray, name: str, dilation: int = 1) -> np.ndarray:
        return _causal_conv(x, self._f[f"{name}.weight"], self._f[f"{name}.bias"], dilation)

    def _snake(self, x: np.ndarray, name: str) -> np.ndarray:
        return _snake(x, self._f[f"{name}.alpha"], self._f[f"{name}.beta"])

    def _dequantise(self, codes: np.ndarray) -> np.ndarray:
        f = self._f
        first = f["tok_dec.vq_first.0.codebook"][codes[:, 0]]
        rest = sum(f[f"tok_dec.vq_rest.{i}.codebook"][codes[:, i + 1]] for i in range(15))
        z = first @ f["tok_dec.vq_first.output_proj.weight"][:, :, 0].T
        return (z + rest @ f["tok_dec.vq_rest.output_proj.weight"][:, :, 0].T).astype(np.float32)

    def _transformer(self, x: np.ndarray) -> np.ndarray:
        f, p, meta = self._f, "tok_dec.pre_tfm", self._meta
        h = x @ f[f"{p}.input_proj.weight"].T + f[f"{p}.input_proj.bias"]
        positions, eps = np.arange(len(x)), meta["rms_norm_eps"]
        for i in range(meta["num_hidden_layers"]):
            b = f"{p}.blk.{i}"
            y = rms_norm(h, f[f"{b}.attn_norm.weight"], eps)
            q, k, v = (
                (y @ f[f"{b}.attn_{n}.weight"].T).reshape(len(x), -1, meta["head_dim"])
                for n in ("q", "k", "v")
            )
            q, k = (rope(part, positions, meta["rope_theta"]) for part in (q, k))
            heard = attend(q, k, v, 0, meta["sliding_window"])
            h = h + f[f"{b}.attn_scale"] * (heard @ f[f"{b}.attn_output.weight"].T)
            y = rms_norm(h, f[f"{b}.ffn_norm.weight"], eps)
            y = silu(y @ f[f"{b}.ffn_gate.weight"].T) * (y @ f[f"{b}.ffn_up.weight"].T)
            h = h + f[f"{b}.ffn_scale"] * (y @ f[f"{b}.ffn_down.weight"].T)
        h = rms_norm(h, f[f"{p}.norm.weight"], eps)
        return (h @ f[f"{p}.output_proj.weight"].T + f[f"{p}.output_proj.bias"]).astype(np.float32)

    def _upsample(self, x: np.ndarray, name: str, ratio: int) -> np.ndarray:
        f = self._f
        x = _transposed_conv(x, f[f"{name}.conv.weight"], f[f"{name}.conv.bias"], ratio)
        y = self._conv(x, f"{name}.dwconv")
        y = layer_norm(y, f[f"{name}.norm.weight"], f[f"{name}.norm.bias"], 1e-6)
        y = gelu(y @ f[f"{name}.pwconv1.weight"].T + f[f"{name}.pwconv1.bias"])
        y = y @ f[f"{name}.pwconv2.weight"].T + f[f"{name}.pwconv2.bias"]
        return (x + f[f"{name}.gamma"] * y).astype(np.float32)

    def _block(self, x: np.ndarray, name: str, rate: int) -> np.ndarray:
        f = self._f
        x = self._snake(x, f"{name}.snake")
        x = _transposed_conv(x, f[f"{name}.conv_t.weight"], f[f"{name}.conv_t.bias"], rate)
        for unit, dilation in enumerate((1, 3, 9)):
            r = f"{name}.res.{unit}"
            y = self._conv(self._snake(x, f"{r}.act1"), f"{r}.conv1", dilation)
            x = x + self._conv(self._snake(y, f"{r}.act2"), f"{r}.conv2")
        return x


class CodecEncoder:
    """Mimi: samples -> codes."""

    def __init__(self, file: Gguf) -> None:
        self._f = file
        self._meta = {
            key.rsplit(".", 1)[1]: value
            for key, value in file.meta.items()
            if key.startswith("qwen3-tts-tokenizer.encoder.")
        }

    def __call__(self, audio: np.ndarray) -> np.ndarray:
        """[n] -> [ceil(n / 1920), 16]."""
        x, index = self._conv(audio[None], "tok_enc.conv.0"), 1
        for ratio in reversed(self._meta["upsampling_ratios"]):
            r = f"tok_enc.res.{index}.blk"
            x = x + self._conv(_elu(self._conv(_elu(x), f"{r}.1")), f"{r}.3")
            x = self._conv(_elu(x), f"tok_enc.conv.{index + 2}", ratio)
            index += 3
        x = self._conv(_elu(x), f"tok_enc.conv.{index + 1}")
        x = self._conv(self._transformer(x.T).T, "tok_enc.downsample", 2, "edge")
        return self._quantise(x.T)[: -(-len(audio) // SAMPLES_PER_FRAME)]

    def _conv(self, x: np.ndarray, name: str, stride: int = 1, pad: str = "constant") -> np.ndarray:
        """x [in, T] -> [out, ceil(T / stride)]."""
        w = self._f[f"{name}.weight"]
        kernel, length = w.shape[2], x.shape[1]
        n_out, left = -(-length // stride), w.shape[2] - stride
        right = max(0, (n_out - 1) * stride + kernel - left - length)
        padded = np.pad(x, ((0, 0), (left, right)), mode=pad)
        span = (n_out - 1) * stride + 1
        out = sum(w[:, :, j] @ padded[:, j : j + span : stride] for j in range(kernel))
        return out + self._f[f"{name}.bias"][:, None] if f"{name}.bias" in self._f else out

    def _transformer(self, h: np.ndarray) -> np.ndarray:
        f, meta, positions = self._f, self._meta, np.arange(len(h))
        for i in range(meta["num_hidden_layers"]):
            b = f"tok_enc.blk.{i}"

            def norm(x: np.ndarray, name: str, b: str = b) -> np.ndarray:
                weight, bias = f[f"{b}.{name}.weight"], f[f"{b}.{name}.bias"]
                return layer_norm(x, weight, bias, meta["norm_eps"])

            y = norm(h, "attn_norm")
            q, k, v = (
                (y @ f[f"{b}.attn_{n}.weight"].T).reshape(len(h), -1, meta["head_dim"])
                for n in ("q", "k", "v")
            )
            q, k = (rope(part, positions, meta["rope_theta"]) for part in (q, k))
            heard = attend(q, k, v, 0)
            h = h + f[f"{b}.attn_scale"] * (heard @ f[f"{b}.attn_output.weight"].T)
            y = gelu(norm(h, "ffn_norm") @ f[f"{b}.ffn_up.weight"].T)
            h = h + f[f"{b}.ffn_scale"] * (y @ f[f"{b}.ffn_down.weight"].T)
        return h

    def _quantise(self, x: np.ndarray) -> np.ndarray:
        """x [T, hidden]; both quantisers start from x itself."""
        codes = []
        for part, count in (("semantic", 1), ("acoustic", 15)):
            rest = x @ self._f[f"tok_enc.vq_{part}.input_proj.weight"][:, :, 0].T
            for i in range(count):
                book = self._f[f"tok_enc.vq_{part}.{i}.codebook"]
                nearest = ((rest[:, None] - book[None]) ** 2).sum(-1).argmin(1)
                rest = rest - book[nearest]
                codes.append(nearest)
        return np.array(codes).T


def _elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


class SpeakerEncoder:
    """ECAPA-TDNN: samples -> x-vector."""

    def __init__(self, file: Gguf) -> None:
        self._f = file

    def __call__(self, audio: np.ndarray) -> np.ndarray:
        x = _relu(self._conv(mel_spectrogram(audio), "conv0"))
        outputs = []
        for i, dilation in ((1, 2), (2, 3), (3, 4)):
            x = self._block(x, f"blk.{i}", dilation)
            outputs.append(x)
        x = _relu(self._conv(np.concatenate(outputs), "mfa"))
        mean = x.mean(1, keepdims=True)
        std = np.sqrt(np.maximum(((x - mean) ** 2).mean(1, keepdims=True), 1e-12))
        n = x.shape[1]
        a = np.concatenate([x, np.tile(mean, n), np.tile(std, n)])
        a = self._conv(np.tanh(_relu(self._conv(a, "asp.tdnn"))), "asp.conv")
        a = np.exp(a - a.max(1, keepdims=True))
        a /= a.sum(1, keepdims=True)
        mean = (a * x).sum(1, keepdims=True)
        std = np.sqrt(np.maximum((a * (x - mean) ** 2).sum(1, keepdims=True), 1e-12))
        return self._conv(np.concatenate([mean, std]), "fc")[:, 0]

    def _conv(self, x: np.ndarray, name: str, dilation: int = 1) -> np.ndarray:
        """x [in, T] -> [out, T]; reflected at both ends."""
        w, b = self._f[f"spk_enc.{name}.weight"], self._f[f"spk_enc.{name}.bias"]
        total = dilation * (w.shape[2] - 1)
        padded = (
            np.pad(x, ((0, 0), (total // 2, total - total // 2)), mode="reflect") if total else x
        )
        n = x.shape[1]
        out = sum(
            w[:, :, j] @ padded[:, j * dilation : j * dilation + n] for j in range(w.shape[2])
        )
        return out + b[:, None]

    def _block(self, x: np.ndarray, name: str, dilation: int) -> np.ndarray:
        y = _relu(self._conv(x, f"{name}.tdnn1"))
        chunks = np.split(y, 8)
        done = [chunks[0]]
        for i, chunk in enumerate(chunks[1:]):
            into = chunk + done[-1] if i else chunk
            done.append(_relu(self._conv(into, f"{name}.res2net.{i}", dilation)))
        y = _relu(self._conv(np.concatenate(done), f"{name}.tdnn2"))
        squeezed = _relu(self._conv(y.mean(1, keepdims=True), f"{name}.se.conv1"))
        return y / (1 + np.exp(-self._conv(squeezed, f"{name}.se.conv2"))) + x


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def mel_spectrogram(audio: np.ndarray) -> np.ndarray:
    """[n] -> log-mel [128, frames]: n_fft 1024, hop 256, slaney mels up to 12 kHz."""
    padded = np.pad(audio, 384, mode="reflect")
    n = 1 + (len(padded) - 1024) // 256
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(1024) / 1024)
    frames = np.stack([padded[i * 256 : i * 256 + 1024] * window for i in range(n)])
    power = np.abs(np.fft.rfft(frames)) ** 2
    mel = _mel_filters() @ np.sqrt(power + 1e-9).T
    return np.log(np.maximum(mel, 1e-5)).astype(np.float32)


def _mel_filters(n_fft: int = 1024, n_mels: int = 128, top_hz: float = 12000.0) -> np.ndarray:
    """Slaney's scale: linear up to 1 kHz (15 mel), then 27 steps per factor of 6.4."""
    step = np.log(6.4) / 27
    top = 15 + np.log(top_hz / 1000) / step
    mels = np.linspace(0, top, n_mels + 2)
    hz = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * step))
    bins = np.linspace(0, SAMPLE_RATE / 2, n_fft // 2 + 1)
    width, ramps = np.diff(hz), hz[:, None] - bins[None]
    filters = np.minimum(-ramps[:-2] / width[:-1, None], ramps[2:] / width[1:, None])
    return np.maximum(0, filters) * (2 / (hz[2:] - hz[:-2]))[:, None]


class Codec:
    """Both directions of one codec file."""

    def __init__(self, path: Path) -> None:
        file = Gguf(path)
        self.decode = CodecDecoder(file)
        self.encode = CodecEncoder(file)
