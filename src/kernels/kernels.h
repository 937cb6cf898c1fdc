/* The kernel table: one typed pointer a kernel, made from the lists in all.def. Selected once at open and passed
 * down. */
#ifndef DAY0_KERNELS_KERNELS_H
#define DAY0_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/matrix.h"
#include "tensor/narrow.h"

/* Of a row that is masked: its weight is 0 beside any that is not. */
#define ATTEND_MASKED (-0x1p100f)

/* Function types and prototypes of every body. */
#define KERNEL(name, result, parameters)                                                                               \
    typedef result name##_fn parameters;                                                                               \
    name##_fn name##_ref;
#define X86(name, tier) name##_fn name##_##tier;
#define ARM(name, tier) name##_fn name##_##tier;
#include "kernels/all.def"
#undef KERNEL
#undef X86
#undef ARM

struct kernels {
#define KERNEL(name, result, parameters) name##_fn *name;
#define X86(name, tier)
#define ARM(name, tier)
#include "kernels/all.def"
#undef KERNEL
#undef X86
#undef ARM
    unsigned tiers; /* the mask it was selected for */
};

/* Every reference, then each body whose tier is in the mask (cpu/tiers.h), the strongest last. */
void kernels_select(struct kernels *kernels, unsigned tiers);

/* The linear kernels by weight type. */
linear_f32_fn *kernels_linear(const struct kernels *kernels, enum dtype dtype);
linear_t_f32_fn *kernels_linear_t(const struct kernels *kernels, enum dtype dtype);

/* What brings a row into a form other than FORM_F32. */
narrow_int8_fn *kernels_narrow(const struct kernels *kernels, enum form form);

/* y = W x for rows x of a form that has a kernel for W's type: any type of FORM_F32, MXFP4 and INT8 of FORM_INT8,
 * BF16 of FORM_INT16 and FORM_F16. */
void kernels_product(const struct kernels *kernels, enum form form, float *const *y, const void *const *x,
                     const struct matrix *w, size_t n_tokens);

#endif
