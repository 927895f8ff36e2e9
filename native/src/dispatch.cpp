// Which kernels run: the best that both this build and this machine have.

#include <cstdlib>
#include <cstring>

#if defined(__x86_64__) || defined(_M_X64)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "kernels.h"

namespace qt {

// The tables of the files that are compiled for one instruction set.
const Kernels& avx2_table();
namespace avx512 {
const Kernels& table();
}
namespace neon {
const Kernels& table();
}

namespace {

struct Tables {
    const Kernels* best_first[4] = {};
    int count = 0;

    void add(const Kernels& table) { best_first[count++] = &table; }
};

#if defined(__x86_64__) || defined(_M_X64)

// Clang 14 does not know "f16c" in __builtin_cpu_supports.
bool has_f16c() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// __builtin_cpu_supports asks the processor, and the operating system whether it saves the
// registers.
void add_fast(Tables& tables) {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni"))
        tables.add(avx512::table());
    tables.add(avx2_table());
}

#elif defined(__aarch64__)

bool has_dot_products() {
#if defined(__APPLE__)
    return true;  // every Apple processor that runs macOS
#elif defined(__linux__)
    constexpr unsigned long kAsimdDp = 1UL << 20;  // HWCAP_ASIMDDP, which old headers lack
    return (getauxval(AT_HWCAP) & kAsimdDp) != 0;
#else
    return false;
#endif
}

void add_fast(Tables& tables) {
    if (has_dot_products()) tables.add(neon::table());
}

#else

void add_fast(Tables&) {}

#endif

Tables find_tables() {
    Tables tables;
    add_fast(tables);
    tables.add(scalar_kernels());
    return tables;
}

}  // namespace

const Kernels* const* kernel_tables() {
    static const Tables tables = find_tables();
    return tables.best_first;
}

const Kernels& kernels_named(const char* name) {
    const Kernels* const* tables = kernel_tables();
    for (int i = 0; name && tables[i]; ++i)
        if (std::strcmp(tables[i]->name, name) == 0) return *tables[i];
    return *tables[0];
}

const Kernels& kernels() {
    static const Kernels& chosen = kernels_named(std::getenv("QT_ISA"));
    return chosen;
}

}  // namespace qt
