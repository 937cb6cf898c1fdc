# day0: plain GNU make, no lists of files. `make` builds ./day0, `make help` says the rest.
# Variants live in their own tree: make BUILD=asan check. Another compiler too: make CC=clang check.
BUILD ?= release
ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(filter $(BUILD),release debug asan tsan cover fuzz lint emulated),)
$(error BUILD=$(BUILD): there are release, debug, asan, tsan, cover, fuzz, lint and emulated)
endif
variant = build/$(1)$(if $(filter-out gcc,$(CC)),-$(notdir $(CC)))
OUT := $(call variant,$(BUILD))

FLAGS_release :=
FLAGS_debug := -O0
FLAGS_asan := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
FLAGS_tsan := -fsanitize=thread
FLAGS_cover := -O1 --coverage
FLAGS_fuzz := $(FLAGS_asan) -fsanitize=fuzzer-no-link
FLAGS_lint := -Werror
CFLAGS := -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Wshadow -Wundef -Wvla -Wstrict-prototypes \
	-Wmissing-prototypes -fno-math-errno -ffp-contract=off -fvisibility=hidden -Iinclude -Isrc $(FLAGS_$(BUILD)) $(EXTRA)
LDLIBS := -ljansson -lpcre2-8 -lhwloc -lxxhash -lzstd -ledit -lm -pthread

# The instruction set of a file is chosen by its suffix: <family>_<tier>.c.
MACHINE := $(shell $(CC) -dumpmachine)
TIERS := $(if $(findstring x86_64,$(MACHINE)),avx2 avx512 avx512fp16,$(if $(findstring aarch64,$(MACHINE)),neon))
FLAGS_avx2 := -mavx2 -mfma -mf16c
FLAGS_avx512 := -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512
FLAGS_avx512fp16 := $(FLAGS_avx512) -mavx512vnni -mavx512vbmi -mavx512fp16
FLAGS_neon :=
# For make check-emulated: AVX-512 in plain x86-64, said to be there. -Og, as -O2 takes minutes over so much inlining.
ifeq ($(BUILD),emulated)
emulation := -Itests/kernels/emulated
FLAGS_avx512 := $(emulation) -Og -g0 -Wno-psabi
FLAGS_avx512fp16 := $(FLAGS_avx512) -DEMULATE_AVX512FP16
$(OUT)/src/cpu/tiers.o: CFLAGS += $(emulation)
endif
ALL_TIERS := avx2 avx512 avx512fp16 neon
compile = $(if $(V),,@echo '$(notdir $(CC)) $<';) $(CC) $(CFLAGS)
link = $(if $(V),,@echo 'link $@';) $(CC) $(CFLAGS)

