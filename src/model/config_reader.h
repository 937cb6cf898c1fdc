/* Typed reading of the keys of one JSON object. It knows nothing of models: config.c says which keys there
 * are.
 *
 * Types are exact: a string where a number is expected is an error that names the key, never a silent
 * default. null is the same as an absent key. A key counts as known once it was asked for; the rest can be
 * listed at the end. */
#ifndef DAY0_MODEL_CONFIG_READER_H
#define DAY0_MODEL_CONFIG_READER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "model/config.h"

struct config_reader {
    json_t *object;   /* borrowed; NULL reads like an empty object */
    json_t *known;    /* owned: the keys that were asked for */
    const char *path; /* "text_config.", put before keys in messages */
};

/* Owns: the reader owns its list of known keys; release with config_reader_fini. */
NEEDS_CHECK enum status config_reader_init(struct config_reader *reader, json_t *object, const char *path,
                                           struct error *err);
void config_reader_fini(struct config_reader *reader);

/* The value, borrowed; NULL if the key is absent or null. */
json_t *config_reader_get(struct config_reader *reader, const char *key);

/* These leave *out alone if the key is absent. */
NEEDS_CHECK enum status config_reader_count(struct config_reader *reader, const char *key, uint32_t min, uint32_t max,
                                            uint32_t *out, struct error *err);
NEEDS_CHECK enum status config_reader_number(struct config_reader *reader, const char *key, float min, float max,
                                             float *out, struct error *err);
NEEDS_CHECK enum status config_reader_flag(struct config_reader *reader, const char *key, bool *out, struct error *err);
/* *out: an index into `words`. Another word is STATUS_UNSUPPORTED. */
NEEDS_CHECK enum status config_reader_word(struct config_reader *reader, const char *key, const char *const *words,
                                           uint32_t n_words, uint32_t *out, struct error *err);
NEEDS_CHECK enum status config_reader_object(struct config_reader *reader, const char *key, json_t **out,
                                             struct error *err);

/* One count under several spellings, ending with NULL; those that are present must agree. */
NEEDS_CHECK enum status config_reader_aliases(struct config_reader *reader, const char *const *keys, uint32_t min,
                                              uint32_t max, uint32_t *out, struct error *err);

/* A list of layers, counted from 1: sets marks[layer - 1]. *out: the key is present. */
NEEDS_CHECK enum status config_reader_layers(struct config_reader *reader, const char *key, uint32_t n_layers,
                                             bool *marks, bool *out, struct error *err);

NEEDS_CHECK enum status config_reader_require(const struct config_reader *reader, const char *key, struct error *err);

/* Fails with what was expected and what the value is. */
enum status config_reader_refuse(const struct config_reader *reader, const char *key, enum status status,
                                 const char *expected, struct error *err);

/* Appends the keys nobody asked for to config->unknown_keys. */
void config_reader_unknown(const struct config_reader *reader, struct config *config);

#endif
