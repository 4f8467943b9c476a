# Programs that show how the libraries are used: `make examples` builds them, `make example` runs one and leaves its
# pictures in build/examples.
TINY8_SRC := $(wildcard examples/tiny8/*.c)

$(BUILD)/examples/tiny8: $(TINY8_SRC) $(wildcard examples/tiny8/*.h) $(BUILD)/libsealpoint-rewind.a \
		$(BUILD)/libsealpoint-watch.a
	@mkdir -p $(@D)
	$(call short,CC,$@) $(CC) $(SP_CFLAGS) $(CFLAGS) -o $@ $(TINY8_SRC) $(BUILD)/libsealpoint-rewind.a \
		$(BUILD)/libsealpoint-watch.a -lzstd -lpng

examples: $(BUILD)/examples/tiny8

example:
	tools/install-deps.sh build example
	+$(MAKE) examples
	cd $(BUILD)/examples && ./tiny8 run 60 shot frame-60.png run 67 shot frame-127.png run 120 \
		shot frame-247.png back 187 shot back-at-60.png

.PHONY: examples example
