/* Sessions as bytes: snapshots in memory and files on disk.
 *
 *     header (struct file_header, little-endian)
 *     payload: the caller's note, tokens [n_tokens] int32, logits [vocabulary] float32 if has_logits, state (state/snapshot.h);
 *              in a file it is one zstd frame, in memory it stands as it is
 *
 * The checksum covers the header (its own field zero) and the payload as stored. Everything is checked before the session is
 * touched: magic, version, sizes, checksum, checkpoint, token ids. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>
#include <zstd.h>

#include "base/check.h"
#include "base/file.h"
#include "engine/engine.h"
#include "state/snapshot.h"

enum { SESSION_VERSION = 1, IO_BYTES = 1 << 17, COMPRESSION_LEVEL = 1 };

static const char magic[8] = {'d', 'a', 'y', '0', 's', 'e', 's', 's'};

struct file_header {
    char magic[8];
    uint32_t version, n_tokens, length, has_logits;
    uint64_t identity[2];
    char numerics[128];
    uint64_t note_bytes;
    uint64_t payload_bytes; /* before compression */
    uint64_t stored_bytes;
    uint64_t checksum[2];
};

static uint64_t payload_bytes(const struct file_header *h, const day0_engine *engine)
{
    return h->note_bytes + h->n_tokens * sizeof(int32_t) + (h->has_logits ? engine->model->config.vocab_size * sizeof(float) : 0) +
           snapshot_bytes(&engine->model->layout, h->length);
}

static struct file_header header_of(const day0_session *s)
{
    struct file_header h = {.version = SESSION_VERSION,
                            .n_tokens = s->n_tokens,
                            .length = s->sequence.length,
                            .has_logits = s->has_logits,
                            .note_bytes = s->note_bytes,
                            .identity = {s->engine->identity[0], s->engine->identity[1]}};
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.numerics, s->engine->numerics, sizeof h.numerics);
    h.payload_bytes = payload_bytes(&h, s->engine);
    return h;
}

/* Hands the payload of a session to `take`, part by part. */
static enum status write_payload(const day0_session *s, snapshot_part_fn *take, void *context, struct error *err)
{
    TRY(take(context, s->note, s->note_bytes, err));
    TRY(take(context, s->tokens, s->n_tokens * sizeof *s->tokens, err));
    if (s->has_logits)
        TRY(take(context, s->logits, s->engine->model->config.vocab_size * sizeof *s->logits, err));
    return snapshot_write(&s->sequence, take, context, err);
}

/* ---- what is checked before a session is touched ---- */

static enum status check_header(const struct file_header *h, uint64_t bytes, const char *name, struct error *err)
{
    if (bytes < sizeof *h || memcmp(h->magic, magic, sizeof magic) != 0)
        return error_set(err, STATUS_FORMAT, "%s: this is no session of day0", name);
    if (h->version != SESSION_VERSION)
        return error_set(err, STATUS_UNSUPPORTED, "%s: a session of format %u, this day0 reads format %d", name, h->version,
                         SESSION_VERSION);
    if (h->stored_bytes != bytes - sizeof *h)
        return error_set(err, STATUS_FORMAT, "%s: the session is damaged: %llu bytes of content were stored, %llu are there",
                         name, (unsigned long long)h->stored_bytes, (unsigned long long)(bytes - sizeof *h));
    return STATUS_OK;
}

static XXH128_hash_t header_hash(const struct file_header *h)
{
    struct file_header blank = *h;
    memset(blank.checksum, 0, sizeof blank.checksum);
    return XXH3_128bits(&blank, sizeof blank);
}

static enum status check_fit(const struct file_header *h, const day0_session *s, XXH128_hash_t content, const char *name,
                             bool *recompute, struct error *err)
{
    const day0_engine *engine = s->engine;
    XXH128_hash_t head = header_hash(h);
    if (h->checksum[0] != (head.low64 ^ content.low64) || h->checksum[1] != (head.high64 ^ content.high64))
        return error_set(err, STATUS_FORMAT, "%s: the session is damaged: its checksum does not fit", name);
    if (h->identity[0] != engine->identity[0] || h->identity[1] != engine->identity[1])
        return error_set(err, STATUS_ARGUMENT, "%s: the session is of another checkpoint than %s", name, engine->directory);
    if (h->n_tokens > engine->options.context_max)
        return error_set(err, STATUS_ARGUMENT, "%s: the session has %u tokens, the context holds %u; open the engine with a "
                                               "larger context_max",
                         name, h->n_tokens, engine->options.context_max);
    *recompute = strncmp(h->numerics, engine->numerics, sizeof h->numerics) != 0;
    if (h->length > h->n_tokens || h->note_bytes > SESSION_NOTE_BYTES_MAX || (!*recompute && h->payload_bytes != payload_bytes(h, engine)))
        return error_set(err, STATUS_FORMAT, "%s: the session is damaged: its sizes do not fit", name);
    return STATUS_OK;
}

