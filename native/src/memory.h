// Big blocks of memory: page-aligned, zero at first.
#pragma once

#include <cstddef>
#include <utility>

namespace qt {

class Block {
  public:
    Block() = default;
    // Zeroed; untouched pages cost nothing. huge: ask for 2 MiB pages (blocks used from end to
    // end).
    explicit Block(size_t bytes, bool huge = true);  // throws Error out_of_memory
    ~Block() { release(); }
    Block(Block&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Block& operator=(Block&& other) noexcept {
        if (this != &other) {
            release();
            data_ = std::exchange(other.data_, nullptr);
            bytes_ = std::exchange(other.bytes_, 0);
        }
        return *this;
    }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    void* data() const { return data_; }
    size_t bytes() const { return bytes_; }
    template <typename T>
    T* as() const {
        return static_cast<T*>(data_);
    }

  private:
    void release() noexcept;

    void* data_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace qt
