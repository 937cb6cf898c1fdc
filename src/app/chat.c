/* day0 chat: a conversation in the terminal. */
#include <editline/readline.h>
#include <jansson.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/commands.h"
#include "app/turn.h"
#include "lab/commands.h"
#include "lab/model_flags.h"

enum {
    FLAG_SYSTEM = APP_FLAG_LAST,
    FLAG_LOAD,
    LINE_BYTES_MAX = 1 << 20,
    OPTIONS_MAX = 48,
    CHECKPOINTS = 64, /* states kept for edits of earlier turns */
};

static const char help[] =
    "usage: day0 chat [-m DIR] [--system TEXT] [--load FILE] [options]\n"
    "Talks with the model. What was said before is not computed again. Ctrl-C stops an answer, Ctrl-D ends.\n"
    "\n"
    "      --system TEXT     what the model is told before the conversation\n"
    "      --load FILE       go on with a conversation that /save wrote\n";

static const char commands_help[] =
    "/save FILE    write the conversation and the model's state\n"
    "/load FILE    go on with one\n"
    "/reset        begin anew (the system text stays)\n"
    "/system TEXT  begin anew with this system text; without a text, show it\n"
    "/undo         take the last question and its answer back\n"
    "/stats        memory and the last answer's figures\n"
    "/quit         end; so does Ctrl-D\n"
    "A line that ends in \\ goes on in the next; lines between two lines of \"\"\" belong together.\n";

static const char examples[] = "\nExamples:\n"
                               "  day0 chat\n"
                               "  echo \"What is a kluge?\" | day0 chat --temp 0 -n 64\n"
                               "  day0 chat -m DIR --system \"Answer briefly.\" --think\n";

struct chat {
    struct app_flags flags;
    const char *load, *system_text; /* as the flags say, or NULL */
    day0_engine *engine;
    day0_session *session;
    day0_sampling sampling;
    json_t *messages; /* the conversation, as the request's "messages" */
    json_t *system;   /* its system message, or NULL */
    struct turn last;
    bool has_last, terminal;
    bool interrupted; /* Ctrl-C came while a line was awaited */
};

/* What was typed, on however many lines. */
struct input {
    char *text;    /* malloc'd; NULL: the end, or an interrupt */
    bool is_block; /* between lines of """: never a command */
};

/* ---- messages ---- */

/* Appends a message; false and a sentence if the text is none. */
static bool add_message(struct chat *c, const char *role, const char *text)
{
    json_t *message = json_pack("{s:s,s:s}", "role", role, "content", text);
    if (json_array_append_new(c->messages, message) == 0)
        return true;
    fprintf(stderr, "this is not UTF-8 text\n");
    return false;
}

/* The conversation begins anew; its system message stays. */
static void begin_anew(struct chat *c)
{
    json_array_clear(c->messages);
    if (c->system)
        json_array_append(c->messages, c->system);
}

