/* The precision policy: in which form activations meet weights, and the nodes that bring them into it.
 *
 *     exact   float32 throughout
 *     int8    MXFP4 and INT8 weights meet INT8 activations with a scale per 32; all else in float32
 *     int16   as int8, and BF16 weights meet 16-bit integers with a unit per 128
 *     f16     as int8, and BF16 weights meet halves in FP16 arithmetic
 *
 * In every policy these stay exact: the router, the indexer, the absorbed projections of MLA, the output head; and
 * whatever is no product with a weight matrix. The arithmetic is that of kernels/narrow.def. */
#ifndef DAY0_OPS_NARROW_H
#define DAY0_OPS_NARROW_H

#include "ops/step.h"
#include "tensor/narrow.h"

enum act { ACT_EXACT, ACT_INT8, ACT_INT16, ACT_F16, ACT_COUNT };

/* The fastest that stays within 1e-3 of mean KL divergence and 0.1 % of NLL on the bundled model (docs/EVAL.md). It is
 * a matter of the architecture, not of the tier, so that answers do not depend on the machine: AArch64 has no bodies
 * for INT8 yet. */
#ifdef __x86_64__
#define ACT_DEFAULT ACT_INT16
#else
#define ACT_DEFAULT ACT_EXACT
#endif

enum { LINEAR_ROWS = 128 }; /* rows a kernel call takes at most */

/* "exact", "int8", "int16", "f16". */
extern const char *const act_names[ACT_COUNT];

static inline const char *act_name(enum act act)
{
    return act_names[act];
}

/* The tier that a policy needs (cpu/tiers.h), as a name. Slower tiers compute the same bits, but not faster than
 * exact. */
const char *act_tier(enum act act);

/* What linear layers read: a buffer, and its narrowed forms as far as its readers want them. */
struct inputs {
    enum act act;
    uint32_t rows, per_row;          /* rows of the buffer: per_row for each row of the step */
    struct buffer forms[FORM_COUNT]; /* FORM_F32 is the buffer itself; the others are made when first wanted */
    bool has[FORM_COUNT];
    uint32_t writers[FORM_COUNT]; /* the node whose output each form was made of */
    uint32_t columns[FORM_COUNT]; /* and how much of its rows */
};

struct inputs inputs_of(enum act act, struct buffer buffer, uint32_t rows, uint32_t per_row);

/* The form in which the policy wants them for a matrix. */
enum form inputs_form(const struct inputs *inputs, const struct matrix *w);

/* y[i] = W x for rows[i] of the inputs, i < n; n at most LINEAR_ROWS. */
void inputs_product(const struct plan_context *context, const struct inputs *inputs, enum form form, float *const *y,
                    const uint32_t *rows, const struct matrix *w, uint32_t n);

/* Adds the node that makes the form for a matrix, unless what is in the buffer has it already. */
void op_narrow(struct plan *plan, const char *stream, struct inputs *inputs, const struct matrix *w);

#endif
