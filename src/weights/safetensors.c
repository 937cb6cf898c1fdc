#include "weights/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

static const struct {
    const char *name;
    uint32_t bytes;
} stored_types[] = {[STORED_F32] = {"F32", 4},
                    [STORED_BF16] = {"BF16", 2},
                    [STORED_F16] = {"F16", 2},
                    [STORED_U8] = {"U8", 1},
                    [STORED_OTHER] = {NULL, 0}};

const char *stored_name(enum stored stored)
{
    return stored_types[stored].name;
}

uint32_t stored_bytes(enum stored stored)
{
    return stored_types[stored].bytes;
}

static enum stored stored_from_name(struct text_span name)
{
    enum stored stored = STORED_F32;
    while (stored != STORED_OTHER && !text_span_equals(name, stored_types[stored].name))
        stored++;
    return stored;
}

/* One entry as it stands in the header, before its numbers are checked against each other. */
struct raw_entry {
    uint64_t begin, end;
    uint64_t elements; /* UINT64_MAX: more than 64 bits hold */
    bool has_dtype, has_shape, has_offsets;
};

static bool scan_shape(struct json_scan *scan, struct safetensors_entry *entry, struct raw_entry *raw)
{
    bool first = true, empty = false, overflow = false;
    uint64_t product = 1;
    if (!json_scan_open(scan, '['))
        return false;
    while (json_scan_more(scan, ']', &first)) {
        uint64_t length;
        if (entry->rank == SAFETENSORS_RANK_MAX)
            return json_scan_fault(scan, "at most 16 axes");
        if (!json_scan_unsigned(scan, &length))
            return false;
        if (entry->rank < TENSOR_RANK_MAX)
            entry->shape[entry->rank] = length;
        entry->rank++;
        empty = empty || length == 0;
        overflow = overflow || (length && product > UINT64_MAX / length);
        product *= length;
    }
    raw->elements = empty ? 0 : overflow ? UINT64_MAX : product;
    raw->has_shape = true;
    return !scan->fault;
}

static bool scan_offsets(struct json_scan *scan, struct raw_entry *raw)
{
    uint64_t *const offsets[2] = {&raw->begin, &raw->end};
    bool first = true;
    size_t n = 0;
    if (!json_scan_open(scan, '['))
        return false;
    while (json_scan_more(scan, ']', &first)) {
        if (n == 2)
            return json_scan_fault(scan, "two offsets");
        if (!json_scan_unsigned(scan, offsets[n++]))
            return false;
    }
    raw->has_offsets = n == 2;
    return !scan->fault && (n == 2 || json_scan_fault(scan, "two offsets"));
}

static bool scan_entry(struct json_scan *scan, struct safetensors_entry *entry, struct raw_entry *raw)
{
    bool first = true;
    if (!json_scan_open(scan, '{'))
        return false;
    while (json_scan_more(scan, '}', &first)) {
        struct text_span key;
        if (!json_scan_key(scan, &key))
            return false;
        bool *seen = text_span_equals(key, "dtype")          ? &raw->has_dtype
                     : text_span_equals(key, "shape")        ? &raw->has_shape
                     : text_span_equals(key, "data_offsets") ? &raw->has_offsets
                                                             : NULL;
        if (seen && *seen)
            return json_scan_fault(scan, "each key once");
        if (seen == &raw->has_dtype) {
            raw->has_dtype = json_scan_string(scan, &entry->dtype);
            entry->stored = raw->has_dtype ? stored_from_name(entry->dtype) : STORED_OTHER;
        } else if (seen == &raw->has_shape) {
            scan_shape(scan, entry, raw);
        } else if (seen == &raw->has_offsets) {
            scan_offsets(scan, raw);
        } else {
            json_scan_skip(scan);
        }
        if (scan->fault)
            return false;
    }
    return !scan->fault;
}

/* Entries' names are cut in messages: a sentence holds 512 bytes. */
#define NAME_FORMAT "%.*s"
#define NAME_ARGUMENTS(span) (int)((span).bytes < 200 ? (span).bytes : 200), (span).at

static enum status check_entry(struct safetensors_entry *entry, const struct raw_entry *raw, const char *file,
                               const char *data, uint64_t data_bytes, struct error *err)
{
    if (!raw->has_dtype || !raw->has_shape || !raw->has_offsets)
        return error_set(err, STATUS_FORMAT,
                         "%s: tensor " NAME_FORMAT ": expected dtype, shape and data_offsets, found no %s", file,
                         NAME_ARGUMENTS(entry->name),
                         !raw->has_dtype   ? "dtype"
                         : !raw->has_shape ? "shape"
                                           : "data_offsets");
    if (raw->begin > raw->end || raw->end > data_bytes)
        return error_set(err, STATUS_FORMAT,
                         "%s: tensor " NAME_FORMAT
                         ": expected bytes inside the %llu of the file's data, found %llu to %llu; "
                         "the file is damaged or truncated",
                         file, NAME_ARGUMENTS(entry->name), (unsigned long long)data_bytes,
                         (unsigned long long)raw->begin, (unsigned long long)raw->end);
    uint64_t width = stored_bytes(entry->stored), bytes = raw->end - raw->begin;
    if (width && (raw->elements > UINT64_MAX / width || raw->elements * width != bytes))
        return error_set(err, STATUS_FORMAT,
                         "%s: tensor " NAME_FORMAT ": expected %llu elements of " NAME_FORMAT
                         ", found a range of %llu bytes",
                         file, NAME_ARGUMENTS(entry->name), (unsigned long long)raw->elements,
                         NAME_ARGUMENTS(entry->dtype), (unsigned long long)bytes);
    entry->data = data + raw->begin;
    entry->bytes = bytes;
    return STATUS_OK;
}

