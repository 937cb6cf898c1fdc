#include "tensor/dtype.h"

static const char *const names[DTYPE_COUNT] = {
    [DTYPE_F32] = "f32",     [DTYPE_BF16] = "bf16", [DTYPE_F16] = "f16",     [DTYPE_MXFP4] = "mxfp4",
    [DTYPE_MXFP8] = "mxfp8", [DTYPE_INT8] = "int8", [DTYPE_INT16] = "int16",
};

const char *dtype_name(enum dtype dtype)
{
    return names[dtype];
}
