#include "weights/conversion.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <xxhash.h>

#include "base/check.h"
#include "tensor/panels.h"

enum {
    PART_ALIGNMENT = 64,
    PIECE = 2048, /* elements that are widened at a time; a multiple of MX_BLOCK */
    PAGE = 4096,
};

static uint64_t align(uint64_t bytes, uint64_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

static uint64_t codes_bytes(const struct matrix *m)
{
    return align(matrix_stored_rows(m) * matrix_row_bytes(m), PART_ALIGNMENT);
}

static uint64_t part_bytes(const struct matrix *m)
{
    return codes_bytes(m) + align(matrix_stored_rows(m) * matrix_scale_bytes(m), PART_ALIGNMENT);
}

/* Whether it keeps its type and only comes into panels. */
static bool only_packs(const struct conversion_part *part)
{
    return part->scales || part->shape.dtype == DTYPE_BF16;
}

static uint64_t source_bytes(const struct conversion_part *part)
{
    return part->from->bytes + (part->scales ? part->scales->bytes : 0);
}

/* Adds a part to the last record, which grows. */
static void append(struct conversion *c, struct conversion_part part)
{
    struct conversion_record *record = &c->records[c->n_records - 1];
    CHECK(record->n_parts < CONVERSION_PARTS_MAX);
    record->parts[record->n_parts++] = part;
    record->bytes += part_bytes(&part.shape);
    c->bytes = align(record->offset + record->bytes, CONVERSION_ALIGNMENT);
    c->source_bytes += source_bytes(&part);
}

enum status conversion_add(struct conversion *c, const struct tensor *from, const struct tensor *scales,
                           struct matrix *to, uint32_t expert, struct error *err)
{
    bool joins = expert > 0 && c->n_records > 0 && c->records[c->n_records - 1].expert == expert;
    CHECK(to->columns % MX_BLOCK == 0);
    CHECK(dtype_has_scales(to->dtype) || (to->dtype == DTYPE_BF16 && to->panels && from->stored == STORED_BF16));
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
    append(c, (struct conversion_part){from, scales, *to, to});
    return STATUS_OK;
}

struct conversion_totals conversion_totals(const struct conversion *conversion, bool experts)
{
    struct conversion_totals totals = {0};
    for (size_t r = 0; r < conversion->n_records; r++) {
        const struct conversion_record *record = &conversion->records[r];
        if ((record->expert > 0) != experts)
            continue;
        for (uint32_t p = 0; p < record->n_parts; p++) {
            const struct conversion_part *part = &record->parts[p];
            if (only_packs(part))
                continue;
            totals.bytes += part_bytes(&part->shape);
            totals.source_bytes += part->from->bytes;
        }
    }
    return totals;
}

uint64_t conversion_packed_bytes(const struct conversion *c)
{
    uint64_t bytes = 0;
    for (size_t r = 0; r < c->n_records; r++)
        for (uint32_t p = 0; p < c->records[r].n_parts; p++)
            bytes += only_packs(&c->records[r].parts[p]) ? part_bytes(&c->records[r].parts[p].shape) : 0;
    return bytes;
}

void conversion_leave_stored(struct conversion *c)
{
    struct conversion rest = {.records = c->records, .capacity = c->capacity};
    for (size_t r = 0; r < c->n_records; r++) {
        struct conversion_record record = c->records[r];
        bool begun = false;
        for (uint32_t p = 0; p < record.n_parts; p++) {
            const struct conversion_part *part = &record.parts[p];
            if (only_packs(part)) {
                *part->to = (struct matrix){.data = part->from->data,
                                            .scales = part->scales ? part->scales->data : NULL,
                                            .rows = part->shape.rows,
                                            .columns = part->shape.columns,
                                            .dtype = part->shape.dtype};
                continue;
            }
            if (!begun)
                rest.records[rest.n_records++] =
                    (struct conversion_record){.expert = record.expert, .offset = rest.bytes};
            begun = true;
            append(&rest, *part);
        }
    }
    *c = rest;
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
    view.scales = (const uint8_t *)*at + codes_bytes(m);
    *at += part_bytes(m);
    return view;
}

/* ---- sources that are not read again ---- */

struct run {
    const char *start, *end;
};

static int by_start(const void *a, const void *b)
{
    const struct run *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* All sources, in order. Returns how many. */
static size_t list_sources(struct run *runs, const struct conversion *c)
{
    size_t n = 0;
    for (size_t r = 0; r < c->n_records; r++)
        for (uint32_t p = 0; p < c->records[r].n_parts; p++) {
            const struct tensor *const tensors[] = {c->records[r].parts[p].from, c->records[r].parts[p].scales};
            for (int i = 0; i < 2 && tensors[i]; i++) {
                const char *start = tensors[i]->data;
                runs[n++] = (struct run){start, start + tensors[i]->bytes};
            }
        }
    qsort(runs, n, sizeof *runs, by_start);
    return n;
}

/* Where the system maps much around a page that is used, what nobody uses must be a mapping of its own. There may not
 * be many of these: large runs have one. */
static void keep_out(const struct conversion *c)
{
    enum { RUNS_MAX = 1024 };
    struct run *runs = malloc((2 * CONVERSION_PARTS_MAX * c->n_records + 1) * sizeof *runs);
    if (!runs)
        return;
    size_t n = list_sources(runs, c);
    for (size_t i = 0, next; i < n; i = next) {
        struct run run = runs[i];
        for (next = i + 1; next < n && runs[next].start - run.end <= PAGE; next++)
            run.end = runs[next].end;
        run.start += (PAGE - (uintptr_t)run.start % PAGE) % PAGE;
        run.end -= (uintptr_t)run.end % PAGE;
        if (run.end <= run.start || (uint64_t)(run.end - run.start) < c->source_bytes / RUNS_MAX)
            continue;
        (void)madvise((void *)run.start, (size_t)(run.end - run.start), MADV_RANDOM);
        (void)madvise((void *)run.start, (size_t)(run.end - run.start), MADV_DONTNEED);
    }
    free(runs);
}

void conversion_place(const struct conversion *conversion, const char *memory)
{
    for (size_t r = 0; r < conversion->n_records; r++) {
        const struct conversion_record *record = &conversion->records[r];
        const char *at = memory + record->offset;
        for (uint32_t p = 0; p < record->n_parts; p++)
            *record->parts[p].to = view_at(&record->parts[p].shape, &at);
    }
    keep_out(conversion);
}

void conversion_identity(const struct conversion *conversion, uint64_t identity[2])
{
    XXH128_hash_t hash = {CONVERSION_VERSION, 0};
    for (size_t r = 0; r < conversion->n_records; r++)
        for (uint32_t p = 0; p < conversion->records[r].n_parts; p++) {
            const struct conversion_part *part = &conversion->records[r].parts[p];
            const uint64_t shape[] = {
                p, part->from->stored, part->shape.dtype, part->shape.rows, part->shape.columns, part->shape.panels};
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

static void quantize(const struct kernels *kernels, enum dtype dtype, void *codes, void *scales, const float *x,
                     size_t n)
{
    if (dtype == DTYPE_MXFP4)
        kernels->quantize_mxfp4(codes, scales, x, n, MX_CLOSER);
    else if (dtype == DTYPE_MXFP8)
        kernels->quantize_mxfp8(codes, scales, x, n, MX_FLOOR);
    else
        kernels->quantize_int8(codes, scales, x, n);
}

static bool convert_row(const struct job *job, const struct tensor *from, const struct matrix *to, uint32_t row)
{
    _Alignas(64) float x[PIECE];
    uint8_t piece_codes[PIECE], *row_codes = (uint8_t *)to->data + row * matrix_row_bytes(to);
    uint16_t piece_scales[PIECE / MX_BLOCK];
    uint8_t *row_scales = (uint8_t *)to->scales + row * matrix_scale_bytes(to);
    for (size_t at = 0; at < to->columns; at += PIECE) {
        size_t n = to->columns - at < PIECE ? to->columns - at : PIECE, block = at / MX_BLOCK;
        if (!widen(x, from, (size_t)row * to->columns + at, n))
            return false;
        if (to->panels) {
            quantize(job->kernels, to->dtype, piece_codes, piece_scales, x, n);
            panels_put(to, row, block, n / MX_BLOCK, piece_codes, piece_scales);
        } else {
            quantize(job->kernels, to->dtype, row_codes + (to->dtype == DTYPE_MXFP4 ? at / 2 : at),
                     row_scales + block * (to->dtype == DTYPE_INT8 ? 2 : 1), x, n);
        }
    }
    return true;
}

static void pack_row(const struct conversion_part *part, const struct matrix *to, uint32_t row)
{
    if (to->dtype == DTYPE_BF16) {
        panels_put_bf16(to, row, (const uint16_t *)part->from->data + (size_t)row * to->columns);
        return;
    }
    panels_put(to, row, 0, to->columns / MX_BLOCK, (const uint8_t *)part->from->data + row * matrix_row_bytes(to),
               (const uint8_t *)part->scales->data + row * matrix_scale_bytes(to));
}

/* The source's pages are not needed again: they must not crowd out what is made of them. Those that it shares with a
 * neighbour come back from the file. */
static void release_tensor(const struct tensor *tensor)
{
    size_t before = (uintptr_t)tensor->data % PAGE;
    (void)madvise((char *)tensor->data - before, align(before + tensor->bytes, PAGE), MADV_DONTNEED);
}

static void release(const struct conversion_record *record)
{
    for (uint32_t p = 0; p < record->n_parts; p++) {
        release_tensor(record->parts[p].from);
        if (record->parts[p].scales)
            release_tensor(record->parts[p].scales);
    }
}

static bool convert_record(struct job *job, const struct conversion_record *record, bool reports)
{
    const char *at = job->memory + record->offset;
    memset(job->memory + record->offset, 0, record->bytes); /* what is between the parts too has a checksum */
    for (uint32_t p = 0; p < record->n_parts; p++) {
        const struct conversion_part *part = &record->parts[p];
        struct matrix to = view_at(&part->shape, &at);
        for (uint32_t row = 0; row < to.rows; row++) {
            if (only_packs(part)) {
                pack_row(part, &to, row);
            } else if (!convert_row(job, part->from, &to, row)) {
                job->not_finite = part->from;
                return false;
            }
            uint64_t n = atomic_fetch_add(&job->n_bytes, source_bytes(part) / to.rows);
            if (reports && row % 64 == 0 &&
                watch_progress(job->watch, "converting weights", n, job->conversion->source_bytes))
                return false;
        }
    }
    release(record);
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
