/* The tokenizer of a model directory: text to token ids and back.
 *
 * Reads    tiktoken.model (the ranks, ids 0 to n-1) and tokenizer_config.json (the special tokens above
 *          them).
 * Plain    tokenizer_encode reads plain text: the name of a special token in it is text like any other.
 *          Special ids are made only by those who ask tokenizer_special for them.
 * Law      decode(encode(b)) == b for any bytes b, also zero bytes and what is no UTF-8.
 * Threads  an open tokenizer is read-only: any number of threads may use it. */
#ifndef DAY0_TEXT_TOKENIZER_H
#define DAY0_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/byte_buffer.h"
#include "text/token_list.h"

struct tokenizer;

/* Owns     *out until tokenizer_close, which accepts NULL; on failure *out is NULL.
 * Fails    STATUS_NOT_FOUND, STATUS_IO, STATUS_FORMAT, STATUS_MEMORY, naming the file. */
NEEDS_CHECK enum status tokenizer_open(struct tokenizer **out, const char *directory, struct error *err);

/* The same from the contents of the two files. */
NEEDS_CHECK enum status tokenizer_open_contents(struct tokenizer **out, struct byte_span model, struct byte_span config,
                                                struct error *err);
void tokenizer_close(struct tokenizer *tokenizer);

/* Does     appends the ids of `text`.
 * Fails    STATUS_MEMORY, STATUS_UNSUPPORTED; the list then holds a part. */
NEEDS_CHECK enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                                         struct token_list *out, struct error *err);

/* Does     appends the bytes of the tokens, a special token's name included; they need not be whole UTF-8.
 * Fails    STATUS_ARGUMENT for an id outside the vocabulary, STATUS_MEMORY. */
NEEDS_CHECK enum status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count,
                                         struct byte_buffer *out, struct error *err);

/* The id of a special token, or -1. */
int32_t tokenizer_special(const struct tokenizer *tokenizer, const char *name);

/* Ranks and special tokens; ids are 0 to size - 1. */
int32_t tokenizer_vocab_size(const struct tokenizer *tokenizer);

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id);

/* The bytes of a token (a special token: its name), borrowed until tokenizer_close; NULL and 0 bytes outside
 * the vocabulary. */
const char *tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *bytes);

#endif
