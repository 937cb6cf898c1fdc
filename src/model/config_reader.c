#include "model/config_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FOUND_BYTES = 80, EXPECTED_BYTES = 160 };

enum status config_reader_init(struct config_reader *reader, json_t *object, const char *path, struct error *err)
{
    *reader = (struct config_reader){object, json_object(), path};
    return reader->known ? STATUS_OK : error_set(err, STATUS_MEMORY, "cannot allocate a list of config keys");
}

void config_reader_fini(struct config_reader *reader)
{
    json_decref(reader->known);
    *reader = (struct config_reader){0};
}

json_t *config_reader_get(struct config_reader *reader, const char *key)
{
    /* Without memory the key is listed as unknown later: too strict, never too lax. */
    json_object_set_new(reader->known, key, json_true());
    json_t *value = json_object_get(reader->object, key);
    return json_is_null(value) ? NULL : value;
}

/* The value as it stands in the file, cut to fit a sentence. */
static void describe(char out[FOUND_BYTES], const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    snprintf(out, FOUND_BYTES, "%.60s%s", text ? text : "nothing", text && strlen(text) > 60 ? "..." : "");
    free(text);
}

enum status config_reader_refuse(const struct config_reader *reader, const char *key, enum status status,
                                 const char *expected, struct error *err)
{
    char found[FOUND_BYTES];
    describe(found, json_object_get(reader->object, key));
    return error_set(err, status, "%s%s: expected %s, found %s", reader->path, key, expected, found);
}

enum status config_reader_require(const struct config_reader *reader, const char *key, struct error *err)
{
    json_t *value = json_object_get(reader->object, key);
    if (!value || json_is_null(value))
        return error_set(err, STATUS_FORMAT, "%s%s: expected a value, found none", reader->path, key);
    return STATUS_OK;
}

enum status config_reader_count(struct config_reader *reader, const char *key, uint32_t min, uint32_t max,
                                uint32_t *out, struct error *err)
{
    json_t *value = config_reader_get(reader, key);
    if (!value)
        return STATUS_OK;
    if (!json_is_integer(value) || json_integer_value(value) < min || json_integer_value(value) > max) {
        char expected[EXPECTED_BYTES];
        snprintf(expected, sizeof expected, min == max ? "%u" : "a whole number from %u to %u", min, max);
        return config_reader_refuse(reader, key, STATUS_FORMAT, expected, err);
    }
    *out = (uint32_t)json_integer_value(value);
    return STATUS_OK;
}

enum status config_reader_number(struct config_reader *reader, const char *key, float min, float max, float *out,
                                 struct error *err)
{
    json_t *value = config_reader_get(reader, key);
    if (!value)
        return STATUS_OK;
    double number = json_number_value(value);
    if (!json_is_number(value) || !((double)min <= number && number <= (double)max)) {
        char expected[EXPECTED_BYTES];
        snprintf(expected, sizeof expected, "a number from %g to %g", (double)min, (double)max);
        return config_reader_refuse(reader, key, STATUS_FORMAT, expected, err);
    }
    *out = (float)number;
    return STATUS_OK;
}

enum status config_reader_flag(struct config_reader *reader, const char *key, bool *out, struct error *err)
{
    json_t *value = config_reader_get(reader, key);
    if (!value)
        return STATUS_OK;
    if (!json_is_boolean(value))
        return config_reader_refuse(reader, key, STATUS_FORMAT, "true or false", err);
    *out = json_is_true(value);
    return STATUS_OK;
}

enum status config_reader_word(struct config_reader *reader, const char *key, const char *const *words,
                               uint32_t n_words, uint32_t *out, struct error *err)
{
    json_t *value = config_reader_get(reader, key);
    if (!value)
        return STATUS_OK;
    for (uint32_t i = 0; json_is_string(value) && i < n_words; i++) {
        if (strcmp(json_string_value(value), words[i]) == 0) {
            *out = i;
            return STATUS_OK;
        }
    }
    char expected[EXPECTED_BYTES] = "";
    for (uint32_t i = 0, used = 0; i < n_words && used < sizeof expected; i++)
        used += (uint32_t)snprintf(expected + used, sizeof expected - used, "%s\"%s\"", i ? " or " : "", words[i]);
    return config_reader_refuse(reader, key, json_is_string(value) ? STATUS_UNSUPPORTED : STATUS_FORMAT, expected, err);
}

enum status config_reader_object(struct config_reader *reader, const char *key, json_t **out, struct error *err)
{
    *out = config_reader_get(reader, key);
    if (*out && !json_is_object(*out))
        return config_reader_refuse(reader, key, STATUS_FORMAT, "an object", err);
    return STATUS_OK;
}

enum status config_reader_aliases(struct config_reader *reader, const char *const *keys, uint32_t min, uint32_t max,
                                  uint32_t *out, struct error *err)
{
    const char *first = NULL;
    for (; *keys; keys++) {
        uint32_t value = 0;
        if (!config_reader_get(reader, *keys))
            continue;
        TRY(config_reader_count(reader, *keys, min, max, &value, err));
        if (first && value != *out)
            return error_set(err, STATUS_FORMAT, "%s%s: expected %u, as in %s, found %u", reader->path, *keys, *out,
                             first, value);
        first = *keys;
        *out = value;
    }
    return STATUS_OK;
}

enum status config_reader_layers(struct config_reader *reader, const char *key, uint32_t n_layers, bool *marks,
                                 bool *out, struct error *err)
{
    json_t *list = config_reader_get(reader, key);
    *out = list != NULL;
    if (!list)
        return STATUS_OK;
    if (!json_is_array(list))
        return config_reader_refuse(reader, key, STATUS_FORMAT, "a list of layers", err);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t layer = json_integer_value(value);
        if (!json_is_integer(value) || layer < 1 || layer > n_layers) {
            char found[FOUND_BYTES];
            describe(found, value);
            return error_set(err, STATUS_FORMAT, "%s%s: expected layers, counted from 1 to %u, found %s", reader->path,
                             key, n_layers, found);
        }
        if (marks[layer - 1])
            return error_set(err, STATUS_FORMAT, "%s%s: expected each layer once, found layer %d twice", reader->path,
                             key, (int)layer);
        marks[layer - 1] = true;
    }
    return STATUS_OK;
}

void config_reader_unknown(const struct config_reader *reader, struct config *config)
{
    const char *key;
    json_t *value;
    json_object_foreach (reader->object, key, value) {
        if (json_object_get(reader->known, key) || config->n_unknown_keys == CONFIG_KEYS_MAX)
            continue;
        char *out = config->unknown_keys[config->n_unknown_keys++];
        if (snprintf(out, CONFIG_KEY_BYTES, "%s%s", reader->path, key) >= CONFIG_KEY_BYTES)
            memcpy(out + CONFIG_KEY_BYTES - 4, "...", 4);
    }
}
