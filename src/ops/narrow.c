#include "ops/narrow.h"

#include "base/check.h"

const char *const act_names[ACT_COUNT] = {
    [ACT_EXACT] = "exact", [ACT_INT8] = "int8", [ACT_INT16] = "int16", [ACT_F16] = "f16"};

struct narrow_args {
    struct buffer from, to;
    uint32_t columns, per_row;
    enum form form;
};

const char *act_tier(enum act act)
{
    return act == ACT_F16 ? "avx512fp16" : "ref";
}

struct inputs inputs_of(enum act act, struct buffer buffer, uint32_t rows, uint32_t per_row)
{
    return (struct inputs){
        .act = act, .rows = rows, .per_row = per_row, .forms = {[FORM_F32] = buffer}, .has = {[FORM_F32] = true}};
}

enum form inputs_form(const struct inputs *inputs, const struct matrix *w)
{
    if ((w->dtype == DTYPE_MXFP4 || w->dtype == DTYPE_INT8) && inputs->act != ACT_EXACT)
        return FORM_INT8;
    if (w->dtype == DTYPE_BF16 && inputs->act == ACT_INT16)
        return FORM_INT16;
    return w->dtype == DTYPE_BF16 && inputs->act == ACT_F16 ? FORM_F16 : FORM_F32;
}

void inputs_product(const struct plan_context *context, const struct inputs *inputs, enum form form, float *const *y,
                    const uint32_t *rows, const struct matrix *w, uint32_t n)
{
    const void *x[LINEAR_ROWS];
    CHECK(n <= LINEAR_ROWS && (!w->panels || form == FORM_INT8 || form == FORM_INT16));
    for (uint32_t i = 0; i < n; i++)
        x[i] = buffer_row(context, inputs->forms[form], rows[i]);
    kernels_product(context->kernels, form, y, x, w, n);
}

static void run_narrow(const struct plan_context *context, const void *args, uint32_t row)
{
    const struct narrow_args *a = args;
    narrow_int8_fn *narrow = kernels_narrow(context->kernels, a->form);
    for (uint32_t i = row * a->per_row; i < (row + 1) * a->per_row; i++)
        narrow(buffer_row(context, a->to, i), buffer_row(context, a->from, i), a->columns);
}

void op_narrow(struct plan *plan, const char *stream, struct inputs *inputs, const struct matrix *w)
{
    enum form form = inputs_form(inputs, w);
    struct buffer from = inputs->forms[FORM_F32];
    uint32_t writer = plan_writer(plan, from);
    if (form == FORM_F32 ||
        (inputs->has[form] && inputs->writers[form] == writer && inputs->columns[form] == w->columns))
        return;
    CHECK(w->columns <= from.stride);
    if (!inputs->has[form])
        inputs->forms[form] = plan_buffer(plan, inputs->rows, (uint32_t)(narrow_stride(form, from.stride) / 4));
    inputs->has[form] = true;
    inputs->writers[form] = writer;
    inputs->columns[form] = w->columns;
    struct narrow_args *a = plan_args(plan, sizeof *a);
    *a = (struct narrow_args){from, inputs->forms[form], w->columns, inputs->per_row, form};
    plan_add(
        plan,
        (struct plan_node){.label = "narrow", .stream = stream, .run = run_narrow, .tiles = step_tiles_rows, .args = a},
        buffer_bit(from), buffer_bit(a->to));
}
