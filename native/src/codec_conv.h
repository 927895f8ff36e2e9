// From latent frames to samples: two ConvNeXt upsamplers, then the DAC decoder's convolutions.
#pragma once

#include <vector>

#include "frame_cost.h"
#include "gguf.h"
#include "kernels.h"
#include "layers.h"
#include "memory.h"
#include "threads.h"
#include "winograd.h"

namespace qt {

class CodecConv {
  public:
    // Buffers for up to `frames` frames per call.
    class Workspace {
      public:
        Workspace(const CodecConv& conv, int frames);
        int frames() const { return frames_; }

      private:
        friend class CodecConv;
        Block memory_;
        int frames_;
        float* front_;     // input of the first convolution
        float* up_;        // input of a depthwise convolution
        float* raw_;       // what a layer adds to: the residual
        float* hidden_;    // between the two layers of a pair
        float* boundary_;  // input of stage tail_
        float* edge_[2];   // inputs of the other stages by turns, and of the last convolution
        float* unit_[2];   // inputs of residual units by turns
    };

    CodecConv(const Gguf& file, Pool& pool, int latent);

    int samples_per_frame() const { return samples_per_frame_; }
    // Frames before the next one that it depends on, in full or in part.
    int receptive_frames() const { return receptive_frames_; }
    size_t state_floats() const { return state_floats_; }
    void add_cost(FrameCost& cost) const;

    // latent [frames, latent] -> audio [frames * samples_per_frame] in [-1, 1].
    void forward(Pool& pool, const Kernels& kernels, float* state, Workspace& work,
                 const float* latent, int frames, float* audio) const;

  private:
    // Rows of a layer's input that the next call needs: [rows, channels] at `offset` of the state.
    struct Past {
        size_t offset = 0;
        int rows = 0;
        int channels = 0;
        size_t floats() const { return static_cast<size_t>(rows) * static_cast<size_t>(channels); }
    };
    struct Upsampler {
        int ratio = 0;
        Layer up;
        Past past;                                     // of the depthwise convolution
        std::vector<float> depthwise, depthwise_bias;  // [taps][channels], [channels]
        std::vector<float> norm, norm_bias;
        Layer wide, narrow;
    };
    struct ResidualUnit {
        Past past;
        Layer conv1, conv2;
        WinogradConv conv1_fast;  // instead of conv1, when loaded
        int frame_rows = 0;

        const Layer& first() const { return conv1_fast.loaded() ? conv1_fast.layer : conv1; }
    };
    struct Stage {
        int rate = 0;
        Past past;
        Layer up;
        std::vector<ResidualUnit> units;
    };

    static constexpr int kDepthwiseTaps = 7;
    static constexpr int kEdgeTaps = 7;  // of the first and the last convolution
    static constexpr int kUnitTaps = 7;

    void grow_rate(const Gguf& file, int factor);
    Past remember(int rows, int channels, double rows_per_frame);
    void load_upsamplers(const Gguf& file, Pool& pool);
    void load_stage(const Gguf& file, Pool& pool, int index, int rate, int channels);
    void load_unit(const Gguf& file, Pool& pool, const std::string& name, int channels,
                   int dilation, Stage& stage);
    static void load_past(const Past& past, const float* state, float* rows);
    static void save_past(const Past& past, float* state, const float* rows, int added);

    void upsample(Pool& pool, const Kernels& kernels, const Upsampler& u, float* state,
                  Workspace& work, const float* x, int rows, float* y) const;
    void residual_unit(Pool& pool, const Kernels& kernels, const ResidualUnit& unit,
                       Workspace& work, const float* x, int rows, float* y, float* z) const;
    void run_stage(Pool& pool, const Kernels& kernels, const Stage& stage, float* state,
                   Workspace& work, const float* in, int rows, float* z) const;
    int run_head(Pool& pool, const Kernels& kernels, float* state, Workspace& work,
                 const float* latent, int frames) const;
    void run_tail(Pool& pool, const Kernels& kernels, float* state, Workspace& work, const float* x,
                  int rows, float* audio) const;
    const Past& past_of_stage(size_t i) const;  // the last convolution's behind the last stage

    int latent_ = 0, samples_per_frame_ = 1, receptive_frames_ = 0;
    size_t state_floats_ = 0;
    double receptive_ = 0;  // in frames, exact
    size_t tail_ = 0;       // the first stage that takes frames one by one
    std::vector<Upsampler> upsamplers_;
    Past first_past_, last_past_;
    Layer first_, last_;
    std::vector<Stage> stages_;
};

}  // namespace qt
