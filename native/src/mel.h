// The log-mel spectrogram of the speaker encoder: 24 kHz mono -> 128 values every 256 samples.
#pragma once

#include <vector>

#include "threads.h"

namespace qt {

class MelSpectrogram {
  public:
    static constexpr int kBands = 128;
    static constexpr int kHop = 256;
    // Samples that reflection at the ends needs at least.
    static constexpr int kMinSamples = 385;

    MelSpectrogram();

    static int frames(int n_samples);
    // audio [n_samples], n_samples >= kMinSamples -> [frames(n_samples), kBands]
    std::vector<float> operator()(Pool& pool, const float* audio, int n_samples) const;

  private:
    static constexpr int kWindow = 1024;
    static constexpr int kPad = (kWindow - kHop) / 2;
    static constexpr int kBins = kWindow / 2 + 1;

    struct Band {
        int first;                   // FFT bin
        std::vector<double> weight;  // of bins first, first + 1, ...
    };

    void fft(double* re, double* im) const;
    void band_energies(const double* magnitude, float* out) const;

    std::vector<double> window_, cos_, sin_;
    std::vector<int> reversed_;
    std::vector<Band> bands_;
};

}  // namespace qt