skip := $(foreach tier,$(filter-out $(TIERS),$(ALL_TIERS)),%_$(tier).c)
sources := $(filter-out $(skip),$(wildcard src/*/*.c))
main := $(OUT)/src/app/main.o
objects := $(filter-out $(main),$(sources:%.c=$(OUT)/%.o))
library := $(OUT)/libday0.a

# tests/<suite>/X_test.c and X_fuzz.c are programs; the suite's other sources help each of them.
suite = $(patsubst %.c,$(OUT)/%,$(wildcard tests/$(1)/*_$(2).c))
helpers = $(patsubst %.c,$(OUT)/%.o,$(filter-out %_test.c %_fuzz.c,$(wildcard tests/$(1)/*.c)))
unit_tests := $(call suite,unit,test)
model_tests := $(call suite,model,test)
engine_tests := $(call suite,engine,test)
fuzz_tests := $(call suite,fuzz,fuzz)
kernel_test := $(if $(wildcard tests/kernels/check.c),$(OUT)/tests/kernels/check)
tests := $(kernel_test) $(unit_tests) $(fuzz_tests) $(model_tests) $(engine_tests)
run_tests := CC='$(CC)' DAY0_BINARY=$(OUT)/day0 $(if $(filter release,$(BUILD)),,TEST_SECONDS_MAX=3600) \
	sh tools/run_tests.sh

.PHONY: all day0 help tests check check-slow check-kernels check-emulated check-bare check-install install \
	uninstall lint fmt fuzz clean
all: day0

help:
	@sed -n 's/^#: //p' Makefile

#: make                 builds ./day0
#: make check           builds and runs every test; ends with N passed, N failed, N skipped
#: make check-slow      the same at length, with more seeds, and NEON, AVX-512 and an old CPU in emulation
#: make check-kernels   the kernel test alone: K=<part of a name> SEED=<n> CPU=<tier> BENCH=1 QUICK=1
#: make check-emulated  the same with the bodies for AVX-512 and its FP16 in emulation, on any x86-64 with AVX2
#: make check-bare      sh bootstrap.sh check in a bare Debian 12 (root, debootstrap): WHAT=deps|demo|check|lint|install
#: make install         to PREFIX (/usr/local) below DESTDIR: command, library, header, day0.pc, model
#: make uninstall       takes it away
#: make check-install   installs into a temporary folder, builds the examples and docs/API.md's code there
#: make fuzz            libFuzzer on every target, FUZZ_SECONDS each (default 60)
#: make lint            what no compiler sees: rooms, names, forbidden calls, format, clang-tidy
#: make fmt             clang-format over the sources; FILES="..." for some of them
#: make clean           removes build/ and ./day0
#: BUILD=debug|asan|tsan|cover and CC=clang: variants, each in its own tree. V=1 shows the commands.

# What is installed: the rooms below lab and app in one object, in which nothing is global but what day0.h declares.
PREFIX ?= /usr/local
destination = $(DESTDIR)$(PREFIX)
installed_library := $(OUT)/install/libday0.a
installed_objects := $(filter-out $(foreach room,lab app,$(OUT)/src/$(room)/%),$(objects))
bundled := models/jargon-k31
OBJCOPY ?= objcopy
$(installed_library): $(installed_objects)
	@mkdir -p $(@D)
	$(if $(V),,@echo 'link $@';) $(CC) -r -nostdlib -o $(@D)/day0.o $^
	$(if $(V),,@)$(OBJCOPY) --localize-hidden $(@D)/day0.o
	@rm -f $@
	@$(AR) rcs $@ $(@D)/day0.o

version := $(shell sed -n 's/.*DAY0_VERSION "\(.*\)"/\1/p' include/day0.h)
# Made each time: PREFIX is no file.
.PHONY: $(OUT)/install/day0.pc
$(OUT)/install/day0.pc: tools/day0.pc.in
	@mkdir -p $(@D)
	@sed -e 's,@prefix@,$(PREFIX),' -e 's,@version@,$(version),' -e 's,@libs@,$(filter-out -ledit,$(LDLIBS)),' $< >$@

install: $(OUT)/day0 $(installed_library) $(OUT)/install/day0.pc
	install -d '$(destination)/bin' '$(destination)/lib/pkgconfig' '$(destination)/include' \
		'$(destination)/share/day0/$(bundled)'
	install $(OUT)/day0 '$(destination)/bin'
	install -m 644 $(installed_library) '$(destination)/lib'
	install -m 644 $(OUT)/install/day0.pc '$(destination)/lib/pkgconfig'
	install -m 644 include/day0.h '$(destination)/include'
	install -m 644 $(bundled)/* '$(destination)/share/day0/$(bundled)'

uninstall:
	rm -f '$(destination)/bin/day0' '$(destination)/lib/libday0.a' '$(destination)/lib/pkgconfig/day0.pc' \
		'$(destination)/include/day0.h'
	rm -rf '$(destination)/share/day0'

# Counted as one test of make check; other variants than release have libraries that need their flags to link.
install_test := $(if $(filter release,$(BUILD)),tools/check_install.sh)
check-install: $(OUT)/day0 $(installed_library)
	@CC='$(CC)' sh tools/check_install.sh

tests: $(OUT)/day0 $(tests)

# What tests keep between runs is kept here, not where the user's is; converted weights are made anew.
check check-slow: export DAY0_CACHE := $(abspath $(OUT))/cache
clear_cache = @rm -f $(OUT)/cache/weights-*

check: tests $(if $(install_test),$(installed_library))
	$(clear_cache)
	@$(run_tests) $(tests) $(install_test)

# Emulated runs that this machine lacks a tool for are counted as skipped.
neon_cc := aarch64-linux-gnu-gcc
neon_test := build/release-$(neon_cc)/tests/kernels/check
have = $(shell command -v $(1))
emulated_test := $(call variant,emulated)/tests/kernels/check
have_simde = $(and $(findstring x86_64,$(MACHINE)),$(shell $(CC) -E -include simde/x86/avx512.h -x c /dev/null \
	>/dev/null 2>&1 && echo yes))
check-slow: tests
	$(if $(call have,$(neon_cc)),@$(MAKE) --no-print-directory BUILD=release CC=$(neon_cc) EXTRA=-static $(neon_test))
	$(if $(have_simde),@$(MAKE) --no-print-directory BUILD=emulated $(emulated_test))
	$(clear_cache)
	@DAY0_SLOW=1 $(run_tests) $(tests) $(foreach seed,2 3 4,SEED=$(seed) $(kernel_test)) SEED= \
	$(if $(have_simde),CPU=avx512fp16 $(emulated_test) CPU=,--skip 'AVX-512 kernels: there is no libsimde-dev for x86') \
	QUICK=1 --with 'qemu-x86_64 -cpu Nehalem' $(kernel_test) $(filter-out %/bpe_test,$(unit_tests)) \
	$(if $(call have,$(neon_cc)),--with qemu-aarch64 $(neon_test),--skip 'NEON kernels: there is no $(neon_cc)')

check-kernels: $(kernel_test)
	@$(foreach name,K SEED CPU BENCH QUICK,$(if $($(name)),$(name)='$($(name))')) $(kernel_test)

check-emulated:
	$(if $(have_simde),,$(error check-emulated needs x86-64 and SIMDe: sh bootstrap.sh deps emulation))
	@$(MAKE) --no-print-directory BUILD=emulated check-kernels

check-bare:
	@sh tools/check_bare.sh $(WHAT)

FUZZ_SECONDS ?= 60
fuzz:
	@$(MAKE) --no-print-directory BUILD=fuzz CC=clang fuzz-targets
	@sh tools/fuzz.sh build/fuzz-clang/tests/fuzz $(FUZZ_SECONDS)
.PHONY: fuzz-targets
fuzz-targets: $(fuzz_tests)

lint:
	@$(MAKE) --no-print-directory BUILD=lint CC=gcc build/lint/libday0.a build/lint/src/app/main.o
	@sh tools/lint.sh build/lint

fmt:
	@sh tools/lint/format.sh --write $(FILES)

clean:
	rm -rf build day0

# A link to the variant that was asked for last.
day0: $(OUT)/day0
	@ln -sf $< $@

$(OUT)/day0: $(main) $(library)
	$(link) -o $@ $^ $(LDLIBS)

$(library): $(objects)
	@rm -f $@
	@$(AR) rcs $@ $^

tier_flags = $(foreach tier,$(ALL_TIERS),$(if $(filter %_$(tier).c,$<),$(FLAGS_$(tier))))
$(OUT)/%.o: %.c
	@mkdir -p $(@D)
	$(compile) $(tier_flags) -MMD -MP -c -o $@ $<

# gcc 12.2 for AArch64 breaks down over a loop of the kernel test that it tries to vectorize.
$(OUT)/tests/%.o: CFLAGS += $(if $(findstring aarch64,$(MACHINE)),-fno-tree-vectorize)

$(OUT)/tests/unit/%_test: $(OUT)/tests/unit/%_test.o $(call helpers,unit) $(library)
	$(link) -o $@ $^ -lcmocka $(LDLIBS)
$(OUT)/tests/model/%_test: $(OUT)/tests/model/%_test.o $(call helpers,model) $(library)
	$(link) -o $@ $^ -lcmocka -lutil $(LDLIBS)
# The engine's tests share the random checkpoints of the model's.
$(OUT)/tests/engine/%_test: $(OUT)/tests/engine/%_test.o $(call helpers,engine) $(call helpers,model) $(library)
	$(link) -o $@ $^ -lcmocka -lutil $(LDLIBS)

# BUILD=fuzz brings libFuzzer's main, the others the replay driver's.
$(OUT)/tests/fuzz/%_fuzz: $(OUT)/tests/fuzz/%_fuzz.o $(if $(filter fuzz,$(BUILD)),,$(call helpers,fuzz)) $(library)
	$(link) $(if $(filter fuzz,$(BUILD)),-fsanitize=fuzzer) -o $@ $^ $(LDLIBS)

# Kernels stand on base, tensor, the tiers and no library, so that their test can be built for other machines.
kernel_parts := base/% tensor/% kernels/% cpu/tiers.o cpu/units.o
kernel_rooms := $(filter $(foreach part,$(kernel_parts),$(OUT)/src/$(part)),$(objects))
$(OUT)/tests/kernels/check: $(call helpers,kernels) $(kernel_rooms)
	$(link) -o $@ $^ $(filter-out -ljansson -lpcre2-8 -lhwloc -lxxhash -lzstd -ledit,$(LDLIBS))
.SECONDARY:

-include $(shell find $(OUT) -name '*.d' 2>/dev/null)
