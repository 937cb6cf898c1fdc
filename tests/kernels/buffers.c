/* Buffers of a case: where they lie, what surrounds them, and what is compared. */
#include "buffers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

enum { PAGE = 65536, CANARY = 256, POISON = 0xa5, MARK = 0x5c };

static void map_at_least(struct buffer *b, size_t capacity)
{
    if (capacity <= b->capacity)
        return;
    if (b->map)
        CHECK(munmap(b->map, b->capacity + 2 * PAGE) == 0);
    b->capacity = (capacity + PAGE - 1) / PAGE * PAGE;
    b->map = mmap(NULL, b->capacity + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(b->map != MAP_FAILED);
    CHECK(mprotect(b->map, PAGE, PROT_NONE) == 0);
    CHECK(mprotect(b->map + PAGE + b->capacity, PAGE, PROT_NONE) == 0);
}

/* The bytes beside the data, inside the mapping: at most CANARY on either side. */
static void canaries(const struct buffer *b, char **before, size_t *n_before, char **after, size_t *n_after)
{
    char *start = b->map + PAGE, *end = start + b->capacity, *stop = b->data + b->bytes;
    *n_before = (size_t)(b->data - start) < CANARY ? (size_t)(b->data - start) : CANARY;
    *before = b->data - *n_before;
    *n_after = (size_t)(end - stop) < CANARY ? (size_t)(end - stop) : CANARY;
    *after = stop;
}

void *buffer_take(struct check *c, enum role role, size_t n, size_t element_bytes, bool is_float)
{
    CHECK(c->n_buffers < BUFFERS_MAX);
    struct buffer *b = &c->buffers[c->n_buffers++];
    b->bytes = n * element_bytes;
    b->element_bytes = element_bytes;
    b->is_float = is_float;
    b->role = role;
    map_at_least(b, b->bytes + 2 * CANARY + 64);
    char *start = b->map + PAGE;
    switch (c->placement) {
    case PLACE_END:
        b->data = start + b->capacity - b->bytes;
        break;
    case PLACE_FRONT:
        b->data = start;
        break;
    case PLACE_ODD:
        b->data = start + CANARY + element_bytes;
        break;
    case PLACE_BENCH:
        b->data = start + CANARY;
        break;
    }
    char *before, *after;
    size_t n_before, n_after;
    canaries(b, &before, &n_before, &after, &n_after);
    memset(before, MARK, n_before);
    memset(after, MARK, n_after);
    if (c->placement != PLACE_BENCH && b->copy_bytes < b->bytes) {
        b->copy_bytes = b->bytes;
        b->initial = realloc(b->initial, b->bytes);
        b->expected = realloc(b->expected, b->bytes);
        CHECK(b->initial && b->expected);
    }
    return b->data;
}

void buffers_prepare(struct check *c, bool first)
{
    for (size_t i = 0; i < c->n_buffers; i++) {
        struct buffer *b = &c->buffers[i];
        if (b->bytes == 0)
            continue;
        if (first && (b->role == INPUT || b->role == UPDATED))
            memcpy(b->initial, b->data, b->bytes);
        else if (b->role == UPDATED)
            memcpy(b->data, b->initial, b->bytes);
        if (b->role == OUTPUT || b->role == SCRATCH)
            memset(b->data, POISON, b->bytes);
    }
}

static bool all_marked(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != MARK)
            return false;
    return true;
}

/* The first element that differs, or the element count. Floats: any NaN equals any NaN. */
static size_t first_difference(const struct buffer *b, const char *want)
{
    size_t n = b->bytes / b->element_bytes;
    if (memcmp(b->data, want, b->bytes) == 0)
        return n;
    for (size_t i = 0; i < n; i++) {
        const char *x = b->data + i * b->element_bytes, *y = want + i * b->element_bytes;
        if (memcmp(x, y, b->element_bytes) == 0)
            continue;
        if (b->is_float && isnan(*(const float *)(const void *)x) && isnan(*(const float *)(const void *)y))
            continue;
        return i;
    }
    return n;
}

static void report_difference(struct check *c, size_t number, const struct buffer *b, size_t at, const char *want)
{
    const char *got = b->data + at * b->element_bytes;
    want += at * b->element_bytes;
    if (b->is_float) {
        float x, y;
        memcpy(&x, got, sizeof x);
        memcpy(&y, want, sizeof y);
        fail(c, "buffer %zu element %zu is %a (%.9g), not %a (%.9g)", number, at, (double)x, (double)x, (double)y,
             (double)y);
        return;
    }
    char hex[40] = "";
    for (size_t i = 0; i < b->element_bytes; i++)
        sprintf(hex + 2 * i, "%02x", (uint8_t)got[i]);
    sprintf(hex + strlen(hex), " not ");
    for (size_t i = 0; i < b->element_bytes; i++)
        sprintf(hex + strlen(hex), "%02x", (uint8_t)want[i]);
    fail(c, "buffer %zu element %zu is %s (bytes)", number, at, hex);
}

