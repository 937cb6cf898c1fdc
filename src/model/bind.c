#include "model/bind.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

void bind_prefix(struct binder *binder, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(binder->prefix, sizeof binder->prefix, format, args);
    va_end(args);
    CHECK(bytes >= 0 && (size_t)bytes < sizeof binder->prefix);
    binder->n_prefixes++;
}

static void join(char out[BIND_NAME_BYTES], const struct binder *binder, const char *name, const char *suffix)
{
    const char *const parts[] = {binder->prefix, name, suffix};
    size_t used = 0;
    for (int i = 0; i < 3; i++) { /* snprintf takes longer than the look-up, and there are half a million of them */
        size_t bytes = strlen(parts[i]);
        CHECK(bytes < BIND_NAME_BYTES - used);
        memcpy(out + used, parts[i], bytes);
        used += bytes;
    }
    out[used] = 0;
}

static const struct tensor *find_suffixed(const struct binder *binder, const char *name, const char *suffix)
{
    char full[BIND_NAME_BYTES];
    join(full, binder, name, suffix);
    const struct tensor *tensor = checkpoint_find(binder->checkpoint, full);
    if (tensor && binder->found)
        binder->found(binder->found_context, tensor);
    return tensor;
}

const struct tensor *bind_find(const struct binder *binder, const char *name)
{
    return find_suffixed(binder, name, "");
}

static enum status see(const struct binder *binder, const char *name, enum wanted_kind kind, uint32_t rows,
                       uint32_t columns, struct error *err)
{
    return binder->see(binder->see_context, &(struct wanted){binder->prefix, name, kind, WEIGHTS_FIXED, rows, columns},
                       err);
}

static enum status see_matrix(const struct binder *binder, const char *name, enum wanted_kind kind,
                              enum weight_class weights, uint32_t rows, uint32_t columns, struct matrix *out,
                              struct error *err)
{
    *out = (struct matrix){.rows = rows, .columns = columns, .dtype = DTYPE_BF16};
    return binder->see(binder->see_context, &(struct wanted){binder->prefix, name, kind, weights, rows, columns}, err);
}

/* The memory is taken, so that it counts, and not touched. */
static enum status see_vector(const struct binder *binder, const char *name, enum wanted_kind kind, uint32_t rows,
                              uint32_t columns, const float **out, struct error *err)
{
    *out = arena_take(binder->arena, (size_t)rows * columns * sizeof(float));
    return see(binder, name, kind, rows, columns, err);
}

/* ---- sentences ---- */

void bind_describe(char out[BIND_SHAPE_BYTES], const struct tensor *tensor)
{
    int used = snprintf(out, BIND_SHAPE_BYTES, "%.24s [", tensor->dtype);
    for (uint32_t i = 0; i < tensor->rank && i < TENSOR_RANK_MAX; i++)
        used += snprintf(out + used, (size_t)(BIND_SHAPE_BYTES - used), "%s%llu", i ? ", " : "",
                         (unsigned long long)tensor->shape[i]);
    snprintf(out + used, (size_t)(BIND_SHAPE_BYTES - used), tensor->rank > TENSOR_RANK_MAX ? ", ...]" : "]");
}

static void note_fault(const struct binder *binder, const struct tensor *tensor, const char *name, const char *expected)
{
    if (!binder->fault)
        return;
    binder->fault->tensor = tensor;
    snprintf(binder->fault->name, sizeof binder->fault->name, "%s", name);
    snprintf(binder->fault->expected, sizeof binder->fault->expected, "%s", expected);
}

static enum status wrong_tensor(const struct binder *binder, const struct tensor *tensor, const char *expected,
                                struct error *err)
{
    char found[BIND_SHAPE_BYTES];
    bind_describe(found, tensor);
    note_fault(binder, tensor, tensor->name, expected);
    return error_set(err, STATUS_FORMAT, "%s: tensor %s: expected %s, found %s", tensor->file, tensor->name, expected,
                     found);
}

