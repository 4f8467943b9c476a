# How tests are built and run. Unit tests: tests/unit/test_*.c (cmocka), each a program linked with the
# engine. Subjects: tests/subjects/*.c, programs that are dumped and restored and check themselves.
# Integration tests: tests/integration/*.sh, run as root.
UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(BUILD)/tests/unit/%)
SUBJECT_SRC := $(wildcard tests/subjects/*.c)
SUBJECT_BIN := $(SUBJECT_SRC:tests/subjects/%.c=$(BUILD)/tests/subjects/%)

$(BUILD)/tests/unit/%: tests/unit/%.c $(LIB)
	@mkdir -p $(@D)
	$(CC) $(SP_CFLAGS) $(CFLAGS) $(LDFLAGS) -Itests -o $@ $< $(LIB) $(SP_LIBS) -lcmocka

$(BUILD)/tests/subjects/%: tests/subjects/%.c $(wildcard tests/subjects/*.h) $(PROTO_C)
	@mkdir -p $(@D)
	$(CC) $(SP_CFLAGS) -O1 -g -o $@ $< -pthread -lrt

unit: $(UNIT_BIN)
subjects: $(SUBJECT_BIN)

.PHONY: unit subjects
