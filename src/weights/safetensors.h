/* The header of one safetensors file, read from memory and checked in full before anything is believed.
 *
 *     [8 bytes: header length, little endian][header: JSON, padded with blanks][data]
 *     header: {"NAME": {"dtype": "BF16", "shape": [..], "data_offsets": [begin, end]}, ..., "__metadata__":
 * {..}}
 *
 * Offsets count from the start of the data. It knows no model and no canonical names. Source: the format
 * description of the safetensors project. */
#ifndef DAY0_WEIGHTS_SAFETENSORS_H
#define DAY0_WEIGHTS_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "weights/checkpoint.h"
#include "weights/json_scan.h"

enum {
    SAFETENSORS_HEADER_BYTES_MAX = 512 << 20,
    SAFETENSORS_NAME_BYTES_MAX = 512,
    SAFETENSORS_RANK_MAX = 16, /* of what is skipped; what is used has at most TENSOR_RANK_MAX */
};

struct safetensors_entry {
    struct text_span name, dtype;    /* borrowed from the file's bytes */
    uint64_t shape[TENSOR_RANK_MAX]; /* the first axes, if there are more */
    const char *data;
    uint64_t bytes;
    uint32_t rank;
    enum stored stored;
};

struct safetensors {
    struct safetensors_entry *entries; /* in the header's order */
    size_t count;
};

/* Does: parses the file's bytes (`file` is its name, for messages). Checked: lengths against the file, every
 * shape against its byte range, ranges inside the data and disjoint. Types this family does not use are
 * STORED_OTHER and only their range is checked. Alignment is left to the caller. Owns: `out` owns its
 * entries, which borrow from `bytes`; release with safetensors_fini (on failure nothing is held). Fails:
 * STATUS_FORMAT with file, tensor, expected and found; STATUS_MEMORY. */
NEEDS_CHECK enum status safetensors_parse(struct safetensors *out, const char *file, const void *bytes, size_t size,
                                          struct error *err);
void safetensors_fini(struct safetensors *parsed);

/* The header's word for a type that the family uses, and the bytes of one element; NULL and 0 for
 * STORED_OTHER. */
const char *stored_name(enum stored stored);
uint32_t stored_bytes(enum stored stored);

#endif
