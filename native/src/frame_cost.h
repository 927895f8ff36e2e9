// What one frame costs at least: bytes of weights to read, multiply-adds of the codec.
#pragma once

namespace qt {

struct FrameCost {
    double talker_bytes = 0;
    double predictor_bytes = 0;
    double codec_bytes = 0;     // once per call, whatever its number of frames
    double codec_mul_adds = 0;  // per frame
};

}  // namespace qt
