// Which kernels run: the best that both this build and this machine have.

#include <cstdlib>
#include <cstring>

#if defined(__x86_64__) || defined(_M_X64)
#include <cpuid.h>
#endif

#include "kernels.h"

namespace qt {

#if defined(__x86_64__) || defined(_M_X64)
const Kernels& avx2_table();  // kernels_avx2.cpp

namespace {

// Clang 14 does not know "f16c" in __builtin_cpu_supports.
bool has_f16c() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace

const Kernels* avx2_kernels() {
    static const bool runs =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
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
