/* Sessions as snapshots and files: restored they go on with the same bits (law 5), and whatever else a file holds is
 * refused with a sentence and leaves the session as it was. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "engine_help.h"

enum { PROMPT = 90, MORE = 25 };

static const char note[] = "{\"a\": \"note\"}";

struct fixture {
    day0_options options;
    day0_engine *engine;
    day0_session *saved, *session; /* one to save, one to load into */
    int32_t next[PROMPT + 80];     /* the text that both go on with */
    size_t n_next;
    struct record want;
    char path[512];
    char *file;
    size_t bytes;
};

static struct fixture fixture;

static char *read_whole(const char *path, size_t *bytes)
{
    char *data;
    struct error err;
    if (file_read(path, 1 << 28, &data, bytes, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return data;
}

static void write_whole(const char *path, const void *data, size_t bytes)
{
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, bytes, out), bytes);
    assert_int_equal(fclose(out), 0);
}

/* The text that was saved: a prompt and an answer to it. */
static day0_session *session_with_text(day0_engine *engine)
{
    static struct record r;
    day0_error error;
    day0_session *session = session_or_fail(engine);
    day0_generation g = recorded(engine, &r, 20);
    generate(engine, session, some_text(engine, 30, PROMPT), PROMPT, &g, NULL);
    must(day0_session_set_note(session, note, sizeof note, &error), &error);
    return session;
}

/* The next turn: the session's text and more. Its first tokens must not be computed again if `known`. */
static void go_on(day0_engine *engine, day0_session *session, struct record *r, bool known)
{
    struct fixture *f = &fixture;
    day0_reuse reuse;
    day0_generation g = recorded(engine, r, MORE);
    generate(engine, session, f->next, f->n_next, &g, &reuse);
    assert_int_equal(reuse.tokens_reused, known ? PROMPT + 19 : 0);
}

static int open_fixture(void **state)
{
    struct fixture *f = &fixture;
    day0_error error;
    f->options = engine_options();
    f->options.context_max = 300;
    f->options.sessions_max = 2;
    f->options.checkpoints_max = 0; /* only the session's own state counts */
    f->engine = engine_or_fail(&f->options);
    f->saved = session_with_text(f->engine);
    f->session = session_or_fail(f->engine);
    size_t n;
    const int32_t *tokens = day0_session_tokens(f->saved, &n);
    memcpy(f->next, tokens, n * sizeof *tokens);
    memcpy(f->next + n, some_text(f->engine, 700, 30), 30 * sizeof *tokens);
    f->n_next = n + 30;
    temporary_path(f->path, sizeof f->path, "session");
    must(day0_session_save(f->saved, f->path, &error), &error);
    f->file = read_whole(f->path, &f->bytes);
    day0_session *other = f->saved; /* what follows, computed without any file */
    go_on(f->engine, other, &f->want, true);
    day0_session_close(other);
    f->saved = session_with_text(f->engine);
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    (void)state;
    unlink(fixture.path);
    free(fixture.file);
    day0_engine_close(fixture.engine);
    return 0;
}

static void assert_note(const day0_session *session)
{
    size_t bytes;
    const void *got = day0_session_note(session, &bytes);
    assert_int_equal(bytes, sizeof note);
    assert_memory_equal(got, note, sizeof note);
}

/* ---- law 5 ---- */

static void law_5_a_snapshot_goes_on_with_the_same_bits(void **state)
{
    struct fixture *f = *state;
    static struct record r;
    void *data;
    size_t bytes, n;
    day0_error error;
    must(day0_session_snapshot(f->saved, &data, &bytes, &error), &error);
    must(day0_session_restore(f->session, data, bytes, &error), &error);
    const int32_t *tokens = day0_session_tokens(f->session, &n);
    assert_int_equal(n, PROMPT + 20);
    assert_memory_equal(tokens, f->next, n * sizeof *tokens);
    assert_memory_equal(day0_session_logits(f->session), day0_session_logits(f->saved), 2048 * sizeof(float));
    assert_note(f->session);
    go_on(f->engine, f->session, &r, true);
    assert_same_record(&r, &f->want, "a restored snapshot");
    /* Over a session at work; its own snapshot; a snapshot of nothing. */
    day0_generation g = recorded(f->engine, &r, 50);
    must(day0_session_submit(f->session, f->next, 100, &g, NULL, &error), &error);
    must(day0_engine_step(f->engine, NULL, &error), &error);
    must(day0_session_restore(f->session, data, bytes, &error), &error);
    assert_int_equal(r.finish, DAY0_FINISH_CANCELLED);
    go_on(f->engine, f->session, &r, true);
    assert_same_record(&r, &f->want, "restored over work");
    free(data);
    day0_session_close(f->session);
    f->session = session_or_fail(f->engine);
    must(day0_session_snapshot(f->session, &data, &bytes, &error), &error);
    day0_session_close(f->session);
    f->session = session_with_text(f->engine);
    must(day0_session_restore(f->session, data, bytes, &error), &error);
    free(data);
    day0_session_tokens(f->session, &n);
    assert_int_equal(n, 0);
    assert_null(day0_session_logits(f->session));
    assert_null(day0_session_note(f->session, &bytes));
    assert_int_equal(bytes, 0);
    go_on(f->engine, f->session, &r, false);
    assert_same_record(&r, &f->want, "after an empty snapshot");
}