static enum status missing_tensor(const struct binder *binder, const char *name, const char *suffix,
                                  const char *expected, struct error *err)
{
    char full[BIND_NAME_BYTES];
    join(full, binder, name, suffix);
    note_fault(binder, NULL, full, expected);
    return error_set(err, STATUS_NOT_FOUND, "tensor %s: expected %s, found no tensor of that name in the checkpoint",
                     full, expected);
}

/* ---- plain values ---- */

static bool plain_type(const struct tensor *tensor, enum dtype *dtype)
{
    switch (tensor->stored) {
    case STORED_F32:
        *dtype = DTYPE_F32;
        return true;
    case STORED_BF16:
        *dtype = DTYPE_BF16;
        return true;
    case STORED_F16:
        *dtype = DTYPE_F16;
        return true;
    case STORED_U8:
    case STORED_OTHER:
        break;
    }
    return false;
}

static float element(const void *data, enum dtype dtype, size_t i)
{
    const uint16_t *half = data;
    switch (dtype) {
    case DTYPE_F32:
        return ((const float *)data)[i];
    case DTYPE_BF16:
        return f32_from_bf16(half[i]);
    default:
        return f32_from_f16(half[i]);
    }
}

/* The length of a tensor whose other axes have length 1; 0 if two are longer. */
static uint64_t vector_length(const struct tensor *tensor)
{
    uint64_t length = 1;
    if (tensor->rank > TENSOR_RANK_MAX)
        return 0;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] != 1 && length != 1)
            return 0;
        if (tensor->shape[i] != 1)
            length = tensor->shape[i];
    }
    return length;
}

/* Finds a vector of n values (or, if `longer`, at least n). */
static enum status find_vector(struct binder *binder, const char *name, uint32_t n, bool longer,
                               const struct tensor **out, enum dtype *dtype, struct error *err)
{
    char expected[BIND_SHAPE_BYTES];
    snprintf(expected, sizeof expected, "F32, BF16 or F16 [%u]%s", n, longer ? " or longer" : "");
    const struct tensor *tensor = bind_find(binder, name);
    if (!tensor)
        return missing_tensor(binder, name, "", expected, err);
    uint64_t length = vector_length(tensor);
    if (!plain_type(tensor, dtype) || length < n || (!longer && length != n))
        return wrong_tensor(binder, tensor, expected, err);
    binder->elements += n;
    *out = tensor;
    return STATUS_OK;
}

enum status bind_vector(struct binder *binder, const char *name, uint32_t n, const float **out, struct error *err)
{
    if (binder->see)
        return see_vector(binder, name, WANTED_VECTOR, n, 1, out, err);
    const struct tensor *tensor;
    enum dtype dtype;
    TRY(find_vector(binder, name, n, false, &tensor, &dtype, err));
    if (binder->dry)
        return STATUS_OK;
    float *values = arena_take(binder->arena, n * sizeof *values);
    for (uint32_t i = 0; i < n; i++)
        values[i] = element(tensor->data, dtype, i);
    *out = values;
    return STATUS_OK;
}

enum status bind_rates(struct binder *binder, const char *name, uint32_t n, const float **out, struct error *err)
{
    if (binder->see)
        return see_vector(binder, name, WANTED_RATES, n, 1, out, err);
    const struct tensor *tensor;
    enum dtype dtype;
    TRY(find_vector(binder, name, n, true, &tensor, &dtype, err));
    if (binder->dry)
        return STATUS_OK;
    float *values = arena_take(binder->arena, n * sizeof *values);
    for (uint32_t i = 0; i < n; i++)
        values[i] = expf(element(tensor->data, dtype, i));
    *out = values;
    return STATUS_OK;
}

