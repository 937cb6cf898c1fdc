/* A sequence's state as a flat row of bytes: recurrent states, convolution inputs, and the latent rows and index keys
 * of its positions. Restored, a sequence goes on with the same bits (law 5); tokens fed before cannot be undone then.
 *
 * The bytes are those of the machine (little-endian floats) and of one layout: whoever keeps them keeps the layout's
 * identity beside them. */
#ifndef DAY0_STATE_SNAPSHOT_H
#define DAY0_STATE_SNAPSHOT_H

#include "state/sequence.h"

/* Takes or fills the next `bytes` bytes. */
typedef enum status snapshot_part_fn(void *context, void *data, size_t bytes, struct error *err);

/* Bytes of a snapshot of `length` tokens. */
uint64_t snapshot_bytes(const struct state_layout *layout, uint32_t length);

/* Hands every part of the state to `take`, in order; the data must not be changed. */
NEEDS_CHECK enum status snapshot_write(const struct sequence *sequence, snapshot_part_fn *take, void *context,
                                       struct error *err);

/* Makes `sequence` one of `length` tokens whose state `fill` gives. On failure the sequence is empty. */
NEEDS_CHECK enum status snapshot_read(struct sequence *sequence, uint32_t length, snapshot_part_fn *fill, void *context,
                                      struct error *err);

#endif
