// From texts, voice and language to the talker's input rows (MODEL_SPEC 4).
//
// Every row is a sum of at most one text row P(id) and one codec row E(id):
//   instruction   P(each token)
//   role          P(<|im_start|>), P(assistant), P(\n)
//   prefix        tts_pad .. tts_pad tts_bos  +  [think.., language, think_eos, voice, pad]
//   text          three layouts, see Layout; what does not fit goes along with the frames
//   (trailing)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "code_embedding.h"
#include "talker.h"
#include "talker_info.h"
#include "tokenizer.h"

namespace qt {

enum class Layout { streaming, non_streaming };

// Token ids, checked; nothing is computed yet, so that a text that is too long is refused at once.
struct PromptPlan {
    std::vector<int32_t> instruct;  // the whole instruction turn, or empty
    std::vector<int32_t> role;      // 3 ids
    std::vector<int32_t> text;
    std::vector<int32_t> ref_text;   // in-context cloning only
    std::vector<int> codec_prefix;   // codec ids; kVoiceRow is the x-vector
    std::vector<int32_t> ref_codes;  // [ref_frames, 16]
    int ref_frames = 0;
    Layout layout = Layout::streaming;

    int rows() const;        // of the prefill
    int voice_rows() const;  // the first rows, in which no word of `text` has a part
    int trailing() const;    // text rows that go along with the frames, tts_eos included
    bool in_context() const { return ref_frames > 0; }
};

inline constexpr int kVoiceRow = -1;

struct PromptInput {
    std::string text;
    std::string instruct;
    const Language* language = nullptr;  // null: the model decides
    const SpeakerInfo* speaker = nullptr;
    bool has_voice = false;  // an x-vector
    std::string ref_text;
    std::vector<int32_t> ref_codes;  // [ref_frames, 16]
    int ref_frames = 0;
    Layout layout = Layout::streaming;
};

PromptPlan plan_prompt(const TalkerInfo& info, const Tokenizer& tokenizer,
                       const PromptInput& input);

struct Prompt {
    std::vector<float> rows;  // [n_rows, hidden]: the prefill
    int n_rows = 0;
    std::vector<float> trailing;  // [n_trailing, hidden]: the text row of frame 0, 1, ...
    int n_trailing = 0;           // afterwards: tts_pad
};

// Turns plans into rows; keeps the rows of the control tokens.
class PromptBuilder {
  public:
    PromptBuilder(Pool& pool, const TalkerInfo& info, Talker& talker, CodeEmbedding& codes);

    // voice: the x-vector [hidden] where the plan has a voice row.
    Prompt build(Pool& pool, const PromptPlan& plan, std::span<const float> voice);
    std::span<const float> pad_row() const { return pad_; }

  private:
    using Rows = std::vector<float>;  // [n, hidden]

    void append_text(Pool& pool, std::span<const int32_t> ids, Rows& rows);
    void append_row(std::span<const float> row, Rows& rows);
    void add_codec(int id, Rows& rows, size_t row);
    void append_prefix(const PromptPlan& plan, std::span<const float> voice, Rows& rows);
    void lay_streaming(Pool& pool, const PromptPlan& plan, Prompt& prompt);
    void lay_non_streaming(Pool& pool, const PromptPlan& plan, Prompt& prompt);
    void lay_in_context(Pool& pool, const PromptPlan& plan, Prompt& prompt);
    Rows reference_rows(const PromptPlan& plan);

    const TalkerInfo& info_;
    Talker& talker_;
    CodeEmbedding& codes_;
    size_t width_;
    Rows pad_, bos_, eos_;  // P(tts_pad), P(tts_bos), P(tts_eos)
};

}  // namespace qt
