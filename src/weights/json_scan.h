/* A pull scanner over JSON text in memory, for the two files whose size grows with the number of tensors: the
 * header of a safetensors file and the shard index. A checkpoint of 497,340 tensors has 130 MB of them;
 * building jansson's trees for that took 3.0 s, this scan takes a fraction and allocates nothing. Everything
 * smaller is read with jansson.
 *
 * It refuses to know what the values mean. The first fault sticks: every later call fails, and the caller
 * asks once, at the end, with json_scan_status. */
#ifndef DAY0_WEIGHTS_JSON_SCAN_H
#define DAY0_WEIGHTS_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { JSON_SCAN_DEPTH_MAX = 64 };

struct json_scan {
    const char *start, *at, *end;
    const char *fault; /* what was wanted at `at`; NULL while all is well */
};

/* A piece of the scanned text: borrowed, not terminated, escapes not resolved. */
struct text_span {
    const char *at;
    size_t bytes;
};

struct json_scan json_scan_begin(const char *text, size_t bytes);

/* Opens an object or array; '{' or '['. */
bool json_scan_open(struct json_scan *scan, char bracket);

/* True if another member follows; else eats the closing bracket, '}' or ']'. `first` starts as true and is
 * kept by this. */
bool json_scan_more(struct json_scan *scan, char closing, bool *first);

/* A member's name and its colon. Escapes are a fault here: no name of a tensor or shard has one. */
bool json_scan_key(struct json_scan *scan, struct text_span *name);
bool json_scan_string(struct json_scan *scan, struct text_span *value);

/* A whole number without sign, below 2^64. */
bool json_scan_unsigned(struct json_scan *scan, uint64_t *value);

/* Any value, nested at most JSON_SCAN_DEPTH_MAX deep. */
bool json_scan_skip(struct json_scan *scan);

/* Nothing but white space is left. */
bool json_scan_finish(struct json_scan *scan);

/* Marks a fault at the current place; false, so that it can be returned. */
bool json_scan_fault(struct json_scan *scan, const char *wanted);

/* The sentence of the fault, if any: "FILE: not valid at byte 17 of the header: a string was wanted, found
 * '7'". */
NEEDS_CHECK enum status json_scan_status(const struct json_scan *scan, const char *file, const char *part,
                                         struct error *err);

bool text_span_equals(struct text_span span, const char *text);

#endif
