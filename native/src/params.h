// The caller's structs, whatever their version, as checked values. Nothing behind this file has to
// doubt a number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine.h"
#include "qt.h"
#include "request.h"

namespace qt {

// A string with something in it: NULL and "" both mean "none".
bool given(const char* text);
// NULL, "" or "auto" in any case.
bool is_auto(const char* lang);

// Bytes of the structs of an ABI version; 0 for a version that is not read.
size_t init_params_bytes(int abi_version);
size_t tts_params_bytes(int abi_version);
qt_init_params default_init_params();
qt_tts_params default_tts_params();

// Reads only the fields that the struct's version has; the others get their defaults.
qt_init_params read_init_params(const qt_init_params* params);
qt_tts_params read_tts_params(const qt_tts_params* params);

EngineOptions check_init(const qt_init_params& params);

// Everything about a request that can be judged without computing. Throws Error with the status
// that qt.h promises.
void check_tts(const TalkerInfo& info, int hidden, const EngineOptions& options,
               const qt_tts_params& params);

// The latents that the caller brought; empty without them.
VoiceInput voice_of(const qt_tts_params& params);

// The request of checked parameters; throws when the text does not fit the context.
Request make_request(const Engine& engine, const qt_tts_params& params, const VoiceInput& voice);

// Reference audio: not null, of a possible length, finite. `field` names it in messages.
void check_audio(const float* audio, int n_samples, const char* field, const char* length_field);

}  // namespace qt
