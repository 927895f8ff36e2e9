// A voice to its x-vector: log-mel, then ECAPA-TDNN.
#pragma once

#include <vector>

#include "breath.h"
#include "gguf.h"
#include "layers.h"
#include "mel.h"
#include "threads.h"

namespace qt {

class SpeakerEncoder {
  public:
    // Reads spk_enc.* of a talker file (base models have them).
    SpeakerEncoder(const Gguf& file, Pool& pool);

    int dim() const { return fc_.n(); }
    // Below this many samples there are too few mel frames to reflect at the ends.
    int min_samples() const;
    // audio [n_samples], 24 kHz mono -> [dim()]; Error when it is too short.
    std::vector<float> operator()(Pool& pool, const float* audio, int n_samples,
                                  const Breath& breathe = no_breath) const;

  private:
    using Rows = std::vector<float>;  // [T, channels]

    struct Block {
        Layer tdnn1, tdnn2, squeeze, excite;
        std::vector<Layer> branches;  // Res2Net: one per slice of the channels but the first
    };

    // "Same" convolution: both ends reflected.
    Rows same(Pool& pool, const Layer& layer, const Rows& x) const;
    Rows res2net(Pool& pool, const Block& block, const Rows& x) const;
    Rows se_res2net(Pool& pool, const Block& block, const Rows& x) const;
    Rows pool_statistics(Pool& pool, const Rows& x) const;

    MelSpectrogram mel_;
    Layer first_, mfa_, fc_;
    std::vector<Block> blocks_;
    // The attention's input is [x, mean, std], of which the last two are the same at all times.
    Layer attention_x_, attention_statistics_, attention_out_;
};

}  // namespace qt
