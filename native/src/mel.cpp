#include "mel.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace qt {
namespace {

constexpr double kSampleRate = 24000;
constexpr double kTopHz = 12000;

// Slaney's mel scale: linear up to 1 kHz (15 mel), then 27 steps per factor of 6.4.
double mel_to_hz(double mel) {
    if (mel < 15) return mel * 200 / 3;
    return 1000 * std::exp((mel - 15) * std::log(6.4) / 27);
}

double hz_to_mel(double hz) {
    if (hz < 1000) return hz * 3 / 200;
    return 15 + std::log(hz / 1000) * 27 / std::log(6.4);
}

}  // namespace

MelSpectrogram::MelSpectrogram() {
    const double turn = 2 * std::numbers::pi;
    for (int i = 0; i < kWindow; ++i)
        window_.push_back(0.5 - 0.5 * std::cos(turn * i / kWindow));  // periodic Hann
    for (int i = 0; i < kWindow / 2; ++i) {
        cos_.push_back(std::cos(turn * i / kWindow));
        sin_.push_back(-std::sin(turn * i / kWindow));
    }
    for (int i = 0; i < kWindow; ++i) {
        int r = 0;
        for (int bit = 1; bit < kWindow; bit *= 2) r = r * 2 + (i & bit ? 1 : 0);
        reversed_.push_back(r);
    }
    // Triangles between neighbouring band edges, scaled to constant energy per Hz.
    const double top = hz_to_mel(kTopHz);
    const auto edge = [&](int i) { return mel_to_hz(top * i / (kBands + 1)); };
    for (int b = 0; b < kBands; ++b) {
        const double low = edge(b), centre = edge(b + 1), high = edge(b + 2);
        Band band{-1, {}};
        for (int bin = 0; bin < kBins; ++bin) {
            const double hz = kSampleRate / 2 * bin / (kBins - 1);
            const double rise = (hz - low) / (centre - low), fall = (high - hz) / (high - centre);
            const double weight = std::min(rise, fall);
            if (weight <= 0) continue;
            if (band.first < 0) band.first = bin;
            band.weight.push_back(weight * 2 / (high - low));
        }
        bands_.push_back(std::move(band));
    }
}

int MelSpectrogram::frames(int n_samples) {
    return 1 + (n_samples + 2 * kPad - kWindow) / kHop;
}

// In place, decimation in time.
void MelSpectrogram::fft(double* re, double* im) const {
    for (int i = 0; i < kWindow; ++i) {
        const int j = reversed_[static_cast<size_t>(i)];
        if (i < j) {
            std::swap(re[i], re[j]);
            std::swap(im[i], im[j]);
        }
    }
    for (int half = 1; half < kWindow; half *= 2) {
        const int step = kWindow / 2 / half;
        for (int block = 0; block < kWindow; block += 2 * half)
            for (int k = 0; k < half; ++k) {
                const double c = cos_[static_cast<size_t>(k) * step];
                const double s = sin_[static_cast<size_t>(k) * step];
                const int a = block + k, b = a + half;
                const double x = re[b] * c - im[b] * s, y = re[b] * s + im[b] * c;
                re[b] = re[a] - x;
                im[b] = im[a] - y;
                re[a] += x;
                im[a] += y;
            }
    }
}

void MelSpectrogram::band_energies(const double* magnitude, float* out) const {
    constexpr double kFloor = 1e-5;
    for (const Band& band : bands_) {
        double sum = 0;
        for (size_t i = 0; i < band.weight.size(); ++i)
            sum += band.weight[i] * magnitude[static_cast<size_t>(band.first) + i];
        *out++ = static_cast<float>(std::log(std::max(sum, kFloor)));
    }
}

std::vector<float> MelSpectrogram::operator()(Pool& pool, const float* audio, int n_samples) const {
    const int n = frames(n_samples);
    std::vector<float> out(static_cast<size_t>(n) * kBands);
    // The audio continues as its mirror image beyond both ends, without repeating the end itself.
    const auto sample = [&](int i) {
        if (i < 0) i = -i;
        if (i >= n_samples) i = 2 * (n_samples - 1) - i;
        return static_cast<double>(audio[i]);
    };
    // Two real frames per complex transform.
    pool.parallel_for((n + 1) / 2, [&](int pair, int) {
        double re[kWindow], im[kWindow], magnitude[kBins];
        const int start = pair * 2 * kHop - kPad;
        const bool two = pair * 2 + 1 < n;
        for (int i = 0; i < kWindow; ++i) {
            re[i] = window_[static_cast<size_t>(i)] * sample(start + i);
            im[i] = two ? window_[static_cast<size_t>(i)] * sample(start + kHop + i) : 0;
        }
        fft(re, im);
        for (int which = 0; which < (two ? 2 : 1); ++which) {
            for (int k = 0; k < kBins; ++k) {
                // The even part of the transform belongs to the first frame, the odd to the second.
                const int m = (kWindow - k) % kWindow;
                const double sign = which == 0 ? 1 : -1;
                const double x = (re[k] + sign * re[m]) / 2, y = (im[k] - sign * im[m]) / 2;
                constexpr double kEpsilon = 1e-9;
                magnitude[k] = std::sqrt(x * x + y * y + kEpsilon);
            }
            band_energies(magnitude,
                          out.data() + static_cast<ptrdiff_t>(pair * 2 + which) * kBands);
        }
    });
    return out;
}

}  // namespace qt
