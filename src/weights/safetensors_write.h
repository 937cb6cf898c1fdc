/* Writes one safetensors file front to back: the header first, from the tensors' shapes, then their bytes in
 * the same order. Nothing of the data is held here, so a file of any size needs the memory of its header. */
#ifndef DAY0_WEIGHTS_SAFETENSORS_WRITE_H
#define DAY0_WEIGHTS_SAFETENSORS_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "weights/checkpoint.h"

struct safetensors_spec {
    const char *name; /* as it stands in the file; printable, without quotes and backslashes */
    uint64_t shape[TENSOR_RANK_MAX];
    uint32_t rank;
    enum stored stored; /* not STORED_OTHER */
};

struct safetensors_writer {
    const char *path; /* borrowed until the end, for messages */
    int descriptor;
    uint64_t bytes_left; /* of the data */
};

/* Bytes of a tensor's data. */
uint64_t safetensors_spec_bytes(const struct safetensors_spec *spec);

/* Does: creates `path` and writes its header; data then starts at a multiple of 64. Tensors with larger
 * elements come first, so that each is aligned to its element without gaps.
 * Owns: the writer owns the open file until safetensors_write_end, which is called after a failure, too. */
NEEDS_CHECK enum status safetensors_write_begin(struct safetensors_writer *writer, const char *path,
                                                const struct safetensors_spec *specs, size_t count, struct error *err);

/* The next bytes of data. */
NEEDS_CHECK enum status safetensors_write_data(struct safetensors_writer *writer, const void *bytes, size_t size,
                                               struct error *err);

/* Closes the file. `status` is what came before; fails with it, or if closing fails. */
NEEDS_CHECK enum status safetensors_write_end(struct safetensors_writer *writer, enum status status, struct error *err);

#endif