/* Fills the session from a payload that `fill` gives; with `recompute` only its text. */
static enum status read_payload(day0_session *s, const struct file_header *h, bool recompute, snapshot_part_fn *fill,
                                void *context, const char *name, struct error *err)
{
    uint32_t vocabulary = s->engine->model->config.vocab_size;
    if (s->phase != PHASE_IDLE)
        scheduler_finish(s, DAY0_FINISH_CANCELLED);
    s->n_tokens = 0;
    s->has_logits = s->broken = false;
    sequence_reset(&s->sequence);
    free(s->note);
    s->note = NULL;
    s->note_bytes = 0;
    TRY(memory_take(&s->note, h->note_bytes, 1, "a session's note", err));
    s->note_bytes = h->note_bytes;
    TRY(fill(context, s->note, s->note_bytes, err));
    TRY(fill(context, s->tokens, h->n_tokens * sizeof *s->tokens, err));
    for (uint32_t i = 0; i < h->n_tokens; i++)
        if (s->tokens[i] < 0 || (uint32_t)s->tokens[i] >= vocabulary)
            return error_set(err, STATUS_FORMAT, "%s: token %u is %d, no id of this model", name, i, s->tokens[i]);
    if (!recompute) {
        if (h->has_logits)
            TRY(fill(context, s->logits, vocabulary * sizeof *s->logits, err));
        enum status status;
        while ((status = sequence_reserve(&s->sequence, h->length, err)) == STATUS_MEMORY && reuse_forget_one(s->engine))
            ;
        TRY(status);
        TRY(snapshot_read(&s->sequence, h->length, fill, context, err));
        s->has_logits = h->has_logits;
    }
    s->n_tokens = h->n_tokens;
    s->finish = DAY0_FINISH_NONE;
    return STATUS_OK;
}

/* ---- memory ---- */

struct cursor {
    char *at, *end;
};

static enum status to_memory(void *context, void *data, size_t bytes, struct error *err)
{
    (void)err;
    struct cursor *c = context;
    CHECK(bytes <= (size_t)(c->end - c->at));
    if (bytes > 0)
        memcpy(c->at, data, bytes);
    c->at += bytes;
    return STATUS_OK;
}

static enum status from_memory(void *context, void *data, size_t bytes, struct error *err)
{
    struct cursor *c = context;
    if (bytes > (size_t)(c->end - c->at))
        return error_set(err, STATUS_FORMAT, "the snapshot is shorter than its header says");
    if (bytes > 0)
        memcpy(data, c->at, bytes);
    c->at += bytes;
    return STATUS_OK;
}

day0_status day0_session_snapshot(const day0_session *session, void **data, size_t *bytes, day0_error *error)
{
    struct error err;
    struct file_header h = header_of(session);
    char *memory;
    *data = NULL;
    *bytes = 0;
    h.stored_bytes = h.payload_bytes;
    enum status status = memory_take(&memory, sizeof h + h.payload_bytes, 1, "a snapshot", &err);
    if (status != STATUS_OK)
        return engine_error(error, status, &err);
    struct cursor c = {memory + sizeof h, memory + sizeof h + h.payload_bytes};
    status = write_payload(session, to_memory, &c, &err);
    CHECK(status == STATUS_OK && c.at == c.end);
    XXH128_hash_t head = header_hash(&h), content = XXH3_128bits(memory + sizeof h, h.payload_bytes);
    h.checksum[0] = head.low64 ^ content.low64;
    h.checksum[1] = head.high64 ^ content.high64;
    memcpy(memory, &h, sizeof h);
    *data = memory;
    *bytes = sizeof h + h.payload_bytes;
    return DAY0_OK;
}

