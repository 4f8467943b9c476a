# How tests are built and run. Unit tests: tests/unit/test_*.c (cmocka), each a program linked with the
# engine. Subjects: tests/subjects/*.c, programs that are dumped and restored and check themselves.
# Scripts: tests/integration/*.sh and tests/real/*.sh, run as root, with helpers from tests/tools/*.c.
# tests/run.sh runs all of these. Fuzz targets have rules of their own: tests/fuzz/fuzz.mk.
UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(BUILD)/tests/unit/%)
SUBJECT_SRC := $(wildcard tests/subjects/*.c)
SUBJECT_BIN := $(SUBJECT_SRC:tests/subjects/%.c=$(BUILD)/tests/subjects/%)
TOOL_SRC := $(wildcard tests/tools/*.c)
TOOL_BIN := $(TOOL_SRC:tests/tools/%.c=$(BUILD)/tests/tools/%)
STRESS_BIN := $(BUILD)/tests/stress/random_tree
BENCH_SRC := $(wildcard tests/bench/*.c)
BENCH_BIN := $(BENCH_SRC:tests/bench/%.c=$(BUILD)/tests/bench/%)

$(BUILD)/tests/unit/%: tests/unit/%.c $(wildcard tests/unit/*.h) $(LIB)
	@mkdir -p $(@D)
	$(call short,CC,$<) $(CC) $(SP_CFLAGS) $(CFLAGS) $(LDFLAGS) -Itests -o $@ $< $(LIB) $(SP_LIBS) -lcmocka

$(BUILD)/tests/subjects/%: tests/subjects/%.c $(wildcard tests/subjects/*.h) $(PROTO_C)
	@mkdir -p $(@D)
	$(call short,CC,$<) $(CC) $(SP_CFLAGS) -O1 -g -o $@ $< -pthread -lrt

$(BUILD)/tests/tools/%: tests/tools/%.c $(wildcard tests/tools/*.h) $(LIB)
	@mkdir -p $(@D)
	$(call short,CC,$<) $(CC) $(SP_CFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< $(LIB) $(SP_LIBS)

$(BUILD)/tests/tools/deltas: tests/tools/snapshot.h tests/subjects/changing.h

$(STRESS_BIN): $(wildcard tests/stress/*.c) tests/stress/random.h tests/subjects/subject.h
	@mkdir -p $(@D)
	$(call short,CC,$@) $(CC) $(SP_CFLAGS) -O1 -g -Itests -o $@ $(filter %.c,$^) -pthread -lrt

$(BUILD)/tests/bench/%: tests/bench/%.c
	@mkdir -p $(@D)
	$(call short,CC,$<) $(CC) $(SP_CFLAGS) $(CFLAGS) -o $@ $<

TRACKING_SRC := $(wildcard tests/bench/tracking/*.c)
TRACKING_BIN := $(TRACKING_SRC:tests/%.c=$(BUILD)/tests/%)

$(BUILD)/tests/bench/tracking/%: tests/bench/tracking/%.c tests/bench/tracking/bench.h \
		$(BUILD)/libsealpoint-watch.a
	@mkdir -p $(@D)
	$(call short,CC,$<) $(CC) $(SP_CFLAGS) $(CFLAGS) -o $@ $< $(BUILD)/libsealpoint-watch.a -lxxhash

unit: $(UNIT_BIN)
subjects: $(SUBJECT_BIN)
test-programs: all examples $(UNIT_BIN) $(SUBJECT_BIN) $(TOOL_BIN) $(BENCH_BIN) $(STRESS_BIN)

# The packages come first: what make reads from pkg-config is read anew by the second make.
check:
	tools/install-deps.sh build test
	+$(MAKE) test-programs
	BUILD=$(BUILD) tests/run.sh

# Checkpoints that are wrong behind right checksums: more of them than `make check` tries, and with sanitizers.
mutate:
	tools/install-deps.sh build test
	+$(MAKE) test-programs
	+$(MAKE) BUILD=$(BUILD)/asan CC=clang SANITIZE=address,undefined all
	BUILD=$(BUILD) SEALPOINT=$(CURDIR)/$(BUILD)/asan/sealpoint SANITIZED=1 MUTATIONS=3000 \
		tests/run.sh integration/mutated

# That deltas are exact: in 10,000 steps, or in chains with new seeds for SOAK hours or until one fails.
check-deltas:
	tools/install-deps.sh build test
	+$(MAKE) test-programs
	DELTAS=many BUILD=$(BUILD) tests/run.sh integration/deltas

check-kills:
	tools/install-deps.sh build test
	+$(MAKE) test-programs
	KILL_DUMP=many BUILD=$(BUILD) tests/run.sh integration/kill_dump

# Random trees of processes, as many as STRESS says, each with a new seed: tests/integration/random_trees.sh.
STRESS ?= 200
stress:
	tools/install-deps.sh build test
	+$(MAKE) test-programs
	STRESS=$(STRESS) BUILD=$(BUILD) tests/run.sh integration/random_trees

# stress-ng, with all of its stressors that hold nothing of what sealpoint refuses: tests/real/stress_ng.sh.
check-real:
	tools/install-deps.sh build test
	+$(MAKE) test-programs
	STRESSORS=all WORKERS=2 BUILD=$(BUILD) tests/run.sh real/

SOAK ?= 4
soak:
	tools/install-deps.sh build test
	+$(MAKE) test-programs
	BUILD=$(BUILD) tests/soak.sh $(SOAK)

# The write watch with threads that write, read and close at once, and all its other tests, under ThreadSanitizer.
TSAN_BIN := $(patsubst tests/%.c,$(BUILD)/tsan/tests/%,$(wildcard tests/unit/test_write_watch*.c))

$(BUILD)/tsan/tests/unit/%: tests/unit/%.c $(WATCH_SRC) $(wildcard tests/unit/*.h src/track/*.h include/sealpoint/*.h)
	@mkdir -p $(@D)
	$(call short,CC,$<) clang $(SP_CFLAGS) -O1 -g -fsanitize=thread -Itests -o $@ $(filter %.c,$^) -lcmocka

check-threads:
	tools/install-deps.sh build test
	+$(MAKE) $(TSAN_BIN)
	TSAN_OPTIONS=die_after_fork=0 BUILD=$(BUILD)/tsan SANITIZED=1 tests/run.sh unit/test_write_watch

demo:
	tools/install-deps.sh build demo
	+$(MAKE) all
	BUILD=$(BUILD) tools/demo.sh

bench:
	tools/install-deps.sh build bench
	+$(MAKE) all $(BENCH_BIN)
	BUILD=$(BUILD) tests/bench/bench.py
	BUILD=$(BUILD) tests/bench/crowds.py

# The costs of finding written pages, of what competes with it, and of saving by it: tests/bench/tracking.sh.
bench-tracking:
	tools/install-deps.sh build bench demo
	+$(MAKE) all $(TRACKING_BIN) $(BENCH_BIN)
	BUILD=$(BUILD) tests/bench/tracking.sh

# How long a program stands still while it is saved, by its own account: tests/bench/freeze.py.
bench-freeze:
	tools/install-deps.sh build bench
	+$(MAKE) all $(BENCH_BIN)
	BUILD=$(BUILD) tests/bench/freeze.py

# What a redis under load loses by snapshots at several rates: tests/bench/snapshots.py.
bench-snapshots:
	tools/install-deps.sh build bench demo
	+$(MAKE) all
	BUILD=$(BUILD) tests/bench/snapshots.py

.PHONY: bench-freeze bench-snapshots bench-tracking check-threads check-deltas check-kills check-real soak stress unit subjects test-programs check mutate demo bench