static enum status grow_entries(struct safetensors *out, size_t *capacity, const char *file, struct error *err)
{
    if (out->count < *capacity)
        return STATUS_OK;
    size_t wanted = *capacity ? 2 * *capacity : 256;
    void *larger = realloc(out->entries, wanted * sizeof *out->entries);
    if (!larger)
        return error_set(err, STATUS_MEMORY, "%s: cannot allocate %zu bytes for its header", file,
                         wanted * sizeof *out->entries);
    out->entries = larger;
    *capacity = wanted;
    return STATUS_OK;
}

static enum status parse_entries(struct safetensors *out, const char *file, struct json_scan *scan, uint64_t data_bytes,
                                 struct error *err)
{
    size_t capacity = 0;
    bool first = true;
    json_scan_open(scan, '{');
    while (json_scan_more(scan, '}', &first)) {
        struct safetensors_entry entry = {0};
        struct raw_entry raw = {0};
        if (!json_scan_key(scan, &entry.name))
            break;
        if (text_span_equals(entry.name, "__metadata__")) {
            json_scan_skip(scan);
            continue;
        }
        if (entry.name.bytes == 0 || entry.name.bytes > SAFETENSORS_NAME_BYTES_MAX)
            return error_set(err, STATUS_FORMAT, "%s: expected tensor names of 1 to %d bytes, found one of %zu", file,
                             SAFETENSORS_NAME_BYTES_MAX, entry.name.bytes);
        if (!scan_entry(scan, &entry, &raw))
            break;
        TRY(check_entry(&entry, &raw, file, scan->end, data_bytes, err));
        TRY(grow_entries(out, &capacity, file, err));
        out->entries[out->count++] = entry;
    }
    json_scan_finish(scan);
    return json_scan_status(scan, file, "header", err);
}

static int compare_ranges(const void *left, const void *right)
{
    const struct safetensors_entry *const *a = left, *const *b = right;
    return (*a)->data != (*b)->data ? ((*a)->data < (*b)->data ? -1 : 1) : 0;
}

/* Every byte belongs to one tensor at most. Writers list tensors in the order of their bytes, so the sort is
 * rare. */
static enum status check_disjoint(const struct safetensors *parsed, const char *file, struct error *err)
{
    const struct safetensors_entry **order;
    size_t n = 0;
    bool sorted = true;
    TRY(memory_take(&order, parsed->count, sizeof *order, "the order of a shard's tensors", err));
    for (size_t i = 0; i < parsed->count; i++) {
        if (!parsed->entries[i].bytes)
            continue;
        order[n++] = &parsed->entries[i];
        sorted = sorted && (n == 1 || order[n - 2]->data <= order[n - 1]->data);
    }
    if (!sorted)
        qsort(order, n, sizeof *order, compare_ranges);
    enum status status = STATUS_OK;
    for (size_t i = 1; i < n && status == STATUS_OK; i++)
        if ((uint64_t)(order[i]->data - order[i - 1]->data) < order[i - 1]->bytes)
            status =
                error_set(err, STATUS_FORMAT,
                          "%s: tensor " NAME_FORMAT ": expected bytes of its own, found them shared with " NAME_FORMAT,
                          file, NAME_ARGUMENTS(order[i]->name), NAME_ARGUMENTS(order[i - 1]->name));
    free(order);
    return status;
}

static uint64_t little_endian_64(const unsigned char *bytes)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

enum status safetensors_parse(struct safetensors *out, const char *file, const void *bytes, size_t size,
                              struct error *err)
{
    *out = (struct safetensors){0};
    if (size < 8)
        return error_set(err, STATUS_FORMAT, "%s: expected the 8 bytes of a header length, found a file of %zu", file,
                         size);
    uint64_t header_bytes = little_endian_64(bytes);
    if (header_bytes > SAFETENSORS_HEADER_BYTES_MAX)
        return error_set(err, STATUS_FORMAT,
                         "%s: expected a header of at most %d bytes, found %llu; not a safetensors file", file,
                         SAFETENSORS_HEADER_BYTES_MAX, (unsigned long long)header_bytes);
    if (header_bytes > size - 8)
        return error_set(err, STATUS_FORMAT,
                         "%s: expected a header of %llu bytes, found %zu after its length; truncated", file,
                         (unsigned long long)header_bytes, size - 8);
    struct json_scan scan = json_scan_begin((const char *)bytes + 8, header_bytes);
    enum status status = parse_entries(out, file, &scan, size - 8 - header_bytes, err);
    if (status == STATUS_OK)
        status = check_disjoint(out, file, err);
    if (status != STATUS_OK)
        safetensors_fini(out);
    return status;
}

void safetensors_fini(struct safetensors *parsed)
{
    free(parsed->entries);
    *parsed = (struct safetensors){0};
}
