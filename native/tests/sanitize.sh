#!/bin/sh
# Builds the library and its tests under each sanitizer and runs them: the C++ tests, then the
# Python tests of the C ABI and of the engine's parts against the same build.
#   native/tests/sanitize.sh [asan] [ubsan] [tsan]        all three without arguments
#   PYTHON=... names the interpreter with the test dependencies; empty: C++ tests only
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON-python3}
[ $# -gt 0 ] || set -- asan ubsan tsan

for preset in "$@"; do
    echo "== $preset"
    cmake --preset "$preset" >/dev/null
    cmake --build --preset "$preset"
    ctest --preset "$preset"
    [ -n "$PYTHON" ] || continue
    # The interpreter itself is not instrumented: the runtime must be loaded before it, and libstdc++
    # with it, so that the runtime finds the real __cxa_throw.
    case $preset in
        asan) runtime=$(${CXX:-c++} -print-file-name=libasan.so) ;;
        ubsan) runtime=$(${CXX:-c++} -print-file-name=libubsan.so) ;;
        tsan) runtime=$(${CXX:-c++} -print-file-name=libtsan.so) ;;
    esac
    # Leaks of the interpreter and false alarms of uninstrumented libraries are not ours.
    (
        cd ..
        QT_LIBRARY="$PWD/native/build/$preset/libqt.so" \
        QT_TESTHOOKS="$PWD/native/build/$preset/libqt_testhooks.so" \
        ASAN_OPTIONS=detect_leaks=0 \
        TSAN_OPTIONS="ignore_noninstrumented_modules=1 halt_on_error=1" \
        UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        LD_PRELOAD="$runtime $(${CXX:-c++} -print-file-name=libstdc++.so.6)" \
            "$PYTHON" -m pytest tests/native -q -x -p no:cacheprovider --timeout 900
    )
done
