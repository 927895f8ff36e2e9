"""The airlock: every argument checked, every version of the structs, nothing ends the process."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest
import qtlib

NAN, INF = float("nan"), float("inf")
OFFSETS = {  # of the structs that other libraries fill (x86-64 and aarch64)
    "qt_init_params": {
        "abi_version": 0, "talker_path": 8, "codec_path": 16, "use_fa": 24, "clamp_fp16": 25,
        "max_batch": 28, "codec_chunk_sec": 32, "talker_kv_size": 36,
    },
    "qt_tts_params": {
        "abi_version": 0, "text": 8, "lang": 16, "instruct": 24, "speaker": 32, "ref_audio_24k": 40,
        "ref_n_samples": 48, "ref_text": 56, "seed": 64, "max_new_tokens": 72, "do_sample": 76,
        "temperature": 80, "top_k": 84, "top_p": 88, "repetition_penalty": 92,
        "subtalker_do_sample": 96, "subtalker_temperature": 100, "subtalker_top_k": 104,
        "subtalker_top_p": 108, "dump_dir": 112, "cancel": 120, "cancel_user_data": 128,
        "on_chunk": 136, "on_chunk_user_data": 144, "ref_spk_emb": 152, "ref_spk_dim": 160,
        "ref_codes": 168, "ref_T": 176, "onset_silence_ids": 184, "onset_silence_id_count": 192,
        "onset_silence_ban_frames": 196, "no_repeat_ngram_size": 200,
    },
}  # fmt: skip
SIZES = {("qt_init_params", 4): 36, ("qt_init_params", 5): 36,
         ("qt_tts_params", 4): 184, ("qt_tts_params", 5): 200}  # fmt: skip


@pytest.mark.parametrize("struct", OFFSETS)
def test_fields_lie_where_other_libraries_have_them(struct):
    for field, offset in OFFSETS[struct].items():
        assert qtlib.ffi().offsetof(struct, field) == offset, field


def test_about_the_library():
    lib, text = qtlib.load(), qtlib.ffi().string
    info = json.loads(text(lib.qt_build_info()))
    assert info["version"] == text(lib.qt_version()).decode()
    assert (info["abi_min"], info["abi_max"]) == (4, 6)
    assert info["isa"] in info["isa_built"]
    assert "Q4_K" in info["formats"]
    assert info["threads"] >= 1


@pytest.mark.parametrize(("struct", "version"), SIZES)
def test_defaults_for_an_older_struct_stay_within_it(struct, version):
    lib, ffi = qtlib.load(), qtlib.ffi()
    function = {
        "qt_init_params": lib.qt_init_default_params_abi,
        "qt_tts_params": lib.qt_tts_default_params_abi,
    }[struct]
    size = SIZES[struct, version]
    memory = ffi.new("unsigned char[]", b"\xab" * 1024)
    assert function(ffi.cast(f"{struct} *", memory), version) == qtlib.OK
    assert int.from_bytes(bytes(memory[0:4]), "little") == version
    assert bytes(ffi.buffer(memory)[size:1024]) == b"\xab" * (1024 - size)


@pytest.mark.parametrize("version", [3, 7, 0, -1, 2**31 - 1])
def test_unknown_versions_are_refused(context, version):
    lib, ffi = qtlib.load(), qtlib.ffi()
    init, tts = ffi.new("qt_init_params *"), ffi.new("qt_tts_params *")
    assert lib.qt_init_default_params_abi(init, version) == qtlib.INVALID
    assert lib.qt_tts_default_params_abi(tts, version) == qtlib.INVALID
    init.abi_version = tts.abi_version = version
    assert lib.qt_init(init) == ffi.NULL
    assert "abi_version" in qtlib.last_error()
    out = ffi.new("qt_audio *")
    assert lib.qt_synthesize(context().handle, tts, out) == qtlib.INVALID
    assert f"abi_version: is {version}; this library takes 4 to 6" == qtlib.last_error()


@pytest.mark.parametrize("version", [4, 5, 6])
def test_only_the_fields_of_the_version_are_read(context, voice, version):
    """Behind the end of an older struct lies rubbish that would be refused."""
    lib, ffi = qtlib.load(), qtlib.ffi()
    params = qtlib.tts_params(text="Hello", seed=1, max_new_tokens=3, **voice)
    params.struct.abi_version = version
    end = SIZES.get(("qt_tts_params", version), ffi.sizeof("qt_tts_params"))
    raw = ffi.buffer(params.struct)
    raw[end:] = b"\xff" * (len(raw) - end)
    out = ffi.new("qt_audio *")
    assert lib.qt_synthesize(context().handle, params.struct, out) == qtlib.OK, qtlib.last_error()
    assert out.n_samples == 3 * qtlib.FRAME
    lib.qt_audio_free(out)
    assert (out.samples, out.n_samples) == (ffi.NULL, 0)
    lib.qt_audio_free(out)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_init_reads_only_the_fields_of_the_version(made, version):
    lib, ffi = qtlib.load(), qtlib.ffi()
    files = made("tiny-base")
    params = qtlib.init_params(files.talker, files.codec)
    params.struct.abi_version = version
    if version < 6:
        end = SIZES["qt_init_params", version]
        raw = ffi.buffer(params.struct)
        raw[end:] = b"\xff" * (len(raw) - end)
    handle = lib.qt_init(params.struct)
    assert handle != ffi.NULL, qtlib.last_error()
    lib.qt_free(handle)


def test_a_bool_may_hold_any_byte(context, voice):
    params = qtlib.tts_params(text="Hello", seed=1, max_new_tokens=2, **voice)
    raw = qtlib.ffi().buffer(params.struct)
    raw[76:77] = b"\x80"
    raw[96:97] = b"\x02"
    out = qtlib.ffi().new("qt_audio *")
    assert qtlib.load().qt_synthesize(context().handle, params.struct, out) == qtlib.OK
    qtlib.load().qt_audio_free(out)


EMBEDDING = np.zeros(128, np.float32)
CODES = np.zeros((16, 4), np.int32)
AUDIO = np.zeros(1920, np.float32)
VOICE = {"ref_spk_emb": EMBEDDING, "ref_spk_dim": 128}
ICL = {**VOICE, "ref_codes": CODES, "ref_T": 4, "ref_text": "you"}


def spoiled(array: np.ndarray, value: float) -> np.ndarray:
    copy = array.copy()
    copy.flat[len(copy.flat) // 2] = value
    return copy


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"text": None}, "text: is NULL"),
    ({"text": ""}, "text: is blank"),
    ({"text": " \n\t\u3000"}, "text: is blank"),
    ({"text": b"abc\xff"}, "text: is not UTF-8 (byte 3)"),
    ({"text": b"\xed\xa0\x80"}, "text: is not UTF-8"),
    ({"lang": b"\xff"}, "lang: is not UTF-8"),
    ({"instruct": b"\xff"}, "instruct: is not UTF-8"),
    ({"speaker": b"\xff"}, "speaker: is not UTF-8"),
    ({"ref_text": b"\xff"}, "ref_text: is not UTF-8"),
    ({"lang": "klingon"}, "lang: 'klingon' is not known; this model speaks auto, chinese, english"),
    ({"max_new_tokens": 0}, "max_new_tokens: is 0"),
    ({"max_new_tokens": -1}, "max_new_tokens: is -1"),
    ({"max_new_tokens": 2**31 - 1}, "max_new_tokens: is 2147483647; 1 to 512"),
    ({"max_new_tokens": 512}, "do not fit talker_kv_size 512; ask for at most 50"),
    ({"text": "a b " * 400}, "do not fit talker_kv_size 512; split the text"),
    ({"text": "a b " * 400, "text_layout": 2}, "do not fit talker_kv_size 512; split the text"),
    ({"text": "a" * 5_000_000}, "text: its "),
    ({"temperature": NAN}, "temperature: is nan"),
    ({"temperature": INF}, "temperature: is inf"),
    ({"temperature": -0.1}, "temperature: is -0.1"),
    ({"top_k": -1}, "top_k: is -1"),
    ({"top_p": 0.0}, "top_p: is 0"),
    ({"top_p": 1.1}, "top_p: is 1.1"),
    ({"top_p": NAN}, "top_p: is nan"),
    ({"repetition_penalty": 0.0}, "repetition_penalty: is 0"),
    ({"repetition_penalty": -1.0}, "repetition_penalty: is -1"),
    ({"repetition_penalty": NAN}, "repetition_penalty: is nan"),
    ({"repetition_penalty": INF}, "repetition_penalty: is inf"),
    ({"subtalker_temperature": NAN}, "subtalker_temperature: is nan"),
    ({"subtalker_top_k": -5}, "subtalker_top_k: is -5"),
    ({"subtalker_top_p": 2.0}, "subtalker_top_p: is 2"),
    ({"ref_audio_24k": None, "ref_n_samples": 5}, "ref_audio_24k: is NULL"),
    ({"ref_audio_24k": AUDIO, "ref_n_samples": 500}, "ref_n_samples: is 500; 1920 to 2880000"),
    ({"ref_audio_24k": AUDIO, "ref_n_samples": -1}, "ref_n_samples: is -1"),
    ({"ref_audio_24k": AUDIO, "ref_n_samples": 2**31 - 1}, "ref_n_samples: is 2147483647"),
    ({"ref_audio_24k": spoiled(AUDIO, NAN), "ref_n_samples": 1920}, "ref_audio_24k: sample 960"),
    ({"ref_audio_24k": AUDIO, "ref_n_samples": 1920, **VOICE}, "ref_audio_24k: excludes"),
    ({"ref_spk_emb": EMBEDDING, "ref_spk_dim": 127}, "ref_spk_dim: is 127; this model's x-vectors"),
    ({"ref_spk_dim": 128}, "ref_spk_emb: is NULL"),
    ({**VOICE, "ref_spk_emb": spoiled(EMBEDDING, NAN)}, "ref_spk_emb: value 64 is not finite"),
    ({**VOICE, "ref_spk_emb": spoiled(EMBEDDING, -INF)}, "ref_spk_emb: value 64 is not finite"),
    ({**ICL, "ref_spk_emb": None, "ref_spk_dim": 0}, "ref_codes: need ref_spk_emb"),
    ({**ICL, "ref_text": None}, "ref_codes: need ref_text"),
    ({**ICL, "ref_T": 0}, "ref_T: is 0"),
    ({**ICL, "ref_T": -4}, "ref_T: is -4"),
    ({**ICL, "ref_T": 2**31 - 1}, "ref_T: is 2147483647"),
    ({**ICL, "ref_codes": spoiled(CODES, 2048)}, "ref_codes: code 8 of frame 0 is 2048"),
    ({**ICL, "ref_codes": spoiled(CODES, -1)}, "ref_codes: code 8 of frame 0 is -1"),
    ({**VOICE, "ref_T": 3}, "ref_codes: is NULL though ref_T"),
    ({**VOICE, "ref_text": "you"}, "ref_text: needs ref_audio_24k or ref_codes"),
    ({"onset_silence_id_count": -1}, "onset_silence_id_count: is -1"),
    ({"onset_silence_ban_frames": 65}, "onset_silence_ban_frames: is 65"),
    ({**VOICE, "onset_silence_id_count": 2, "onset_silence_ban_frames": 1},
     "onset_silence_ids: is NULL"),
    ({**VOICE, "onset_silence_ids": np.array([2048], np.int32), "onset_silence_id_count": 1,
      "onset_silence_ban_frames": 1}, "onset_silence_ids: is 2048"),
    ({**ICL, "onset_silence_ids": np.array([1], np.int32), "onset_silence_id_count": 1,
      "onset_silence_ban_frames": 1}, "onset_silence_ids: only for a voice by x-vector"),
    ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size: is -1"),
    ({"loop_window": 1}, "loop_window: is 1"),
    ({"loop_window": 2**31 - 1}, "loop_window: is 2147483647"),
    ({"loop_max_period": 0}, "loop_max_period: is 0"),
    ({"loop_max_period": 65}, "loop_max_period: is 65; 1 to 64"),
    ({"loop_repeats": -1}, "loop_repeats: is -1"),
    ({"text_layout": 3}, "text_layout: is 3"),
    ({"first_chunk_frames": 65}, "first_chunk_frames: is 65"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "message"), REFUSED, ids=lambda v: None)
def test_a_wrong_field_is_named(context, fields, message):
    spoken = context().buffered(**{"text": "Hello", "max_new_tokens": 4, **fields})
    assert spoken.status == qtlib.INVALID
    assert message in spoken.error
    assert not spoken.chunks
    assert spoken.result.status == qtlib.INVALID


MODES: list[tuple[str, dict[str, Any], int, str]] = [
    ("tiny-base", {"speaker": "ryan"}, qtlib.MODE, "speaker: only custom_voice"),
    ("tiny-base", {"instruct": "slow"}, qtlib.MODE, "instruct: base models take no"),
    ("tiny-base", {"instruct": "", "speaker": "", "lang": "", "ref_text": ""}, qtlib.OK, ""),
    ("tiny-base", {"lang": "AUTO"}, qtlib.OK, ""),
    ("tiny-base", {"lang": "English"}, qtlib.OK, ""),
    ("tiny-customvoice", {}, qtlib.MODE, "speaker: is required"),
    ("tiny-customvoice", {"speaker": ""}, qtlib.MODE, "there are serena, vivian"),
    ("tiny-customvoice", {"speaker": "nobody"}, qtlib.INVALID, "speaker: 'nobody' is not known"),
    ("tiny-customvoice", {"speaker": "RYAN"}, qtlib.OK, ""),
    ("tiny-customvoice", {"speaker": "ryan", **VOICE}, qtlib.MODE, "only base models clone"),
    ("tiny-customvoice", {"speaker": "ryan", "ref_audio_24k": AUDIO, "ref_n_samples": 1920},
     qtlib.MODE, "only base models clone"),
    ("tiny-voicedesign", {}, qtlib.MODE, "instruct: is required"),
    ("tiny-voicedesign", {"instruct": "low"}, qtlib.OK, ""),
    ("tiny-voicedesign", {"instruct": "low", "speaker": "x"}, qtlib.MODE, "speaker: only custom"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "fields", "status", "message"), MODES)
def test_what_each_kind_of_model_takes(context, model, fields, status, message):
    spoken = context(model).buffered(text="Hello", max_new_tokens=2, **fields)
    assert spoken.status == status, spoken.error
    assert message in spoken.error


def test_null_pointers(context):
    lib, ffi = qtlib.load(), qtlib.ffi()
    ctx, out, ref = context().handle, ffi.new("qt_audio *"), ffi.new("qt_voice_ref *")
    params = qtlib.tts_params(text="Hello")
    assert lib.qt_init(ffi.NULL) == ffi.NULL
    assert "params: is NULL" in qtlib.last_error()
    assert lib.qt_synthesize(ffi.NULL, params.struct, out) == qtlib.INVALID
    assert "ctx" in qtlib.last_error()
    assert lib.qt_synthesize(ctx, ffi.NULL, out) == qtlib.INVALID
    assert lib.qt_synthesize(ctx, params.struct, ffi.NULL) == qtlib.INVALID
    assert "out: is NULL" in qtlib.last_error()
    audio = ffi.new("float[]", 4000)
    assert lib.qt_extract_voice_ref(ffi.NULL, audio, 4000, ref) == qtlib.INVALID
    assert lib.qt_extract_voice_ref(ctx, ffi.NULL, 4000, ref) == qtlib.INVALID
    assert lib.qt_extract_voice_ref(ctx, audio, 4000, ffi.NULL) == qtlib.INVALID
    for function in (lib.qt_free, lib.qt_audio_free, lib.qt_voice_ref_free):
        function(ffi.NULL)
    lib.qt_init_default_params(ffi.NULL)
    lib.qt_tts_default_params(ffi.NULL)
    assert lib.qt_init_default_params_abi(ffi.NULL, 6) == qtlib.INVALID
    assert lib.qt_tts_default_params_abi(ffi.NULL, 6) == qtlib.INVALID
    assert lib.qt_num_codebooks(ffi.NULL) == lib.qt_n_speakers(ffi.NULL) == -1
    assert lib.qt_duration_sec_to_tokens(ffi.NULL, 1.0) == -1
    assert lib.qt_speaker_name(ffi.NULL, 0) == ffi.NULL


def test_questions_about_a_context(context):
    lib, ffi = qtlib.load(), qtlib.ffi()
    base, custom = context().handle, context("tiny-customvoice").handle
    assert lib.qt_num_codebooks(base) == 16
    assert lib.qt_n_speakers(base) == 0
    assert lib.qt_n_speakers(custom) == 9
    names = [ffi.string(lib.qt_speaker_name(custom, i)).decode() for i in range(9)]
    assert names[:2] == ["serena", "vivian"]
    for index in (-1, 9, 2**31 - 1, -(2**31)):
        assert lib.qt_speaker_name(custom, index) == ffi.NULL
    seconds = {0.08: 1, 0.0801: 2, 1.0: 13, 1e-9: 1, 0.0: -1, -1.0: -1, NAN: -1, INF: -1, 1e30: -1}
    for value, tokens in seconds.items():
        assert lib.qt_duration_sec_to_tokens(base, value) == tokens, value


INIT_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"talker_path": None}, "talker_path: is required"),
    ({"talker_path": ""}, "talker_path: is required"),
    ({"codec_path": None}, "codec_path: is required"),
    ({"talker_path": "/no/such/talker.gguf"}, "/no/such/talker.gguf: cannot be opened"),
    ({"codec_path": "/no/such/codec.gguf"}, "/no/such/codec.gguf: cannot be opened"),
    ({"max_batch": 0}, "max_batch: is 0"),
    ({"max_batch": 65}, "max_batch: is 65"),
    ({"talker_kv_size": 63}, "talker_kv_size: is 63"),
    ({"talker_kv_size": 32769}, "talker_kv_size: is 32769"),
    ({"n_threads": -1}, "n_threads: is -1"),
    ({"n_threads": 257}, "n_threads: is 257"),
    ({"precision": 2}, "precision: is 2"),
    ({"stream_frames_max": 65}, "stream_frames_max: is 65"),
    ({"codec_chunk_sec": NAN}, "codec_chunk_sec"),
]


@pytest.mark.parametrize(("fields", "message"), INIT_REFUSED, ids=lambda v: None)
def test_init_names_what_is_wrong(made, fields, message):
    files = made("tiny-base")
    with pytest.raises(RuntimeError) as error:
        qtlib.Context(files.talker, files.codec, **fields).close()
    assert message in str(error.value)


def test_swapped_files_are_recognised(made):
    files = made("tiny-base")
    with pytest.raises(RuntimeError, match=r"'general\.architecture' is 'qwen3-tts-tokenizer'"):
        qtlib.Context(files.codec, files.talker)
    with pytest.raises(RuntimeError, match="codec_path needs 'qwen3-tts-tokenizer'"):
        qtlib.Context(files.talker, files.talker)


def test_errors_belong_to_their_thread(context):
    assert context().buffered(text="").status == qtlib.INVALID
    seen = []
    thread = threading.Thread(
        target=lambda: seen.append((qtlib.last_error(), qtlib.load().qt_last_result().status))
    )
    thread.start()
    thread.join()
    assert seen == [("", 0)]
    assert "text" in qtlib.last_error()


def test_the_log_goes_where_it_is_sent(context):
    lines: list[tuple[int, str]] = []
    callback = qtlib.ffi().callback(
        "qt_log_cb", lambda level, text, _: lines.append((level, qtlib.ffi().string(text).decode()))
    )
    qtlib.load().qt_log_set(callback, qtlib.ffi().NULL)
    # The 0.6B custom_voice model takes no instructions: they are dropped, with a warning.
    context("tiny-customvoice").buffered(
        text="a", speaker="ryan", instruct="slowly", max_new_tokens=1
    )
    qtlib.load().qt_log_set(qtlib.ffi().NULL, qtlib.ffi().NULL)
    assert [level for level, _ in lines] == [2]
    assert "instruct" in lines[0][1]