enum status bind_convolution(struct binder *binder, const char *name, uint32_t channels, uint32_t taps,
                             const float **out, struct error *err)
{
    if (binder->see)
        return see_vector(binder, name, WANTED_CONVOLUTION, channels, taps, out, err);
    char expected[BIND_SHAPE_BYTES];
    enum dtype dtype;
    snprintf(expected, sizeof expected, "F32, BF16 or F16 [%u, 1, %u]", channels, taps);
    const struct tensor *tensor = bind_find(binder, name);
    if (!tensor)
        return missing_tensor(binder, name, "", expected, err);
    bool flat = tensor->rank == 2 && tensor->shape[1] == taps;
    bool deep = tensor->rank == 3 && tensor->shape[1] == 1 && tensor->shape[2] == taps;
    if (!plain_type(tensor, &dtype) || !(flat || deep) || tensor->shape[0] != channels)
        return wrong_tensor(binder, tensor, expected, err);
    binder->elements += (uint64_t)channels * taps;
    if (binder->dry)
        return STATUS_OK;
    float *values = arena_take(binder->arena, (size_t)channels * taps * sizeof *values);
    for (uint32_t c = 0; c < channels; c++)
        for (uint32_t t = 0; t < taps; t++)
            values[(size_t)t * channels + c] = element(tensor->data, dtype, (size_t)c * taps + t);
    *out = values;
    return STATUS_OK;
}

enum status bind_depth_query(struct binder *binder, const char *name, uint32_t n, float *out, struct error *err)
{
    static const char *const suffixes[2][2] = {{"_proj.weight", ".proj_weight"}, {"_norm.weight", ".norm_weight"}};
    if (binder->see)
        return see(binder, name, WANTED_DEPTH_QUERY, n, 1, err);
    const struct tensor *tensors[2];
    enum dtype dtypes[2];
    for (int i = 0; i < 2; i++) {
        char part[BIND_NAME_BYTES];
        bool published = find_suffixed(binder, name, suffixes[i][0]) || !find_suffixed(binder, name, suffixes[i][1]);
        snprintf(part, sizeof part, "%s%s", name, suffixes[i][published ? 0 : 1]);
        TRY(find_vector(binder, part, n, false, &tensors[i], &dtypes[i], err));
    }
    for (uint32_t i = 0; i < n && !binder->dry; i++)
        out[i] = element(tensors[0]->data, dtypes[0], i) * element(tensors[1]->data, dtypes[1], i);
    return STATUS_OK;
}

/* ---- matrices ---- */

static bool has_shape(const struct tensor *tensor, uint32_t rows, uint32_t columns)
{
    return tensor->rank == 2 && tensor->shape[0] == rows && tensor->shape[1] == columns;
}

enum status bind_plain_matrix(struct binder *binder, const char *name, uint32_t rows, uint32_t columns,
                              struct matrix *out, struct error *err)
{
    if (binder->see)
        return see_matrix(binder, name, WANTED_PLAIN_MATRIX, WEIGHTS_FIXED, rows, columns, out, err);
    char expected[BIND_SHAPE_BYTES];
    enum dtype dtype;
    snprintf(expected, sizeof expected, "F32, BF16 or F16 [%u, %u]", rows, columns);
    const struct tensor *tensor = find_suffixed(binder, name, ".weight");
    if (!tensor)
        return missing_tensor(binder, name, ".weight", expected, err);
    if (!plain_type(tensor, &dtype) || !has_shape(tensor, rows, columns))
        return wrong_tensor(binder, tensor, expected, err);
    *out = (struct matrix){.data = tensor->data, .rows = rows, .columns = columns, .dtype = dtype};
    binder->elements += (uint64_t)rows * columns;
    return STATUS_OK;
}

/* The scale byte 255 is NaN and would spread through every sum it touches. This reads all scales once. */
static enum status refuse_nan_scales(const struct tensor *scales, struct error *err)
{
    const uint8_t *bytes = scales->data, *nan = memchr(bytes, E8M0_NAN, scales->bytes);
    if (!nan)
        return STATUS_OK;
    uint64_t at = (uint64_t)(nan - bytes);
    return error_set(err, STATUS_FORMAT,
                     "%s: tensor %s: expected scale bytes 0 to 254, found 255 (NaN) in row %llu, block %llu",
                     scales->file, scales->name, (unsigned long long)(at / scales->shape[1]),
                     (unsigned long long)(at % scales->shape[1]));
}

