// Damaged files: a message in bounded time, never a crash (the sanitizer builds watch every read).
#include "gguf.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "check.h"
#include "quant.h"
#include "status.h"

using qt::Gguf;

namespace {

// A little GGUF writer.
class Bytes {
  public:
    template <typename T>
    Bytes& number(T v) {
        out_.append(reinterpret_cast<const char*>(&v), sizeof v);
        return *this;
    }
    Bytes& text(const std::string& s) {
        number<uint64_t>(s.size());
        out_ += s;
        return *this;
    }
    Bytes& raw(const std::string& s) {
        out_ += s;
        return *this;
    }
    Bytes& align(size_t n) {
        out_.resize((out_.size() + n - 1) / n * n);
        return *this;
    }
    const std::string& str() const { return out_; }

  private:
    std::string out_;
};

class File {
  public:
    explicit File(const std::string& content) {
        const char* folder = std::getenv("TMPDIR");
        path_ = std::string(folder ? folder : "/tmp") + "/gguf_test_" + std::to_string(getpid()) +
                ".gguf";
        std::ofstream(path_, std::ios::binary) << content;
    }
    ~File() { std::remove(path_.c_str()); }
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

enum : uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9 };

std::string good() {
    Bytes b;
    b.raw("GGUF").number<uint32_t>(3).number<uint64_t>(2).number<uint64_t>(6);
    b.text("an.int").number(kU32).number<uint32_t>(42);
    b.text("a.float").number(kF32).number(1.5F);
    b.text("a.bool").number(kBool).number<uint8_t>(1);
    b.text("a.string").number(kString).text("hello");
    b.text("some.strings").number(kArray).number(kString).number<uint64_t>(2).text("x").text("yz");
    b.text("some.ints").number(kArray).number(kI32).number<uint64_t>(3);
    for (const int32_t v : {1, -2, 3}) b.number(v);
    b.text("w")
        .number<uint32_t>(2)
        .number<uint64_t>(4)
        .number<uint64_t>(2)
        .number<uint32_t>(0)
        .number<uint64_t>(0);
    b.text("q").number<uint32_t>(1).number<uint64_t>(32).number<uint32_t>(8).number<uint64_t>(32);
    b.align(32);
    for (int i = 0; i < 8; ++i) b.number(static_cast<float>(i));
    b.number<uint16_t>(0x3c00);
    for (int i = 0; i < 32; ++i) b.number(static_cast<int8_t>(i - 16));
    return b.str();
}

// One tensor of the given type, shape and offset, over `data` bytes.
std::string one_tensor(uint32_t type, std::vector<uint64_t> ne, uint64_t offset, size_t data) {
    Bytes b;
    b.raw("GGUF").number<uint32_t>(3).number<uint64_t>(1).number<uint64_t>(0);
    b.text("w").number<uint32_t>(static_cast<uint32_t>(ne.size()));
    for (const uint64_t n : ne) b.number(n);
    b.number(type).number(offset).align(32);
    return b.str() + std::string(data, '\0');
}

void load(const std::string& content) {
    const File file(content);
    const Gguf gguf(file.path());
}

}  // namespace

