/* Linear layers: the products of dots_body.h and mix_body.h on weight matrices. */
#include "kernels/kernels.h"

void BODY(linear_f32)(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    struct rows rows = rows_of(w);
    dots(y, x, &rows, w->rows, w->columns, n_tokens, DTYPE_F32);
}

void BODY(linear_bf16)(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    struct rows rows = rows_of(w);
    dots(y, x, &rows, w->rows, w->columns, n_tokens, DTYPE_BF16);
}

void BODY(linear_f16)(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    struct rows rows = rows_of(w);
    dots(y, x, &rows, w->rows, w->columns, n_tokens, DTYPE_F16);
}

void BODY(linear_mxfp4)(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    struct rows rows = rows_of(w);
    dots(y, x, &rows, w->rows, w->columns, n_tokens, DTYPE_MXFP4);
}

void BODY(linear_mxfp8)(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    struct rows rows = rows_of(w);
    dots(y, x, &rows, w->rows, w->columns, n_tokens, DTYPE_MXFP8);
}

void BODY(linear_int8)(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    struct rows rows = rows_of(w);
    dots(y, x, &rows, w->rows, w->columns, n_tokens, DTYPE_INT8);
}

void BODY(linear_t_f32)(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    struct rows rows = rows_of(w);
    mix(y, x, &rows, w->rows, w->columns, n_tokens, DTYPE_F32);
}

void BODY(linear_t_bf16)(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    struct rows rows = rows_of(w);
    mix(y, x, &rows, w->rows, w->columns, n_tokens, DTYPE_BF16);
}

void BODY(linear_t_f16)(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    struct rows rows = rows_of(w);
    mix(y, x, &rows, w->rows, w->columns, n_tokens, DTYPE_F16);
}
