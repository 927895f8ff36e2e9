/* qt.h: text in, 24 kHz speech out. The only public header of the native engine. Pure C99.

   A whole program. It speaks one sentence and writes raw mono float32 at 24 kHz to stdout:

       #include <stdio.h>
       #include "qt.h"

       static bool on_chunk(const float *samples, int n_samples, void *user_data) {
           FILE *out = (FILE *)user_data;
           return fwrite(samples, sizeof *samples, (size_t)n_samples, out) == (size_t)n_samples;
       }

       int main(int argc, char **argv) {
           if (argc != 4) {
               fprintf(stderr, "usage: speak TALKER.gguf CODEC.gguf TEXT > out.f32\n");
               return 2;
           }
           qt_init_params init;
           qt_init_default_params(&init);
           init.talker_path = argv[1];
           init.codec_path = argv[2];
           qt_context *ctx = qt_init(&init);
           if (ctx == NULL) {
               fprintf(stderr, "%s\n", qt_last_error());
               return 1;
           }
           qt_tts_params params;
           qt_tts_default_params(&params);
           params.text = argv[3];
           params.lang = "english";
           params.on_chunk = on_chunk;
           params.on_chunk_user_data = stdout;
           int status = qt_synthesize(ctx, &params, NULL);
           if (status != QT_STATUS_OK) fprintf(stderr, "%d: %s\n", status, qt_last_error());
           qt_free(ctx);
           return status == QT_STATUS_OK ? 0 : 1;
       }

   RULES THAT HOLD EVERYWHERE

   Ownership. What the caller passes stays the caller's: strings and arrays are read during the
   call and may be freed as soon as it returns. What the library hands out in a struct (qt_audio,
   qt_voice_ref) is the caller's until it gives it back to the matching qt_*_free. Samples given
   to a callback belong to the library and are valid only until the callback returns: copy them.
   Strings returned by a function are never freed by the caller; each function says how long they
   live.

   Threads. Different contexts are independent. One context may be used from any number of threads
   at once, except that qt_free must be the last call on it. Calls beyond `max_batch` wait their
   turn, first come first served. Callbacks run on a thread of the library or on the caller's:
   expect either, never assume thread-local state, and do not call back into the same context.

   Callbacks are C: no exception and no longjmp may leave one.

   Errors. A function that can fail returns a status, or NULL; qt_last_error() then tells which
   field was wrong, what was expected and what it held. Nothing a caller passes ends the process:
   null pointers, NaN, infinities, text that is not UTF-8 and numbers out of range all come back as
   a status. Only a pointer that does not point at what it claims to is beyond help.

   On every status but QT_STATUS_OK the output struct is left empty, so freeing it is harmless.

   VERSIONS. Both parameter structs begin with `abi_version`, which the default functions write.
   The library reads only the fields that version has: it takes 4, 5 (as in qwentts.cpp) and 6
   (this header). A later version will only append. A program that was *compiled* against an older,
   shorter struct calls qt_init_default_params_abi / qt_tts_default_params_abi with its version,
   because the plain default functions fill the structs of this header.

   FOR BINDING GENERATORS. Everything between the marks "cffi:begin" and "cffi:end" is plain
   declarations: after removing comments and the word QT_API it is what cffi's cdef() accepts. */

#ifndef QT_H
#define QT_H

#include <stdint.h>
#ifndef __cplusplus
#include <stdbool.h>
#endif

#if defined(_WIN32)
#if defined(QT_BUILD)
#define QT_API __declspec(dllexport)
#else
#define QT_API __declspec(dllimport)
#endif
#elif defined(__GNUC__)
#define QT_API __attribute__((visibility("default")))
#else
#define QT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* cffi:begin */

#define QT_ABI_VERSION 6     /* of the structs below */
#define QT_ABI_VERSION_MIN 4 /* the oldest a library of this version accepts */

#define QT_SAMPLE_RATE 24000
#define QT_SAMPLES_PER_FRAME 1920 /* one codec frame is 80 ms */

/* ---- Statuses ------------------------------------------------------------------------------ */