void buffers_verify(struct check *c, bool is_reference)
{
    for (size_t i = 0; i < c->n_buffers; i++) {
        struct buffer *b = &c->buffers[i];
        char *before, *after;
        size_t n_before, n_after;
        canaries(b, &before, &n_before, &after, &n_after);
        if (!all_marked(before, n_before) || !all_marked(after, n_after)) {
            fail(c, "writes %s buffer %zu", all_marked(after, n_after) ? "before" : "past", i);
            memset(before, MARK, n_before);
            memset(after, MARK, n_after);
        }
        if (b->bytes == 0 || b->role == SCRATCH)
            continue;
        if (is_reference && b->role != INPUT) {
            memcpy(b->expected, b->data, b->bytes);
            continue;
        }
        const char *want = b->role == INPUT ? b->initial : b->expected;
        size_t at = first_difference(b, want);
        if (at < b->bytes / b->element_bytes)
            report_difference(c, i, b, at, want);
    }
}

const float *reference(const struct check *c, const float *data)
{
    for (size_t i = 0; i < c->n_buffers; i++)
        if (c->buffers[i].data == (const char *)data)
            return (const float *)(const void *)c->buffers[i].expected;
    CHECK(!"a buffer of this case");
    return NULL;
}

float *floats(struct check *c, enum role role, size_t n)
{
    return buffer_take(c, role, n, 4, true);
}

uint16_t *shorts(struct check *c, enum role role, size_t n)
{
    return buffer_take(c, role, n, 2, false);
}

uint8_t *bytes(struct check *c, enum role role, size_t n)
{
    return buffer_take(c, role, n, 1, false);
}

uint64_t *longs(struct check *c, enum role role, size_t n)
{
    return buffer_take(c, role, n, 8, false);
}

float normal(struct check *c)
{
    /* Sum of uniforms: light tails, enough for data. */
    double sum = 0.0;
    for (int i = 0; i < 4; i++)
        sum += rng_uniform(&c->rng) - 0.5;
    return (float)(sum * 1.7320508);
}

enum { SPECIAL_CLASSES = 6 };

/* A special value of the case's class, or x. */
static float maybe_special(struct check *c, float x, bool finite)
{
    static const float values[] = {0.0f,      -0.0f,      0x1p-149f, -0x1.8p-130f, 0x1p-126f, 0x1.fffffep127f,
                                   -0x1p127f, 0x1.8p100f, INFINITY,  -INFINITY,    NAN,       -NAN};
    static const struct {
        unsigned first, count;
    } classes[SPECIAL_CLASSES] = {{0, 2}, {2, 3}, {5, 3}, {8, 2}, {10, 2}, {0, 12}};
    if (!c->specials || rng_below(&c->rng, 8))
        return x;
    unsigned first = classes[c->special_class].first, count = classes[c->special_class].count;
    float value = values[first + rng_below(&c->rng, count)];
    return finite && !isfinite(value) ? x : value;
}

void fill_normal(struct check *c, float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = maybe_special(c, normal(c) * scale, false);
}

void fill_finite(struct check *c, float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = maybe_special(c, normal(c) * scale, true);
}

void fill_uniform(struct check *c, float *x, size_t n, float low, float high)
{
    for (size_t i = 0; i < n; i++)
        x[i] = low + (high - low) * (float)rng_uniform(&c->rng);
}

void fill_bytes(struct check *c, uint8_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (uint8_t)rng_next(&c->rng);
}

/* The half of a float within its normal range; round down is good enough for data. */
static uint16_t half_pattern(float x)
{
    uint32_t bits = f32_bits(x);
    int exponent = (int)(bits >> 23 & 255) - 112;
    if (exponent < 1 || exponent > 30)
        return (uint16_t)(bits >> 16 & 0x8000);
    return (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ff));
}

void fill_half(struct check *c, uint16_t *x, size_t n, enum dtype dtype, float scale)
{
    for (size_t i = 0; i < n; i++) {
        float value = normal(c) * scale;
        if (dtype == DTYPE_BF16)
            x[i] = bf16_from_f32(maybe_special(c, value, false));
        else if (c->specials && rng_below(&c->rng, 8) == 0)
            x[i] = (uint16_t)rng_next(&c->rng); /* any pattern: subnormals, infinities, NaN */
        else
            x[i] = half_pattern(value);
    }
}

void specials_draw(struct check *c)
{
    c->special_class = (unsigned)rng_below(&c->rng, SPECIAL_CLASSES);
}
