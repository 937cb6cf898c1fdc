/* The tensors of a checkpoint, found by canonical name: a hash table over one array, names packed into large
 * chunks. Published checkpoints have half a million tensors, so both a lookup and a byte of a record
 * count. */
#ifndef DAY0_WEIGHTS_TENSOR_TABLE_H
#define DAY0_WEIGHTS_TENSOR_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "weights/checkpoint.h"
#include "weights/json_scan.h"

enum { TENSOR_TABLE_COUNT_MAX = 1 << 24 };

struct tensor_table_slot {
    uint32_t hash;
    uint32_t number; /* of the tensor, plus 1; 0: free */
};

struct name_chunk;

struct tensor_table {
    struct tensor *tensors; /* in order of arrival, until tensor_table_sort */
    uint32_t count, capacity;
    struct tensor_table_slot *slots;
    uint32_t n_slots; /* a power of two, at least twice the tensors */
    struct name_chunk *names;
};

/* The tensor of this name; made, zero but for its name, if there is none yet (`added`). The pointer holds
 * until the next call. Owns: a zeroed table is empty; release with tensor_table_fini. */
NEEDS_CHECK enum status tensor_table_add(struct tensor_table *table, struct text_span name, struct tensor **tensor,
                                         bool *added, struct error *err);

const struct tensor *tensor_table_find(const struct tensor_table *table, const char *name);

/* A copy of the text that lives as long as the table. */
NEEDS_CHECK enum status tensor_table_keep(struct tensor_table *table, struct text_span text, const char **kept,
                                          struct error *err);

/* Puts the tensors into order of name. Nothing may be added afterwards. */
void tensor_table_sort(struct tensor_table *table);

void tensor_table_fini(struct tensor_table *table);

#endif