static enum status restore(day0_session *session, const void *data, size_t bytes, struct error *err)
{
    static const char name[] = "snapshot";
    struct file_header h = {0};
    bool recompute;
    memcpy(&h, data, bytes < sizeof h ? bytes : sizeof h);
    TRY(check_header(&h, bytes, name, err));
    struct cursor c = {(char *)(uintptr_t)data + sizeof h, (char *)(uintptr_t)data + bytes};
    TRY(check_fit(&h, session, XXH3_128bits(c.at, bytes - sizeof h), name, &recompute, err));
    if (recompute)
        return error_set(err, STATUS_ARGUMENT, "the snapshot is of numerics '%.128s', the engine computes '%s'", h.numerics,
                         session->engine->numerics);
    return read_payload(session, &h, false, from_memory, &c, name, err);
}

day0_status day0_session_restore(day0_session *session, const void *data, size_t bytes, day0_error *error)
{
    struct error err;
    enum status status = restore(session, data, bytes, &err);
    return engine_error(error, status, &err);
}

/* ---- files: writing ---- */

struct writer {
    FILE *out;
    const char *path;
    ZSTD_CStream *zstd;
    XXH3_state_t *hash;
    uint64_t stored;
    char buffer[IO_BYTES];
};

static enum status compress(struct writer *w, const void *data, size_t bytes, ZSTD_EndDirective mode, struct error *err)
{
    ZSTD_inBuffer in = {data, bytes, 0};
    for (size_t left = 1; left > 0 || in.pos < in.size;) {
        ZSTD_outBuffer out = {w->buffer, sizeof w->buffer, 0};
        left = ZSTD_compressStream2(w->zstd, &out, &in, mode);
        if (ZSTD_isError(left))
            return error_set(err, STATUS_MEMORY, "%s: cannot compress: %s", w->path, ZSTD_getErrorName(left));
        XXH3_128bits_update(w->hash, w->buffer, out.pos);
        if (fwrite(w->buffer, 1, out.pos, w->out) != out.pos)
            return error_set(err, STATUS_IO, "%s: cannot write: %s", w->path, strerror(errno));
        w->stored += out.pos;
        if (mode == ZSTD_e_continue && in.pos == in.size)
            break;
    }
    return STATUS_OK;
}

static enum status to_file(void *context, void *data, size_t bytes, struct error *err)
{
    return compress(context, data, bytes, ZSTD_e_continue, err);
}

static enum status write_file(const day0_session *s, struct writer *w, struct error *err)
{
    struct file_header h = header_of(s);
    if (fwrite(&h, sizeof h, 1, w->out) != 1)
        return error_set(err, STATUS_IO, "%s: cannot write: %s", w->path, strerror(errno));
    ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, COMPRESSION_LEVEL);
    XXH3_128bits_reset(w->hash);
    TRY(write_payload(s, to_file, w, err));
    TRY(compress(w, NULL, 0, ZSTD_e_end, err));
    h.stored_bytes = w->stored;
    XXH128_hash_t head = header_hash(&h), content = XXH3_128bits_digest(w->hash);
    h.checksum[0] = head.low64 ^ content.low64;
    h.checksum[1] = head.high64 ^ content.high64;
    if (fseek(w->out, 0, SEEK_SET) != 0 || fwrite(&h, sizeof h, 1, w->out) != 1 || fflush(w->out) != 0 ||
        fsync(fileno(w->out)) != 0)
        return error_set(err, STATUS_IO, "%s: cannot write: %s", w->path, strerror(errno));
    return STATUS_OK;
}

/* The rename itself must reach the disk too. */
static void sync_directory(const char *path)
{
    char directory[PATH_BYTES_MAX];
    snprintf(directory, sizeof directory, "%s", path);
    char *slash = strrchr(directory, '/');
    if (slash)
        slash[slash == directory] = 0;
    int descriptor = open(slash ? directory : ".", O_RDONLY | O_DIRECTORY);
    if (descriptor >= 0) {
        fsync(descriptor);
        close(descriptor);
    }
}

static enum status save(const day0_session *session, const char *path, struct writer *w, struct error *err)
{
    char temporary[PATH_BYTES_MAX];
    if (snprintf(temporary, sizeof temporary, "%s.tmp-%ld", path, (long)getpid()) >= (int)sizeof temporary)
        return error_set(err, STATUS_ARGUMENT, "%.200s...: the path is too long", path);
    w->path = path;
    w->zstd = ZSTD_createCStream();
    w->hash = XXH3_createState();
    w->out = fopen(temporary, "wb");
    enum status status = STATUS_OK;
    if (!w->out)
        status = error_set(err, STATUS_IO, "%s: cannot create: %s", path, strerror(errno));
    else if (!w->zstd || !w->hash)
        status = error_set(err, STATUS_MEMORY, "%s: cannot allocate memory to compress it", path);
    else
        status = write_file(session, w, err);
    ZSTD_freeCStream(w->zstd);
    XXH3_freeState(w->hash);
    if (w->out && fclose(w->out) != 0 && status == STATUS_OK)
        status = error_set(err, STATUS_IO, "%s: cannot write: %s", path, strerror(errno));
    if (status == STATUS_OK && rename(temporary, path) != 0)
        status = error_set(err, STATUS_IO, "%s: cannot rename to it: %s", path, strerror(errno));
    if (status == STATUS_OK)
        sync_directory(path);
    else if (w->out)
        remove(temporary);
    return status;
}

