// Test hooks: the block formats of GGUF, and packed matrices against plain products.
#include "../src/linear.h"
#include "../src/quant.h"
#include "../src/status.h"
#include "hooks.h"

// n values of a ggml type. 0, or -1 for a type that is not read.
HOOK int32_t hook_dequantize(uint32_t type, const uint8_t* src, int64_t n, float* dst) {
    return hooks::guard(-1, [&] {
        qt::dequantize(static_cast<qt::TensorType>(type), src, n, dst);
        return 0;
    });
}

// y [rows, n] = x [rows, k] @ W^T, W a tensor of the file, packed as the engine packs it with at
// most `bits` (0: as in the file). Returns bits_of() the packed type.
HOOK int32_t hook_linear(const char* path, const char* name, const float* x, int32_t rows,
                         int32_t threads, int32_t bits, float* y) {
    return hooks::guard(-1, [&] {
        qt::Pool pool(threads);
        const qt::Gguf file(path);
        const qt::Tensor* tensor = file.find(name);
        if (!tensor) file.fail("no such tensor");
        const qt::Packed w = qt::pack_linear(pool, *tensor, static_cast<qt::Bits>(bits));
        qt::Quantised scratch;
        qt::linear(pool, w, {.x = x, .x_row = w.k, .rows = rows, .y = y, .y_row = w.n}, scratch);
        return static_cast<int32_t>(qt::bits_of(w.type));
    });
}
