/* What the driver alone calls of buffers.c. */
#ifndef DAY0_TESTS_KERNELS_BUFFERS_H
#define DAY0_TESTS_KERNELS_BUFFERS_H

#include "check.h"

void *buffer_take(struct check *c, enum role role, size_t n, size_t element_bytes, bool is_float);
/* Before a body: poison and initial contents. `first` is before the reference. */
void buffers_prepare(struct check *c, bool first);
/* After a body: canaries, inputs, and outputs against the reference, whose own are kept. */
void buffers_verify(struct check *c, bool is_reference);
/* Chooses which special values the case may hold. */
void specials_draw(struct check *c);

#endif
