/* JSON as Python's json module reads and writes it, on jansson values.
 *
 * Numbers jansson cannot hold (integers beyond 64 bits, reals beyond double, NaN and Infinity, which Python
 * accepts) are kept as strings led by a zero byte, followed by Python's spelling of the number; a string of
 * the text that itself begins with a zero byte gets one more. So read strings through json_text_string, and
 * ask json_text_type for the type.
 *
 * Not as Python: a lone surrogate escape, and an object key with a zero byte, are errors. Nesting is limited
 * to jansson's 2,048. */
#ifndef DAY0_TEXT_JSON_TEXT_H
#define DAY0_TEXT_JSON_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "text/byte_buffer.h"

enum json_text_style {
    JSON_TEXT_SPACED,         /* json.dumps(value, ensure_ascii=False) */
    JSON_TEXT_SORTED_COMPACT, /* the same with sort_keys=True, separators=(",", ":") */
};

/* Does     parses one JSON value; the last of equal keys wins, in the place of the first.
 * Owns     *out belongs to the caller (json_decref); NULL on failure.
 * Fails    STATUS_FORMAT with the line, STATUS_MEMORY. */
NEEDS_CHECK enum status json_text_parse(const char *text, size_t bytes, json_t **out, struct error *err);

/* Does     appends the value in Python's spelling: shortest reals (1e+20, -2.5), only `"`, `\` and control
 *          characters escaped. */
NEEDS_CHECK enum status json_text_write(struct byte_buffer *out, const json_t *value, enum json_text_style style,
                                        struct error *err);

/* Appends a string of bytes, quoted and escaped as json_text_write does. */
NEEDS_CHECK enum status json_text_write_string(struct byte_buffer *out, struct byte_span text, struct error *err);

bool json_text_is_string(const json_t *value);

/* The bytes of a string; borrowed from `value`. */
struct byte_span json_text_string(const json_t *value);

/* "string", "number", "boolean", "null", "object" or "array". */
const char *json_text_type(const json_t *value);

#endif
