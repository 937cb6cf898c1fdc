/* Forged sessions, whose checksum is right and whose content is not; saves that are killed, and disks that refuse. */
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <zstd.h>

#include "base/file.h"
#include "base/rng.h"
#include "engine/session_format.h"
#include "engine_help.h"

enum { PROMPT = 70, NOTE = 8 };

struct fixture {
    day0_options options;
    day0_engine *engine;
    day0_session *session;
    char directory[512], path[600];
    char *snapshot; /* of the session */
    size_t bytes;
    struct record want;
};

static struct fixture fixture;

static void generate_text(struct fixture *f, struct record *r)
{
    day0_generation g = recorded(f->engine, r, 10);
    generate(f->engine, f->session, some_text(f->engine, 0, PROMPT), PROMPT, &g, NULL);
}

static int open_fixture(void **state)
{
    struct fixture *f = &fixture;
    day0_error error;
    void *data;
    f->options = engine_options();
    f->options.context_max = 200;
    f->options.checkpoints_max = 0;
    f->engine = engine_or_fail(&f->options);
    f->session = session_or_fail(f->engine);
    generate_text(f, &f->want);
    must(day0_session_set_note(f->session, "a note\n", NOTE, &error), &error);
    must(day0_session_snapshot(f->session, &data, &f->bytes, &error), &error);
    f->snapshot = data;
    temporary_path(f->directory, sizeof f->directory, "saves");
    assert_int_equal(mkdir(f->directory, 0777), 0);
    assert_true(snprintf(f->path, sizeof f->path, "%s/session", f->directory) < (int)sizeof f->path);
    *state = f;
    return 0;
}

static size_t count_files(const char *directory, bool remove_them)
{
    size_t n = 0;
    DIR *d = opendir(directory);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[PATH_BYTES_MAX];
        struct error err;
        if (e->d_name[0] == '.')
            continue;
        n++;
        assert_int_equal(file_join(path, directory, e->d_name, &err), STATUS_OK);
        if (remove_them)
            unlink(path);
    }
    closedir(d);
    return n;
}

static int close_fixture(void **state)
{
    (void)state;
    count_files(fixture.directory, true);
    rmdir(fixture.directory);
    free(fixture.snapshot);
    day0_engine_close(fixture.engine);
    return 0;
}

/* ---- forged sessions ---- */

static struct session_header header_of(const char *snapshot)
{
    struct session_header h;
    memcpy(&h, snapshot, sizeof h);
    return h;
}

static void write_file(const char *path, struct session_header h, const void *stored, size_t bytes)
{
    h.stored_bytes = bytes;
    session_format_seal(&h, stored);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(&h, sizeof h, 1, out), 1);
    assert_int_equal(fwrite(stored, 1, bytes, out), bytes);
    assert_int_equal(fclose(out), 0);
}

static void write_packed(const char *path, struct session_header h, const void *payload, size_t bytes)
{
    size_t room = ZSTD_compressBound(bytes);
    void *packed = malloc(room);
    size_t n = ZSTD_compress(packed, room, payload, bytes, 1);
    assert_false(ZSTD_isError(n));
    write_file(path, h, packed, n);
    free(packed);
}

/* The same content as a snapshot and as a file, both refused; the session is as before. */
static void assert_forged(struct fixture *f, struct session_header h, const char *payload, size_t bytes,
                          const char *part)
{
    day0_error error;
    bool recompute;
    char *copy = malloc(sizeof h + bytes);
    struct session_header in_memory = h;
    in_memory.stored_bytes = bytes;
    session_format_seal(&in_memory, payload);
    memcpy(copy, &in_memory, sizeof h);
    memcpy(copy + sizeof h, payload, bytes);
    if (day0_session_restore(f->session, copy, sizeof h + bytes, &error) == DAY0_OK)
        fail_msg("a forged snapshot is taken (%s)", part);
    free(copy);
    write_packed(f->path, h, payload, bytes);
    day0_status status = day0_session_load(f->session, f->path, &recompute, &error);
    if (status == DAY0_OK)
        fail_msg("a forged file is taken (%s)", part);
    if (!strstr(error.text, f->path) || !strstr(error.text, part))
        fail_msg("the sentence '%s' does not say '%s'", error.text, part);
    size_t n;
    day0_session_tokens(f->session, &n);
    assert_int_equal(n, PROMPT + 10);
}

static void assert_untouched(struct fixture *f)
{
    static struct record r;
    day0_error error;
    size_t n;
    assert_string_equal(day0_session_note(f->session, &n), "a note\n");
    uint64_t before = day0_session_computed(f->session);
    const int32_t *tokens = day0_session_tokens(f->session, &n);
    generate(f->engine, f->session, tokens, n, NULL, NULL); /* goes on: one token had no logits yet */
    assert_int_equal(day0_session_computed(f->session) - before, 1);
    must(day0_session_restore(f->session, f->snapshot, f->bytes, &error), &error);
    generate_text(f, &r);
    assert_same_record(&r, &f->want, "after forged sessions");
    must(day0_session_restore(f->session, f->snapshot, f->bytes, &error), &error);
}

static void forged_sessions_are_refused(void **state)
{
    struct fixture *f = *state;
    const struct session_header good = header_of(f->snapshot);
    size_t bytes = f->bytes - sizeof good;
    char *payload = malloc(bytes + 16);
    memcpy(payload, f->snapshot + sizeof good, bytes);
    struct session_header h = good;
    assert_int_equal(good.n_tokens, PROMPT + 10);
    assert_int_equal(good.payload_bytes, bytes);
#define FORGED(change, part)                                                                                           \
    h = good;                                                                                                          \
    change;                                                                                                            \
    assert_forged(f, h, payload, bytes, part)
    FORGED(h.magic[0] = 'D', "no session");
    FORGED(h.version = 2, "format 2");
    FORGED(h.identity[1] ^= 1, "another checkpoint");
    FORGED(h.n_tokens = UINT32_MAX, "context_max");
    FORGED(h.n_tokens = 201, "context_max");
    FORGED(h.n_tokens = 10, "sizes");
    FORGED(h.length = 81, "sizes");
    FORGED(h.length = UINT32_MAX, "sizes");
    FORGED(h.length = 0, "sizes");
    FORGED(h.has_logits = 7, "sizes");
    FORGED(h.has_logits = 0, "sizes");
    FORGED(h.note_bytes = UINT64_MAX, "sizes");
    FORGED(h.note_bytes = 1 << 28, "sizes");
    FORGED(h.note_bytes = UINT64_MAX - 4 * PROMPT, "sizes");
    FORGED(h.payload_bytes = 0, "sizes");
    FORGED((h.note_bytes = 1 << 28, h.payload_bytes += (1 << 28) - NOTE), "damaged");
    FORGED((h.length = 0, h.has_logits = 0, h.n_tokens = 0, h.payload_bytes = 0), "sizes");
    /* Content that is not what it must be. */
    static const int32_t ids[] = {-1, 2048, INT32_MIN, INT32_MAX};
    static const float numbers[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 4; i++) {
        memcpy(payload + NOTE + 4 * 79, &ids[i], 4);
        assert_forged(f, good, payload, bytes, "token 79 is");
    }
    memcpy(payload, f->snapshot + sizeof good, bytes);
    for (size_t i = 0; i < 3; i++) {
        memcpy(payload + NOTE + 4 * (80 + 2047), &numbers[i], 4);
        assert_forged(f, good, payload, bytes, "logit 2047");
    }
    memcpy(payload, f->snapshot + sizeof good, bytes);
    assert_forged(f, good, payload, bytes - 1, "damaged");
    assert_forged(f, good, payload, bytes + 1, "damaged");
    assert_forged(f, good, payload, 0, "damaged");
    assert_untouched(f);
    free(payload);
}

static void forged_frames_are_refused(void **state)
{
    struct fixture *f = *state;
    const struct session_header good = header_of(f->snapshot);
    size_t bytes = f->bytes - sizeof good, room = 2 * ZSTD_compressBound(bytes) + 100;
    char *packed = malloc(room);
    struct rng rng = {3};
    day0_error error;
    size_t whole = ZSTD_compress(packed, room, f->snapshot + sizeof good, bytes, 1);
    write_file(f->path, good, packed, whole);
    bool recompute;
    must(day0_session_load(f->session, f->path, &recompute, &error), &error); /* made by hand, and good */
    for (size_t i = 0; i < (slow_tests() ? 2000 : 100); i++) {
        size_t n = whole;
        size_t second = ZSTD_compress(packed, room, f->snapshot + sizeof good, bytes, 1 + (int)(i % 3));
        assert_false(ZSTD_isError(second));
        n = second;
        switch (i % 5) {
        case 0:
            n = rng_below(&rng, n);
            break; /* cut */
        case 1:
            packed[n++] = (char)rng_below(&rng, 256);
            break; /* something after it */
        case 2:
            memcpy(packed + n, packed, n);
            n *= 2;
            break; /* twice */
        case 3:
            for (size_t k = 0; k < n; k++)
                packed[k] = (char)rng_below(&rng, 256);
            break;
        default:
            packed[rng_below(&rng, 30)] ^= (char)(1 + rng_below(&rng, 255)); /* another frame header */
        }
        write_file(f->path, good, packed, n);
        day0_status status = day0_session_load(f->session, f->path, &recompute, &error);
        if (i % 5 == 4 && status == DAY0_OK) /* some bits of a frame's head or data are another payload */
            must(day0_session_restore(f->session, f->snapshot, f->bytes, &error), &error);
        else
            assert_refused(status, DAY0_FORMAT, &error, f->path);
    }
    free(packed);
    assert_untouched(f);
}

/* A state of nonsense is a state: what is computed from it may be anything, or fails with a sentence; nothing
 * crashes. */
static void forged_states_do_no_harm(void **state)
{
    struct fixture *f = *state;
    static struct record r;
    struct rng rng = {9};
    day0_error error;
    char *forged = malloc(f->bytes);
    size_t first = sizeof(struct session_header) + NOTE + 4 * (80 + 2048);
    for (int kind = 0; kind < 6; kind++) {
        memcpy(forged, f->snapshot, f->bytes);
        for (size_t i = first; i < f->bytes; i++)
            forged[i] = kind == 0 ? '\xff' : kind == 1 ? '\x7f' : kind == 2 ? 0 : (char)rng_below(&rng, 256);
        struct session_header h = header_of(forged);
        session_format_seal(&h, forged + sizeof h);
        memcpy(forged, &h, sizeof h);
        must(day0_session_restore(f->session, forged, f->bytes, &error), &error);
        size_t n;
        const int32_t *tokens = day0_session_tokens(f->session, &n);
        day0_generation g = recorded(f->engine, &r, 10);
        generate(f->engine, f->session, tokens, n, &g, NULL);
        if (r.finish == DAY0_FINISH_FAILED)
            assert_non_null(strstr(day0_session_failure(f->session), "NaN"));
        if (kind == 0)
            assert_int_equal(r.finish, DAY0_FINISH_FAILED);
    }
    free(forged);
    generate_text(f, &r);
    assert_same_record(&r, &f->want, "after states of nonsense");
    must(day0_session_restore(f->session, f->snapshot, f->bytes, &error), &error);
    assert_untouched(f);
}

/* ---- killed while saving ---- */

/* Saves again and again with a growing number as the note; tells each save that is done. */
static void save_for_ever(struct fixture *f, uint32_t number, int tell)
{
    day0_error error;
    for (;; number++) {
        if (day0_session_set_note(f->session, &number, sizeof number, &error) != DAY0_OK ||
            day0_session_save(f->session, f->path, &error) != DAY0_OK ||
            write(tell, &number, sizeof number) != sizeof number)
            _exit(1);
    }
}

static void a_killed_save_loses_nothing(void **state)
{
    struct fixture *f = *state;
    struct rng rng = {11};
    day0_error error;
    bool recompute;
    uint32_t number = 1, rounds = 100;
    must(day0_session_set_note(f->session, &number, sizeof number, &error), &error);
    must(day0_session_save(f->session, f->path, &error), &error);
    for (uint32_t round = 0; round < rounds; round++) {
        int ends[2], status;
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0)
            save_for_ever(f, number + 1, ends[1]);
        close(ends[1]);
        usleep((useconds_t)rng_below(&rng, 30000));
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        for (uint32_t told; read(ends[0], &told, sizeof told) == sizeof told;)
            number = told;
        close(ends[0]);
        must(day0_session_load(f->session, f->path, &recompute, &error), &error);
        size_t bytes;
        uint32_t loaded;
        memcpy(&loaded, day0_session_note(f->session, &bytes), sizeof loaded);
        assert_int_equal(bytes, sizeof loaded);
        assert_true(loaded == number || loaded == number + 1); /* renamed, and killed before it could tell */
        number = loaded;
    }
    print_message("%u saves in %u processes that were killed\n", number, rounds);
    assert_true(number > 1);
    count_files(f->directory, true);
    must(day0_session_restore(f->session, f->snapshot, f->bytes, &error), &error);
    assert_untouched(f);
}

/* ---- the system refuses ---- */

/* In a child of its own: with a limit on file sizes, or as another user; exits 0 if the save is refused by name and
 * with `part`, and works once the reason is gone. */
static int refused_in_child(struct fixture *f, bool limited, const char *part)
{
    pid_t child = fork();
    if (child == 0) {
        day0_error error;
        signal(SIGXFSZ, SIG_IGN);
        struct rlimit limit = {20000, 20000};
        if (limited ? setrlimit(RLIMIT_FSIZE, &limit) != 0 : getuid() == 0 && seteuid(65534) != 0)
            _exit(2);
        if (day0_session_save(f->session, f->path, &error) != DAY0_IO)
            _exit(3);
        _exit(strstr(error.text, f->path) && strstr(error.text, part) ? 0 : 4);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void refused_saves_leave_the_old_file(void **state)
{
    struct fixture *f = *state;
    day0_error error;
    char *before, *after, path[700];
    size_t bytes, n;
    struct error err;
    must(day0_session_save(f->session, f->path, &error), &error);
    assert_int_equal(file_read(f->path, 1 << 28, &before, &bytes, &err), STATUS_OK);
    assert_int_equal(refused_in_child(f, true, "cannot write"), 0);
    assert_int_equal(count_files(f->directory, false), 1);
    assert_int_equal(chmod(f->directory, 0555), 0);
    assert_int_equal(refused_in_child(f, false, "cannot create"), 0);
    assert_int_equal(chmod(f->directory, 0777), 0);
    assert_int_equal(count_files(f->directory, false), 1);
    assert_int_equal(file_read(f->path, 1 << 28, &after, &n, &err), STATUS_OK);
    assert_int_equal(n, bytes);
    assert_memory_equal(after, before, bytes);
    free(before);
    free(after);
    snprintf(path, sizeof path, "%s/none/session", f->directory);
    assert_refused(day0_session_save(f->session, path, &error), DAY0_IO, &error, path);
    snprintf(path, sizeof path, "%s/session/below", f->directory);
    assert_refused(day0_session_save(f->session, path, &error), DAY0_IO, &error, path);
    assert_refused(day0_session_save(f->session, f->directory, &error), DAY0_IO, &error, f->directory);
    char *long_path = malloc(5000);
    memset(long_path, 'x', 4999);
    long_path[4999] = 0;
    assert_refused(day0_session_save(f->session, long_path, &error), DAY0_ARGUMENT, &error, "too long");
    free(long_path);
    assert_int_equal(count_files(f->directory, false), 1);
    assert_untouched(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forged_sessions_are_refused),      cmocka_unit_test(forged_frames_are_refused),
        cmocka_unit_test(forged_states_do_no_harm),         cmocka_unit_test(a_killed_save_loses_nothing),
        cmocka_unit_test(refused_saves_leave_the_old_file),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
