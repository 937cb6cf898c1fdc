/* day0 trace on small models: a file that trace viewers read, with every tile of the step once, and sums that agree
 * with it. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command_help.h"
#include "lab/commands.h"
#include "model_help.h"

#define GOLDEN_ROOT "tests/golden/model"

static char path[64];

static int command(const char *line, char **output)
{
    char words[512];
    snprintf(words, sizeof words, "-o %s %s", path, line);
    return command_run(lab_trace, "trace", words, output);
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number '%s'", key);
    return json_number_value(value);
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    if (!value)
        fail_msg("no text '%s'", key);
    return value;
}

static json_t *parsed(const char *json)
{
    json_error_t at;
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &at);
    if (!root)
        fail_msg("line %d: %s", at.line, at.text);
    return root;
}

static json_t *load_trace(void)
{
    json_error_t at;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &at);
    if (!root)
        fail_msg("line %d: %s", at.line, at.text);
    return root;
}

/* Checks the events; gives the seconds that all workers spent in tiles and in waits, and counts the tiles of a name. */
static void check_events(const json_t *events, unsigned n_workers, double wall_ms, double *busy_ms, double *waited_ms,
                         const char *name, int *n_named, int *n_tiles)
{
    size_t i;
    json_t *event;
    double last_end[8] = {0};
    *busy_ms = *waited_ms = 0;
    *n_named = *n_tiles = 0;
    json_array_foreach ((json_t *)events, i, event) {
        if (strcmp(text(event, "ph"), "M") == 0)
            continue;
        assert_string_equal(text(event, "ph"), "X");
        unsigned worker = (unsigned)number(event, "tid");
        double begin = number(event, "ts"), length = number(event, "dur");
        const json_t *args = json_object_get(event, "args");
        assert_true(worker < n_workers && n_workers <= 8 && length >= 0 && begin + 0.01 >= last_end[worker]);
        assert_true(begin >= 0 && begin + length <= 1e3 * wall_ms + 0.01);
        last_end[worker] = begin + length;
        assert_non_null(text(args, "stream"));
        if (strcmp(text(event, "cat"), "wait") == 0) {
            *waited_ms += 1e-3 * length;
            continue;
        }
        assert_string_equal(text(event, "cat"), "tile");
        assert_true(number(args, "tile") >= 0 && number(args, "wait_us") >= 0);
        *busy_ms += 1e-3 * length;
        ++*n_tiles;
        *n_named += strcmp(text(event, "name"), name) == 0;
    }
}

static void a_trace_holds_the_step(void **state)
{
    (void)state;
    static const struct {
        const char *line, *named;
        unsigned n_workers;
        int n_named;
        bool one_run;
    } cases[] = {
        {"-m " GOLDEN_ROOT "/k31-s1 --prefill 20 --threads 3 --json", "embed", 3, 20, true},
        {"-m " GOLDEN_ROOT "/k3-s1 --prefill 300 --threads 2 --json", "embed", 2, 300, false},
        {"-m " GOLDEN_ROOT "/k31-s1 --decode 200 --threads 2 --json", "residual.slot 3", 2, 2, true},
        {"-m " GOLDEN_ROOT "/linear-s1 --decode 0 --threads 2 --streams off --json", "embed", 2, 1, true},
        {"-m " GOLDEN_ROOT "/linear-s1 --decode 5 --threads 2 --exec eager --json", "embed", 2, 1, true},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char *output;
        print_message("trace %s\n", cases[c].line);
        assert_int_equal(command(cases[c].line, &output), LAB_OK);
        json_t *summary = parsed(output), *trace = load_trace(), *label;
        double busy_ms, waited_ms, wall_ms = number(summary, "wall_ms"), tiles = 0, label_ms = 0;
        int n_named, n_tiles;
        size_t i;
        check_events(json_object_get(trace, "traceEvents"), cases[c].n_workers, cases[c].one_run ? wall_ms : INFINITY,
                     &busy_ms, &waited_ms, cases[c].named, &n_named, &n_tiles);
        assert_int_equal(n_named, cases[c].n_named);
        json_array_foreach (json_object_get(summary, "labels"), i, label) {
            tiles += number(label, "tiles");
            label_ms += number(label, "busy_ms");
        }
        assert_int_equal((int)tiles, n_tiles);
        assert_true(fabs(label_ms - number(summary, "busy_ms")) < 1e-3 * label_ms);
        assert_true(fabs(busy_ms - label_ms) < 0.01 * label_ms + 1e-3 * n_tiles);
        assert_true(waited_ms <= number(summary, "waited_ms") + 0.01);
        assert_int_equal(json_array_size(json_object_get(summary, "workers")), cases[c].n_workers);
        assert_true(number(summary, "lost_events") == 0 && number(summary, "nodes") > 20);
        /* A chain cannot take longer than the step that held it, nor a node less than its longest tile. */
        double critical_ms = number(summary, "critical_path_ms");
        assert_true(critical_ms > 0 && critical_ms <= wall_ms);
        json_decref(summary);
        json_decref(trace);
        free(output);
    }
}

static void the_table_is_for_people(void **state)
{
    (void)state;
    char *output;
    assert_int_equal(command("-m " GOLDEN_ROOT "/k31-s1 --threads 2", &output), LAB_OK);
    assert_non_null(strstr(output, "critical path"));
    assert_non_null(strstr(output, "kda.in "));
    assert_non_null(strstr(output, "\nworker 1 "));
    free(output);
}

static void wrong_calls(void **state)
{
    (void)state;
    static const char *const wrong[] = {"--prefill 0", "--prefill x",    "--decode -1",    "--prefill 1 --decode 1",
                                        "stray",       "--no-such-flag", "--streams later"};
    char *output;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        print_message("trace %s\n", wrong[i]);
        assert_int_equal(command(wrong[i], &output), LAB_USAGE);
        free(output);
    }
    assert_int_equal(command_run(lab_trace, "trace", "-m " GOLDEN_ROOT "/k31-s1", &output), LAB_USAGE);
    free(output);
    remove(path);
    assert_int_equal(command("-m no-such-model", &output), LAB_FAILED);
    assert_string_equal(output, "");
    free(output);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(command_run(lab_trace, "trace", "-m " GOLDEN_ROOT "/k31-s1 -o no/such/folder", &output),
                     LAB_FAILED);
    free(output);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_holds_the_step),
        cmocka_unit_test(the_table_is_for_people),
        cmocka_unit_test(wrong_calls),
    };
    snprintf(path, sizeof path, "/tmp/day0_trace_%ld.json", (long)getpid());
    int failed = cmocka_run_group_tests_name("trace", tests, NULL, NULL);
    remove(path);
    return failed;
}