/* A new engine on another instruction tier and with other threads has the same numerics. */
static void law_5_a_file_goes_on_in_another_engine_and_tier(void **state)
{
    struct fixture *f = *state;
    static struct record r;
    const char *tiers[8];
    size_t n_tiers = machine_tiers(tiers, 8);
    for (size_t t = 0; t < n_tiers; t++) {
        day0_options options = f->options;
        day0_error error;
        options.cpu = tiers[t];
        options.threads = 1;
        options.exec = t % 2 ? "graph" : "eager";
        day0_engine *engine = engine_or_fail(&options);
        day0_session *session = session_or_fail(engine);
        bool recompute = true;
        must(day0_session_load(session, f->path, &recompute, &error), &error);
        assert_false(recompute);
        assert_note(session);
        go_on(engine, session, &r, true);
        assert_same_record(&r, &f->want, tiers[t]);
        day0_engine_close(engine);
    }
}

static void law_5_a_new_process_goes_on(void **state)
{
    struct fixture *f = *state;
    char self[512], result[512];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = 0;
    temporary_path(result, sizeof result, "result");
    pid_t child = fork();
    if (child == 0) {
        execl(self, self, "--go-on", f->path, result, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    size_t bytes;
    char *data = read_whole(result, &bytes);
    unlink(result);
    assert_int_equal(bytes, sizeof(struct record));
    assert_same_record((const struct record *)(const void *)data, &f->want, "a new process");
    free(data);
}

/* What the new process does: loads, goes on, writes what came. */
static int child_main(const char *path, const char *result)
{
    static struct record r;
    struct fixture *f = &fixture;
    day0_options options = engine_options();
    day0_error error;
    day0_engine *engine = engine_or_fail(&options);
    day0_session *session = session_or_fail(engine);
    must(day0_session_load(session, path, NULL, &error), &error);
    size_t n;
    const int32_t *tokens = day0_session_tokens(session, &n);
    memcpy(f->next, tokens, n * sizeof *tokens);
    memcpy(f->next + n, some_text(engine, 700, 30), 30 * sizeof *tokens);
    f->n_next = n + 30;
    go_on(engine, session, &r, true);
    day0_engine_close(engine);
    r.cancels = NULL;
    write_whole(result, &r, sizeof r);
    return 0;
}

/* ---- damaged files ---- */

/* Refused by name, whatever is in it; the session stays as it was. */
static void assert_load_refused(struct fixture *f, const char *path, const char *part)
{
    day0_error error = {0};
    bool recompute = true;
    size_t n, bytes;
    day0_status status = day0_session_load(f->session, path, &recompute, &error);
    assert_int_not_equal(status, DAY0_OK);
    assert_false(recompute);
    if (!strstr(error.text, path) || !strstr(error.text, part))
        fail_msg("the sentence '%s' does not say '%s'", error.text, part);
    day0_session_tokens(f->session, &n);
    assert_int_equal(n, PROMPT + 20);
    assert_non_null(day0_session_note(f->session, &bytes));
    assert_non_null(day0_session_logits(f->session));
}

static void fresh_session(struct fixture *f)
{
    day0_session_close(f->session);
    f->session = session_with_text(f->engine);
}

static void assert_untouched(struct fixture *f, const char *what)
{
    static struct record r;
    go_on(f->engine, f->session, &r, true);
    assert_same_record(&r, &f->want, what);
    fresh_session(f);
}

static void truncated_files_are_refused(void **state)
{
    struct fixture *f = *state;
    fresh_session(f);
    char path[512];
    temporary_path(path, sizeof path, "cut");
    write_whole(path, f->file, f->bytes);
    size_t step = slow_tests() ? 100 : 2900;
    for (size_t n = (f->bytes - 1) / step * step;; n -= step) {
        assert_int_equal(truncate(path, (off_t)n), 0);
        assert_load_refused(f, path, "session");
        if (n == 0)
            break;
    }
    write_whole(path, f->file, f->bytes);
    FILE *out = fopen(path, "ab");
    fputc(0, out);
    fclose(out);
    assert_load_refused(f, path, "damaged");
    assert_untouched(f, "after truncated files");
    unlink(path);
    day0_error error;
    bool recompute;
    assert_refused(day0_session_load(f->session, path, &recompute, &error), DAY0_NOT_FOUND, &error, path);
    assert_refused(day0_session_load(f->session, "/tmp", &recompute, &error), DAY0_FORMAT, &error, "/tmp");
    assert_untouched(f, "after files that are none");
}

static void flipped_bytes_are_noticed(void **state)
{
    struct fixture *f = *state;
    char path[512];
    temporary_path(path, sizeof path, "flipped");
    write_whole(path, f->file, f->bytes);
    int file = open(path, O_RDWR);
    assert_true(file >= 0);
    for (size_t at = 0; at < f->bytes; at += at < 250 ? 1 : slow_tests() ? 50 : 2450) {
        char flipped = (char)(f->file[at] ^ (at % 3 ? 1 << at % 8 : 0xff));
        assert_int_equal(pwrite(file, &flipped, 1, (off_t)at), 1);
        assert_load_refused(f, path, "");
        assert_int_equal(pwrite(file, &f->file[at], 1, (off_t)at), 1);
    }
    close(file);
    unlink(path);
    assert_untouched(f, "after flipped bytes");
}

/* The same of snapshots in memory, every byte of header and text; their end is also exact. */
static void damaged_snapshots_are_refused(void **state)
{
    struct fixture *f = *state;
    void *data;
    size_t bytes;
    day0_error error;
    must(day0_session_snapshot(f->saved, &data, &bytes, &error), &error);
    unsigned char *at = data;
    for (size_t i = 0; i < bytes; i += i < 800 ? 1 : bytes / 50) {
        at[i] ^= 0x10;
        assert_int_not_equal(day0_session_restore(f->session, data, bytes, &error), DAY0_OK);
        at[i] ^= 0x10;
        unsigned char *part = malloc(i ? i : 1); /* exactly so long, for the sanitizer */
        memcpy(part, data, i);
        assert_int_not_equal(day0_session_restore(f->session, part, i, &error), DAY0_OK);
        free(part);
    }
    must(day0_session_restore(f->session, data, bytes, &error), &error);
    free(data);
    assert_untouched(f, "after damaged snapshots");
}

/* ---- other checkpoints and numerics ---- */

static void files_of_other_models_and_numerics(void **state)
{
    struct fixture *f = *state;
    static struct record r, want;
    char path[512];
    day0_error error;
    temporary_path(path, sizeof path, "other");
    day0_options options = f->options;
    options.model = "tests/golden/model/k31-s1";
    day0_engine *engine = engine_or_fail(&options);
    day0_session *session = session_or_fail(engine);
    int32_t few[] = {1, 2, 3, 4, 5};
    generate(engine, session, few, 5, NULL, NULL);
    must(day0_session_save(session, path, &error), &error);
    bool recompute = true;
    assert_refused(day0_session_load(session, f->path, &recompute, &error), DAY0_ARGUMENT, &error,
                   "another checkpoint");
    day0_engine_close(engine);
    assert_load_refused(f, path, "another checkpoint");
    assert_untouched(f, "after another model's file");
    /* Other numerics: the text alone, computed again. */
    options = f->options;
    options.kv = "f32";
    engine = engine_or_fail(&options);
    session = session_or_fail(engine);
    void *data;
    size_t bytes, n;
    must(day0_session_snapshot(f->saved, &data, &bytes, &error), &error);
    assert_refused(day0_session_restore(session, data, bytes, &error), DAY0_ARGUMENT, &error, "kv=f32");
    free(data);
    go_on(engine, session, &want, false);
    must(day0_session_load(session, f->path, &recompute, &error), &error);
    assert_true(recompute);
    assert_note(session);
    day0_session_tokens(session, &n);
    assert_int_equal(n, PROMPT + 20);
    assert_null(day0_session_logits(session));
    must(day0_session_save(session, path, &error), &error); /* a text without a state */
    go_on(engine, session, &r, false);
    assert_same_record(&r, &want, "a session of other numerics");
    must(day0_session_load(session, path, &recompute, &error), &error);
    assert_false(recompute);
    go_on(engine, session, &r, false);
    assert_same_record(&r, &want, "a text without a state");
    day0_engine_close(engine);
    options = f->options; /* other weights, in the sense of numerics */
    options.dense = "int8";
    engine = engine_or_fail(&options);
    must(day0_session_load(session_or_fail(engine), f->path, &recompute, &error), &error);
    assert_true(recompute);
    day0_engine_close(engine);
    /* A context that is too short for it. */
    options = f->options;
    options.context_max = 100;
    engine = engine_or_fail(&options);
    session = session_or_fail(engine);
    assert_refused(day0_session_load(session, f->path, &recompute, &error), DAY0_ARGUMENT, &error, "context_max");
    day0_engine_close(engine);
    unlink(path);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(law_5_a_snapshot_goes_on_with_the_same_bits),
        cmocka_unit_test(law_5_a_file_goes_on_in_another_engine_and_tier),
        cmocka_unit_test(law_5_a_new_process_goes_on),
        cmocka_unit_test(truncated_files_are_refused),
        cmocka_unit_test(flipped_bytes_are_noticed),
        cmocka_unit_test(damaged_snapshots_are_refused),
        cmocka_unit_test(files_of_other_models_and_numerics),
    };
    if (argc == 4 && strcmp(argv[1], "--go-on") == 0)
        return child_main(argv[2], argv[3]);
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
