# day0: plain GNU make. `make` builds ./day0, `make help` lists the rest. Variants live in their own tree: make BUILD=asan check.
BUILD ?= release
CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
OUT := build/$(BUILD)$(if $(filter-out gcc,$(CC)),-$(notdir $(CC)))

CFLAGS := -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Wshadow -Wundef -Wvla -Wstrict-prototypes \
	-Wmissing-prototypes -fno-math-errno -ffp-contract=off -fvisibility=hidden -Isrc $(EXTRA)
LDLIBS := -ljansson -lpcre2-8 -lhwloc -lxxhash -lm -pthread
SANITIZE.release :=
SANITIZE.debug := -O0
SANITIZE.asan := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
SANITIZE.tsan := -fsanitize=thread
SANITIZE.cover := --coverage
CFLAGS += $(SANITIZE.$(BUILD))

# The instruction set of a file is chosen by its suffix: <family>_<tier>.c.
MACHINE := $(shell $(CC) -dumpmachine)
TIERS := $(if $(findstring x86_64,$(MACHINE)),avx2 avx512,$(if $(findstring aarch64,$(MACHINE)),neon))
FLAGS_avx2 := -mavx2 -mfma -mf16c
FLAGS_avx512 := -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512
FLAGS_neon :=
ALL_TIERS := avx2 avx512 neon

skip := $(foreach tier,$(filter-out $(TIERS),$(ALL_TIERS)),%_$(tier).c)
sources := $(filter-out $(skip),$(wildcard src/*/*.c))
main := src/app/main.c
objects := $(patsubst %.c,$(OUT)/%.o,$(sources))
library := $(OUT)/libday0.a
tests := $(patsubst %.c,$(OUT)/%,$(wildcard tests/unit/*_test.c tests/model/*_test.c tests/fuzz/*_fuzz.c))
kernel_test := $(OUT)/tests/kernels/check

.PHONY: all clean help check check-slow check-kernels lint fmt tests
all: day0

day0: $(OUT)/day0
	@ln -sf $< $@

$(OUT)/day0: $(OUT)/$(main:.c=.o) $(library)
	$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)

$(library): $(filter-out $(OUT)/$(main:.c=.o),$(objects))
	@rm -f $@
	$(AR) rcs $@ $^

tier_flags = $(foreach tier,$(ALL_TIERS),$(if $(filter %_$(tier).c,$<),$(FLAGS_$(tier))))
$(OUT)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(tier_flags) -MMD -MP -c -o $@ $<

$(OUT)/tests/%_test: $(OUT)/tests/%_test.o $(library)
	$(CC) $(CFLAGS) -o $@ $^ -lcmocka $(LDLIBS)
$(OUT)/tests/%_fuzz: $(OUT)/tests/%_fuzz.o $(OUT)/tests/fuzz/replay.o $(library)
	$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)
$(kernel_test): $(patsubst %.c,$(OUT)/%.o,$(wildcard tests/kernels/*.c)) $(library)
	$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)
.SECONDARY:

-include $(shell find $(OUT) -name '*.d' 2>/dev/null)
