/* Strict UTF-8, one character at a time, as Unicode's table 3-7 and Python's decoder read it: no surrogates,
 * nothing above U+10FFFF, no overlong forms. */
#ifndef DAY0_TEXT_UTF8_H
#define DAY0_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum utf8_kind {
    UTF8_VALID,      /* a whole character */
    UTF8_INVALID,    /* bytes that no continuation can save: the maximal subpart, replaced by one U+FFFD */
    UTF8_INCOMPLETE, /* the data ends inside what may still become a character */
};

struct utf8_step {
    enum utf8_kind kind;
    unsigned bytes; /* 1 to 4: what this step covers */
    uint32_t code;  /* the character, if valid */
};

enum { UTF8_BYTES_MAX = 4 };

/* The replacement character, as UTF-8. */
#define UTF8_REPLACEMENT "\xef\xbf\xbd"

/* Reads the front of `text`; bytes >= 1. */
struct utf8_step utf8_step(const char *text, size_t bytes);

/* All of it is valid characters. */
bool utf8_is_valid(const char *text, size_t bytes);

/* What Python's str.isspace says of a character: Unicode's white space and the separators 1C to 1F. */
bool utf8_is_space(uint32_t code);

#endif
