#include "weights/conversion.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <xxhash.h>

#include "base/check.h"

enum {
    PART_ALIGNMENT = 64,
    PIECE = 2048, /* elements that are widened at a time; a multiple of MX_BLOCK */
    PAGE = 4096,
};

static uint64_t align(uint64_t bytes, uint64_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

static uint64_t part_bytes(const struct matrix *m)
{
    return align(m->rows * matrix_row_bytes(m), PART_ALIGNMENT) +
           align(m->rows * matrix_scale_bytes(m), PART_ALIGNMENT);
}

enum status conversion_add(struct conversion *c, const struct tensor *from, struct matrix *to, uint32_t expert,
                           struct error *err)
{
    bool joins = expert > 0 && c->n_records > 0 && c->records[c->n_records - 1].expert == expert;
    CHECK(dtype_has_scales(to->dtype) && to->columns % MX_BLOCK == 0);
    if (!joins && c->n_records == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 64;
        struct conversion_record *larger = realloc(c->records, capacity * sizeof *larger);
        if (!larger)
            return error_set(err, STATUS_MEMORY, "cannot allocate the list of %zu weights to convert", capacity);
        c->records = larger;
        c->capacity = capacity;
    }
    if (!joins)
        c->records[c->n_records++] = (struct conversion_record){.expert = expert, .offset = c->bytes};
    struct conversion_record *record = &c->records[c->n_records - 1];
    CHECK(record->n_parts < CONVERSION_PARTS_MAX);
    record->parts[record->n_parts++] = (struct conversion_part){from, *to, to};
    record->bytes += part_bytes(to);
    c->bytes = align(record->offset + record->bytes, CONVERSION_ALIGNMENT);
    c->source_bytes += from->bytes;
    return STATUS_OK;
}

struct conversion_totals conversion_totals(const struct conversion *conversion, bool experts)
{
    struct conversion_totals totals = {0};
    for (size_t r = 0; r < conversion->n_records; r++) {
        const struct conversion_record *record = &conversion->records[r];
        if ((record->expert > 0) != experts)
            continue;
        totals.bytes += record->bytes;
        for (uint32_t p = 0; p < record->n_parts; p++)
            totals.source_bytes += record->parts[p].from->bytes;
    }
    return totals;
}

void conversion_fini(struct conversion *conversion)
{
    free(conversion->records);
    *conversion = (struct conversion){0};
}

/* Where the codes and scales of a record's parts lie; `at` goes to the next part. */
static struct matrix view_at(const struct matrix *m, const char **at)
{
    struct matrix view = *m;
    view.data = *at;
    view.scales = (const uint8_t *)*at + align(m->rows * matrix_row_bytes(m), PART_ALIGNMENT);
    *at += part_bytes(m);
    return view;
}

void conversion_place(const struct conversion *conversion, const char *memory)
{
    for (size_t r = 0; r < conversion->n_records; r++) {
        const struct conversion_record *record = &conversion->records[r];
        const char *at = memory + record->offset;
        for (uint32_t p = 0; p < record->n_parts; p++)
            *record->parts[p].to = view_at(&record->parts[p].shape, &at);
    }
}

void conversion_identity(const struct conversion *conversion, uint64_t identity[2])
{
    XXH128_hash_t hash = {CONVERSION_VERSION, 0};
    for (size_t r = 0; r < conversion->n_records; r++)
        for (uint32_t p = 0; p < conversion->records[r].n_parts; p++) {
            const struct conversion_part *part = &conversion->records[r].parts[p];
            const uint64_t shape[] = {p, part->from->stored, part->shape.dtype, part->shape.rows, part->shape.columns};
            hash = XXH3_128bits_withSeed(part->from->name, strlen(part->from->name), hash.low64 ^ hash.high64);
            hash = XXH3_128bits_withSeed(shape, sizeof shape, hash.low64 ^ hash.high64);
        }
    identity[0] = hash.low64;
    identity[1] = hash.high64;
}

/* ---- the work ---- */

struct job {
    const struct conversion *conversion;
    char *memory;
    const struct kernels *kernels;
    const struct watch *watch;
    conversion_done_fn *done;
    void *done_context;
    _Atomic size_t next;      /* record */
    _Atomic uint64_t n_bytes; /* of the sources, converted */
    _Atomic bool stopped;
    _Atomic(const struct tensor *) not_finite;
};

/* n elements from element `first` on as floats, n a multiple of MX_BLOCK; false if one is not finite. */
static bool widen(float *out, const struct tensor *from, size_t first, size_t n)
{
    const uint16_t *halves = (const uint16_t *)from->data + first;
    uint32_t largest = 0;
    if (from->stored == STORED_F32)
        memcpy(out, (const float *)from->data + first, n * sizeof *out);
    for (size_t i = 0; i < n && from->stored != STORED_F32; i++)
        out[i] = from->stored == STORED_BF16 ? f32_from_bf16(halves[i]) : f32_from_f16(halves[i]);
    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = f32_bits(out[i]) & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest < 0x7f800000;
}

static bool convert_row(const struct job *job, const struct tensor *from, const struct matrix *to, uint32_t row)
{
    _Alignas(64) float x[PIECE];
    uint8_t *codes = (uint8_t *)to->data + row * matrix_row_bytes(to);
    uint8_t *scales = (uint8_t *)to->scales + row * matrix_scale_bytes(to);
    for (size_t at = 0; at < to->columns; at += PIECE) {
        size_t n = to->columns - at < PIECE ? to->columns - at : PIECE, block = at / MX_BLOCK;
        if (!widen(x, from, (size_t)row * to->columns + at, n))
            return false;
        if (to->dtype == DTYPE_MXFP4)
            job->kernels->quantize_mxfp4(codes + at / 2, scales + block, x, n, MX_CLOSER);
        else if (to->dtype == DTYPE_MXFP8)
            job->kernels->quantize_mxfp8(codes + at, scales + block, x, n, MX_FLOOR);
        else
            job->kernels->quantize_int8((int8_t *)codes + at, (uint16_t *)(void *)scales + block, x, n);
    }
    return true;
}

/* The source's pages are not needed again: they must not crowd out what is made of them. */
static void release(const struct tensor *from)
{
    const char *start = from->data;
    size_t before = (PAGE - (uintptr_t)start % PAGE) % PAGE, whole = from->bytes < before ? 0 : from->bytes - before;
    if (whole >= PAGE)
        (void)madvise((void *)(start + before), whole / PAGE * PAGE, MADV_DONTNEED);
}

static bool convert_record(struct job *job, const struct conversion_record *record, bool reports)
{
    const char *at = job->memory + record->offset;
    memset(job->memory + record->offset, 0, record->bytes); /* what is between the parts too has a checksum */
    for (uint32_t p = 0; p < record->n_parts; p++) {
        const struct tensor *from = record->parts[p].from;
        struct matrix to = view_at(&record->parts[p].shape, &at);
        for (uint32_t row = 0; row < to.rows; row++) {
            if (!convert_row(job, from, &to, row)) {
                job->not_finite = from;
                return false;
            }
            uint64_t n = atomic_fetch_add(&job->n_bytes, from->bytes / to.rows);
            if (reports && row % 64 == 0 &&
                watch_progress(job->watch, "converting weights", n, job->conversion->source_bytes))
                return false;
        }
        release(from);
    }
    return true;
}

static void work(void *context, unsigned worker)
{
    struct job *job = context;
    const struct conversion *c = job->conversion;
    for (size_t r; !job->stopped && (r = atomic_fetch_add(&job->next, 1)) < c->n_records;) {
        if (!convert_record(job, &c->records[r], worker == 0))
            job->stopped = true;
        else if (job->done)
            job->done(job->done_context, r, job->memory + c->records[r].offset);
    }
}

enum status conversion_run(const struct conversion *conversion, char *memory, const struct kernels *kernels,
                           struct team *team, const struct watch *watch, conversion_done_fn *done, void *done_context,
                           struct error *err)
{
    struct job job = {
        .conversion = conversion, .kernels = kernels, .watch = watch, .done = done, .done_context = done_context};
    job.memory = memory;
    team_run(team, work, &job);
    const struct tensor *bad = job.not_finite;
    if (bad)
        return error_set(err, STATUS_FORMAT,
                         "%s: tensor %s: expected finite numbers, as narrower types have no others, found a NaN or an "
                         "infinity; run it as stored",
                         bad->file, bad->name);
    uint64_t total = conversion->source_bytes;
    if (job.stopped || watch_progress(watch, "converting weights", total, total))
        return error_set(err, STATUS_INTERRUPTED, "converting the weights was stopped");
    return STATUS_OK;
}