#define QT_STATUS_OK 0
#define QT_STATUS_INVALID_PARAMS -1  /* a field is wrong whatever the model; qt_last_error names it */
#define QT_STATUS_MODE_INVALID -2    /* fine as such, but not for this kind of model */
#define QT_STATUS_GENERATE_FAILED -3 /* the engine failed: a defect or a broken file, not the input */
#define QT_STATUS_OOM -4             /* memory ran out; the context stays usable */
#define QT_STATUS_CANCELLED -5       /* a callback said so, or qt_free came */

/* ---- Callbacks ----------------------------------------------------------------------------- */

/* Asked at least once per frame (80 ms of audio) in every phase of a request, also while it waits
   for its turn. Return true to cancel: the request ends with QT_STATUS_CANCELLED within a frame. */
typedef bool (*qt_cancel_cb)(void *user_data);

/* Gets each piece of audio as soon as it exists, in order, never empty: n_samples floats, mono,
   24 kHz, within -1..1. Return false to cancel. Blocking in here holds the whole engine up: with
   max_batch 1 that is a crude way to pause, with more it stalls the neighbours; see qt_flow_cb. */
typedef bool (*qt_audio_chunk_cb)(const float *samples, int n_samples, void *user_data);

/* The non-blocking way to say "wait". Asked before each frame of the request is computed:
     QT_FLOW_GO      compute it
     QT_FLOW_WAIT    not now: the request keeps its place and its state, takes no processor time,
                     and is asked again at the next frame boundary of its neighbours and at least
                     every 10 ms. Audio that was already made is still delivered. `cancel` is still
                     polled, so a waiting request can be cancelled.
     QT_FLOW_CANCEL  end with QT_STATUS_CANCELLED
   Any other value counts as QT_FLOW_CANCEL. A typical flow callback compares how much its queue
   holds with a high mark, and so never blocks in on_chunk. Must return at once. */
typedef int (*qt_flow_cb)(void *user_data);

#define QT_FLOW_CANCEL 0
#define QT_FLOW_GO 1
#define QT_FLOW_WAIT 2

/* One line of log, without a newline, UTF-8. Called from any thread, also from several at once. */
typedef void (*qt_log_cb)(int level, const char *message, void *user_data);

#define QT_LOG_DEBUG 0
#define QT_LOG_INFO 1
#define QT_LOG_WARN 2
#define QT_LOG_ERROR 3

/* ---- Structs ------------------------------------------------------------------------------- */

/* Natural alignment; the order of the fields is the contract. Comments give the default. */

typedef struct qt_context qt_context; /* a loaded model pair; opaque */

/* Audio from qt_synthesize. Give it to qt_audio_free, exactly once. */
typedef struct qt_audio {
    float *samples;  /* [n_samples], NULL when empty */
    int n_samples;
    int sample_rate; /* 24000 */
    int channels;    /* 1 */
} qt_audio;

/* What a voice is made of, from qt_extract_voice_ref. Give it to qt_voice_ref_free. */
typedef struct qt_voice_ref {
    float *ref_spk_emb; /* [ref_spk_dim], the x-vector */
    int ref_spk_dim;    /* the talker's hidden size */
    int32_t *ref_codes; /* [num_codebooks, ref_T], row-major: code k of frame t at k * ref_T + t */
    int ref_T;          /* frames */
    int num_codebooks;  /* 16 */
} qt_voice_ref;

typedef struct qt_init_params {
    int abi_version;
    const char *talker_path; /* NULL: required. A Qwen3-TTS talker GGUF */
    const char *codec_path;  /* NULL: required. The 12 Hz codec GGUF */
    bool use_fa;             /* true. For GPU builds of other libraries; no effect here */
    bool clamp_fp16;         /* false. Likewise */
    int max_batch;           /* 1. Requests computed together, 1..64 */
    float codec_chunk_sec;   /* 24. Likewise for other libraries; the decoder here is stateful */
    /* end of ABI 4 and 5 */
    int talker_kv_size;      /* 8192. Prompt rows + frames that one request may have, 64..32768 */
    int n_threads;           /* 0 = the physical cores this process may use; else 1..256 */
    int precision;           /* QT_PRECISION_EXACT */
    int stream_frames_max;   /* 0 = 4. Most frames in one chunk after the first, 1..64 */
    /* end of ABI 6 */
} qt_init_params;

