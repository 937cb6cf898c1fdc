#include "weights/tensor_table.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/arena.h"
#include "base/check.h"

enum { NAME_CHUNK_BYTES = 1 << 20 };

struct name_chunk {
    struct name_chunk *next;
    size_t used_bytes;
    char text[NAME_CHUNK_BYTES];
};

enum status tensor_table_keep(struct tensor_table *table, struct text_span text, const char **kept, struct error *err)
{
    CHECK(text.bytes < NAME_CHUNK_BYTES);
    struct name_chunk *chunk = table->names;
    if (!chunk || NAME_CHUNK_BYTES - chunk->used_bytes <= text.bytes) {
        TRY(memory_take(&chunk, 1, sizeof *chunk, "tensor names", err));
        chunk->next = table->names;
        table->names = chunk;
    }
    char *copy = chunk->text + chunk->used_bytes;
    memcpy(copy, text.at, text.bytes);
    copy[text.bytes] = 0;
    chunk->used_bytes += text.bytes + 1;
    *kept = copy;
    return STATUS_OK;
}

static uint32_t hash_name(struct text_span name)
{
    return (uint32_t)XXH3_64bits(name.at, name.bytes);
}

/* The slot that holds the name, or the free one where it belongs. */
static struct tensor_table_slot *find_slot(const struct tensor_table *table, struct text_span name, uint32_t hash)
{
    uint32_t mask = table->n_slots - 1, at = hash & mask;
    for (;; at = (at + 1) & mask) {
        struct tensor_table_slot *slot = &table->slots[at];
        if (!slot->number)
            return slot;
        if (slot->hash == hash && text_span_equals(name, table->tensors[slot->number - 1].name))
            return slot;
    }
}

/* For refills: all names differ, so only a free slot is looked for. */
static void place(struct tensor_table_slot *slots, uint32_t n_slots, struct tensor_table_slot slot)
{
    uint32_t at = slot.hash & (n_slots - 1);
    while (slots[at].number)
        at = (at + 1) & (n_slots - 1);
    slots[at] = slot;
}

static enum status grow(struct tensor_table *table, struct error *err)
{
    uint32_t capacity = table->capacity ? 2 * table->capacity : 256, n_slots = 2 * capacity;
    if (table->count < table->capacity)
        return STATUS_OK;
    if (table->count == TENSOR_TABLE_COUNT_MAX)
        return error_set(err, STATUS_FORMAT, "expected at most %d tensors in a checkpoint, found more",
                         TENSOR_TABLE_COUNT_MAX);
    struct tensor *tensors = realloc(table->tensors, capacity * sizeof *tensors);
    if (!tensors)
        return error_set(err, STATUS_MEMORY, "cannot allocate %zu bytes for the list of tensors",
                         capacity * sizeof *tensors);
    table->tensors = tensors;
    table->capacity = capacity;
    struct tensor_table_slot *slots;
    TRY(memory_take(&slots, n_slots, sizeof *slots, "the table of tensor names", err));
    for (uint32_t i = 0; i < table->n_slots; i++)
        if (table->slots[i].number)
            place(slots, n_slots, table->slots[i]);
    free(table->slots);
    table->slots = slots;
    table->n_slots = n_slots;
    return STATUS_OK;
}

enum status tensor_table_add(struct tensor_table *table, struct text_span name, struct tensor **tensor, bool *added,
                             struct error *err)
{
    TRY(grow(table, err));
    uint32_t hash = hash_name(name);
    struct tensor_table_slot *slot = find_slot(table, name, hash);
    *added = !slot->number;
    if (*added) {
        struct tensor fresh = {0};
        TRY(tensor_table_keep(table, name, &fresh.name, err));
        table->tensors[table->count++] = fresh;
        *slot = (struct tensor_table_slot){hash, table->count};
    }
    *tensor = &table->tensors[slot->number - 1];
    return STATUS_OK;
}

const struct tensor *tensor_table_find(const struct tensor_table *table, const char *name)
{
    if (!table->count)
        return NULL;
    struct text_span span = {name, strlen(name)};
    const struct tensor_table_slot *slot = find_slot(table, span, hash_name(span));
    return slot->number ? &table->tensors[slot->number - 1] : NULL;
}

static int compare_names(const void *left, const void *right)
{
    const struct tensor *a = left, *b = right;
    return strcmp(a->name, b->name);
}

void tensor_table_sort(struct tensor_table *table)
{
    if (!table->count)
        return;
    qsort(table->tensors, table->count, sizeof *table->tensors, compare_names);
    memset(table->slots, 0, table->n_slots * sizeof *table->slots);
    for (uint32_t i = 0; i < table->count; i++) {
        struct text_span name = {table->tensors[i].name, strlen(table->tensors[i].name)};
        place(table->slots, table->n_slots, (struct tensor_table_slot){hash_name(name), i + 1});
    }
}

void tensor_table_fini(struct tensor_table *table)
{
    while (table->names) {
        struct name_chunk *next = table->names->next;
        free(table->names);
        table->names = next;
    }
    free(table->tensors);
    free(table->slots);
    *table = (struct tensor_table){0};
}
