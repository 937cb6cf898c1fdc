/* Binding one tensor: found by name, checked against the wanted shape, viewed (matrix) or widened to float32
 * (vector). It knows no layers; params.c says what is wanted. Every failure names file, tensor, expected and
 * found. */
#ifndef DAY0_MODEL_BIND_H
#define DAY0_MODEL_BIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "tensor/matrix.h"
#include "weights/checkpoint.h"
#include "weights/conversion.h"

enum { BIND_NAME_BYTES = 256, BIND_SHAPE_BYTES = 120 };

/* Which matrices may be brought into another type at load. */
enum weight_class {
    WEIGHTS_FIXED,   /* as they are stored, in every policy */
    WEIGHTS_KEPT,    /* of the type that they are stored in, but in panels where that pays */
    WEIGHTS_DENSE,   /* projections of attention and of dense and shared FFNs */
    WEIGHTS_EXPERTS, /* routed experts */
};

/* The types that they are to be in: MXFP4, MXFP8, INT8 or DTYPE_AS_STORED. Matrices that are stored in a type with
 * scales already stay as they are, and so do those whose columns are no multiple of 32. */
struct weight_types {
    enum dtype dense, experts;
};

/* Which of these matrices lie in panels (tensor/matrix.h): only those that meet activations in INT8 or INT16 may. */
enum packing {
    PACK_NOTHING,
    PACK_CONVERTED, /* to MXFP4 or INT8 */
    PACK_STORED,    /* those, and what is stored in MXFP4 */
    PACK_BF16,      /* those, and what is stored in BF16 */
};

enum wanted_kind {
    WANTED_MATRIX,       /* NAME.weight, or NAME.weight_packed with NAME.weight_scale */
    WANTED_PLAIN_MATRIX, /* NAME.weight */
    WANTED_VECTOR,       /* NAME */
    WANTED_RATES,        /* NAME, which may be longer */
    WANTED_CONVOLUTION,  /* NAME, [rows][1][columns] or [rows][columns] */
    WANTED_DEPTH_QUERY,  /* NAME_proj.weight and NAME_norm.weight */
};

/* One call of a bind function, for those who only want to know what a model consists of. */
struct wanted {
    const char *prefix, *name;
    enum wanted_kind kind;
    enum weight_class weights;
    uint32_t rows, columns; /* a vector has one column */
};

typedef enum status wanted_fn(void *context, const struct wanted *wanted, struct error *err);

struct indexer_params;

/* What is wrong with a tensor, in parts, for those who list all faults. */
struct bind_fault {
    const struct tensor *tensor; /* NULL: there is none of that name */
    char name[BIND_NAME_BYTES];  /* empty: the error's sentence says it all */
    char expected[BIND_SHAPE_BYTES];
};

struct binder {
    const struct checkpoint *checkpoint;
    struct arena *arena;          /* takes the vectors */
    uint64_t elements;            /* bound so far */
    char prefix[BIND_NAME_BYTES]; /* of every name that is asked for, "model.layers.3." */
    uint32_t n_prefixes;          /* that were set so far: an expert has one of its own */
    /* With `see` nothing is found and no data is touched: each bind function only tells it what is wanted and
     * gives a matrix of that shape without data or an untouched vector. `indexers` [n_layers] are then the
     * sizes of the indexers. */
    wanted_fn *see;
    void *see_context;
    const struct indexer_params *indexers;
    /* Matrices that are to be converted or packed get type and shape, no data, and are added to the list. */
    struct weight_types types;
    enum packing packing;
    struct conversion *conversion;
    /* With `dry` tensors are found and checked, but no data is touched and no vector is given. `found` hears
     * of each tensor that is part of the model, `fault` (not NULL) gets what the last failure was about. */
    bool dry;
    void (*found)(void *context, const struct tensor *tensor);
    void *found_context;
    struct bind_fault *fault;
};

/* "U8 [3072, 1792]" */
void bind_describe(char out[BIND_SHAPE_BYTES], const struct tensor *tensor);

/* Sets the prefix. */
void bind_prefix(struct binder *binder, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The tensor prefix + name, or NULL. */
const struct tensor *bind_find(const struct binder *binder, const char *name);

/* [rows][columns] of F32, BF16 or F16 named NAME.weight, or MXFP4 named NAME.weight_packed with
 * NAME.weight_scale. Which of them is seen in the tensors, never in the config's list of exceptions. */
NEEDS_CHECK enum status bind_matrix(struct binder *binder, const char *name, uint32_t rows, uint32_t columns,
                                    struct matrix *out, struct error *err);

/* As bind_matrix, for a matrix of that class. */
NEEDS_CHECK enum status bind_weights(struct binder *binder, enum weight_class weights, const char *name, uint32_t rows,
                                     uint32_t columns, struct matrix *out, struct error *err);

/* As bind_matrix, but never packed. */
NEEDS_CHECK enum status bind_plain_matrix(struct binder *binder, const char *name, uint32_t rows, uint32_t columns,
                                          struct matrix *out, struct error *err);

/* `n` values along one axis; other axes have length 1. */
NEEDS_CHECK enum status bind_vector(struct binder *binder, const char *name, uint32_t n, const float **out,
                                    struct error *err);

/* exp of the first `n` of at least n values along one axis: A_log is padded in Kimi K3. */
NEEDS_CHECK enum status bind_rates(struct binder *binder, const char *name, uint32_t n, const float **out,
                                   struct error *err);

/* A depthwise convolution [channels][1][taps] or [channels][taps], turned to [taps][channels]. */
NEEDS_CHECK enum status bind_convolution(struct binder *binder, const char *name, uint32_t channels, uint32_t taps,
                                         const float **out, struct error *err);

/* out[i] = query[i] * norm[i], n values each: NAME_proj.weight and NAME_norm.weight, also spelled
 * NAME.proj_weight and NAME.norm_weight. */
NEEDS_CHECK enum status bind_depth_query(struct binder *binder, const char *name, uint32_t n, float *out,
                                         struct error *err);

#endif
