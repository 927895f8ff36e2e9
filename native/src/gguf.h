// A GGUF file, mapped and checked: after the constructor every name, number and range in it can
// be trusted; what is missing or of the wrong kind is an Error that names the file and the key.
//
// The file stays mapped while the object lives. Do not truncate a model in use: as with any mapped
// file the system then ends the process (replace files by renaming a new one over them).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace qt {

// The types this engine reads, with ggml's numbers.
enum class TensorType : uint32_t {
    f32 = 0,
    f16 = 1,
    q4_0 = 2,
    q5_0 = 6,
    q8_0 = 8,
    q4_k = 12,
    q5_k = 13,
    q6_k = 14,
    bf16 = 30,
};

const char* tensor_type_name(TensorType type);
int block_values(TensorType type);  // values per block; a row is a whole number of blocks
int block_bytes(TensorType type);

struct Tensor {
    std::string name;
    TensorType type = TensorType::f32;
    std::vector<int64_t> shape;  // torch's order: the last dimension is contiguous
    const uint8_t* data = nullptr;
    size_t bytes = 0;

    int64_t values() const;
    int64_t row_values() const { return shape.back(); }
    size_t row_bytes() const;
};

class Gguf {
  public:
    explicit Gguf(const std::string& path);
    ~Gguf();
    Gguf(const Gguf&) = delete;
    Gguf& operator=(const Gguf&) = delete;

    const std::string& path() const { return path_; }

    bool has(const std::string& key) const { return values_.count(key) != 0; }
    // Throw when the key is missing or of another kind. integer() takes every integer type and
    // checks the range.
    int integer(const std::string& key, int64_t lowest, int64_t highest) const;
    float number(const std::string& key) const;  // finite
    bool boolean(const std::string& key) const;
    std::string_view string(const std::string& key) const;
    std::vector<std::string_view> strings(const std::string& key) const;
    std::vector<int32_t> integers(const std::string& key) const;

    const Tensor* find(const std::string& name) const;
    // Throws when it is missing or its shape is another one; -1 in `shape` accepts any size.
    const Tensor& tensor(const std::string& name, const std::vector<int64_t>& shape) const;
    const std::map<std::string, Tensor>& tensors() const { return tensors_; }

    // Lets the system take back the pages read so far; they come back when they are touched.
    void release() const;

    [[noreturn]] void fail(const std::string& message) const;

  private:
    class Reader;
    struct Value {
        uint32_t type = 0;
        uint32_t item_type = 0;  // arrays
        uint64_t count = 0;      // items, or bytes of a string
        const uint8_t* data = nullptr;
    };

    void read_value(Reader& in, const std::string& key);
    void read_tensor(Reader& in, std::map<std::string, uint64_t>& offsets);
    void place_tensors(const std::map<std::string, uint64_t>& offsets, size_t start);
    const Value& value(const std::string& key, uint32_t type, const char* expected) const;
    int64_t integer_at(uint32_t type, const uint8_t* data, const std::string& key) const;

    std::string path_;
    const uint8_t* map_ = nullptr;
    size_t size_ = 0;
    std::map<std::string, Value> values_;
    std::map<std::string, Tensor> tensors_;
};

}  // namespace qt