day0_status day0_session_save(const day0_session *session, const char *path, day0_error *error)
{
    struct error err;
    struct writer *writer;
    enum status status = memory_take(&writer, 1, sizeof *writer, "saving a session", &err);
    if (status == STATUS_OK) {
        status = save(session, path, writer, &err);
        free(writer);
    }
    return engine_error(error, status, &err);
}

/* ---- files: reading ---- */

struct reader {
    FILE *in;
    const char *path;
    ZSTD_DStream *zstd;
    ZSTD_inBuffer buffered;
    char buffer[IO_BYTES];
};

static enum status from_file(void *context, void *data, size_t bytes, struct error *err)
{
    struct reader *r = context;
    ZSTD_outBuffer out = {data, bytes, 0};
    while (out.pos < out.size) {
        if (r->buffered.pos == r->buffered.size) {
            r->buffered = (ZSTD_inBuffer){r->buffer, fread(r->buffer, 1, sizeof r->buffer, r->in), 0};
            if (r->buffered.size == 0)
                return error_set(err, STATUS_FORMAT, "%s: the session is damaged: its content ends early", r->path);
        }
        size_t left = ZSTD_decompressStream(r->zstd, &out, &r->buffered);
        if (ZSTD_isError(left))
            return error_set(err, STATUS_FORMAT, "%s: the session is damaged: %s", r->path, ZSTD_getErrorName(left));
    }
    return STATUS_OK;
}

/* Reads header and checksum; leaves the file at the content. */
static enum status verify(struct reader *r, struct file_header *h, const day0_session *session, bool *recompute,
                          struct error *err)
{
    struct stat info;
    *h = (struct file_header){0};
    size_t got = fread(h, 1, sizeof *h, r->in);
    if (fstat(fileno(r->in), &info) != 0 || got < sizeof *h)
        return error_set(err, STATUS_FORMAT, "%s: this is no session of day0", r->path);
    TRY(check_header(h, (uint64_t)info.st_size, r->path, err));
    XXH3_state_t *hash = XXH3_createState();
    if (!hash)
        return error_set(err, STATUS_MEMORY, "%s: cannot allocate memory to check it", r->path);
    XXH3_128bits_reset(hash);
    while ((got = fread(r->buffer, 1, sizeof r->buffer, r->in)) > 0)
        XXH3_128bits_update(hash, r->buffer, got);
    XXH128_hash_t content = XXH3_128bits_digest(hash);
    XXH3_freeState(hash);
    if (ferror(r->in) || fseek(r->in, sizeof *h, SEEK_SET) != 0)
        return error_set(err, STATUS_IO, "%s: cannot read: %s", r->path, strerror(errno));
    return check_fit(h, session, content, r->path, recompute, err);
}

static enum status load(day0_session *session, struct reader *r, bool *recompute, struct error *err)
{
    struct file_header h;
    TRY(verify(r, &h, session, recompute, err));
    r->zstd = ZSTD_createDStream();
    if (!r->zstd)
        return error_set(err, STATUS_MEMORY, "%s: cannot allocate memory to read it", r->path);
    enum status status = read_payload(session, &h, *recompute, from_file, r, r->path, err);
    ZSTD_freeDStream(r->zstd);
    return status;
}

day0_status day0_session_load(day0_session *session, const char *path, bool *recompute, day0_error *error)
{
    struct error err;
    struct reader *reader;
    bool unused;
    enum status status = memory_take(&reader, 1, sizeof *reader, "loading a session", &err);
    if (status != STATUS_OK)
        return engine_error(error, status, &err);
    reader->path = path;
    reader->in = fopen(path, "rb");
    if (!reader->in) {
        status = error_set(&err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s: cannot open: %s", path,
                           strerror(errno));
    } else {
        status = load(session, reader, recompute ? recompute : &unused, &err);
        fclose(reader->in);
    }
    free(reader);
    return engine_error(error, status, &err);
}
