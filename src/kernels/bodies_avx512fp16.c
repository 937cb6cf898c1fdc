#include <stdbool.h>

#define BODY(name) name##_avx512fp16
#include "kernels/simd_avx512.h"
#include "kernels/simd_avx512_int8.h"
/* The order matters: later texts use functions of earlier ones. */
#include "kernels/rows_body.h"
#include "kernels/int8_body.h"
#include "kernels/half_body.h"
#include "kernels/pairs_body.h"
#include "kernels/int16_body.h"
#include "kernels/bounds_body.h"
