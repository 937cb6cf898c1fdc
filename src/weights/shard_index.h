/* model.safetensors.index.json: which shard holds which tensor. Parsed from memory; no file is opened here.
 *
 *     {"metadata": {..}, "weight_map": {"NAME": "model-00001-of-000096.safetensors", ..}} */
#ifndef DAY0_WEIGHTS_SHARD_INDEX_H
#define DAY0_WEIGHTS_SHARD_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "weights/json_scan.h"

enum {
    SHARD_INDEX_BYTES_MAX = 512 << 20,
    SHARD_INDEX_FILES_MAX = 4096,
    SHARD_FILE_NAME_BYTES = 256, /* with the closing zero; the usual limit of a file name */
};

#define SHARD_INDEX_FILE "model.safetensors.index.json"

struct shard_index_entry {
    struct text_span name; /* as in the file, not canonical; borrowed from the text */
    uint32_t file;
};

struct shard_index {
    struct shard_index_entry *entries;
    size_t count;
    char (*files)[SHARD_FILE_NAME_BYTES];
    uint32_t n_files;
};

/* Does: parses the text. File names must be plain: no directory part, so that an index never leads out of the
 * checkpoint's folder.
 * Owns: `out` owns its lists; release with shard_index_fini (on failure nothing is held). */
NEEDS_CHECK enum status shard_index_parse(struct shard_index *out, const char *text, size_t bytes, struct error *err);
void shard_index_fini(struct shard_index *index);

#endif