#define QT_PRECISION_EXACT 0 /* weights as they are in the file, float32 codec */
#define QT_PRECISION_FAST 1  /* fewer bits per weight; smaller and faster, slightly different */

typedef struct qt_tts_params {
    int abi_version;
    const char *text;           /* NULL: required. UTF-8, not blank. Special-token strings such as
                                   <|im_end|> are spoken as text, never obeyed */
    const char *lang;           /* NULL, "" or "auto": the model decides. Else a name the talker
                                   knows, in any case: "english" */
    const char *instruct;       /* NULL or "": none. How to speak (custom_voice) or what the voice
                                   is (voice_design: required). Not on base */
    const char *speaker;        /* NULL or "": none. custom_voice only, required there */
    const float *ref_audio_24k; /* NULL. [ref_n_samples] mono, 24 kHz. base only; excludes
                                   ref_spk_emb and ref_codes */
    int ref_n_samples;          /* 0. 1920..2880000 (80 ms to 120 s) with ref_audio_24k */
    const char *ref_text;       /* NULL or "": clone by x-vector. Else what the reference says */
    int64_t seed;               /* -1 = a new one each time; qt_last_result tells which. Any other
                                   value replays: same seed, same codes, alone or in a batch */
    int max_new_tokens;         /* 2048. Most frames, 1..talker_kv_size - prompt rows */
    bool do_sample;             /* true. false: greedy, the seed has no effect on code 0 */
    float temperature;          /* 0.9. Finite, >= 0; 0 is greedy */
    int top_k;                  /* 50. >= 0; 0 = off */
    float top_p;                /* 1. 0 < p <= 1 */
    float repetition_penalty;   /* 1.05. Finite, > 0 */
    bool subtalker_do_sample;   /* true. The same four for codes 1..15 of a frame */
    float subtalker_temperature; /* 0.9 */
    int subtalker_top_k;        /* 50 */
    float subtalker_top_p;      /* 1 */
    const char *dump_dir;       /* NULL. A folder for intermediate tensors, debugging builds only */
    qt_cancel_cb cancel;        /* NULL */
    void *cancel_user_data;
    qt_audio_chunk_cb on_chunk; /* NULL: the whole audio comes back in `out` */
    void *on_chunk_user_data;
    const float *ref_spk_emb;   /* NULL. [ref_spk_dim], finite: a voice without its audio */
    int ref_spk_dim;            /* 0. Must be the talker's hidden size */
    const int32_t *ref_codes;   /* NULL. [num_codebooks, ref_T] as in qt_voice_ref, each 0..2047.
                                   Needs ref_spk_emb and ref_text */
    int ref_T;                  /* 0 */
    /* end of ABI 4 */
    const int32_t *onset_silence_ids; /* NULL. Values of code 0 (0..2047) that may not be chosen in */
    int onset_silence_id_count;       /* 0..1024. the first frames of an utterance, so that */
    int onset_silence_ban_frames;     /* 0..64.   speech starts at once; x-vector requests only */
    /* end of ABI 5 */
    int no_repeat_ngram_size; /* 4. The loop guard: see below. 0 = do not nudge */
    int loop_max_period;      /* 16. Longest period looked for, in frames, 1..loop_window */
    int loop_repeats;         /* 4. How often a period must repeat to be a loop; 0 = guard off */
    int loop_window;          /* 64. How many past frames must be periodic, 2..1024 */
    int text_layout;          /* QT_TEXT_LAYOUT_AUTO */
    int first_chunk_frames;   /* 0 = 1. Frames in the first chunk, 1..64 */
    qt_flow_cb flow;          /* NULL: always go */
    void *flow_user_data;
    /* end of ABI 6 */
} qt_tts_params;

/* The loop guard stops a talker that repeats itself for ever. A loop is seen when the last
   `loop_window` values of code 0 repeat with one period p <= loop_max_period and
   p * loop_repeats <= loop_window. The first time, for the next `loop_window` frames a value that
   would complete an n-gram of `no_repeat_ngram_size` values already in the window is not chosen;
   the second time (the first when no_repeat_ngram_size is 0) the utterance ends with
   QT_FINISH_LOOP. Until a loop is seen the guard changes nothing. */

