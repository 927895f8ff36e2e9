#include "prompt.h"

#include <algorithm>

#include "status.h"

namespace qt {
namespace {

using Ids = std::vector<int32_t>;

void append(Ids& to, const Ids& from) {
    to.insert(to.end(), from.begin(), from.end());
}

// <|im_start|>{who}\n{text}<|im_end|>\n
Ids turn(const TalkerInfo& info, const Tokenizer& tokenizer, const std::string& who,
         const std::string& text) {
    Ids ids{info.im_start};
    append(ids, tokenizer.encode(who + "\n" + text));
    ids.push_back(info.im_end);
    append(ids, tokenizer.encode("\n"));
    return ids;
}

// The official package cuts by counting: 3 ids of role in front, `tail` behind. A text that begins
// with a newline melts into the role; cutting the same way keeps us equal to it.
Ids middle(const Ids& ids, size_t tail, const char* field) {
    if (ids.size() <= 3 + tail) fail_params(std::string(field) + ": holds nothing to say");
    return {ids.begin() + 3, ids.end() - static_cast<ptrdiff_t>(tail)};
}

std::vector<int> codec_prefix(const TalkerInfo& info, const PromptInput& input) {
    const Language* language = input.language;
    // A dialect speaker asked for Chinese, or for nothing, speaks the dialect.
    if (input.speaker && !input.speaker->dialect.empty() &&
        (!language || language->name == "chinese"))
        language = &info.language(input.speaker->dialect);
    std::vector<int> ids;
    if (language)
        ids = {info.think, info.think_bos, language->id, info.think_eos};
    else
        ids = {info.nothink, info.think_bos, info.think_eos};
    if (input.speaker) ids.push_back(input.speaker->id);
    if (input.has_voice) ids.push_back(kVoiceRow);
    ids.push_back(info.pad);
    ids.push_back(info.bos);
    return ids;
}

}  // namespace

int PromptPlan::rows() const {
    const size_t before = instruct.size() + role.size() + codec_prefix.size() - 1;
    const size_t a = ref_text.size() + text.size() + 1;    // in-context: texts, tts_eos
    const size_t b = 1 + static_cast<size_t>(ref_frames);  // bos, reference frames
    size_t last = 1;                                       // streaming: one text token
    if (in_context())
        last = layout == Layout::streaming ? b : a + b;
    else if (layout == Layout::non_streaming)
        last = text.size() + 2;
    return static_cast<int>(before + last);
}

int PromptPlan::voice_rows() const {
    const size_t before = instruct.size() + role.size() + codec_prefix.size() - 1;
    size_t reference = ref_text.size();
    if (layout == Layout::streaming)
        reference = std::min(reference, 1 + static_cast<size_t>(ref_frames));
    return static_cast<int>(before + (in_context() ? reference : 0));
}

int PromptPlan::trailing() const {
    if (layout == Layout::non_streaming) return 0;
    if (!in_context()) return static_cast<int>(text.size());
    const int left = static_cast<int>(ref_text.size() + text.size()) - ref_frames;
    return std::max(0, left);
}

PromptPlan plan_prompt(const TalkerInfo& info, const Tokenizer& tokenizer,
                       const PromptInput& input) {
    PromptPlan plan;
    plan.layout = input.layout;
    if (!input.instruct.empty()) plan.instruct = turn(info, tokenizer, "user", input.instruct);
    Ids ids = turn(info, tokenizer, "assistant", input.text);
    ids.push_back(info.im_start);
    append(ids, tokenizer.encode("assistant\n"));
    plan.role = {ids.begin(), ids.begin() + std::min<ptrdiff_t>(3, std::ssize(ids))};
    plan.text = middle(ids, 5, "text");
    plan.codec_prefix = codec_prefix(info, input);
    if (input.ref_frames > 0) {
        plan.ref_text = middle(turn(info, tokenizer, "assistant", input.ref_text), 2, "ref_text");
        plan.ref_codes = input.ref_codes;
        plan.ref_frames = input.ref_frames;
    }
    for (const Ids* part : {&plan.instruct, &ids, &plan.ref_text})
        for (const int32_t id : *part)
            if (id >= info.text_vocab)
                throw Error(Status::generate_failed,
                            strf("the talker's tokenizer gave id %d, its embedding has %d rows",
                                 static_cast<int>(id), info.text_vocab));
    return plan;
}

PromptBuilder::PromptBuilder(Pool& pool, const TalkerInfo& info, Talker& talker,
                             CodeEmbedding& codes)
    : info_(info), talker_(talker), codes_(codes), width_(static_cast<size_t>(talker.hidden())) {
    const int32_t pad[] = {info.tts_pad};
    const int32_t bos[] = {info.tts_bos};
    const int32_t eos[] = {info.tts_eos};
    append_text(pool, pad, pad_);
    append_text(pool, bos, bos_);
    append_text(pool, eos, eos_);
}

void PromptBuilder::append_text(Pool& pool, std::span<const int32_t> ids, Rows& rows) {
    const size_t at = rows.size();
    rows.resize(at + ids.size() * width_);
    talker_.text_rows(pool, ids, rows.data() + at);
}

void PromptBuilder::append_row(std::span<const float> row, Rows& rows) {
    rows.insert(rows.end(), row.begin(), row.end());
}

// Row `row` of rows += E(id)
void PromptBuilder::add_codec(int id, Rows& rows, size_t row) {
    codes_.add(0, id, rows.data() + row * width_);
}

// n-1 rows: tts_pad x (n-2), tts_bos, each plus its codec row; the last codec row, bos, belongs to
// what follows.
void PromptBuilder::append_prefix(const PromptPlan& plan, std::span<const float> voice,
                                  Rows& rows) {
    const size_t n = plan.codec_prefix.size();
    for (size_t i = 0; i + 1 < n; ++i) {
        append_row(i + 2 < n ? pad_ : bos_, rows);
        const size_t row = rows.size() / width_ - 1;
        if (plan.codec_prefix[i] != kVoiceRow)
            add_codec(plan.codec_prefix[i], rows, row);
        else
            kernels().add(voice.data(), static_cast<int>(width_), rows.data() + row * width_);
    }
}

Prompt PromptBuilder::build(Pool& pool, const PromptPlan& plan, std::span<const float> voice) {
    Prompt prompt;
    append_text(pool, plan.instruct, prompt.rows);
    append_text(pool, plan.role, prompt.rows);
    append_prefix(plan, voice, prompt.rows);
    if (plan.in_context())
        lay_in_context(pool, plan, prompt);
    else if (plan.layout == Layout::streaming)
        lay_streaming(pool, plan, prompt);
    else
        lay_non_streaming(pool, plan, prompt);
    prompt.n_rows = static_cast<int>(prompt.rows.size() / width_);
    prompt.n_trailing = static_cast<int>(prompt.trailing.size() / width_);
    return prompt;
}

// P(text[0]) + E(bos); then one text row beside each frame, then tts_eos.
void PromptBuilder::lay_streaming(Pool& pool, const PromptPlan& plan, Prompt& prompt) {
    const std::span<const int32_t> text(plan.text);
    append_text(pool, text.first(1), prompt.rows);
    add_codec(info_.bos, prompt.rows, prompt.rows.size() / width_ - 1);
    append_text(pool, text.subspan(1), prompt.trailing);
    append_row(eos_, prompt.trailing);
}

// P(text[k]) + E(pad) for all k; tts_eos + E(pad); tts_pad + E(bos).
void PromptBuilder::lay_non_streaming(Pool& pool, const PromptPlan& plan, Prompt& prompt) {
    const size_t first = prompt.rows.size() / width_;
    append_text(pool, plan.text, prompt.rows);
    append_row(eos_, prompt.rows);
    const size_t end = prompt.rows.size() / width_;
    for (size_t row = first; row < end; ++row) add_codec(info_.pad, prompt.rows, row);
    append_row(pad_, prompt.rows);
    add_codec(info_.bos, prompt.rows, end);
}

// B = [E(bos), then per reference frame the sum of its 16 embeddings]
PromptBuilder::Rows PromptBuilder::reference_rows(const PromptPlan& plan) {
    Rows rows((1 + static_cast<size_t>(plan.ref_frames)) * width_, 0.0F);
    add_codec(info_.bos, rows, 0);
    const std::span<const int32_t> codes(plan.ref_codes);
    for (size_t t = 0; t < static_cast<size_t>(plan.ref_frames); ++t)
        codes_.add_frame(codes.subspan(t * kCodebooks, kCodebooks), rows.data() + (1 + t) * width_);
    return rows;
}

// A = [P(reference text), P(text), tts_eos].
//   streaming      A[k] + B[k] over the frames of B; the rest of A trails (a short A is padded)
//   non-streaming  all of A + E(pad), then all of B + tts_pad
void PromptBuilder::lay_in_context(Pool& pool, const PromptPlan& plan, Prompt& prompt) {
    Rows a;
    append_text(pool, plan.ref_text, a);
    append_text(pool, plan.text, a);
    append_row(eos_, a);
    Rows b = reference_rows(plan);
    const size_t n_a = a.size() / width_;
    const size_t n_b = b.size() / width_;
    const int width = static_cast<int>(width_);
    if (plan.layout == Layout::streaming) {
        for (size_t k = 0; k < n_b; ++k) {
            const float* text = k < n_a ? a.data() + k * width_ : pad_.data();
            kernels().add(text, width, b.data() + k * width_);
        }
        append_row(b, prompt.rows);
        if (n_a > n_b)
            prompt.trailing.assign(a.begin() + static_cast<ptrdiff_t>(n_b * width_), a.end());
        return;
    }
    for (size_t k = 0; k < n_a; ++k) add_codec(info_.pad, a, k);
    for (size_t k = 0; k < n_b; ++k) kernels().add(pad_.data(), width, b.data() + k * width_);
    append_row(a, prompt.rows);
    append_row(b, prompt.rows);
}

}  // namespace qt