static enum status bind_packed(struct binder *binder, const char *name, const struct tensor *packed, uint32_t rows,
                               uint32_t columns, struct matrix *out, struct error *err)
{
    char expected[BIND_SHAPE_BYTES];
    snprintf(expected, sizeof expected, "U8 [%u, %u], the codes of [%u, %u] with columns in blocks of %d", rows,
             columns / 2, rows, columns, MX_BLOCK);
    if (packed->stored != STORED_U8 || !has_shape(packed, rows, columns / 2) || columns % MX_BLOCK)
        return wrong_tensor(binder, packed, expected, err);
    snprintf(expected, sizeof expected, "U8 [%u, %u]", rows, columns / MX_BLOCK);
    const struct tensor *scales = find_suffixed(binder, name, ".weight_scale");
    if (!scales)
        return missing_tensor(binder, name, ".weight_scale", expected, err);
    if (scales->stored != STORED_U8 || !has_shape(scales, rows, columns / MX_BLOCK))
        return wrong_tensor(binder, scales, expected, err);
    if (!binder->dry)
        TRY(refuse_nan_scales(scales, err));
    *out = (struct matrix){packed->data, scales->data, rows, columns, DTYPE_MXFP4, false};
    binder->elements += (uint64_t)rows * columns;
    return STATUS_OK;
}

enum status bind_matrix(struct binder *binder, const char *name, uint32_t rows, uint32_t columns, struct matrix *out,
                        struct error *err)
{
    return bind_weights(binder, WEIGHTS_FIXED, name, rows, columns, out, err);
}

static enum status bind_as_stored(struct binder *binder, const char *name, uint32_t rows, uint32_t columns,
                                  struct matrix *out, struct error *err)
{
    const struct tensor *packed = find_suffixed(binder, name, ".weight_packed");
    if (!packed)
        return bind_plain_matrix(binder, name, rows, columns, out, err);
    const struct tensor *plain = find_suffixed(binder, name, ".weight");
    if (plain)
        return error_set(err, STATUS_FORMAT, "%s: tensor %s: expected this or %s, found both", packed->file,
                         packed->name, plain->name);
    return bind_packed(binder, name, packed, rows, columns, out, err);
}

/* Whether a matrix comes into panels in the type that it is stored in. */
static bool packs_stored(enum packing packing, const struct matrix *m)
{
    if (m->dtype == DTYPE_BF16)
        return packing == PACK_BF16 && m->columns % MX_BLOCK == 0;
    return packing >= PACK_STORED && dtype_has_scales(m->dtype);
}

enum status bind_weights(struct binder *binder, enum weight_class weights, const char *name, uint32_t rows,
                         uint32_t columns, struct matrix *out, struct error *err)
{
    if (binder->see)
        return see_matrix(binder, name, WANTED_MATRIX, weights, rows, columns, out, err);
    TRY(bind_as_stored(binder, name, rows, columns, out, err));
    enum dtype type = weights == WEIGHTS_DENSE     ? binder->types.dense
                      : weights == WEIGHTS_EXPERTS ? binder->types.experts
                                                   : DTYPE_AS_STORED;
    bool scaled = dtype_has_scales(out->dtype);
    bool converts = type != DTYPE_AS_STORED && !scaled && columns % MX_BLOCK == 0;
    bool packs = weights != WEIGHTS_FIXED && !converts && packs_stored(binder->packing, out);
    if (!binder->conversion || !(converts || packs))
        return STATUS_OK;
    *out = (struct matrix){.rows = rows, .columns = columns, .dtype = converts ? type : out->dtype};
    out->panels = binder->packing != PACK_NOTHING && out->dtype != DTYPE_MXFP8;
    return conversion_add(binder->conversion, find_suffixed(binder, name, scaled ? ".weight_packed" : ".weight"),
                          scaled ? find_suffixed(binder, name, ".weight_scale") : NULL, out,
                          weights == WEIGHTS_EXPERTS ? binder->n_prefixes : 0, err);
}
