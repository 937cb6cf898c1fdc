/* Token ids to text while they arrive: gives whole characters only, and holds back the front of one that is
 * not whole yet.
 *
 * What cannot become a character is replaced by U+FFFD, one for each maximal subpart, as Python's
 * bytes.decode(errors="replace") does; so the outputs joined are the decoding of all bytes at once. */
#ifndef DAY0_TEXT_DETOKENIZER_H
#define DAY0_TEXT_DETOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/byte_buffer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

/* Flat: may be copied, needs no fini. Borrows the tokenizer. */
struct detokenizer {
    const struct tokenizer *tokenizer;
    char held[UTF8_BYTES_MAX];
    size_t held_bytes;
};

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer);

/* Does     appends to `out` the characters that `id` completes, possibly none.
 * Fails    STATUS_ARGUMENT for an id outside the vocabulary (nothing changes), STATUS_MEMORY. */
NEEDS_CHECK enum status detokenizer_push(struct detokenizer *detokenizer, int32_t id, struct byte_buffer *out,
                                         struct error *err);

/* Does     ends the text: what is held back becomes one U+FFFD. Ready for the next text afterwards. */
NEEDS_CHECK enum status detokenizer_flush(struct detokenizer *detokenizer, struct byte_buffer *out, struct error *err);

#endif
