/* Splits text into the pieces that byte pair encoding works on: the regular expression of the model family,
 * through PCRE2's JIT compiler.
 *
 * The pieces of a text joined are the text. What is no UTF-8 stands apart: a run of such bytes is one piece.
 *
 * As in the vendor's tokenizer, text is cut before the expression sees it: into parts of 400,000 characters,
 * and inside a part wherever more than 25,000 white-space or more than 25,000 other characters stand in a
 * row. The tiktoken library alone does not do this; shorter text has no such cuts.
 *
 * Unicode is PCRE2's (version 14 in Debian 12), with the Han ranges of versions 15 and 15.1 added; other
 * characters of later versions count as symbols. */
#ifndef DAY0_TEXT_PRETOKENIZER_H
#define DAY0_TEXT_PRETOKENIZER_H

#include <stddef.h>

#include "base/error.h"
#include "text/byte_buffer.h"

enum {
    PRETOKENIZER_PART_CHARACTERS = 400000,
    PRETOKENIZER_RUN_CHARACTERS = 25000,
    PRETOKENIZER_STACK_BYTES_MAX = 8 << 20, /* of the matcher, for texts that are not short */
    PRETOKENIZER_SHORT_BYTES_MAX = 1024,    /* up to here the 32 KB that PCRE2 takes of the thread's stack do */
};

/* The compiled expression; read-only, shared by any number of cursors. */
struct pretokenizer;

/* Owns     *out until pretokenizer_close, which accepts NULL.
 * Fails    STATUS_MEMORY, or STATUS_UNSUPPORTED if PCRE2 lacks Unicode. */
NEEDS_CHECK enum status pretokenizer_open(struct pretokenizer **out, struct error *err);
void pretokenizer_close(struct pretokenizer *pretokenizer);

/* A place in one text. */
struct pretokenizer_cursor {
    const struct pretokenizer *pretokenizer;
    const char *next, *end;
    const char *slice, *slice_end; /* the cut that the expression sees */
    size_t part_characters;        /* of the part, in the cuts so far */
    void *match_data, *match_context, *jit_stack;
};

/* Does     begins at the start of `text`, borrowed until pretokenizer_end.
 * Owns     match memory until pretokenizer_end, also after a failure of pretokenizer_next. */
NEEDS_CHECK enum status pretokenizer_begin(struct pretokenizer_cursor *cursor, const struct pretokenizer *pretokenizer,
                                           const char *text, size_t bytes, struct error *err);
void pretokenizer_end(struct pretokenizer_cursor *cursor);

/* The next piece, a view into the text; of 0 bytes when the text is at its end. */
NEEDS_CHECK enum status pretokenizer_next(struct pretokenizer_cursor *cursor, struct byte_span *piece,
                                          struct error *err);

#endif
