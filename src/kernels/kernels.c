#include "kernels/kernels.h"

#include "base/check.h"
#include "cpu/tiers.h"

#define TIER_avx2 TIER_AVX2
#define TIER_avx512 TIER_AVX512
#define TIER_avx512fp16 TIER_AVX512FP16
#define TIER_neon TIER_NEON

#define TAKE(name, tier)                                                                                               \
    if (tiers & 1u << TIER_##tier)                                                                                     \
        kernels->name = name##_##tier;

void kernels_select(struct kernels *kernels, unsigned tiers)
{
    kernels->tiers = tiers;
#define KERNEL(name, result, parameters) kernels->name = name##_ref;
#if defined(__x86_64__)
#define X86(name, tier) TAKE(name, tier)
#define ARM(name, tier)
#elif defined(__aarch64__)
#define X86(name, tier)
#define ARM(name, tier) TAKE(name, tier)
#else
#define X86(name, tier)
#define ARM(name, tier)
#endif
#include "kernels/all.def"
#undef KERNEL
#undef X86
#undef ARM
}

linear_f32_fn *kernels_linear(const struct kernels *kernels, enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        return kernels->linear_f32;
    case DTYPE_BF16:
        return kernels->linear_bf16;
    case DTYPE_F16:
        return kernels->linear_f16;
    case DTYPE_MXFP4:
        return kernels->linear_mxfp4;
    case DTYPE_MXFP8:
        return kernels->linear_mxfp8;
    case DTYPE_INT8:
        return kernels->linear_int8;
    default:
        break;
    }
    CHECK(!"a weight type with a linear kernel");
    return NULL;
}

linear_t_f32_fn *kernels_linear_t(const struct kernels *kernels, enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        return kernels->linear_t_f32;
    case DTYPE_BF16:
        return kernels->linear_t_bf16;
    case DTYPE_F16:
        return kernels->linear_t_f16;
    default:
        break;
    }
    CHECK(!"a weight type with a transposed linear kernel");
    return NULL;
}

narrow_int8_fn *kernels_narrow(const struct kernels *kernels, enum form form)
{
    CHECK(form != FORM_F32);
    return form == FORM_INT8 ? kernels->narrow_int8 : form == FORM_INT16 ? kernels->narrow_int16 : kernels->narrow_f16;
}

void kernels_product(const struct kernels *kernels, enum form form, float *const *y, const void *const *x,
                     const struct matrix *w, size_t n_tokens)
{
    if (form == FORM_F32)
        kernels_linear(kernels, w->dtype)(y, (const float *const *)x, w, n_tokens);
    else if (form == FORM_INT8)
        (w->dtype == DTYPE_MXFP4 ? kernels->linear_mxfp4_int8 : kernels->linear_int8_int8)(y, x, w, n_tokens);
    else if (form == FORM_INT16)
        kernels->linear_bf16_int16(y, x, w, n_tokens);
    else
        kernels->linear_bf16_f16(y, x, w, n_tokens);
}
