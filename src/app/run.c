/* day0 run: one question, one answer, streamed. */
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/commands.h"
#include "app/turn.h"
#include "base/file.h"
#include "lab/commands.h"
#include "lab/model_flags.h"

enum {
    FLAG_RAW_TEXT = APP_FLAG_LAST,
    PROMPT_BYTES_MAX = 1 << 28,
    INPUT_PATIENCE_MS = 1000, /* how long a pipe may take to say its first byte */
    OPTIONS_MAX = 48,
};

static const char sample_question[] = "What is a hacker?";

static const char help[] = "usage: day0 run [-m DIR] [-p TEXT | -f FILE] [-n N] [options]\n"
                           "Answers one question, or with --raw continues a text. Text comes from -p, -f or a pipe; "
                           "without any, a sample question\n"
                           "is answered. Ctrl-C stops.\n"
                           "\n"
                           "  -p, --prompt TEXT     the question\n"
                           "  -f, --file FILE       read it from a file; - is standard input\n"
                           "      --raw             no chat format: continue the text as it is\n";

static const char examples[] = "\nExamples:\n"
                               "  day0 run\n"
                               "  day0 run -p \"What is a boat anchor?\" --temp 0\n"
                               "  echo \"Define kluge.\" | day0 run -n 64 --seed 7 --stats\n"
                               "  day0 run --raw -p \"hacker: n.\" -n 40\n";

struct run_command {
    struct app_flags flags;
    const char *prompt, *file;
    bool raw;
};

/* Whether standard input has something to say: a file, or a pipe that speaks up soon. A terminal is not waited for. */
static bool input_waits(void)
{
    struct stat info;
    if (fstat(STDIN_FILENO, &info) != 0 || S_ISCHR(info.st_mode))
        return false;
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    return poll(&input, 1, INPUT_PATIENCE_MS) > 0;
}

/* The question: from -p, -f, a pipe, or the sample. Gives the memory to the caller. */
static enum status read_prompt(const struct run_command *c, char **text, size_t *bytes, struct error *err)
{
    const char *file = c->file ? c->file : !c->prompt && input_waits() ? "-" : NULL;
    *text = NULL;
    *bytes = 0;
    if (file)
        TRY(file_read(file, PROMPT_BYTES_MAX, text, bytes, err));
    if (!c->raw)
        while (*bytes > 0 && (*text)[*bytes - 1] == '\n')
            --*bytes;
    if (*bytes > 0 || c->file)
        return STATUS_OK;
    free(*text);
    *text = strdup(c->prompt ? c->prompt : sample_question);
    if (!*text)
        return error_set(err, STATUS_MEMORY, "cannot allocate memory for the prompt");
    *bytes = strlen(*text);
    return STATUS_OK;
}

/* The ids of a chat prompt with this one question. */
static day0_status chat_prompt(const day0_engine *engine, const char *text, size_t bytes, bool think, day0_tokens *out,
                               day0_error *error)
{
    json_t *content = json_stringn(text, bytes);
    if (!content) {
        *error = (day0_error){DAY0_FORMAT, "the question is not UTF-8 text; with --raw any bytes can be continued"};
        return DAY0_FORMAT;
    }
    json_t *request =
        json_pack("{s:[{s:s,s:o}],s:b}", "messages", "role", "user", "content", content, "thinking", think);
    char *json = request ? json_dumps(request, JSON_COMPACT) : NULL;
    day0_status status = DAY0_MEMORY;
    if (json)
        status = day0_chat_prompt(engine, json, strlen(json), out, error);
    else
        *error = (day0_error){DAY0_MEMORY, "cannot allocate memory for the question"};
    free(json);
    json_decref(request);
    return status;
}

static day0_status answer(struct run_command *c, const char *text, size_t bytes, struct turn *turn, day0_error *error)
{
    day0_engine *engine = NULL;
    day0_session *session = NULL;
    day0_tokens prompt = {0};
    day0_status status = app_flags_open(&c->flags, &engine, error);
    if (status == DAY0_OK)
        status = c->raw ? day0_tokenize(engine, text, bytes, &prompt, error)
                        : chat_prompt(engine, text, bytes, c->flags.think, &prompt, error);
    if (status == DAY0_OK)
        status = day0_session_open(&session, engine, error);
    if (status == DAY0_OK) {
        day0_sampling sampling = app_flags_sampling(&c->flags, engine);
        status = turn_run(session, engine, &prompt, &c->flags, &sampling, c->raw, turn, error);
        if (status == DAY0_OK && c->flags.stats)
            turn_print_stats(turn, &sampling);
    }
    day0_tokens_free(&prompt);
    day0_engine_close(engine);
    return status;
}

static day0_status parse(struct run_command *c, int option, day0_error *error)
{
    switch (option) {
    case 'p':
        c->prompt = optarg;
        return DAY0_OK;
    case 'f':
        c->file = optarg;
        return DAY0_OK;
    case FLAG_RAW_TEXT:
        c->raw = true;
        return DAY0_OK;
    default:
        return app_flags_take(&c->flags, option, optarg, error);
    }
}

static int run(struct run_command *c)
{
    struct error err;
    day0_error error;
    struct turn turn = {0};
    char *text;
    size_t bytes;
    if (read_prompt(c, &text, &bytes, &err) != STATUS_OK)
        return lab_fail("run", &err, LAB_FAILED);
    /* One turn needs no kept states, and no more room than it asks for. */
    c->flags.options.checkpoints_max = 0;
    app_interrupts_catch();
    day0_status status = answer(c, text, bytes, &turn, &error);
    free(text);
    free(turn.message);
    if (status != DAY0_OK)
        return app_fail("run", &error, LAB_FAILED);
    return turn.finish == DAY0_FINISH_CANCELLED ? APP_INTERRUPTED : LAB_OK;
}

int app_run(int argc, char **argv)
{
    static const struct option own[] = {{"prompt", required_argument, NULL, 'p'},
                                        {"file", required_argument, NULL, 'f'},
                                        {"raw", no_argument, NULL, FLAG_RAW_TEXT},
                                        {"help", no_argument, NULL, 'h'}};
    struct option options[OPTIONS_MAX];
    struct run_command c = {.flags = app_flags_default()};
    day0_error error;
    app_flags_join(options, OPTIONS_MAX, own, sizeof own / sizeof *own);
    for (int option; (option = getopt_long(argc, argv, ":m:p:f:n:h", options, NULL)) != -1;) {
        if (option == 'h') {
            printf("%s%s%s%s", help, app_flags_help, model_flags_help, examples);
            return LAB_OK;
        }
        if (option == '?' || option == ':')
            return lab_bad_option("run", option, argv);
        if (parse(&c, option, &error) != DAY0_OK)
            return app_fail("run", &error, LAB_USAGE);
    }
    if (optind < argc || (c.prompt && c.file)) {
        error.status = DAY0_ARGUMENT;
        snprintf(error.text, sizeof error.text, "%s; see --help",
                 optind < argc ? "text is given with -p" : "-p and -f exclude each other");
        return app_fail("run", &error, LAB_USAGE);
    }
    return run(&c);
}
