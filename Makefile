# make            build/sealpoint and the libraries (src/track/track.mk)
# make check      installs what is missing, builds, runs all tests
# make check-deltas, make soak    more steps of the proof that deltas are exact: 10,000, or SOAK=hours
# make stress     random trees of processes, compared from outside before and after; STRESS=how many
# make check-threads, make fuzz   the write watch under ThreadSanitizer; readers of files against damaged ones
# make check-kills  1,000 dumps killed at random moments, and more at system calls
# make mutate     thousands of checkpoints that are wrong behind their checksums, with sanitizers
# make example    an emulator that goes back in time, and its pictures
# make demo       dumps and restores a real redis-server
# make bench      the benchmark table
# make bench-tracking  what finding written pages costs, and saving by it; make bench-freeze, how long a program stands still;
#                 make bench-snapshots, what a busy redis loses by snapshots
# make vm-check   another kernel, in an emulated machine (tests/vm/run.sh)
# make format     formats the code; make format-check tells whether it is formatted
# make install    program, libraries, man pages and bash completion, below DESTDIR and PREFIX
# Variants: make BUILD=build/asan SANITIZE=address,undefined CC=clang; V=1 shows whole commands
BUILD ?= build
CC ?= cc
CFLAGS ?= -O2 -g
SANITIZE ?=
PREFIX ?= /usr/local
DESTDIR ?=
VERSION := 0.1.0

WARNINGS := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	    -Wwrite-strings -Wpointer-arith -Wno-unused-parameter
PACKAGES := libprotobuf-c libzstd libxxhash jansson libnftables
SP_CFLAGS := -std=gnu11 -D_GNU_SOURCE -DSP_VERSION='"$(VERSION)"' -Isrc -Iinclude -I$(BUILD)/gen $(WARNINGS) \
	     -pthread $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer)
SP_LIBS = $(shell pkg-config --libs $(PACKAGES)) -pthread -lm

PROTO_SRC := $(wildcard proto/*.proto)
PROTO_C := $(PROTO_SRC:proto/%.proto=$(BUILD)/gen/%.pb-c.c)
SRC := $(filter-out src/cli/%,$(wildcard src/*/*.c src/arch/x86_64/*.c))
ASM := $(wildcard src/arch/x86_64/*.S)
CLI := $(wildcard src/cli/*.c)
LIB_OBJ := $(SRC:%.c=$(BUILD)/%.o) $(ASM:%.S=$(BUILD)/%.o) $(PROTO_C:%.c=%.o)
CLI_OBJ := $(CLI:%.c=$(BUILD)/%.o)
LIB := $(BUILD)/libsealpoint-engine.a

# Before a command, $(call short,CC,$<) makes of its line "CC src/engine/dump.c"; with V=1 it stays whole.
ifeq ($(V:0=)$(findstring s,$(filter-out --%,$(firstword -$(MAKEFLAGS)))),)
short = @printf '%-7s %s\n' '$(1)' '$(2)' &&
endif

MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := all
all: $(BUILD)/sealpoint

$(BUILD)/sealpoint: $(CLI_OBJ) $(LIB)
	$(call short,LINK,$@) $(CC) $(SP_CFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $(CLI_OBJ) $(LIB) $(SP_LIBS)

$(LIB): $(LIB_OBJ)
	@rm -f $@
	$(call short,AR,$@) ar rcs $@ $^

$(BUILD)/gen/%.pb-c.c $(BUILD)/gen/%.pb-c.h: proto/%.proto
	@mkdir -p $(@D)
	$(call short,PROTOC,$<) protoc-c --proto_path=proto --c_out=$(BUILD)/gen $<

$(BUILD)/gen/%.o: $(BUILD)/gen/%.c $(PROTO_C)
	$(call short,CC,$<) $(CC) $(SP_CFLAGS) $(CFLAGS) -w -c -o $@ $<

$(BUILD)/%.o: %.c $(PROTO_C)
	@mkdir -p $(@D)
	$(call short,CC,$<) $(CC) $(SP_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/%.o: %.S
	@mkdir -p $(@D)
	$(call short,AS,$<) $(CC) $(SP_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d)

include src/track/track.mk examples/examples.mk tests/tests.mk tests/fuzz/fuzz.mk tests/vm/vm.mk

install: all
	install -D -m 755 $(BUILD)/sealpoint $(DESTDIR)$(PREFIX)/bin/sealpoint
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 docs/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -D -m 644 tools/completion/sealpoint.bash \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/sealpoint

FORMATTED = $(sort $(shell find include src tests -name '*.[ch]' 2>/dev/null))
format:
	clang-format -i $(FORMATTED)

format-check:
	$(call short,FORMAT,$(words $(FORMATTED)) files) clang-format --dry-run -Werror $(FORMATTED)

clean:
	rm -rf $(BUILD)

.PHONY: all install format format-check clean
.SECONDARY:
