/* Sessions as bytes: snapshots in memory and files on disk.
 *
 *     header (session_format.h, little-endian)
 *     payload: the caller's note, tokens [n_tokens] int32, logits [vocabulary] float32 if has_logits, then the state
 *              (state/snapshot.h); in a file it is one zstd frame, in memory it stands as it is
 *
 * The checksum covers the header (its own field zero) and the payload as stored. Everything is checked before the
 * session is touched: magic, version, sizes, checksum, checkpoint, token ids, logits, and that the whole payload can
 * be unpacked. A file is therefore unpacked twice; only if it changes in between is the session left empty. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
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
#include "engine/session_format.h"
#include "state/snapshot.h"

enum { IO_BYTES = 1 << 17, COMPRESSION_LEVEL = 1 };

static uint64_t text_bytes(const struct session_header *h, const day0_engine *engine)
{
    return h->note_bytes + h->n_tokens * sizeof(int32_t) +
           (h->has_logits ? engine->model->config.vocab_size * sizeof(float) : 0);
}

static uint64_t payload_bytes(const struct session_header *h, const day0_engine *engine)
{
    return text_bytes(h, engine) + snapshot_bytes(&engine->model->layout, h->length);
}

static struct session_header header_of(const day0_session *s)
{
    struct session_header h = {.version = SESSION_VERSION,
                               .n_tokens = s->n_tokens,
                               .length = s->sequence.length,
                               .has_logits = s->has_logits,
                               .note_bytes = s->note_bytes,
                               .identity = {s->engine->identity[0], s->engine->identity[1]}};
    memcpy(h.magic, SESSION_MAGIC, sizeof h.magic);
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

static enum status check_header(const struct session_header *h, uint64_t bytes, const char *name, struct error *err)
{
    if (bytes < sizeof *h || memcmp(h->magic, SESSION_MAGIC, sizeof h->magic) != 0)
        return error_set(err, STATUS_FORMAT, "%s: this is no session of day0", name);
    if (h->version != SESSION_VERSION)
        return error_set(err, STATUS_UNSUPPORTED, "%s: a session of format %u, this day0 reads format %d", name,
                         h->version, SESSION_VERSION);
    if (h->stored_bytes != bytes - sizeof *h)
        return error_set(err, STATUS_FORMAT,
                         "%s: the session is damaged: %llu bytes of content were stored, %llu are there", name,
                         (unsigned long long)h->stored_bytes, (unsigned long long)(bytes - sizeof *h));
    return STATUS_OK;
}

void session_format_checksum(const struct session_header *header, uint64_t content_low, uint64_t content_high,
                             uint64_t out[2])
{
    struct session_header blank = *header;
    memset(blank.checksum, 0, sizeof blank.checksum);
    XXH128_hash_t head = XXH3_128bits(&blank, sizeof blank);
    out[0] = head.low64 ^ content_low;
    out[1] = head.high64 ^ content_high;
}

void session_format_seal(struct session_header *header, const void *stored)
{
    XXH128_hash_t content = XXH3_128bits(stored, header->stored_bytes);
    session_format_checksum(header, content.low64, content.high64, header->checksum);
}

static enum status check_fit(const struct session_header *h, const day0_session *s, XXH128_hash_t content,
                             const char *name, bool *recompute, struct error *err)
{
    const day0_engine *engine = s->engine;
    uint64_t sum[2];
    session_format_checksum(h, content.low64, content.high64, sum);
    if (h->checksum[0] != sum[0] || h->checksum[1] != sum[1])
        return error_set(err, STATUS_FORMAT, "%s: the session is damaged: its checksum does not fit", name);
    if (h->identity[0] != engine->identity[0] || h->identity[1] != engine->identity[1])
        return error_set(err, STATUS_ARGUMENT, "%s: the session is of another checkpoint than %s", name,
                         engine->directory);
    if (h->n_tokens > engine->options.context_max)
        return error_set(err, STATUS_ARGUMENT,
                         "%s: the session has %u tokens, the context holds %u; open the engine with a "
                         "larger context_max",
                         name, h->n_tokens, engine->options.context_max);
    *recompute = strncmp(h->numerics, engine->numerics, sizeof h->numerics) != 0;
    if (h->length > h->n_tokens || h->note_bytes > SESSION_NOTE_BYTES_MAX || h->has_logits > (h->length > 0) ||
        (!*recompute && h->payload_bytes != payload_bytes(h, engine)))
        return error_set(err, STATUS_FORMAT, "%s: the session is damaged: its sizes do not fit", name);
    return STATUS_OK;
}

/* ---- from a payload into a session ---- */

/* Where a payload comes from: `fill` gives its next bytes, `again` goes back to its start, `ends` fails if more
 * follows. */
struct source {
    snapshot_part_fn *fill;
    enum status (*again)(void *context, struct error *err);
    enum status (*ends)(void *context, struct error *err);
    void *context;
    const char *name;
};

/* What stands before the state. */
struct session_text {
    char *note;
    int32_t *tokens;
    float *logits;
};

static void text_free(struct session_text *text)
{
    free(text->note);
    free(text->tokens);
    free(text->logits);
}

static enum status skip(const struct source *from, uint64_t bytes, struct error *err)
{
    char scratch[1 << 14];
    for (uint64_t n; bytes > 0; bytes -= n) {
        n = bytes < sizeof scratch ? bytes : sizeof scratch;
        TRY(from->fill(from->context, scratch, n, err));
    }
    return STATUS_OK;
}

static enum status read_text(struct session_text *text, const struct session_header *h, bool recompute,
                             const struct source *from, uint32_t vocabulary, struct error *err)
{
    if (h->note_bytes)
        TRY(memory_take(&text->note, h->note_bytes, 1, "a session's note", err));
    TRY(memory_take(&text->tokens, h->n_tokens, sizeof *text->tokens, "a session's text", err));
    TRY(from->fill(from->context, text->note, h->note_bytes, err));
    TRY(from->fill(from->context, text->tokens, h->n_tokens * sizeof *text->tokens, err));
    for (uint32_t i = 0; i < h->n_tokens; i++)
        if (text->tokens[i] < 0 || (uint32_t)text->tokens[i] >= vocabulary)
            return error_set(err, STATUS_FORMAT, "%s: the session is damaged: token %u is %d, no id of this model",
                             from->name, i, text->tokens[i]);
    if (recompute || !h->has_logits)
        return STATUS_OK;
    TRY(memory_take(&text->logits, vocabulary, sizeof *text->logits, "a session's logits", err));
    TRY(from->fill(from->context, text->logits, vocabulary * sizeof *text->logits, err));
    for (uint32_t i = 0; i < vocabulary; i++)
        if (!isfinite(text->logits[i]))
            return error_set(err, STATUS_FORMAT, "%s: the session is damaged: logit %u is no number", from->name, i);
    return STATUS_OK;
}

/* Puts everything in place; the session is empty if it fails. */
static enum status take_payload(day0_session *s, const struct session_header *h, bool recompute,
                                const struct source *from, struct session_text *text, struct error *err)
{
    if (s->phase != PHASE_IDLE)
        scheduler_finish(s, DAY0_FINISH_CANCELLED);
    session_forget(s);
    free(s->note);
    s->note = text->note;
    s->note_bytes = h->note_bytes;
    text->note = NULL;
    if (!recompute) {
        TRY(from->again(from->context, err));
        TRY(skip(from, text_bytes(h, s->engine), err));
        enum status status;
        while ((status = sequence_reserve(&s->sequence, h->length, err)) == STATUS_MEMORY &&
               reuse_forget_one(s->engine))
            ;
        TRY(status);
        TRY(snapshot_read(&s->sequence, h->length, from->fill, from->context, err));
        s->has_logits = h->has_logits;
        if (text->logits)
            memcpy(s->logits, text->logits, s->engine->model->config.vocab_size * sizeof *s->logits);
    }
    memcpy(s->tokens, text->tokens, h->n_tokens * sizeof *s->tokens);
    s->n_tokens = h->n_tokens;
    return STATUS_OK;
}

/* Fills the session from a payload; with `recompute` only its text. */
static enum status read_payload(day0_session *s, const struct session_header *h, bool recompute,
                                const struct source *from, struct error *err)
{
    const day0_engine *engine = s->engine;
    struct session_text text = {0};
    enum status status = read_text(&text, h, recompute, from, engine->model->config.vocab_size, err);
    if (status == STATUS_OK && !recompute)
        status = skip(from, snapshot_bytes(&engine->model->layout, h->length), err);
    if (status == STATUS_OK && !recompute)
        status = from->ends(from->context, err);
    if (status == STATUS_OK)
        status = take_payload(s, h, recompute, from, &text, err);
    text_free(&text);
    return status;
}

/* ---- memory ---- */

/* Memory that is filled, and memory that is read. */
struct room {
    char *at, *end;
};

struct cursor {
    const char *start, *at, *end;
};

static enum status to_memory(void *context, void *data, size_t bytes, struct error *err)
{
    (void)err;
    struct room *room = context;
    CHECK(bytes <= (size_t)(room->end - room->at));
    if (bytes > 0)
        memcpy(room->at, data, bytes);
    room->at += bytes;
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

static enum status memory_again(void *context, struct error *err)
{
    struct cursor *c = context;
    (void)err;
    c->at = c->start;
    return STATUS_OK;
}

static enum status memory_ends(void *context, struct error *err)
{
    const struct cursor *c = context;
    if (c->at != c->end)
        return error_set(err, STATUS_FORMAT, "the snapshot is longer than its header says");
    return STATUS_OK;
}

day0_status day0_session_snapshot(const day0_session *session, void **data, size_t *bytes, day0_error *error)
{
    struct error err;
    struct session_header h = header_of(session);
    char *memory;
    *data = NULL;
    *bytes = 0;
    h.stored_bytes = h.payload_bytes;
    enum status status = memory_take(&memory, sizeof h + h.payload_bytes, 1, "a snapshot", &err);
    if (status != STATUS_OK)
        return engine_error(error, status, &err);
    struct room room = {memory + sizeof h, memory + sizeof h + h.payload_bytes};
    status = write_payload(session, to_memory, &room, &err);
    CHECK(status == STATUS_OK && room.at == room.end);
    session_format_seal(&h, memory + sizeof h);
    memcpy(memory, &h, sizeof h);
    *data = memory;
    *bytes = sizeof h + h.payload_bytes;
    return DAY0_OK;
}

static enum status restore(day0_session *session, const void *data, size_t bytes, struct error *err)
{
    static const char name[] = "snapshot";
    struct session_header h = {0};
    bool recompute = false;
    memcpy(&h, data, bytes < sizeof h ? bytes : sizeof h);
    TRY(check_header(&h, bytes, name, err));
    const char *start = (const char *)data + sizeof h;
    TRY(check_fit(&h, session, XXH3_128bits(start, h.stored_bytes), name, &recompute, err));
    if (recompute)
        return error_set(err, STATUS_ARGUMENT, "the snapshot is of numerics '%.128s', the engine computes '%s'",
                         h.numerics, session->engine->numerics);
    struct cursor c = {start, start, start + h.stored_bytes};
    struct source from = {from_memory, memory_again, memory_ends, &c, name};
    return read_payload(session, &h, false, &from, err);
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
    struct session_header h = header_of(s);
    if (fwrite(&h, sizeof h, 1, w->out) != 1)
        return error_set(err, STATUS_IO, "%s: cannot write: %s", w->path, strerror(errno));
    ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, COMPRESSION_LEVEL);
    XXH3_128bits_reset(w->hash);
    TRY(write_payload(s, to_file, w, err));
    TRY(compress(w, NULL, 0, ZSTD_e_end, err));
    h.stored_bytes = w->stored;
    XXH128_hash_t content = XXH3_128bits_digest(w->hash);
    session_format_checksum(&h, content.low64, content.high64, h.checksum);
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
    size_t left; /* 0: the frame is over */
    char buffer[IO_BYTES];
};

static enum status from_file(void *context, void *data, size_t bytes, struct error *err)
{
    struct reader *r = context;
    ZSTD_outBuffer out = {data, bytes, 0};
    while (out.pos < out.size) {
        if (r->buffered.pos == r->buffered.size) {
            r->buffered = (ZSTD_inBuffer){r->buffer, fread(r->buffer, 1, sizeof r->buffer, r->in), 0};
        }
        if (r->buffered.size == 0 || r->left == 0)
            return error_set(err, STATUS_FORMAT, "%s: the session is damaged: its content ends early", r->path);
        r->left = ZSTD_decompressStream(r->zstd, &out, &r->buffered);
        if (ZSTD_isError(r->left))
            return error_set(err, STATUS_FORMAT, "%s: the session is damaged: %s", r->path, ZSTD_getErrorName(r->left));
    }
    return STATUS_OK;
}

/* The frame must end where the payload does, and the file with it. */
static enum status file_ends(void *context, struct error *err)
{
    struct reader *r = context;
    char byte;
    ZSTD_outBuffer out = {&byte, 1, 0};
    while (r->left > 0) {
        if (r->buffered.pos == r->buffered.size)
            r->buffered = (ZSTD_inBuffer){r->buffer, fread(r->buffer, 1, sizeof r->buffer, r->in), 0};
        size_t before = r->buffered.pos;
        r->left = ZSTD_decompressStream(r->zstd, &out, &r->buffered);
        if (ZSTD_isError(r->left) || out.pos > 0 || (r->left > 0 && r->buffered.pos == before))
            return error_set(err, STATUS_FORMAT, "%s: the session is damaged: its content does not end where it must",
                             r->path);
    }
    if (r->buffered.pos < r->buffered.size || fgetc(r->in) != EOF)
        return error_set(err, STATUS_FORMAT, "%s: the session is damaged: something follows its content", r->path);
    return STATUS_OK;
}

static enum status file_again(void *context, struct error *err)
{
    struct reader *r = context;
    ZSTD_DCtx_reset(r->zstd, ZSTD_reset_session_only);
    r->buffered = (ZSTD_inBuffer){r->buffer, 0, 0};
    r->left = 1;
    if (fseek(r->in, sizeof(struct session_header), SEEK_SET) != 0)
        return error_set(err, STATUS_IO, "%s: cannot read: %s", r->path, strerror(errno));
    return STATUS_OK;
}

/* Reads header and checksum; leaves the file at the content. */
static enum status verify(struct reader *r, struct session_header *h, const day0_session *session, bool *recompute,
                          struct error *err)
{
    struct stat info;
    *h = (struct session_header){0};
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
    struct session_header h;
    TRY(verify(r, &h, session, recompute, err));
    r->zstd = ZSTD_createDStream();
    if (!r->zstd)
        return error_set(err, STATUS_MEMORY, "%s: cannot allocate memory to read it", r->path);
    struct source from = {from_file, file_again, file_ends, r, r->path};
    r->left = 1;
    enum status status = read_payload(session, &h, *recompute, &from, err);
    ZSTD_freeDStream(r->zstd);
    return status;
}

day0_status day0_session_load(day0_session *session, const char *path, bool *recompute, day0_error *error)
{
    struct error err;
    struct reader *reader;
    bool unused;
    recompute = recompute ? recompute : &unused;
    *recompute = false;
    enum status status = memory_take(&reader, 1, sizeof *reader, "loading a session", &err);
    if (status != STATUS_OK)
        return engine_error(error, status, &err);
    reader->path = path;
    reader->in = fopen(path, "rb");
    if (!reader->in) {
        status = error_set(&err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s: cannot open: %s", path,
                           strerror(errno));
    } else {
        status = load(session, reader, recompute, &err);
        fclose(reader->in);
    }
    free(reader);
    return engine_error(error, status, &err);
}