/* How a prompt lays out the text. Chosen by the kind of model unless asked otherwise. */
#define QT_TEXT_LAYOUT_AUTO 0          /* streaming for base, non-streaming for the others */
#define QT_TEXT_LAYOUT_STREAMING 1     /* one text token beside each frame */
#define QT_TEXT_LAYOUT_NON_STREAMING 2 /* all the text first */

#define QT_FINISH_NONE 0      /* no request on this thread yet, or it failed */
#define QT_FINISH_STOP 1      /* the model said it was done */
#define QT_FINISH_LENGTH 2    /* max_new_tokens frames were made first */
#define QT_FINISH_CANCELLED 3
#define QT_FINISH_LOOP 4      /* the loop guard ended it */

/* About the last qt_synthesize that this thread called. Times in milliseconds of wall time from
   the moment the call was entered, or spent in a stage; 0 where the stage was not reached. */
typedef struct qt_result {
    int status;
    int finish_reason;    /* QT_FINISH_* */
    int64_t seed_used;
    int n_frames;         /* frames made, also those made before a cancel */
    int n_text_tokens;    /* tokens of `text` alone */
    int n_prompt_rows;    /* rows of the whole prompt */
    int n_prompt_cached;  /* rows of it that came from a snapshot */
    float queue_ms;       /* waiting for a place */
    float first_chunk_ms; /* call to first chunk */
    float reference_ms;   /* encoding reference audio */
    float prefill_ms;
    float talker_ms;
    float predictor_ms;
    float codec_ms;
    float total_ms;
} qt_result;

/* The two bounds of speed on a machine. */
typedef struct qt_machine {
    int n_threads;
    double read_bytes_s; /* memory, all threads together */
    double mul_adds_s;   /* float32, all threads together */
} qt_machine;

/* What a frame (80 ms of sound) costs at least. */
typedef struct qt_frame_cost {
    double talker_bytes;    /* weights read per frame */
    double predictor_bytes; /* weights read per frame */
    double codec_bytes;     /* weights read per chunk, whatever its length */
    double codec_mul_adds;  /* per frame */
} qt_frame_cost;

/* ---- Functions: about the library ---------------------------------------------------------- */

/* The release, such as "0.1.0". Static, never NULL. Any thread. */
QT_API const char *qt_version(void);

/* Facts for diagnosis as one JSON object: {"name", "version", "abi_min", "abi_max", "isa",
   "isa_built" [...], "threads", "formats" [...]}. Static, never NULL. Any thread. */
QT_API const char *qt_build_info(void);

/* Why the last call on this thread failed; "" when none did. Never NULL, valid until the next
   call into the library on this thread. Thread-local: ask on the thread that called. */
QT_API const char *qt_last_error(void);

/* How the last qt_synthesize on this thread went; all zero before the first one. Thread-local. */
QT_API qt_result qt_last_result(void);

/* What this machine can do at most with n_threads (0: every core this process may use), measured
   for about half a second, with 256 MiB of memory: bytes read from memory and float multiply-adds
   that stay in the caches, both per second. QT_STATUS_INVALID_PARAMS when n_threads is outside
   0..256 or limits is NULL. Any thread; of use only while nothing else runs. */
QT_API int qt_measure_machine(int n_threads, qt_machine *limits);

/* Sends the log of all contexts to `callback`, NULL: to nowhere. Without a call, warnings and
   errors go to stderr. Any thread; when it returns, the earlier callback runs no more. */
QT_API void qt_log_set(qt_log_cb callback, void *user_data);

/* ---- Functions: a model's life ------------------------------------------------------------- */

/* Writes the defaults of this header's struct. NULL is ignored. Any thread. */
QT_API void qt_init_default_params(qt_init_params *params);

/* The same for the shorter struct of an older version; writes not one byte beyond it.
   QT_STATUS_INVALID_PARAMS for a version outside 4..6 or NULL. */
