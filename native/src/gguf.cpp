#include "gguf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "gguf_detail.h"
#include "status.h"

namespace qt {

using namespace gguf_detail;

namespace {

struct TypeInfo {
    TensorType type;
    const char* name;
    int values;
    int bytes;
};
constexpr TypeInfo kTypes[] = {
    {TensorType::f32, "F32", 1, 4},       {TensorType::f16, "F16", 1, 2},
    {TensorType::bf16, "BF16", 1, 2},     {TensorType::q8_0, "Q8_0", 32, 34},
    {TensorType::q4_0, "Q4_0", 32, 18},   {TensorType::q5_0, "Q5_0", 32, 22},
    {TensorType::q4_k, "Q4_K", 256, 144}, {TensorType::q5_k, "Q5_K", 256, 176},
    {TensorType::q6_k, "Q6_K", 256, 210},
};

const TypeInfo* type_info(TensorType type) {
    for (const TypeInfo& info : kTypes)
        if (info.type == type) return &info;
    return nullptr;
}

// Names come from the file: what is shown of them is short and printable.
std::string shown(std::string_view name) {
    std::string text;
    for (const char c : name.substr(0, 64)) text += c >= 32 && c < 127 ? c : '?';
    return "'" + text + (name.size() > 64 ? "...'" : "'");
}

}  // namespace

const char* tensor_type_name(TensorType type) {
    return type_info(type)->name;
}
int block_values(TensorType type) {
    return type_info(type)->values;
}
int block_bytes(TensorType type) {
    return type_info(type)->bytes;
}

int64_t Tensor::values() const {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    return n;
}

size_t Tensor::row_bytes() const {
    return static_cast<size_t>(row_values() / block_values(type)) *
           static_cast<size_t>(block_bytes(type));
}

// Reads forward and never past the end.
class Gguf::Reader {
  public:
    explicit Reader(const Gguf& file) : file_(file), next_(file.map_), left_(file.size_) {}

    const uint8_t* take(uint64_t bytes, const char* what) {
        if (bytes > left_)
            file_.fail(strf("the file ends inside %s: it is truncated or damaged", what));
        const uint8_t* data = next_;
        next_ += bytes;
        left_ -= static_cast<size_t>(bytes);
        return data;
    }
    template <typename T>
    T number(const char* what) {
        return load<T>(take(sizeof(T), what));
    }
    std::string_view string(const char* what) {
        const auto length = number<uint64_t>(what);
        const uint8_t* data = take(length, what);
        return {reinterpret_cast<const char*>(data), static_cast<size_t>(length)};
    }
    size_t left() const { return left_; }
    size_t position() const { return static_cast<size_t>(next_ - file_.map_); }
    const uint8_t* here() const { return next_; }

