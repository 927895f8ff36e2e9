// Which table is chosen by name, and that the list says what this machine has.
#include "kernel_checks.h"

using namespace qt;

TEST(a_table_is_found_by_its_name) {
    for (int i = 0; kernel_tables()[i]; ++i)
        CHECK(&kernels_named(kernel_tables()[i]->name) == kernel_tables()[i]);
    CHECK(&kernels_named("scalar") == &scalar_kernels());
}

TEST(an_unknown_name_or_none_is_the_best_table) {
    CHECK(&kernels_named(nullptr) == kernel_tables()[0]);
    CHECK(&kernels_named("") == kernel_tables()[0]);
    CHECK(&kernels_named("amx") == kernel_tables()[0]);
}

TEST(every_table_is_whole) {
    for (const Kernels* table : all_tables()) {
        std::printf("     %s%s\n", table->name,
                    &kernels_named(table->name) == table ? "" : " (emulated)");
        // A name, then nothing but functions.
        void* entries[sizeof(Kernels) / sizeof(void*)];
        std::memcpy(entries, table, sizeof entries);
        for (const void* entry : entries) CHECK(entry != nullptr);
    }
}
