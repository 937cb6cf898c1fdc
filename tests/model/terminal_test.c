/* day0 chat and day0 run on a terminal: Ctrl-C, commands, input of several lines, progress, and chat through
 * a pipe.
 *
 * Where an answer must go on for a while until it is interrupted, questions are asked until one does. */
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "day0.h"
#include "base/file.h"
#include "model_help.h"
#include "terminal_help.h"

enum { TRIES = 40, WORDS_MAX = 24 };

static char folder[64], conversation[96], other[96];

static int make_folder(void **state)
{
    (void)state;
    unsetenv("DAY0_MODEL");
    snprintf(folder, sizeof folder, "/tmp/day0_terminal_XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(conversation, sizeof conversation, "%s/conversation", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* day0 with words that blanks separate. */
static struct terminal open_day0(const char *words)
{
    static char copy[512];
    const char *list[WORDS_MAX + 2] = {terminal_day0()};
    size_t n = 1;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *save, *at = strtok_r(copy, " ", &save); at; at = strtok_r(NULL, " ", &save)) {
        assert_true(n <= WORDS_MAX);
        list[n++] = at;
    }
    return terminal_open(list);
}

static struct terminal open_chat(const char *words)
{
    char all[256];
    snprintf(all, sizeof all, "chat --threads 1 %s", words);
    struct terminal t = open_day0(all);
    terminal_expect(&t, "/help says more.\n");
    terminal_expect_prompt(&t, "> ");
    return t;
}

/* Types a line, waits for what it must say and for the next prompt. */
static void say(struct terminal *t, const char *line, const char *expected)
{
    terminal_type(t, line);
    terminal_type(t, "\r");
    terminal_expect(t, "\n"); /* the echo */
    if (expected)
        terminal_expect(t, expected);
    t->seen -= t->text[t->seen - 1] == '\n'; /* the prompt may follow at once */
    terminal_expect_prompt(t, "\n> ");
}

/* Ends a chat at its prompt. */
static void leave(struct terminal *t)
{
    terminal_type(t, CTRL_D);
    assert_int_equal(terminal_close(t), 0);
}

/* The note of a saved session: the conversation. The caller owns it. */
static json_t *saved_messages(const char *path)
{
    day0_engine *engine;
    day0_session *session;
    day0_error error;
    size_t bytes;
    day0_options options = day0_options_default();
    options.model = "models/jargon-k31";
    options.checkpoints_max = 0;
    if (day0_engine_open(&engine, &options, &error) != DAY0_OK ||
        day0_session_open(&session, engine, &error) != DAY0_OK ||
        day0_session_load(session, path, NULL, &error) != DAY0_OK)
        fail_msg("%s", error.text);
    const char *note = day0_session_note(session, &bytes);
    json_t *messages = note ? json_loadb(note, bytes, 0, NULL) : NULL;
    assert_true(json_is_array(messages));
    day0_engine_close(engine);
    return messages;
}

static void assert_message(const json_t *messages, size_t index, const char *role, const char *content)
{
    const json_t *message = json_array_get(messages, index);
    assert_string_equal(json_string_value(json_object_get(message, "role")), role);
    if (content)
        assert_string_equal(json_string_value(json_object_get(message, "content")), content);
}

/* ---- Ctrl-C ---- */

/* Asks and interrupts the answer after some bytes; it may be over before that, or while the key is on its
 * way. */
static void ask_and_interrupt(struct terminal *t, size_t bytes)
{
    terminal_type(t, "What is a hacker?\r");
    terminal_expect(t, "\n");
    terminal_await_bytes(t, bytes);
    terminal_type(t, CTRL_C);
    terminal_expect_prompt(t, "\n> ");
    say(t, "/stats", " messages, ");
}

static void ctrl_c_stops_the_answer_alone(void **state)
{
    (void)state;
    struct terminal t = open_chat("--temp 1 --seed 1 -n 4000");
    for (int i = 0; i < TRIES && terminal_count(&t, "(stopped)\n") < 3; i++)
        ask_and_interrupt(&t, (size_t)(10 + 5 * (i % 8)));
    assert_int_equal(terminal_count(&t, "(stopped)\n"), 3);
    terminal_type(&t, "Are you there?\r");
    terminal_expect(&t, "\n");
    assert_true(terminal_await_bytes(&t, 3));
    terminal_expect_prompt(&t, "\n> ");
    leave(&t);
}

static void ctrl_c_at_the_prompt_throws_the_line_away(void **state)
{
    (void)state;
    struct terminal t = open_chat("--temp 0 -n 3");
    terminal_type(&t, "half a questi");
    terminal_expect(&t, "half a questi");
    terminal_type(&t, CTRL_C);
    terminal_expect_prompt(&t, "(Ctrl-D ends)\n> ");
    terminal_type(&t, "\"\"\"\rline\r"); /* so in the middle of several lines */
    terminal_expect_prompt(&t, "... line\n... ");
    terminal_type(&t, CTRL_C);
    terminal_expect_prompt(&t, "(Ctrl-D ends)\n> ");
    terminal_type(&t, CTRL_C);
    terminal_expect_prompt(&t, "(Ctrl-D ends)\n> ");
    say(&t, "/stats", "\n0 messages, ");
    say(&t, "What?", NULL);
    say(&t, "/stats", "\n2 messages, ");
    leave(&t);
}

/* Reasoning is dim; an interrupt within it gives the terminal its colours back. */
static void ctrl_c_leaves_the_terminal_bright(void **state)
{
    (void)state;
    struct terminal t = open_chat("--temp 1 --seed 1 -n 4000 --think");
    for (int i = 0; i < TRIES && terminal_count(&t, "(stopped)\n") < 2; i++)
        ask_and_interrupt(&t, 20);
    assert_int_equal(terminal_count(&t, "(stopped)\n"), 2);
    assert_true(terminal_count(&t, "\033[2m") > 0);
    assert_int_equal(terminal_count(&t, "\033[2m"), terminal_count(&t, "\033[0m"));
    leave(&t);
}

static void ctrl_c_ends_run_with_130(void **state)
{
    (void)state;
    bool done = false;
    for (int seed = 1; seed <= TRIES && !done; seed++) {
        char words[64];
        snprintf(words, sizeof words, "run --threads 1 --temp 1 -n 4000 --seed %d", seed);
        struct terminal t = open_day0(words);
        bool goes_on = terminal_await_bytes(&t, (size_t)(10 + seed));
        if (goes_on)
            terminal_type(&t, CTRL_C);
        while (terminal_await_bytes(&t, t.bytes - t.seen + 1))
            ;
        assert_true(t.bytes > 0 && t.text[t.bytes - 1] == '\n');
        int status = terminal_close(&t);
        assert_true(status == 130 || status == 0);
        done = status == 130;
    }
    assert_true(done);
}

/* ---- input ---- */

static void several_lines_and_every_language(void **state)
{
    (void)state;
    struct terminal t = open_chat("--temp 0 -n 3");
    char line[160];
    say(&t, "Gr\303\274\303\237e \346\227\245\346\234\254 \360\237\230\200!", NULL);
    terminal_type(&t, "\"\"\"\r");
    terminal_expect_prompt(&t, "\n... ");
    terminal_type(&t, "/quit is no command here\r");
    terminal_expect_prompt(&t, "\n... ");
    terminal_type(&t, "\r");
    terminal_expect_prompt(&t, "\n... ");
    terminal_type(&t, "the end\r");
    terminal_expect_prompt(&t, "\n... ");
    say(&t, "\"\"\"", NULL);
    terminal_type(&t, "one \\\r");
    terminal_expect_prompt(&t, "\n... ");
    terminal_type(&t, "two\\\r");
    terminal_expect_prompt(&t, "\n... ");
    say(&t, "three", NULL);
    snprintf(line, sizeof line, "/save %s", conversation);
    say(&t, line, "saved to ");
    leave(&t);
    json_t *messages = saved_messages(conversation);
    assert_int_equal(json_array_size(messages), 6);
    assert_message(messages, 0, "user", "Gr\303\274\303\237e \346\227\245\346\234\254 \360\237\230\200!");
    assert_message(messages, 2, "user", "/quit is no command here\n\nthe end");
    assert_message(messages, 4, "user", "one \ntwo\nthree");
    for (size_t i = 1; i < 6; i += 2)
        assert_message(messages, i, "assistant", NULL);
    json_decref(messages);
}

/* ---- commands ---- */

static void commands_do_what_help_says(void **state)
{
    (void)state;
    char line[160];
    struct terminal t = open_chat("--temp 0 -n 8 --stats");
    say(&t, "What is a hacker?", "0 of ");
    say(&t, "/stats", "\n2 messages, ");
    say(&t, "And a kluge?", "the session's text goes on\n");
    snprintf(line, sizeof line, "/save %s", conversation);
    say(&t, line, "saved to ");
    say(&t, "/undo", NULL);
    say(&t, "/stats", "\n2 messages, ");
    say(&t, "And what is a kluge?", "tokens reused: the state kept after token ");
    say(&t, "/reset", NULL);
    say(&t, "/undo", "there is nothing to undo\n");
    say(&t, "/stats", "\n0 messages, ");
    say(&t, "/system", "(none)\n");
    say(&t, "/system Answer briefly.", NULL);
    say(&t, "/system", "Answer briefly.\n");
    say(&t, "/undo", "there is nothing to undo\n");
    say(&t, "Hello", NULL);
    say(&t, "/reset", NULL);
    say(&t, "/stats", "\n1 messages, "); /* the system text stays */
    snprintf(line, sizeof line, "/save %s", other);
    say(&t, line, "saved to ");
    snprintf(line, sizeof line, "/load %s", conversation);
    say(&t, line, "loaded 4 messages\n");
    say(&t, "/system", "(none)\n"); /* that conversation's own */
    say(&t, "So?", "the session's text goes on\n");
    snprintf(line, sizeof line, "/load %s", other);
    say(&t, line, "loaded 1 messages\n");
    say(&t, "/system", "Answer briefly.\n");
    say(&t, "/help", "/save FILE");
    say(&t, "/nonsense", "/save FILE");
    say(&t, "/load", "/load FILE");
    terminal_type(&t, "/quit\r");
    assert_int_equal(terminal_close(&t), 0);
    snprintf(line, sizeof line, "--temp 0 -n 8 --stats --load %s", conversation);
    t = open_chat(line);
    say(&t, "/stats", "\n4 messages, ");
    say(&t, "So?", "the session's text goes on\n"); /* in another process, too */
    leave(&t);
}

static void bad_files_change_nothing(void **state)
{
    (void)state;
    char line[160];
    struct error err;
    struct terminal t = open_chat("--temp 0 -n 3");
    say(&t, "What?", NULL);
    snprintf(line, sizeof line, "/load %s/nowhere", folder);
    say(&t, line, "nowhere: cannot open");
    assert_int_equal(file_write(other, "damaged", 7, &err), STATUS_OK);
    snprintf(line, sizeof line, "/load %s", other);
    say(&t, line, "no session");
    snprintf(line, sizeof line, "/save %s/no/such/folder", folder);
    say(&t, line, "cannot create");
    say(&t, "/stats", "\n2 messages, ");
    say(&t, "And?", NULL);
    say(&t, "/stats", "\n4 messages, ");
    leave(&t);
    const char *words[] = {terminal_day0(), "chat", "--load", other, NULL};
    t = terminal_open(words);
    assert_int_equal(terminal_close(&t), 1);
    words[2] = "--system";
    words[3] = "\377";
    t = terminal_open(words);
    terminal_expect(&t, "not UTF-8");
    assert_int_equal(terminal_close(&t), 1);
}

/* ---- progress ---- */

/* A prompt that takes a while shows its progress on a terminal and nowhere else. */
static void progress_is_for_terminals(void **state)
{
    (void)state;
    char path[96], script[400], *said;
    size_t bytes;
    struct error err;
    snprintf(path, sizeof path, "%s/long", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 12000; i++)
        fprintf(file, "hacker %d ", i);
    fclose(file);
    snprintf(script, sizeof script, "run --raw -f %s --ctx 100000 -n 1 --threads 1 --cpu ref", path);
    struct terminal shown = open_day0(script);
    snprintf(script, sizeof script, "exec %s run --raw -f %s --ctx 100000 -n 1 --threads 1 --cpu ref 2>%s/said",
             terminal_day0(), path, folder);
    const char *words[] = {"sh", "-c", script, NULL};
    struct terminal hidden = terminal_open(words);
    terminal_expect(&shown, "prompt [");
    terminal_expect(&shown, " s left");
    terminal_type(&shown, CTRL_C);
    assert_int_equal(terminal_close(&shown), 130);
    terminal_type(&hidden, CTRL_C);
    assert_int_equal(terminal_close(&hidden), 130);
    snprintf(path, sizeof path, "%s/said", folder);
    assert_int_equal(file_read(path, 1 << 20, &said, &bytes, &err), STATUS_OK);
    assert_int_equal(bytes, 0);
    free(said);
}

/* ---- without a terminal ---- */

static void a_pipe_is_read_as_it_is(void **state)
{
    (void)state;
    char script[400], path[96], *out, *err_text;
    size_t bytes;
    struct error err;
    snprintf(script, sizeof script,
             "printf 'What is a hacker?\\n/stats\\n\\n\"\"\"\\nA\\nB\\n\"\"\"\\none \\\\\\ntwo\\n/save "
             "%s\\nAnd?' |"
             "%s chat --temp 0 -n 8 >%s/out 2>%s/err",
             conversation, terminal_day0(), folder, folder);
    assert_int_equal(system(script), 0);
    snprintf(path, sizeof path, "%s/out", folder);
    assert_int_equal(file_read(path, 1 << 20, &out, &bytes, &err), STATUS_OK);
    assert_true(bytes > 20 && out[bytes - 1] == '\n' && !strstr(out, "> ") && !strstr(out, "\033"));
    snprintf(path, sizeof path, "%s/err", folder);
    assert_int_equal(file_read(path, 1 << 20, &err_text, &bytes, &err), STATUS_OK);
    assert_non_null(strstr(err_text, "\n2 messages, "));
    assert_null(strstr(err_text, "/help"));
    json_t *messages = saved_messages(conversation);
    assert_int_equal(json_array_size(messages), 6);
    assert_message(messages, 2, "user", "A\nB");
    assert_message(messages, 4, "user", "one \ntwo");
    json_decref(messages);
    free(out);
    free(err_text);
}

/* Waiting for a pipe that says nothing, Ctrl-C ends the program. */
static void ctrl_c_ends_a_silent_pipe(void **state)
{
    (void)state;
    int in[2], out[2], status;
    char byte;
    assert_true(pipe(in) == 0 && pipe(out) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        close(in[1]);
        close(out[0]);
        execl(terminal_day0(), "day0", "chat", "--temp", "0", "-n", "3", (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    assert_int_equal(write(in[1], "What?\n", 6), 6);
    assert_int_equal(read(out[0], &byte, 1), 1);
    usleep(500000); /* the answer is over and the next line awaited; if not, the answer is stopped first */
    kill(child, SIGINT);
    usleep(500000);
    kill(child, SIGINT);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 130);
    close(in[1]);
    close(out[0]);
}

/* Answers go to a file, prompts stay on the terminal. */
static void prompts_stay_on_the_terminal(void **state)
{
    (void)state;
    char script[256], path[96], *out;
    size_t bytes;
    struct error err;
    snprintf(script, sizeof script, "exec %s chat --temp 0 -n 8 >%s/out", terminal_day0(), folder);
    const char *words[] = {"sh", "-c", script, NULL};
    struct terminal t = terminal_open(words);
    terminal_expect(&t, "/help says more.\n");
    terminal_expect_prompt(&t, "> ");
    say(&t, "What?", NULL);
    leave(&t);
    snprintf(path, sizeof path, "%s/out", folder);
    assert_int_equal(file_read(path, 1 << 20, &out, &bytes, &err), STATUS_OK);
    assert_true(bytes > 5 && !strstr(out, "> "));
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ctrl_c_stops_the_answer_alone),
        cmocka_unit_test(ctrl_c_at_the_prompt_throws_the_line_away),
        cmocka_unit_test(ctrl_c_leaves_the_terminal_bright),
        cmocka_unit_test(ctrl_c_ends_run_with_130),
        cmocka_unit_test(several_lines_and_every_language),
        cmocka_unit_test(commands_do_what_help_says),
        cmocka_unit_test(bad_files_change_nothing),
        cmocka_unit_test(progress_is_for_terminals),
        cmocka_unit_test(a_pipe_is_read_as_it_is),
        cmocka_unit_test(ctrl_c_ends_a_silent_pipe),
        cmocka_unit_test(prompts_stay_on_the_terminal),
    };
    return cmocka_run_group_tests_name("terminal", tests, make_folder, remove_folder);
}
