/* The command line as a user meets it: every example of every --help, wrong calls, missing and unwritable
 * files, Ctrl-C.
 *
 * Commands run under sh in a fresh folder, `day0` on their PATH; afterwards the folder shows what was left behind. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "synth_help.h"
#include "text/utf8.h"

enum { SCRIPT_BYTES = 8192, COMMANDS_MAX = 16 };

static char binary[PATH_MAX], model[PATH_MAX + 32],
    top[64]; /* top: folders `bin`, `work`; files `script`, `out`, `err` */

/* What a script left: its exit status, standard output and standard error. */
struct result {
    int status;
    char *out, *err;
    size_t out_bytes;
};

static char *read_capture(const char *name, size_t *bytes)
{
    char path[128], *data;
    struct error err;
    snprintf(path, sizeof path, "%s/%s", top, name);
    if (file_read(path, 1 << 28, &data, bytes, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return data;
}

static int shell(const char *command)
{
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static struct result run(const char *script)
{
    char text[SCRIPT_BYTES + 256], path[96], command[512];
    struct error err;
    size_t bytes;
    int length = snprintf(text, sizeof text, "cd %s/work && PATH=%s/bin:$PATH || exit 99\n%s\n", top, top, script);
    assert_true(length > 0 && (size_t)length < sizeof text);
    snprintf(path, sizeof path, "%s/script", top);
    if (file_write(path, text, (size_t)length, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    snprintf(command, sizeof command, "timeout 60 sh %s >%s/out 2>%s/err </dev/null", path, top, top);
    struct result r = {.status = shell(command)};
    r.out = read_capture("out", &r.out_bytes);
    r.err = read_capture("err", &bytes);
    return r;
}

static void result_free(struct result *r)
{
    free(r->out);
    free(r->err);
}

/* Runs a script that must succeed; the caller frees the result. */
static struct result run_well(const char *script)
{
    struct result r = run(script);
    if (r.status != 0)
        fail_msg("`%s` ended with %d: %s", script, r.status, r.err);
    return r;
}

/* Runs a script that must fail with one sentence that contains `word`, nothing on standard output. */
static void run_badly(const char *script, const char *word)
{
    struct result r = run(script);
    const char *end = strchr(r.err, '\n');
    if (r.status == 0 || r.status > 2)
        fail_msg("`%s` ended with %d: %s", script, r.status, r.err);
    if (!end || end[1] != 0 || strncmp(r.err, "day0", 4) != 0 || end - r.err < 20)
        fail_msg("`%s` did not say one sentence: '%s'", script, r.err);
    if (!strstr(r.err, word))
        fail_msg("`%s`: no '%s' in '%s'", script, word, r.err);
    if (r.out_bytes > 0)
        fail_msg("`%s` wrote '%s' and failed", script, r.out);
    result_free(&r);
}

/* The names in the work folder, one after the other: to see that nothing came and nothing went. */
static char *listing(void)
{
    struct result r = run_well("ls -lA --time-style=full-iso");
    free(r.err);
    return r.out;
}

static int make_folders(void **state)
{
    (void)state;
    char command[2 * PATH_MAX + 512], root[PATH_MAX];
    const char *given = getenv("DAY0_BINARY");
    ssize_t length = readlink("/proc/self/exe", binary, sizeof binary - 8);
    if (given) {
        assert_non_null(realpath(given, binary));
    } else { /* build/x/tests/model/commands_test: the command is build/x/day0 */
        binary[length > 0 ? length : 0] = 0;
        for (int i = 0; i < 3; i++)
            *strrchr(binary, '/') = 0;
        strcat(binary, "/day0");
    }
    if (access(binary, X_OK) != 0)
        fail_msg("there is no %s; run make first", binary);
    unsetenv("DAY0_MODEL");
    assert_non_null(getcwd(root, sizeof root));
    snprintf(model, sizeof model, "%s/models/jargon-k31", root);
    snprintf(top, sizeof top, "/tmp/day0_commands_XXXXXX");
    assert_non_null(mkdtemp(top));
    snprintf(command, sizeof command,
             "mkdir %s/bin %s/work && ln -s '%s' %s/bin/day0 && ln -s '%s/models' %s/work/models", top, top, binary,
             top, root, top);
    assert_int_equal(shell(command), 0);
    setenv("HOME", top, 1);
    setenv("DAY0_BANDWIDTH_GB_S", "10", 1); /* check measures nothing */
    struct result r = run_well("printf 'some text to read\\n' >README.md; : >empty; echo 1984 5 6 7 300 >prompt.ids;"
                               "echo 1984 9 10 11 12 13 14 15 16 17 18 >tokens.txt;"
                               "echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}' >chat.json");
    result_free(&r);
    return 0;
}

static int remove_folders(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", top);
    return shell(command);
}

/* The commands that `day0 --help` lists. */
static size_t list_commands(char names[COMMANDS_MAX][16])
{
    struct result r = run_well("day0 --help");
    size_t n = 0;
    for (char *save, *line = strtok_r(r.out, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (n < COMMANDS_MAX && strncmp(line, "  ", 2) == 0 && sscanf(line + 2, "%15[a-z] ", names[n]) == 1 &&
            strcmp(names[n], "day") != 0)
            n++;
    result_free(&r);
    assert_true(n >= 4);
    return n;
}

/* A line of help with DIR as the bundled model. Who would talk at a terminal is given something to say. */
static void run_example(const char *line)
{
    char script[SCRIPT_BYTES];
    const char *dir = strstr(line, "-m DIR ");
    snprintf(script, sizeof script, "%s%.*s%s%s%s", strncmp(line, "day0 chat", 9) == 0 ? "echo What is that? | " : "",
             dir ? (int)(dir - line) : 0, line, dir ? "-m '" : "", dir ? model : "", dir ? "' " : "");
    strncat(script, dir ? dir + 7 : line, sizeof script - strlen(script) - 1);
    double begin = clock_seconds();
    struct result r = run_well(script);
    double seconds = clock_seconds() - begin;
    if (seconds > 5)
        print_message("%.1f s: %s\n", seconds, line);
    if (!strstr(line, "--out") && !strchr(line, '>') && !strstr(line, "day0 synth") && r.out_bytes < 2)
        fail_msg("`%s` says nothing", script);
    result_free(&r);
}

static void examples_of_help_work(void **state)
{
    (void)state;
    char names[COMMANDS_MAX][16];
    size_t n = list_commands(names), n_examples = 0;
    for (size_t i = 0; i <= n; i++) {
        char script[64];
        snprintf(script, sizeof script, "day0 %s --help", i < n ? names[i] : "");
        struct result r = run_well(script);
        size_t before = n_examples;
        assert_true(r.err[0] == 0 && r.out_bytes > 100);
        char *examples = strstr(r.out, "Example");
        for (char *save, *line = examples ? strtok_r(examples, "\n", &save) : NULL; line;
             line = strtok_r(NULL, "\n", &save))
            if (strncmp(line, "  ", 2) == 0 && strstr(line, "day0 ")) {
                run_example(line + 2);
                n_examples++;
            }
        if (n_examples == before)
            fail_msg("`%s` has no example", script);
        result_free(&r);
    }
    print_message("%zu examples of %zu commands\n", n_examples, n);
    struct result r =
        run_well("test $(wc -c <prompt.f32) = $((5 * 2048 * 4)) && test $(wc -c <logits.f32) = $((11 * 2048 * 4))"
                 " && rm prompt.f32 logits.f32 && test $(wc -l <speed.csv) -gt 2 && grep -q '</svg>' speed.svg"
                 " && rm -r speed.csv speed.svg step.json random");
    result_free(&r);
}

static void wrong_calls(void **state)
{
    (void)state;
    char names[COMMANDS_MAX][16], script[64], *before = listing();
    size_t n = list_commands(names);
    for (size_t i = 0; i < n; i++) {
        snprintf(script, sizeof script, "day0 %s --no-such-flag", names[i]);
        run_badly(script, "--no-such-flag");
        snprintf(script, sizeof script, "day0 %s -Q", names[i]);
        run_badly(script, "-Q");
        snprintf(script, sizeof script, "day0 %s -m", names[i]);
        run_badly(script, "-m");
        snprintf(script, sizeof script, "day0 %s stray words", names[i]);
        run_badly(script, names[i]);
    }
    static const struct {
        const char *script, *word;
    } bad[] = {
        {"day0 dance", "dance"},
        {"day0 run -p x --threads 0", "--threads"},
        {"day0 run -p x --threads two", "two"},
        {"day0 run -p x --kv f16", "f16"},
        {"day0 run -p x --li int8", "int8"},
        {"day0 run -p x --li-scale round", "round"},
        {"day0 run -p x --exec later", "later"},
        {"day0 run -p x --streams some", "some"},
        {"day0 run -p x --act fast", "fast"},
        {"day0 run -p x --cpu mmx", "mmx"},
        {"day0 run -p x -n 0", "--tokens"},
        {"day0 run -p x -n -5", "-5"},
        {"day0 run -p x -n 99999999999999999999", "99999999999999999999"},
        {"day0 run -p x --temp -1", "--temp"},
        {"day0 run -p x --temp nan", "nan"},
        {"day0 run -p x --temp ''", "--temp"},
        {"day0 run -p x --top-p 0", "--top-p"},
        {"day0 run -p x --top-k -1", "--top-k"},
        {"day0 run -p x --min-p 2", "--min-p"},
        {"day0 run -p x --seed 1x", "1x"},
        {"day0 run -p x -f README.md", "-f"},
        {"day0 run -f nowhere", "nowhere"},
        {"day0 run --raw -f empty", "empty"},
        {"day0 run --raw -p ''", "empty"},
        {"day0 run -m nowhere -p x", "nowhere"},
        {"day0 run -m README.md -p x", "README.md"},
        {"day0 tokenize -f nowhere", "nowhere"},
        {"echo 5 x | day0 tokenize --decode", "x"},
        {"echo 999999 | day0 tokenize --decode", "999999"},
        {"day0 render --request nowhere", "nowhere"},
        {"day0 render --request README.md", "day0 render"},
        {"day0 tokenize -f README.md >/dev/full", "output"},
        {"day0 render -r chat.json >/dev/full", "output"},
        {"day0 run -p x -n 3 >/dev/full", "output"},
        {"day0 trace -o full.json >/dev/full", "output"},
        {"day0 trace -o no/such/folder", "no/such"},
        {"day0 trace", "-o"},
        {"day0 bench --plot no/such/x.svg", "no/such"},
        {"DAY0_F32_GFLOP_S=fast day0 check", "DAY0_F32_GFLOP_S"},
        {"DAY0_BANDWIDTH_GB_S=0 day0 check", "DAY0_BANDWIDTH_GB_S"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        run_badly(bad[i].script, bad[i].word);
    char *after = listing();
    assert_string_equal(after, before);
    free(before);
    free(after);
}

/* logits says what is wrong in one sentence, leaves nothing, and an older file as it was. */
static void logits_refuses_cleanly(void **state)
{
    (void)state;
    struct result r =
        run_well("echo 1 2 abc >words.ids; echo 5 6 5000 >large.ids; echo 5 -6 >negative.ids; echo old >old.f32;"
                 "echo 99999999999999999999 >huge.ids; printf '5 6 \\000 7' >nul.ids; mkdir folder");
    result_free(&r);
    static const struct {
        const char *arguments, *word;
    } bad[] = {
        {"--tokens words.ids --out x.f32", "abc"},
        {"--tokens large.ids --out x.f32", "5000"},
        {"--tokens large.ids --out old.f32", "5000"},
        {"--tokens negative.ids --out x.f32", "-6"},
        {"--tokens huge.ids --out x.f32", "9999"},
        {"--tokens nul.ids --out x.f32", "nul.ids"},
        {"--tokens empty --out x.f32", "empty"},
        {"--tokens nowhere --out x.f32", "nowhere"},
        {"--tokens folder --out x.f32", "folder"},
        {"--tokens prompt.ids --out no/such/folder/x.f32", "no/such/folder"},
        {"--tokens prompt.ids --out folder", "folder"},
        {"--tokens prompt.ids --out full", "full"},
        {"--tokens prompt.ids --out x.f32 -m nowhere", "nowhere"},
        {"--tokens prompt.ids --out x.f32 --dump select=no/such/s.txt", "no/such"},
        {"--tokens prompt.ids --out no/such/x.f32 --dump select=s.txt", "no/such"},
        {"--tokens large.ids --out x.f32 --dump select=s.txt", "5000"},
        {"--tokens prompt.ids --out x.f32 --dump other=s.txt", "other"},
        {"--tokens prompt.ids --out x.f32 --pieces 0", "--pieces"},
        {"--tokens prompt.ids --out x.f32 --pieces 1,,2", "--pieces"},
        {"--tokens prompt.ids --out x.f32 --pieces ''", "--pieces"},
        {"--tokens prompt.ids", "--out"},
        {"--out x.f32", "--tokens"},
    };
    r = run_well("ln -s /dev/full full");
    result_free(&r);
    char *before = listing(), script[256];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(script, sizeof script, "day0 logits %s", bad[i].arguments);
        run_badly(script, bad[i].word);
        char *after = listing();
        if (strcmp(before, after) != 0)
            fail_msg("`%s` leaves\n%safter\n%s", script, after, before);
        free(after);
    }
    free(before);
    r = run_well("rm -r folder full old.f32 words.ids large.ids negative.ids huge.ids nul.ids");
    result_free(&r);
}

/* Where the output is no file, it is written into, not replaced by one. */
static void logits_into_a_pipe(void **state)
{
    (void)state;
    struct result r =
        run_well("mkfifo pipe; cat pipe >copy & day0 logits --tokens prompt.ids --out pipe && wait &&"
                 "test -p pipe && test $(wc -c <copy) = $((5 * 2048 * 4)) && rm pipe copy &&"
                 "day0 logits --tokens prompt.ids --out /dev/stdout | wc -c | grep -qx $((5 * 2048 * 4))");
    assert_string_equal(r.err, "");
    result_free(&r);
}

static void tokenize_there_and_back(void **state)
{
    (void)state;
    char path[96];
    struct rng rng = {9};
    uint8_t bytes[6000];
    struct error err;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)rng_next(&rng);
    snprintf(path, sizeof path, "%s/work/random", top);
    if (file_write(path, bytes, sizeof bytes, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    struct result r = run_well("printf 'Hello, w\\303\\266rld \\360\\237\\220\\246 <|open|>x<|sep|>\\n\\n  end' >text;"
                               "for f in text random empty README.md; do"
                               "  day0 tokenize -f $f | day0 tokenize --decode | cmp - $f &&"
                               "  day0 tokenize --json <$f | day0 tokenize --decode --json | cmp - $f || exit 1; done;"
                               "rm text random");
    assert_string_equal(r.err, "");
    result_free(&r);
}

static void answers(void **state)
{
    (void)state;
    struct result quiet = run_well("day0 run -n 12 --seed 1"), closed = run_well("day0 run -n 12 --seed 1 <&-"),
                  empty = run_well(": | day0 run -n 12 --seed 1"),
                  piped = run_well("echo What is a hacker? | day0 run -n 12 --seed 1"),
                  other = run_well("day0 run -p 'What is a kluge?' -n 12 --seed 1");
    assert_true(quiet.out_bytes > 5 && quiet.err[0] == 0);
    assert_string_equal(closed.out, quiet.out);
    assert_string_equal(empty.out, quiet.out);
    assert_string_equal(piped.out, quiet.out);
    assert_string_not_equal(other.out, quiet.out);
    struct result *all[] = {&quiet, &closed, &empty, &piped, &other};
    for (size_t i = 0; i < 5; i++)
        result_free(all[i]);
}

/* ---- Ctrl-C ---- */

/* A model that babbles: random weights behind the bundled tokenizer, so that characters come in halves and the end
 * never. */
static struct synth_directory write_babbler(void)
{
    char command[3 * PATH_MAX];
    struct synth synth = synth_default();
    synth.vocabulary = 2048;
    struct synth_directory directory = synth_write(&synth);
    snprintf(command, sizeof command, "cp '%s'/tiktoken.model '%s'/tokenizer_config.json %s", model, model,
             directory.path);
    assert_int_equal(shell(command), 0);
    return directory;
}

static void assert_whole_characters(const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        struct utf8_step step = utf8_step(text + at, bytes - at);
        if (step.kind != UTF8_VALID)
            fail_msg("byte %zu of %zu is no part of a whole character", at, bytes);
        at += step.bytes;
    }
}

static void interrupted_run_ends_well(void **state)
{
    (void)state;
    enum { ROUNDS = 5, OUT_MAX = 1 << 20 };
    static char out[OUT_MAX];
    struct synth_directory babbler = write_babbler();
    for (int round = 0; round < ROUNDS; round++) {
        int ends[2], status;
        size_t bytes = 0;
        ssize_t got;
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) {
            char seed[16];
            snprintf(seed, sizeof seed, "%d", round);
            dup2(ends[1], STDOUT_FILENO);
            close(ends[0]);
            close(ends[1]);
            execl(binary, "day0", "run", "-m", babbler.path, "--raw", "-p", "x", "-n", "1000000", "--temp", "1",
                  "--top-p", "1", "--seed", seed, (char *)NULL);
            _exit(127);
        }
        close(ends[1]);
        double sent = 0;
        while ((got = read(ends[0], out + bytes, OUT_MAX - bytes)) > 0) {
            bytes += (size_t)got;
            if (sent == 0 && bytes > (size_t)(1 + 37 * round)) {
                kill(child, SIGINT);
                sent = clock_seconds();
            }
        }
        double took = clock_seconds() - sent;
        assert_int_equal(waitpid(child, &status, 0), child);
        close(ends[0]);
        assert_true(sent > 0 && bytes > 0 && bytes < OUT_MAX);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 130);
        if (took > 1.0)
            fail_msg("it took %.1f s to stop", took);
        assert_whole_characters(out, bytes);
        assert_int_equal(out[bytes - 1], '\n');
    }
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", babbler.path);
    assert_int_equal(shell(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_of_help_work),     cmocka_unit_test(wrong_calls),
        cmocka_unit_test(logits_refuses_cleanly),    cmocka_unit_test(logits_into_a_pipe),
        cmocka_unit_test(tokenize_there_and_back),   cmocka_unit_test(answers),
        cmocka_unit_test(interrupted_run_ends_well),
    };
    return cmocka_run_group_tests_name("commands", tests, make_folders, remove_folders);
}