  private:
    const Gguf& file_;
    const uint8_t* next_;
    size_t left_;
};

Gguf::Gguf(const std::string& path) : path_(path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(std::string("cannot be opened: ") + std::strerror(errno));
    struct stat info;
    const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    void* map = MAP_FAILED;
    if (regular && info.st_size >= 24)
        map = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (!regular) fail("not a regular file");
    if (info.st_size < 24) fail("too short for a GGUF file");
    if (map == MAP_FAILED) fail(std::string("cannot be mapped: ") + std::strerror(errno));
    map_ = static_cast<const uint8_t*>(map);
    size_ = static_cast<size_t>(info.st_size);
    try {
        Reader in(*this);
        if (std::memcmp(in.take(4, "the header"), "GGUF", 4) != 0)
            fail("not a GGUF file (it does not begin with 'GGUF')");
        const auto version = in.number<uint32_t>("the header");
        if (version != 2 && version != 3) fail(strf("GGUF version %u; 2 and 3 are read", version));
        const auto n_tensors = in.number<uint64_t>("the header");
        const auto n_values = in.number<uint64_t>("the header");
        // A key takes at least 13 bytes, a tensor 32: more cannot fit, so memory stays bounded.
        if (n_values > in.left() / 13 || n_tensors > in.left() / 32)
            fail("the header promises more entries than the file can hold: it is damaged");
        for (uint64_t i = 0; i < n_values; ++i) {
            const std::string key(in.string("a metadata key"));
            read_value(in, key);
        }
        std::map<std::string, uint64_t> offsets;
        for (uint64_t i = 0; i < n_tensors; ++i) read_tensor(in, offsets);
        place_tensors(offsets, in.position());
    } catch (...) {
        munmap(map, size_);
        throw;
    }
}

Gguf::~Gguf() {
    munmap(const_cast<uint8_t*>(map_), size_);
}

void Gguf::fail(const std::string& message) const {
    fail_file(path_, message);
}

void Gguf::read_value(Reader& in, const std::string& key) {
    Value v;
    v.type = in.number<uint32_t>("a metadata value");
    if (v.type >= kKinds) fail(strf("key %s has the unknown type %u", shown(key).c_str(), v.type));
    if (v.type == kString) {
        const std::string_view text = in.string("a metadata string");
        v.data = reinterpret_cast<const uint8_t*>(text.data());
        v.count = text.size();
    } else if (v.type == kArray) {
        v.item_type = in.number<uint32_t>("a metadata array");
        v.count = in.number<uint64_t>("a metadata array");
        if (v.item_type >= kKinds || v.item_type == kArray)
            fail(strf("key %s is an array of the unreadable type %u", shown(key).c_str(),
                      v.item_type));
        v.data = in.here();
        if (v.item_type == kString) {
            if (v.count > in.left() / 8)
                fail("the array " + shown(key) + " is longer than the file");
            for (uint64_t i = 0; i < v.count; ++i) in.string("a metadata array");
        } else {
            const auto item = static_cast<uint64_t>(kKindBytes[v.item_type]);
            if (v.count > in.left() / item)
                fail("the array " + shown(key) + " is longer than the file");
            in.take(v.count * item, "a metadata array");
        }
    } else {
        v.data = in.take(static_cast<uint64_t>(kKindBytes[v.type]), "a metadata value");
    }
    if (!values_.emplace(key, v).second) fail("key " + shown(key) + " appears twice");
}

void Gguf::read_tensor(Reader& in, std::map<std::string, uint64_t>& offsets) {
    Tensor t;
    t.name = std::string(in.string("a tensor's name"));
    const std::string name = shown(t.name);
    const auto n_dims = in.number<uint32_t>("a tensor's shape");
    if (n_dims < 1 || n_dims > 4) fail(strf("tensor %s has %u dimensions", name.c_str(), n_dims));
    uint64_t total = 1;
    for (uint32_t i = 0; i < n_dims; ++i) {
        const auto size = in.number<uint64_t>("a tensor's shape");
        if (size == 0 || size > (uint64_t{1} << 40) / total)
            fail("tensor " + name + " has an impossible shape");
        total *= size;
        t.shape.insert(t.shape.begin(), static_cast<int64_t>(size));
    }
    t.type = static_cast<TensorType>(in.number<uint32_t>("a tensor's type"));
    const TypeInfo* info = type_info(t.type);
    if (!info)
        fail(strf("tensor %s has type %u; F32 F16 BF16 Q8_0 Q5_0 Q4_0 Q4_K Q5_K Q6_K are read",
                  name.c_str(), static_cast<unsigned>(t.type)));
    if (t.row_values() % info->values != 0)
        fail(strf("tensor %s: rows of %lld values are no whole number of %s blocks", name.c_str(),
                  static_cast<long long>(t.row_values()), info->name));
    t.bytes = static_cast<size_t>(total) / static_cast<size_t>(info->values) *
              static_cast<size_t>(info->bytes);
    const auto offset = in.number<uint64_t>("a tensor's offset");
    if (!offsets.emplace(t.name, offset).second) fail("tensor " + name + " appears twice");
    tensors_.emplace(t.name, std::move(t));
}

void Gguf::place_tensors(const std::map<std::string, uint64_t>& offsets, size_t start) {
    uint64_t alignment = 32;
    if (has("general.alignment"))
        alignment = static_cast<uint64_t>(integer("general.alignment", 8, 1 << 20));
    if ((alignment & (alignment - 1)) != 0) fail("key 'general.alignment' is no power of two");
    const uint64_t base = (start + alignment - 1) / alignment * alignment;
    for (auto& [name, tensor] : tensors_) {
        const uint64_t offset = offsets.at(name);
        if (offset % alignment != 0) fail("tensor " + shown(name) + " is not aligned");
        if (base > size_ || offset > size_ - base || tensor.bytes > size_ - base - offset)
            fail("tensor " + shown(name) + " lies beyond the end of the file: it is truncated");
        tensor.data = map_ + base + offset;
    }
}

void Gguf::release() const {
    madvise(const_cast<uint8_t*>(map_), size_, MADV_DONTNEED);
}

}  // namespace qt
