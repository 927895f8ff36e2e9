// What the tests of the kernels share: the tables to test, inputs at every misalignment, and
// outputs that see a write beyond their ends (the sanitizer builds see reads).
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"
#include "kernels.h"

#ifdef QT_EMULATE_AVX512
namespace qt::avx512_emulated {
const Kernels& table();
}
#endif

namespace qt {

// Every table but the scalar one: those this machine can run, and the AVX-512 one on an emulation.
static inline std::vector<const Kernels*> fast_tables() {
    std::vector<const Kernels*> tables;
    for (int i = 0; kernel_tables()[i]; ++i)
        if (kernel_tables()[i] != &scalar_kernels()) tables.push_back(kernel_tables()[i]);
#ifdef QT_EMULATE_AVX512
    if (std::strcmp(kernels_named("avx2").name, "avx2") == 0)
        tables.push_back(&avx512_emulated::table());
#endif
    return tables;
}

static inline std::vector<const Kernels*> all_tables() {
    std::vector<const Kernels*> tables = fast_tables();
    tables.push_back(&scalar_kernels());
    return tables;
}

// The table whose results this one must give to the last bit: with AVX-512 a machine speaks the
// samples it would speak without. Itself where there is no such promise.
static inline const Kernels& same_bits(const Kernels& fast) {
    return std::strcmp(fast.name, "avx512") == 0 ? kernels_named("avx2") : fast;
}

static std::mt19937 rng(1);

constexpr float kGuard = 12345.5F;

// n floats at a chosen misalignment, exactly as long as they say, so that ASan sees every step
// beyond; `room` guard values behind what is written.
class Row {
  public:
    Row(int n, int shift, float spread = 1)
        : n_(n), data_(static_cast<size_t>(n + shift)), shift_(shift) {
        std::normal_distribution<float> normal(0, spread);
        for (float& v : data_) v = normal(rng);
    }
    float* get() { return data_.data() + shift_; }
    const float* get() const { return data_.data() + shift_; }
    int size() const { return n_; }
    float operator[](int i) const { return get()[i]; }

  private:
    int n_;
    std::vector<float> data_;
    int shift_;
};

// A destination with guard values on both sides.
class Out {
  public:
    explicit Out(int n) : n_(n), data_(static_cast<size_t>(n) + 16, kGuard) {}
    float* get() { return data_.data() + 8; }
    float operator[](int i) const { return data_[static_cast<size_t>(i) + 8]; }
    bool intact() const {
        return std::all_of(data_.begin(), data_.begin() + 8, [](float v) { return v == kGuard; }) &&
               std::all_of(data_.end() - 8, data_.end(), [](float v) { return v == kGuard; });
    }
    int size() const { return n_; }

  private:
    int n_;
    std::vector<float> data_;
};

static inline void check_close(const Out& got, const Out& want, double relative, double absolute) {
    for (int i = 0; i < want.size(); ++i)
        CHECK_NEAR(got[i], want[i], absolute + relative * std::fabs(want[i]));
    CHECK(got.intact());
    CHECK(want.intact());
}

static inline void check_same(const Out& got, const Out& want) {
    for (int i = 0; i < want.size(); ++i) CHECK(got[i] == want[i]);
}

// f(fast table, n, shift) for all lengths and misalignments.
template <typename F>
void over_lengths(const F& f) {
    for (const Kernels* fast : fast_tables())
        for (int n = 1; n <= 300; ++n) f(*fast, n, n % 8);
    for (const Kernels* fast : fast_tables())
        for (int shift = 0; shift < 8; ++shift)
            for (int n : {1, 7, 8, 9, 31, 64, 65}) f(*fast, n, shift);
}

}  // namespace qt
