/* Weights brought into another element type or into panels (tensor/matrix.h): which matrices, where they lie
 * afterwards, and the work itself.
 *
 * A record is what lies together in memory: one dense matrix, or the three matrices of an expert. Records start at
 * multiples of 4 KiB; within one come, for each matrix, its codes and its scales, each at a multiple of 64 bytes. The
 * result depends on nothing but the matrices and the types. MXFP8 and MXFP4 are those of tensor/mx.h: MXFP8 by the
 * floor rule, MXFP4 by the closer one. */
#ifndef DAY0_WEIGHTS_CONVERSION_H
#define DAY0_WEIGHTS_CONVERSION_H

#include <stdbool.h>
#include <stddef.h>

#include "base/watch.h"
#include "exec/team.h"
#include "kernels/kernels.h"
#include "weights/checkpoint.h"

enum {
    CONVERSION_PARTS_MAX = 3,
    CONVERSION_ALIGNMENT = 4096, /* of records */
    CONVERSION_VERSION = 1,      /* of what the bytes of a record are */
};

struct conversion_part {
    const struct tensor *from;   /* F32, BF16 or F16, or MXFP4 codes; borrowed from the checkpoint */
    const struct tensor *scales; /* of MXFP4 codes; else NULL */
    struct matrix shape;         /* the result, without data; of stored MXFP4 and of BF16: panels of the same type */
    struct matrix *to;           /* gets it */
};

struct conversion_record {
    struct conversion_part parts[CONVERSION_PARTS_MAX];
    uint32_t n_parts, expert; /* expert 0: a dense matrix */
    uint64_t offset, bytes;   /* in the memory of all records */
};

struct conversion {
    struct conversion_record *records;
    size_t n_records, capacity;
    uint64_t bytes;        /* of the memory of all records */
    uint64_t source_bytes; /* of the tensors they are made of */
};

/* Adds a matrix, whose type, rows and columns are already in *to, and whether it is in panels; `scales` NULL or of
 * MXFP4 codes; `expert` numbers the expert it is part of, 0 for none, and those of one expert come one after the other.
 * `to` must stay where it is if conversion_place is called. Owns its list until conversion_fini, which may be called
 * twice. */
NEEDS_CHECK enum status conversion_add(struct conversion *conversion, const struct tensor *from,
                                       const struct tensor *scales, struct matrix *to, uint32_t expert,
                                       struct error *err);
void conversion_fini(struct conversion *conversion);

/* Of all dense matrices, or of all experts, that get another type: the tensors' bytes and what is made of them. */
struct conversion_totals {
    uint64_t source_bytes, bytes;
};
struct conversion_totals conversion_totals(const struct conversion *conversion, bool experts);

/* Bytes of the matrices that only come into panels. */
uint64_t conversion_packed_bytes(const struct conversion *conversion);

/* Takes the matrices out that only come into panels: they become views of the checkpoint. */
void conversion_leave_stored(struct conversion *conversion);

/* Converts everything into memory of conversion->bytes bytes, record by record, on all workers of the team. `done`
 * hears of every record whose bytes are complete, on the worker that made it. Fails with STATUS_FORMAT at a weight that
 * is NaN or infinite, with STATUS_INTERRUPTED if the watch says so. */
typedef void conversion_done_fn(void *context, size_t record, const char *bytes);
NEEDS_CHECK enum status conversion_run(const struct conversion *conversion, char *memory, const struct kernels *kernels,
                                       struct team *team, const struct watch *watch, conversion_done_fn *done,
                                       void *done_context, struct error *err);

/* Makes the matrices views of such memory, and lets go of the tensors that they were made of. */
void conversion_place(const struct conversion *conversion, const char *memory);

/* A 128-bit name of the result: tensors, shapes and types in order. It says nothing of the tensors' values. */
void conversion_identity(const struct conversion *conversion, uint64_t identity[2]);

#endif