/* The conversation's first message is what /system and /reset know from now on, if it is a system message. */
static void take_system(struct chat *c)
{
    json_t *first = json_array_get(c->messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    json_decref(c->system);
    bool is_system = role && strcmp(role, "system") == 0 && json_is_string(json_object_get(first, "content"));
    c->system = is_system ? json_incref(first) : NULL;
}

/* Begins anew with another system text; false and a sentence, and nothing changed, if it is none. */
static bool change_system(struct chat *c, const char *text)
{
    if (!add_message(c, "system", text))
        return false;
    json_t *message = json_incref(json_array_get(c->messages, json_array_size(c->messages) - 1));
    json_decref(c->system);
    c->system = message;
    begin_anew(c);
    return true;
}

static day0_status make_prompt(struct chat *c, day0_tokens *out, day0_error *error)
{
    json_t *request = json_pack("{s:O,s:b}", "messages", c->messages, "thinking", c->flags.think);
    char *json = request ? json_dumps(request, JSON_COMPACT) : NULL;
    day0_status status = DAY0_MEMORY;
    if (json)
        status = day0_chat_prompt(c->engine, json, strlen(json), out, error);
    else
        *error = (day0_error){DAY0_MEMORY, "cannot allocate memory for the conversation"};
    free(json);
    json_decref(request);
    return status;
}

/* Asks; a failure or a question that cannot be computed leaves the conversation as it was. */
static void ask(struct chat *c, const char *text)
{
    day0_error error;
    day0_tokens prompt = {0};
    size_t before = json_array_size(c->messages);
    if (!add_message(c, "user", text))
        return;
    app_interrupts_clear();
    free(c->last.message);
    c->last.message = NULL;
    day0_status status = make_prompt(c, &prompt, &error);
    if (status == DAY0_OK)
        status = turn_run(c->session, c->engine, &prompt, &c->flags, &c->sampling, false, &c->last, &error);
    app_interrupts_clear();
    day0_tokens_free(&prompt);
    c->sampling.seed++; /* the same question asked twice may be answered in two ways */
    c->has_last = status == DAY0_OK;
    json_t *reply = status == DAY0_OK ? json_loads(c->last.message, 0, NULL) : NULL;
    if (reply) {
        json_array_append_new(c->messages, reply);
        if (c->last.finish == DAY0_FINISH_CANCELLED)
            fprintf(stderr, "(stopped)\n");
        if (c->flags.stats)
            turn_print_stats(&c->last, &c->sampling);
        return;
    }
    while (json_array_size(c->messages) > before)
        json_array_remove(c->messages, before);
    if (status != DAY0_OK)
        fprintf(stderr, "%s\n", error.text);
}

/* ---- commands ---- */

static void save(struct chat *c, const char *path)
{
    day0_error error;
    char *note = json_dumps(c->messages, JSON_COMPACT);
    day0_status status = DAY0_MEMORY;
    snprintf(error.text, sizeof error.text, "cannot allocate memory for the conversation");
    if (note)
        status = day0_session_set_note(c->session, note, strlen(note), &error);
    if (status == DAY0_OK)
        status = day0_session_save(c->session, path, &error);
    free(note);
    fprintf(stderr, "%s%s\n", status == DAY0_OK ? "saved to " : error.text, status == DAY0_OK ? path : "");
}

static bool load(struct chat *c, const char *path)
{
    day0_error error;
    bool recompute = false;
    if (day0_session_load(c->session, path, &recompute, &error) != DAY0_OK) {
        fprintf(stderr, "%s\n", error.text);
        return false;
    }
    size_t bytes;
    const char *note = day0_session_note(c->session, &bytes);
    json_t *messages = note ? json_loadb(note, bytes, 0, NULL) : NULL;
    if (!json_is_array(messages)) {
        fprintf(stderr, "%s: the session holds no conversation; it was not saved by day0 chat\n", path);
        json_decref(messages);
        return false;
    }
    json_decref(c->messages);
    c->messages = messages;
    c->has_last = false;
    take_system(c);
    fprintf(stderr, "loaded %zu messages%s\n", json_array_size(messages),
            recompute ? "; the state is of other numerics and will be computed again" : "");
    return true;
}

static void undo(struct chat *c)
{
    size_t n = json_array_size(c->messages);
    while (n > 0) {
        const char *role = json_string_value(json_object_get(json_array_get(c->messages, n - 1), "role"));
        bool question = role && strcmp(role, "user") == 0, system = role && strcmp(role, "system") == 0;
        if (system)
            break;
        json_array_remove(c->messages, --n);
        if (question)
            return;
    }
    fprintf(stderr, "there is nothing to undo\n");
}

static void print_stats(const struct chat *c)
{
    day0_memory m = day0_engine_memory(c->engine);
    size_t n_tokens;
    (void)day0_session_tokens(c->session, &n_tokens);
    fprintf(stderr, "%s\n%zu messages, %zu of %u tokens of context, %llu computed; cache %.1f of %.1f MB in use\n",
            day0_engine_description(c->engine), json_array_size(c->messages), n_tokens, c->flags.options.context_max,
            (unsigned long long)day0_session_computed(c->session), (double)m.cache_used_bytes / 1e6,
            (double)m.cache_bytes / 1e6);
    if (c->has_last)
        turn_print_stats(&c->last, &c->sampling);
}

/* Carries out a line that begins with a slash. false: the conversation is over. */
static bool command(struct chat *c, char *line)
{
    char *argument = line + strcspn(line, " \t");
    if (*argument)
        *argument++ = 0;
    argument += strspn(argument, " \t");
    bool bare = *argument == 0;
    if (strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0)
        return false;
    if (strcmp(line, "/save") == 0 && !bare)
        save(c, argument);
    else if (strcmp(line, "/load") == 0 && !bare)
        (void)load(c, argument);
    else if (strcmp(line, "/reset") == 0)
        begin_anew(c);
    else if (strcmp(line, "/system") == 0 && bare)
        fprintf(stderr, "%s\n", c->system ? json_string_value(json_object_get(c->system, "content")) : "(none)");
    else if (strcmp(line, "/system") == 0)
        (void)change_system(c, argument);
    else if (strcmp(line, "/undo") == 0)
        undo(c);
    else if (strcmp(line, "/stats") == 0)
        print_stats(c);
    else
        fputs(commands_help, stderr);
    return true;
}

/* ---- input ---- */

/* The line editor takes bytes that are no characters of the locale for noise and drops them. */
static void expect_utf8(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

/* One line without its end, malloc'd; NULL at the end of input, or with c->interrupted after Ctrl-C. */
static char *read_line(struct chat *c, const char *prompt)
{
    if (c->terminal) {
        char *line = readline(prompt);
        c->interrupted = !line && app_interrupted();
        if (line && *line)
            add_history(line);
        return line;
    }
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes = getline(&line, &capacity, stdin);
    if (bytes < 0) {
        c->interrupted = app_interrupted();
        free(line);
        return NULL;
    }
    if (bytes > 0 && line[bytes - 1] == '\n')
        line[bytes - 1] = 0;
    return line;
}

/* Joins `more` to `text` with a line break; both malloc'd, gives the joined one. */
static char *join(char *text, char *more)
{
    size_t a = strlen(text), b = strlen(more);
    char *joined = a + b < LINE_BYTES_MAX ? realloc(text, a + b + 2) : NULL;
    if (!joined) {
        fprintf(stderr, "the text is longer than %d bytes; the rest is left out\n", LINE_BYTES_MAX);
        free(more);
        return text;
    }
    joined[a] = '\n';
    memcpy(joined + a + 1, more, b + 1);
    free(more);
    return joined;
}

/* The lines up to the next """ or the end. */
static char *read_block(struct chat *c, char *text)
{
    text[0] = 0;
    for (char *more; (more = read_line(c, "... "));) {
        if (strcmp(more, "\"\"\"") == 0) {
            free(more);
            break;
        }
        text = join(text, more);
    }
    memmove(text, text + (text[0] == '\n'), strlen(text) + (text[0] != '\n'));
    return text;
}

/* A question or command, which may take several lines. Ctrl-C throws away what there is of it. */
static struct input read_input(struct chat *c)
{
    struct input input = {.text = read_line(c, "> ")};
    if (!input.text)
        return input;
    input.is_block = strcmp(input.text, "\"\"\"") == 0;
    if (input.is_block)
        input.text = read_block(c, input.text);
    for (size_t n; !input.is_block && (n = strlen(input.text)) > 0 && input.text[n - 1] == '\\';) {
        input.text[n - 1] = 0;
        char *more = read_line(c, "... ");
        if (!more)
            break;
        input.text = join(input.text, more);
    }
    if (c->interrupted) {
        free(input.text);
        input.text = NULL;
    }
    return input;
}

/* Until the end of input; false: Ctrl-C ended it, which it does where no terminal could say more. */
static bool converse(struct chat *c)
{
    for (bool going = true; going;) {
        app_interrupts_clear();
        c->interrupted = false;
        struct input input = read_input(c);
        if (c->interrupted && c->terminal) {
            fputs("\n(Ctrl-D ends)\n", stderr);
            continue;
        }
        if (!input.text)
            break;
        if (input.text[0] == '/' && !input.is_block)
            going = command(c, input.text);
        else if (input.text[strspn(input.text, " \t\n")] != 0)
            ask(c, input.text);
        free(input.text);
    }
    if (c->terminal)
        putchar('\n');
    return !c->interrupted;
}

static int talk(struct chat *c)
{
    day0_error error;
    bool good = true;
    c->terminal = isatty(STDIN_FILENO) != 0;
    if (c->terminal && !isatty(STDOUT_FILENO))
        rl_outstream = stderr;
    c->flags.options.checkpoints_max = CHECKPOINTS;
    expect_utf8();
    app_interrupts_catch();
    day0_status status = app_flags_open(&c->flags, &c->engine, &error);
    if (status == DAY0_OK)
        status = day0_session_open(&c->session, c->engine, &error);
    c->messages = json_array();
    if (status == DAY0_OK) {
        c->sampling = app_flags_sampling(&c->flags, c->engine);
        good = (!c->system_text || change_system(c, c->system_text)) && (!c->load || load(c, c->load));
        if (good && c->terminal)
            fprintf(stderr, "%s. /help says more.\n", day0_engine_description(c->engine));
        if (good)
            good = converse(c);
    }
    json_decref(c->messages);
    free(c->last.message);
    json_decref(c->system);
    day0_engine_close(c->engine);
    if (status != DAY0_OK)
        return app_fail("chat", &error, LAB_FAILED);
    return c->interrupted ? APP_INTERRUPTED : good ? LAB_OK : LAB_FAILED;
}

static day0_status take_option(struct chat *c, int option, const char *value, day0_error *error)
{
    switch (option) {
    case FLAG_SYSTEM:
        c->system_text = value;
        return DAY0_OK;
    case FLAG_LOAD:
        c->load = value;
        return DAY0_OK;
    default:
        return app_flags_take(&c->flags, option, value, error);
    }
}

int app_chat(int argc, char **argv)
{
    static const struct option own[] = {{"system", required_argument, NULL, FLAG_SYSTEM},
                                        {"load", required_argument, NULL, FLAG_LOAD},
                                        {"help", no_argument, NULL, 'h'}};
    struct option options[OPTIONS_MAX];
    struct chat c = {.flags = app_flags_default()};
    day0_error error;
    app_flags_join(options, OPTIONS_MAX, own, sizeof own / sizeof *own);
    for (int option; (option = getopt_long(argc, argv, ":m:n:h", options, NULL)) != -1;) {
        if (option == 'h') {
            printf("%s\nWhile talking:\n%s\n%s%s%s", help, commands_help, app_flags_help, model_flags_help, examples);
            return LAB_OK;
        }
        if (option == '?' || option == ':')
            return lab_bad_option("chat", option, argv);
        if (take_option(&c, option, optarg, &error) != DAY0_OK)
            return app_fail("chat", &error, LAB_USAGE);
    }
    if (optind < argc) {
        error = (day0_error){DAY0_ARGUMENT, "questions are typed or piped in, not given as arguments; see --help"};
        return app_fail("chat", &error, LAB_USAGE);
    }
    return talk(&c);
}