TEST(reads_what_was_written) {
    const File file(good());
    const Gguf g(file.path());
    CHECK(g.integer("an.int", 0, 100) == 42);
    CHECK(g.number("a.float") == 1.5F);
    CHECK(g.boolean("a.bool"));
    CHECK(g.string("a.string") == "hello");
    CHECK(g.strings("some.strings").size() == 2 && g.strings("some.strings")[1] == "yz");
    CHECK((g.integers("some.ints") == std::vector<int32_t>{1, -2, 3}));
    const qt::Tensor& w = g.tensor("w", {2, 4});
    CHECK((qt::to_floats(w) == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
    CHECK(qt::to_floats(g.tensor("q", {-1}))[0] == -16);
}

TEST(messages_name_the_file_and_the_key) {
    const File file(good());
    const Gguf g(file.path());
    CHECK_ERROR(g.integer("absent", 0, 1), "key 'absent' is missing");
    CHECK_ERROR(g.integer("absent", 0, 1), file.path().c_str());
    CHECK_ERROR(g.integer("an.int", 0, 10), "key 'an.int' is 42; 0 to 10");
    CHECK_ERROR(g.integer("a.float", 0, 10), "'a.float' is not an integer");
    CHECK_ERROR(g.string("an.int"), "'an.int' is not a string");
    CHECK_ERROR(g.integers("some.strings"), "not an array of integers");
    CHECK_ERROR(g.tensor("absent", {1}), "tensor 'absent' is missing");
    CHECK_ERROR(g.tensor("w", {4, 2}), "tensor 'w' has shape [2, 4], expected [4, 2]");
}

TEST(refuses_what_is_no_gguf) {
    CHECK_ERROR(Gguf("/no/such/file.gguf"), "cannot be opened");
    CHECK_ERROR(Gguf("/tmp"), "not a regular file");
    CHECK_ERROR(load(""), "too short");
    CHECK_ERROR(load(std::string(100, 'x')), "not a GGUF file");
    std::string v1 = good();
    v1[4] = 1;
    CHECK_ERROR(load(v1), "version 1");
}

TEST(refuses_impossible_tensors) {
    CHECK_ERROR(load(one_tensor(0, {1000}, 0, 64)), "beyond the end");
    CHECK_ERROR(load(one_tensor(0, {4}, 7, 64)), "not aligned");
    CHECK_ERROR(load(one_tensor(0, {4}, ~uint64_t{31}, 64)), "beyond the end");
    CHECK_ERROR(load(one_tensor(3, {32}, 0, 64)), "type 3");
    CHECK_ERROR(load(one_tensor(8, {33}, 0, 64)), "no whole number of Q8_0 blocks");
    CHECK_ERROR(load(one_tensor(0, {0}, 0, 64)), "impossible shape");
    CHECK_ERROR(load(one_tensor(0, {uint64_t{1} << 40, uint64_t{1} << 40}, 0, 64)),
                "impossible shape");
    CHECK_ERROR(load(one_tensor(0, {1, 1, 1, 1, 1}, 0, 64)), "5 dimensions");
    CHECK_ERROR(load(one_tensor(0, {}, 0, 64)), "0 dimensions");
}

TEST(refuses_impossible_counts) {
    Bytes b;
    b.raw("GGUF").number<uint32_t>(3).number<uint64_t>(~uint64_t{0}).number<uint64_t>(1);
    CHECK_ERROR(load(b.str()), "promises more entries");
    Bytes s;
    s.raw("GGUF").number<uint32_t>(3).number<uint64_t>(0).number<uint64_t>(1);
    s.number<uint64_t>(uint64_t{1} << 62).raw("abcdefgh");
    CHECK_ERROR(load(s.str()), "truncated");
    Bytes a;
    a.raw("GGUF").number<uint32_t>(3).number<uint64_t>(0).number<uint64_t>(1);
    a.text("k").number(kArray).number(kI32).number(uint64_t{1} << 62).number<uint64_t>(0);
    CHECK_ERROR(load(a.str()), "longer than the file");
}

TEST(every_truncation_is_an_error) {
    const std::string whole = good();
    for (size_t n = 0; n < whole.size(); ++n) CHECK_ERROR(load(whole.substr(0, n)), ".gguf");
    load(whole);
}

TEST(flipped_bytes_never_crash) {
    const std::string whole = good();
    std::mt19937 rng(7);
    int loaded = 0;
    for (int round = 0; round < 20000; ++round) {
        std::string damaged = whole;
        for (int i = 0; i < 1 + round % 3; ++i)
            damaged[rng() % damaged.size()] = static_cast<char>(rng());
        const File file(damaged);
        try {
            const Gguf g(file.path());
            for (const auto& [name, tensor] : g.tensors()) qt::to_floats(tensor);
            ++loaded;
        } catch (const qt::Error&) {
        }
    }
    CHECK(loaded > 0);
}
