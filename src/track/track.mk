# The libraries for a program's own memory, static and shared. Their objects are built apart from those of
# sealpoint itself: position-independent, and with nothing visible but what include/sealpoint declares.
SO_VERSION := 0
WATCH_SRC := $(addprefix src/track/,write_watch.c account.c watch_list.c scan.c backend_scan.c \
	     backend_userfault.c backend_soft_dirty.c backend_mprotect.c)
WATCH_OBJ := $(WATCH_SRC:%.c=$(BUILD)/pic/%.o)
REWIND_SRC := $(addprefix src/track/,rewind.c rewind_frame.c rewind_save.c)
REWIND_OBJ := $(REWIND_SRC:%.c=$(BUILD)/pic/%.o)
LIBRARIES := watch rewind
STATIC_LIBS := $(LIBRARIES:%=$(BUILD)/libsealpoint-%.a)
SHARED_LIBS := $(LIBRARIES:%=$(BUILD)/libsealpoint-%.so)

$(BUILD)/libsealpoint-watch.a $(BUILD)/libsealpoint-watch.so.$(VERSION): $(WATCH_OBJ)
$(BUILD)/libsealpoint-rewind.a $(BUILD)/libsealpoint-rewind.so.$(VERSION): $(REWIND_OBJ)
$(BUILD)/libsealpoint-rewind.so.$(VERSION): $(BUILD)/libsealpoint-watch.so
LIBS_rewind = -L$(BUILD) -lsealpoint-watch -lzstd

comma := ,

libraries: $(STATIC_LIBS) $(SHARED_LIBS)
all: libraries

$(BUILD)/pic/%.o: %.c
	@mkdir -p $(@D)
	$(call short,CC,$<) $(CC) $(SP_CFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

$(STATIC_LIBS):
	@rm -f $@
	$(call short,AR,$@) ar rcs $@ $^

$(BUILD)/libsealpoint-%.so.$(VERSION): src/track/%.map
	$(call short,LINK,$@) $(CC) $(SP_CFLAGS) $(CFLAGS) $(LDFLAGS) -shared $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) \
		-Wl,-soname,libsealpoint-$*.so.$(SO_VERSION) -Wl,--version-script=src/track/$*.map \
		-o $@ $(filter %.o,$^) $(LIBS_$*)

$(BUILD)/libsealpoint-%.so: $(BUILD)/libsealpoint-%.so.$(VERSION)
	ln -sf $(<F) $@.$(SO_VERSION)
	ln -sf $(@F).$(SO_VERSION) $@

# A man page is found under the name of each function that it tells about.
install-libraries: libraries
	install -d $(DESTDIR)$(PREFIX)/include/sealpoint $(DESTDIR)$(PREFIX)/lib/pkgconfig \
		$(DESTDIR)$(PREFIX)/share/man/man3 $(DESTDIR)$(PREFIX)/share/man/man7
	install -m 644 include/sealpoint/*.h $(DESTDIR)$(PREFIX)/include/sealpoint
	install -m 644 $(STATIC_LIBS) $(DESTDIR)$(PREFIX)/lib
	install -m 755 $(SHARED_LIBS:%=%.$(VERSION)) $(DESTDIR)$(PREFIX)/lib
	cp -P $(SHARED_LIBS) $(SHARED_LIBS:%=%.$(SO_VERSION)) $(DESTDIR)$(PREFIX)/lib
	for library in $(LIBRARIES); do \
		sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' src/track/sealpoint-$$library.pc.in \
			>$(DESTDIR)$(PREFIX)/lib/pkgconfig/sealpoint-$$library.pc || exit; \
	done
	install -m 644 docs/man/*.7 $(DESTDIR)$(PREFIX)/share/man/man7
	install -m 644 docs/man/*.3 $(DESTDIR)$(PREFIX)/share/man/man3
	for page in docs/man/*.3; do \
		for name in $$(sed -n 's/^\.Nm \([a-z_]*\).*/\1/p; /^\.Nd/q' $$page); do \
			[ -e docs/man/$$name.3 ] || \
				ln -sf $${page##*/} $(DESTDIR)$(PREFIX)/share/man/man3/$$name.3; \
		done; \
	done

install: install-libraries

-include $(WATCH_OBJ:.o=.d) $(REWIND_OBJ:.o=.d)

.PHONY: libraries install-libraries
