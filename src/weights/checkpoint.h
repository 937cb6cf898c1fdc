/* A published checkpoint: config-independent. Maps model.safetensors, or the shards that model.safetensors.index.json
 * names, read-only, and finds tensors by their canonical name.
 *
 * Canonical names start with "model." or are "lm_head.weight": the prefixes "language_model." and
 * "model.language_model." are taken off, a missing inner "model." is put back. Tensors of the vision part
 * (vision_tower.*, mm_projector.*) are counted and skipped. The element type is the header's, never assumed. Only
 * headers are read at open; the data is touched when it is used, and never copied here. */
#ifndef DAY0_WEIGHTS_CHECKPOINT_H
#define DAY0_WEIGHTS_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { TENSOR_RANK_MAX = 4 };

/* Element types of the safetensors format that the family uses. */
enum stored { STORED_F32, STORED_BF16, STORED_F16, STORED_U8, STORED_OTHER };

struct tensor {
    const char *name;                /* canonical; borrowed from the checkpoint */
    const char *file;                /* the shard's file name, for messages */
    const char *dtype;               /* the header's word for the element type, for messages */
    const void *data;                /* in the mapping; aligned to the element type (a misaligned file is refused) */
    uint64_t shape[TENSOR_RANK_MAX]; /* the first axes, should there be more */
    uint64_t bytes;
    uint32_t rank; /* may exceed TENSOR_RANK_MAX; nothing the model binds does */
    enum stored stored;
};

struct checkpoint;

/* Opens the checkpoint in `directory`. Owns all mappings until checkpoint_close (which accepts NULL).
 * Fails with file, tensor, what was expected and found. */
NEEDS_CHECK enum status checkpoint_open(struct checkpoint **out, const char *directory, struct error *err);
void checkpoint_close(struct checkpoint *checkpoint);

/* The tensor of a canonical name, or NULL. Borrowed until close. */
const struct tensor *checkpoint_find(const struct checkpoint *checkpoint, const char *name);

/* All tensors in order of name, for reports. */
size_t checkpoint_count(const struct checkpoint *checkpoint);
const struct tensor *checkpoint_at(const struct checkpoint *checkpoint, size_t index);

/* Vision tensors that were skipped. */
size_t checkpoint_skipped(const struct checkpoint *checkpoint);

/* Bytes of all mapped files. */
uint64_t checkpoint_bytes(const struct checkpoint *checkpoint);

/* A 128-bit name of the contents, from file names, sizes, headers and samples of the data of every file: cheap, and
 * another checkpoint of the same shape has another one. */
void checkpoint_identity(const struct checkpoint *checkpoint, uint64_t identity[2]);

/* A 128-bit name of the files as they are on disk, from each one's name, size, time of change and whole header: cheaper
 * to trust than to read. */
void checkpoint_files_identity(const struct checkpoint *checkpoint, uint64_t identity[2]);

#endif
