#include "text/specials.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* A key of added_tokens_decoder as an id of a special token. */
static enum status parse_id(const struct specials *specials, const char *key, const char *path, int32_t *id,
                            struct error *err)
{
    char *end;
    errno = 0;
    long value = strtol(key, &end, 10);
    if (key[0] < '0' || key[0] > '9' || *end || errno)
        return error_set(err, STATUS_FORMAT, "%s: added_tokens_decoder: want ids as keys, found \"%.40s\"", path, key);
    if (value < specials->first)
        return error_set(err, STATUS_FORMAT,
                         "%s: added_tokens_decoder: id %ld is already a rank; special ids start at %d", path, value,
                         specials->first);
    if (value >= specials->first + SPECIALS_MAX)
        return error_set(err, STATUS_FORMAT,
                         "%s: added_tokens_decoder: id %ld is too large; after %d ranks the limit is %d", path, value,
                         specials->first, specials->first + SPECIALS_MAX - 1);
    *id = (int32_t)value;
    return STATUS_OK;
}

static enum status read_name(struct specials *specials, const char *key, json_t *entry, const char *path,
                             struct error *err)
{
    int32_t id = 0;
    TRY(parse_id(specials, key, path, &id, err));
    const char *name = json_string_value(json_object_get(entry, "content"));
    if (!name || !*name || strlen(name) > SPECIALS_NAME_BYTES_MAX)
        return error_set(err, STATUS_FORMAT, "%s: added_tokens_decoder: %s needs a `content` of 1 to %d bytes", path,
                         key, SPECIALS_NAME_BYTES_MAX);
    int32_t at = id - specials->first, other = specials_find(specials, name);
    if (specials->names[at] || other >= 0)
        return error_set(err, STATUS_FORMAT, "%s: added_tokens_decoder: %s (%.80s) is there twice", path, key, name);
    specials->names[at] = strdup(name);
    if (!specials->names[at])
        return error_set(err, STATUS_MEMORY, "%s: cannot allocate the special tokens", path);
    if (at >= specials->count)
        specials->count = at + 1;
    return STATUS_OK;
}

static enum status name_reserved(struct specials *specials, const char *path, struct error *err)
{
    for (int32_t at = 0; at < specials->count; at++) {
        char name[48];
        if (specials->names[at])
            continue;
        snprintf(name, sizeof name, "<|reserved_token_%d|>", specials->first + at);
        if (specials_find(specials, name) >= 0)
            return error_set(err, STATUS_FORMAT, "%s: added_tokens_decoder: %s is the name of another id", path, name);
        specials->names[at] = strdup(name);
        if (!specials->names[at])
            return error_set(err, STATUS_MEMORY, "%s: cannot allocate the special tokens", path);
    }
    return STATUS_OK;
}

static enum status load(struct specials *specials, json_t *root, const char *path, struct error *err)
{
    const char *key;
    json_t *entry, *added = json_object_get(root, "added_tokens_decoder");
    if (!json_is_object(added))
        return error_set(err, STATUS_FORMAT, "%s: want an object `added_tokens_decoder` that names the special tokens",
                         path);
    TRY(memory_take(&specials->names, SPECIALS_MAX, sizeof *specials->names, "the special tokens", err));
    json_object_foreach (added, key, entry)
        TRY(read_name(specials, key, entry, path, err));
    return name_reserved(specials, path, err);
}

enum status specials_init(struct specials *specials, const char *json, size_t bytes, int32_t first, const char *path,
                          struct error *err)
{
    json_error_t where;
    *specials = (struct specials){.first = first};
    json_t *root = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return error_set(err, STATUS_FORMAT, "%s line %d: not JSON: %s", path, where.line, where.text);
    enum status status = load(specials, root, path, err);
    json_decref(root);
    if (status != STATUS_OK)
        specials_fini(specials);
    return status;
}

void specials_fini(struct specials *specials)
{
    for (int32_t at = 0; at < specials->count; at++)
        free(specials->names[at]);
    free(specials->names);
    *specials = (struct specials){0};
}

int32_t specials_find(const struct specials *specials, const char *name)
{
    for (int32_t at = 0; at < specials->count; at++)
        if (specials->names[at] && strcmp(specials->names[at], name) == 0)
            return specials->first + at;
    return -1;
}
