// A test program in one header: TEST(name) { CHECK(...); } ... and main() runs them all.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace check {

struct Test {
    const char* name;
    std::function<void()> body;
};
inline std::vector<Test>& tests() {
    static std::vector<Test> all;
    return all;
}
inline int& failures() {
    static int count = 0;
    return count;
}
struct Register {
    Register(const char* name, std::function<void()> body) { tests().push_back({name, body}); }
};
inline void fail(const char* file, int line, const std::string& what) {
    // A broken loop would print thousands of lines.
    if (++failures() <= 20) std::printf("%s:%d: %s\n", file, line, what.c_str());
}

}  // namespace check

#define TEST(name)                                              \
    static void test_##name();                                  \
    static check::Register register_##name(#name, test_##name); \
    static void test_##name()

#define CHECK(condition)                                               \
    do {                                                               \
        if (!(condition)) check::fail(__FILE__, __LINE__, #condition); \
    } while (0)

#define CHECK_NEAR(a, b, tolerance)                                                             \
    do {                                                                                        \
        const double check_a = (a), check_b = (b);                                              \
        if (!(std::fabs(check_a - check_b) <= (tolerance)))                                     \
            check::fail(__FILE__, __LINE__,                                                     \
                        std::string(#a " ~ " #b ": ") + std::to_string(check_a) + " against " + \
                            std::to_string(check_b));                                           \
    } while (0)

// The expression throws qt::Error and its message holds `part`.
#define CHECK_ERROR(expression, part)                                                     \
    do {                                                                                  \
        bool check_thrown = false;                                                        \
        try {                                                                             \
            (void)(expression);                                                           \
        } catch (const std::exception& e) {                                               \
            check_thrown = true;                                                          \
            if (!std::strstr(e.what(), part))                                             \
                check::fail(__FILE__, __LINE__, std::string("message is: ") + e.what());  \
        }                                                                                 \
        if (!check_thrown) check::fail(__FILE__, __LINE__, "no exception: " #expression); \
    } while (0)

// Tests whose name contains argv[1], or all of them.
int main(int argc, char** argv) {
    int run = 0;
    for (const auto& test : check::tests()) {
        if (argc > 1 && !std::strstr(test.name, argv[1])) continue;
        const int before = check::failures();
        test.body();
        ++run;
        std::printf("%s %s\n", check::failures() == before ? "ok  " : "FAIL", test.name);
    }
    if (check::failures()) std::printf("%d checks failed\n", check::failures());
    return check::failures() || run == 0 ? 1 : 0;
}
