# Front door: `make help` lists the targets. The build itself is CMakeLists.txt.
BUILD        ?= build
JOBS         ?= $(shell nproc 2>/dev/null || echo 2)
RP_WERROR    ?= OFF
PREFIX       ?= /usr/local
FILTER       ?=
FUZZ_SECONDS ?= 60
MINUTES      ?= 10
TINY          = tests/fixtures/tiny/llama3.gguf
MODEL        ?= smollm2
PROMPT       ?= What is the capital of France?
ARGS         ?=

CONFIGURE  = cmake -G Ninja -DRP_WERROR=$(RP_WERROR) -DCMAKE_INSTALL_PREFIX=$(PREFIX) -S .
COMPILE    = cmake --build $(1) -j $(JOBS)

.PHONY: all setup build run test build-arm64 test-arm64 bench bench-sim asan ubsan tsan stress soak fuzz lint format
.PHONY: install clean help
all: build

setup:
	@tools/setup.sh build

build: setup ## build the library, the command line and the tests (the default)
	@$(CONFIGURE) -B $(BUILD) >/dev/null
	@$(call COMPILE,$(BUILD))

run: build ## build, fetch a small model, answer a prompt: PROMPT="..." MODEL=smollm2 ARGS="..."
	@python3 tools/fetch_model.py $(MODEL)
	$(BUILD)/reprise run -m $(MODEL) -p "$(PROMPT)" --temp 0 $(ARGS)

test: build ## build and run every test: FILTER=part of a name for the C tests
	@python3 tools/run_tests.py --build $(BUILD) --filter "$(FILTER)"

build-arm64:
	@tools/setup.sh build arm64
	@sysroot=$$(tools/sysroot_arm64.sh) && $(CONFIGURE) -B $(BUILD)-arm64 \
	    -DCMAKE_TOOLCHAIN_FILE=cmake/arm64.cmake -DCMAKE_SYSROOT=$$sysroot >/dev/null
	@$(call COMPILE,$(BUILD)-arm64)

test-arm64: build-arm64 ## build for arm64 and run C tests under qemu-user
	@python3 tools/run_tests.py --arm64 $(BUILD)-arm64

bench: build ## build, fetch a small model and measure it: MODEL=smollm2 ARGS="..."
	@python3 tools/fetch_model.py $(MODEL)
	$(BUILD)/reprise bench -m $(MODEL) $(ARGS)

bench-sim: build ## simulate a million requests through the real scheduler: ARGS="-r 50 ..."
	@cmake --build $(BUILD) --target sched-sim
	$(BUILD)/sched-sim $(ARGS)

asan:  SANITIZER = address
ubsan: SANITIZER = undefined
tsan:  SANITIZER = thread
asan ubsan tsan: setup
	@$(CONFIGURE) -B $(BUILD)-$@ -DRP_SANITIZE=$(SANITIZER) >/dev/null
	@$(call COMPILE,$(BUILD)-$@)
	$(BUILD)-$@/reprise-tests $(FILTER)
asan:  ## the C tests under the address sanitizer
ubsan: ## the C tests under the undefined behaviour sanitizer
tsan:  ## the C tests under the thread sanitizer

stress: setup ## tiny limits, graphs that come and go, under both address and undefined sanitizers
	@$(CONFIGURE) -B $(BUILD)-$@ -DRP_STRESS=ON -DRP_SANITIZE=address,undefined >/dev/null
	@$(call COMPILE,$(BUILD)-$@)
	$(BUILD)-$@/reprise-tests $(FILTER)

soak: build ## ten minutes (MINUTES) of load at twice capacity, under the address sanitizer and again without
	@$(CONFIGURE) -B $(BUILD)-asan -DRP_SANITIZE=address >/dev/null
	@$(call COMPILE,$(BUILD)-asan) --target reprise
	@python3 tools/fetch_model.py smollm2
	"$$(tools/venv.sh)" bench/soak.py --build $(BUILD)-asan --minutes $(MINUTES) --model $(TINY)
	"$$(tools/venv.sh)" bench/soak.py --build $(BUILD) --minutes $(MINUTES)

fuzz: ## run each fuzzer for FUZZ_SECONDS (60) on its corpus; needs clang
	@tools/setup.sh build fuzz
	@CC=clang $(CONFIGURE) -B $(BUILD)-fuzz -DRP_FUZZ=ON -DRP_TESTS=OFF \
	    -DRP_SANITIZE=fuzzer-no-link,address >/dev/null
	@$(call COMPILE,$(BUILD)-fuzz) --target fuzzers
	@tools/fuzz.sh $(BUILD)-fuzz $(FUZZ_SECONDS) $(FILTER)

lint: build ## check layers, exported symbols, forbidden calls, lengths; report the formatting
	@python3 tools/lint.py --build $(BUILD)

format: ## format every C file in place
	@tools/setup.sh format
	@git ls-files -z '*.c' '*.h' | xargs -0 clang-format -i

install: build ## install below PREFIX (/usr/local); DESTDIR is honoured
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean: ## remove every build folder
	rm -rf $(BUILD) $(BUILD)-arm64 $(BUILD)-asan $(BUILD)-ubsan $(BUILD)-tsan $(BUILD)-stress $(BUILD)-fuzz

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "BUILD=folder (build), RP_WERROR=ON|OFF, JOBS=n"
