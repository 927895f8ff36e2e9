// The precision a benchmark is asked for.
#pragma once

#include <cstdio>
#include <cstring>

#include "engine.h"

// exact, fast, or TALKER,DOWN,PREDICTOR in bits (0: as in the file), e.g. 5,6,4. False for anything
// else.
static inline bool set_precision(const char* text, qt::EngineOptions& options) {
    if (std::strcmp(text, "exact") == 0) return true;
    if (std::strcmp(text, "fast") == 0) {
        qt::make_fast(options);
        return true;
    }
    int bits[3];
    if (std::sscanf(text, "%d,%d,%d", &bits[0], &bits[1], &bits[2]) != 3) return false;
    for (const int b : bits)
        if (b != 0 && b != 4 && b != 5 && b != 6 && b != 8) return false;
    options.talker = {static_cast<qt::Bits>(bits[0]), static_cast<qt::Bits>(bits[1])};
    options.predictor = {static_cast<qt::Bits>(bits[2]), static_cast<qt::Bits>(bits[2])};
    return true;
}
