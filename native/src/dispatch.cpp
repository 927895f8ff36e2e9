// Which kernels run: the best that both this build and this machine have.

#include <cstdlib>
#include <cstring>

#include "kernels.h"

namespace qt {

#if defined(__x86_64__) || defined(_M_X64)
const Kernels& avx2_table();  // kernels_avx2.cpp

const Kernels* avx2_kernels() {
    static const bool runs = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                             __builtin_cpu_supports("f16c");
    return runs ? &avx2_table() : nullptr;
}
#else
const Kernels* avx2_kernels() {
    return nullptr;
}
#endif

namespace {

const Kernels& choose() {
    const char* asked = std::getenv("QT_ISA");
    if (asked && std::strcmp(asked, "scalar") == 0) return scalar_kernels();
    if (const Kernels* avx2 = avx2_kernels()) return *avx2;
    return scalar_kernels();
}

}  // namespace

const Kernels& kernels() {
    static const Kernels& chosen = choose();
    return chosen;
}

}  // namespace qt
