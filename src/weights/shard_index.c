#include "weights/shard_index.h"

#include <stdlib.h>
#include <string.h>

/* Makes room for one more element. */
static enum status grow(void *list_out, size_t element_bytes, size_t count, size_t *capacity, struct error *err)
{
    void *list;
    if (count < *capacity)
        return STATUS_OK;
    size_t wanted = *capacity ? 2 * *capacity : 64;
    memcpy(&list, list_out, sizeof list);
    list = realloc(list, wanted * element_bytes);
    if (!list)
        return error_set(err, STATUS_MEMORY, "%s: cannot allocate %zu bytes for it", SHARD_INDEX_FILE,
                         wanted * element_bytes);
    memcpy(list_out, &list, sizeof list);
    *capacity = wanted;
    return STATUS_OK;
}

struct capacities {
    size_t entries, files;
};

static enum status check_file_name(struct text_span file, struct error *err)
{
    int shown = (int)(file.bytes < 200 ? file.bytes : 200);
    if (file.bytes == 0 || file.bytes >= SHARD_FILE_NAME_BYTES)
        return error_set(err, STATUS_FORMAT, "%s: expected shard names of 1 to %d bytes, found one of %zu",
                         SHARD_INDEX_FILE, SHARD_FILE_NAME_BYTES - 1, file.bytes);
    if (file.at[0] == '.' || memchr(file.at, '/', file.bytes))
        return error_set(err, STATUS_FORMAT, "%s: expected names of files beside it, found \"%.*s\"", SHARD_INDEX_FILE,
                         shown, file.at);
    return STATUS_OK;
}

/* The number of a shard, added if it is new. Neighbours in the index mostly share a shard, so the last is
 * tried first. */
static enum status shard_number(struct shard_index *out, struct text_span file, struct capacities *capacities,
                                uint32_t *number, struct error *err)
{
    if (out->count && text_span_equals(file, out->files[out->entries[out->count - 1].file])) {
        *number = out->entries[out->count - 1].file;
        return STATUS_OK;
    }
    for (*number = 0; *number < out->n_files; ++*number)
        if (text_span_equals(file, out->files[*number]))
            return STATUS_OK;
    TRY(check_file_name(file, err));
    if (out->n_files == SHARD_INDEX_FILES_MAX)
        return error_set(err, STATUS_FORMAT, "%s: expected at most %d shards, found more", SHARD_INDEX_FILE,
                         SHARD_INDEX_FILES_MAX);
    TRY(grow(&out->files, sizeof *out->files, out->n_files, &capacities->files, err));
    memset(out->files[out->n_files], 0, sizeof *out->files);
    memcpy(out->files[out->n_files], file.at, file.bytes);
    out->n_files++;
    return STATUS_OK;
}

static enum status parse_weight_map(struct shard_index *out, struct json_scan *scan, struct error *err)
{
    struct capacities capacities = {0};
    bool first = true;
    json_scan_open(scan, '{');
    while (json_scan_more(scan, '}', &first)) {
        struct shard_index_entry entry;
        struct text_span file;
        if (!json_scan_key(scan, &entry.name) || !json_scan_string(scan, &file))
            break;
        TRY(shard_number(out, file, &capacities, &entry.file, err));
        TRY(grow(&out->entries, sizeof *out->entries, out->count, &capacities.entries, err));
        out->entries[out->count++] = entry;
    }
    return STATUS_OK;
}

static enum status parse_index(struct shard_index *out, struct json_scan *scan, struct error *err)
{
    bool first = true, has_map = false;
    json_scan_open(scan, '{');
    while (json_scan_more(scan, '}', &first)) {
        struct text_span key;
        if (!json_scan_key(scan, &key))
            break;
        if (!text_span_equals(key, "weight_map")) {
            json_scan_skip(scan);
            continue;
        }
        if (has_map)
            return error_set(err, STATUS_FORMAT, "%s: expected one weight_map, found two", SHARD_INDEX_FILE);
        has_map = true;
        TRY(parse_weight_map(out, scan, err));
    }
    json_scan_finish(scan);
    TRY(json_scan_status(scan, SHARD_INDEX_FILE, "index", err));
    if (!out->count)
        return error_set(err, STATUS_FORMAT, "%s: expected a weight_map from tensor names to files, found %s",
                         SHARD_INDEX_FILE, has_map ? "an empty one" : "none");
    return STATUS_OK;
}

enum status shard_index_parse(struct shard_index *out, const char *text, size_t bytes, struct error *err)
{
    struct json_scan scan = json_scan_begin(text, bytes);
    *out = (struct shard_index){0};
    enum status status = parse_index(out, &scan, err);
    if (status != STATUS_OK)
        shard_index_fini(out);
    return status;
}

void shard_index_fini(struct shard_index *index)
{
    free(index->entries);
    free(index->files);
    *index = (struct shard_index){0};
}
