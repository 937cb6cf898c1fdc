/* Byte pair encoding of one piece, as tiktoken does it: a piece that is a token is that token; otherwise its
 * bytes are merged, always the adjacent pair whose joined bytes have the lowest rank, the leftmost of equals,
 * until no pair is a token.
 *
 * Short pieces rescan an array on the stack (a cache line or two); long ones keep the pairs in a heap ordered
 * by (rank, position), which pops the same pairs in the same order: O(n log n), 1 MB of one letter in a
 * fraction of a second. */
#ifndef DAY0_TEXT_BPE_H
#define DAY0_TEXT_BPE_H

#include <stddef.h>

#include "base/error.h"
#include "text/ranks.h"
#include "text/token_list.h"

enum { BPE_PIECE_BYTES_MAX = 1 << 30 };

/* Does     appends the tokens of `piece`; bytes >= 1.
 * Fails    STATUS_MEMORY, or STATUS_UNSUPPORTED over BPE_PIECE_BYTES_MAX.
 * Threads  any number on the same ranks. */
NEEDS_CHECK enum status bpe_encode(const struct ranks *ranks, const char *piece, size_t bytes, struct token_list *out,
                                   struct error *err);

#endif
