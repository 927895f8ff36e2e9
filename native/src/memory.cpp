#include "memory.h"

#include <sys/mman.h>

#include "status.h"

namespace qt {

Block::Block(size_t bytes, bool huge) {
    if (bytes == 0) return;
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        throw Error(Status::out_of_memory, strf("cannot get %zu MiB of memory", bytes >> 20));
#ifdef MADV_HUGEPAGE
    if (huge) madvise(data, bytes, MADV_HUGEPAGE);
#else
    (void)huge;
#endif
    data_ = data;
    bytes_ = bytes;
}

void Block::release() noexcept {
    if (data_) munmap(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
}

}  // namespace qt