QT_API int qt_init_default_params_abi(qt_init_params *params, int abi_version);

/* Loads both files and gets ready to speak; takes seconds. NULL on failure: qt_last_error() names
   the file and the key, tensor or field at fault. The files must stay unchanged until qt_free
   (they are mapped). Free with qt_free. Any thread, several at once. */
QT_API qt_context *qt_init(const qt_init_params *params);

/* Cancels what still runs or waits (those calls return QT_STATUS_CANCELLED), waits for it, and
   frees everything. NULL is ignored. No other call on the context may start after this one. */
QT_API void qt_free(qt_context *ctx);

/* What a frame costs with this model and precision. QT_STATUS_INVALID_PARAMS when a pointer is
   NULL. Any thread. */
QT_API int qt_frame_costs(const qt_context *ctx, qt_frame_cost *cost);

/* Codebooks per frame, 16; -1 when ctx is NULL. */
QT_API int qt_num_codebooks(const qt_context *ctx);

/* Frames that `seconds` of audio need, rounded up, at least 1; -1 when ctx is NULL or `seconds`
   is not a finite number > 0 or would overflow. */
QT_API int qt_duration_sec_to_tokens(const qt_context *ctx, float seconds);

/* Speakers of a custom_voice model, 0 for the other kinds; -1 when ctx is NULL. */
QT_API int qt_n_speakers(const qt_context *ctx);

/* Name of speaker 0 <= index < qt_n_speakers(ctx), as `speaker` takes it; NULL otherwise. Lives as
   long as the context. */
QT_API const char *qt_speaker_name(const qt_context *ctx, int index);

/* ---- Functions: speaking ------------------------------------------------------------------- */

/* Writes the defaults of this header's struct. NULL is ignored. Any thread. */
QT_API void qt_tts_default_params(qt_tts_params *params);

/* The same for the shorter struct of an older version; writes not one byte beyond it.
   QT_STATUS_INVALID_PARAMS for a version outside 4..6 or NULL. */
QT_API int qt_tts_default_params_abi(qt_tts_params *params, int abi_version);

/* Speaks params->text; returns when the utterance is over. Any thread, several at once.
   With `on_chunk` the audio goes to the callback only and `out` (may be NULL) is left empty;
   without it `out` is required and holds all of it: the same samples, bit for bit.

     QT_STATUS_OK               said, also when max_new_tokens or the loop guard ended it
     QT_STATUS_INVALID_PARAMS   a field is out of its range, text + frames do not fit the talker_kv_size,
                                the language or speaker is unknown, fields exclude each other
     QT_STATUS_MODE_INVALID     speaker on a model that is not custom_voice, or missing on one;
                                instruct on base, or missing on voice_design; reference audio, x-vector
                                or codes on a model that is not base
     QT_STATUS_CANCELLED        a callback said so, or qt_free came; chunks given stay given
     QT_STATUS_GENERATE_FAILED, QT_STATUS_OOM */
QT_API int qt_synthesize(qt_context *ctx, const qt_tts_params *params, qt_audio *out);

/* Frees what qt_synthesize put into *audio and empties it. NULL and empty are ignored. */
QT_API void qt_audio_free(qt_audio *audio);

/* Reference audio (mono, 24 kHz, 1920..2880000 finite samples) -> the x-vector and the codes that
   qt_tts_params takes, so that a voice is encoded once. Any thread; waits for a free place.

     QT_STATUS_OK, QT_STATUS_INVALID_PARAMS (too short, too long, not finite, NULL)
     QT_STATUS_MODE_INVALID     the model is not base, or its file has no speaker encoder
     QT_STATUS_GENERATE_FAILED, QT_STATUS_OOM, QT_STATUS_CANCELLED (qt_free came) */
QT_API int qt_extract_voice_ref(qt_context *ctx, const float *audio_24k, int n_samples,
                                qt_voice_ref *out);

/* Frees what qt_extract_voice_ref put into *ref and empties it. NULL and empty are ignored. */
QT_API void qt_voice_ref_free(qt_voice_ref *ref);

/* cffi:end */

#ifdef __cplusplus
}
#endif

#endif
