# make fuzz          builds each target with clang and runs it for FUZZ_SECONDS (20)
# make fuzz-smoke    the same, three seconds each
#
# A target is tests/fuzz/fuzz_NAME.c; it is linked with an engine that is instrumented and has sanitizers.
# The corpus grows in $(BUILD)/fuzz/corpus; what makes a target fail is left in $(BUILD)/fuzz.
FUZZ_SECONDS ?= 20
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_NAMES := $(FUZZ_SRC:tests/fuzz/%.c=%)
FUZZ_BIN := $(FUZZ_NAMES:%=$(BUILD)/tests/fuzz/%)
FUZZ_DIR := $(BUILD)/fuzz
FUZZ_OPTIONS = -max_len=4096 -timeout=20 -rss_limit_mb=1024 -verbosity=0 -print_final_stats=0

$(BUILD)/tests/fuzz/seeds: tests/fuzz/seeds.c tests/fuzz/input.h $(LIB)
	@mkdir -p $(@D)
	$(call short,CC,$<) $(CC) $(SP_CFLAGS) $(CFLAGS) -o $@ $< $(LIB) $(SP_LIBS)

$(BUILD)/tests/fuzz/fuzz_%: tests/fuzz/fuzz_%.c tests/fuzz/input.h $(LIB)
	@mkdir -p $(@D)
	$(call short,CC,$<) $(CC) $(SP_CFLAGS) $(CFLAGS) -fsanitize=fuzzer -o $@ $< $(LIB) $(SP_LIBS)

fuzz-programs: $(FUZZ_BIN) $(BUILD)/tests/fuzz/seeds

fuzz:
	tools/install-deps.sh build test
	+$(MAKE) BUILD=$(FUZZ_DIR) CC=clang CFLAGS="-O1 -g" \
		SANITIZE=fuzzer-no-link,address,undefined fuzz-programs
	$(FUZZ_DIR)/tests/fuzz/seeds $(FUZZ_DIR)/corpus
	@for name in $(FUZZ_NAMES); do \
		echo "$$name: $(FUZZ_SECONDS) s"; \
		UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 $(FUZZ_DIR)/tests/fuzz/$$name \
			$(FUZZ_OPTIONS) -max_total_time=$(FUZZ_SECONDS) \
			-artifact_prefix=$(FUZZ_DIR)/$$name- $(FUZZ_DIR)/corpus/$$name || exit 1; \
	done

fuzz-smoke:
	+$(MAKE) fuzz FUZZ_SECONDS=3

.PHONY: fuzz fuzz-programs fuzz-smoke
