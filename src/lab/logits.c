/* day0 logits: the model's raw answers for a list of token ids, in a file, for comparison with another
 * implementation. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "lab/commands.h"
#include "lab/model_flags.h"
#include "lab/progress.h"

enum {
    FLAG_TOKENS = FLAG_LAST,
    FLAG_OUT,
    FLAG_PIECES,
    FLAG_STEPWISE,
    FLAG_DUMP,
    TOKENS_FILE_BYTES_MAX = 1 << 28,
    PIECES_MAX = 64,
    WRITE_ROWS = 64, /* rows of logits held at a time */
};

static const char help[] =
    "usage: day0 logits [-m DIR] --tokens FILE --out FILE [--pieces N,N,...] [--stepwise] [--dump select=FILE]\n"
    "Feeds token ids (separated by white space) as one prompt and writes float32 [tokens][vocabulary].\n"
    "\n"
    "      --tokens FILE     the ids; - is standard input\n"
    "      --out FILE        where the logits go\n"
    "      --pieces N,N,...  feed the prompt in pieces of these sizes, the list repeats\n"
    "      --stepwise        feed it token by token, as generated tokens are\n"
    "      --dump select=FILE  write the positions that each indexer chose: layer (from 1), token, positions\n";

static const char examples[] =
    "\nExamples:\n"
    "  day0 logits --tokens prompt.ids --out prompt.f32\n"
    "  day0 logits -m DIR --tokens tokens.txt --out logits.f32 --kv f32 --li f32 --pieces 7,16\n";

struct logits_command {
    struct model_flags flags;
    const char *tokens_path, *out_path, *select_path;
    uint32_t pieces[PIECES_MAX], n_pieces;
    int32_t *tokens;
    uint32_t n_tokens;
    FILE *out, *select;
    char out_temporary[PATH_BYTES_MAX];
};

static enum status parse_pieces(struct logits_command *c, const char *value, struct error *err)
{
    c->n_pieces = 0;
    for (const char *at = value;;) {
        char number[16];
        size_t digits = strcspn(at, ",");
        if (c->n_pieces == PIECES_MAX || digits >= sizeof number)
            return error_set(err, STATUS_ARGUMENT,
                             "--pieces takes up to %d whole numbers with commas between, not '%s'", PIECES_MAX, value);
        memcpy(number, at, digits);
        number[digits] = 0;
        TRY(flag_count("pieces", number, 1, MODEL_CONTEXT_MAX, &c->pieces[c->n_pieces++], err));
        if (at[digits] == 0)
            return STATUS_OK;
        at += digits + 1;
    }
}

static enum status read_tokens(struct logits_command *c, struct error *err)
{
    char *text;
    size_t bytes;
    TRY(file_read(c->tokens_path, TOKENS_FILE_BYTES_MAX, &text, &bytes, err));
    enum status status = memory_take(&c->tokens, bytes / 2 + 1, sizeof *c->tokens, "token ids", err);
    for (char *at = text; status == STATUS_OK;) {
        at += strspn(at, " \t\r\n");
        if (at == text + bytes)
            break;
        char *end;
        long id = strtol(at, &end, 10);
        if (end == at || (*end != 0 && !isspace((unsigned char)*end)) || id < 0 || id > INT32_MAX) {
            size_t shown = strcspn(at, " \t\r\n");
            status = error_set(err, STATUS_FORMAT, "%s: token %u: '%.*s' is not a token id", c->tokens_path,
                               c->n_tokens, (int)(shown < 20 ? shown : 20), at);
            break;
        }
        c->tokens[c->n_tokens++] = (int32_t)id;
        at = end;
    }
    free(text);
    if (status == STATUS_OK && c->n_tokens == 0)
        status =
            error_set(err, STATUS_FORMAT, "%s: at least one token id was wanted, the file has none", c->tokens_path);
    if (status == STATUS_OK && c->n_tokens > MODEL_CONTEXT_MAX)
        status = error_set(err, STATUS_ARGUMENT, "%s: at most %d tokens, the file has %u", c->tokens_path,
                           MODEL_CONTEXT_MAX, c->n_tokens);
    return status;
}

static void write_selected(void *context, uint32_t layer, uint32_t span, uint32_t position, const uint32_t *chosen,
                           uint32_t n_chosen)
{
    (void)span;
    FILE *out = context;
    fprintf(out, "%u %u", layer + 1, position);
    for (uint32_t i = 0; i < n_chosen; i++)
        fprintf(out, " %u", chosen[i]);
    fputc('\n', out);
}

/* Feeds one piece, at most WRITE_ROWS rows of logits at a time, and writes them. */
static enum status feed(struct logits_command *c, struct model *model, struct sequence *sequence, float *rows,
                        uint32_t first, uint32_t n, struct progress *progress, struct error *err)
{
    size_t vocabulary = model->config.vocab_size;
    for (uint32_t done = 0; done < n;) {
        uint32_t part = n - done < WRITE_ROWS ? n - done : WRITE_ROWS;
        struct model_span span = {sequence, c->tokens + first + done, part, 0};
        struct model_outputs outputs = {
            .logits = rows, .selected = c->select ? write_selected : NULL, .selected_context = c->select};
        TRY(model_step(model, &span, 1, &outputs, err));
        if (fwrite(rows, vocabulary * sizeof(float), part, c->out) != part)
            return error_set(err, STATUS_IO, "%s: cannot write the logits; is the disk full?", c->out_path);
        done += part;
        progress_set(progress, first + done);
    }
    return STATUS_OK;
}

static enum status compute(struct logits_command *c, struct error *err)
{
    struct model *model;
    struct sequence sequence = {0};
    float *rows = NULL;
    c->flags.options.context_max = c->n_tokens;
    c->flags.options.reports_selected = c->select_path != NULL;
    TRY(model_open(&model, c->flags.directory, &c->flags.options, err));
    struct progress progress = progress_begin("logits", c->n_tokens);
    enum status status = model_sequence_init(model, &sequence, err);
    if (status == STATUS_OK)
        status = memory_take(&rows, (size_t)WRITE_ROWS * model->config.vocab_size, sizeof(float), "logits", err);
    for (uint32_t first = 0, piece = 0; status == STATUS_OK && first < c->n_tokens; piece++) {
        uint32_t left = c->n_tokens - first, n = c->n_pieces ? c->pieces[piece % c->n_pieces] : left;
        n = n < left ? n : left;
        status = feed(c, model, &sequence, rows, first, n, &progress, err);
        first += n;
    }
    progress_end(&progress);
    free(rows);
    sequence_fini(&sequence);
    model_close(model);
    return status;
}

static enum status run(struct logits_command *c, struct error *err)
{
    TRY(read_tokens(c, err));
    char select_temporary[PATH_BYTES_MAX] = "";
    TRY(output_open(&c->out, c->out_temporary, c->out_path, err));
    enum status status = STATUS_OK;
    if (c->select_path)
        status = output_open(&c->select, select_temporary, c->select_path, err);
    if (status == STATUS_OK)
        status = compute(c, err);
    status = output_close(c->out, c->out_temporary, c->out_path, status, err);
    return c->select ? output_close(c->select, select_temporary, c->select_path, status, err) : status;
}

static enum status parse(struct logits_command *c, int option, struct error *err)
{
    switch (option) {
    case FLAG_TOKENS:
        c->tokens_path = optarg;
        return STATUS_OK;
    case FLAG_OUT:
        c->out_path = optarg;
        return STATUS_OK;
    case FLAG_PIECES:
        return parse_pieces(c, optarg, err);
    case FLAG_STEPWISE:
        c->pieces[0] = c->n_pieces = 1;
        return STATUS_OK;
    case FLAG_DUMP:
        if (strncmp(optarg, "select=", 7) != 0 || optarg[7] == 0)
            return error_set(err, STATUS_ARGUMENT, "--dump takes select=FILE, not '%s'", optarg);
        c->select_path = optarg + 7;
        return STATUS_OK;
    default: {
        bool known;
        return model_flags_take(&c->flags, option, optarg, &known, err);
    }
    }
}

int lab_logits(int argc, char **argv)
{
    static const struct option options[] = {MODEL_FLAGS,
                                            {"tokens", required_argument, NULL, FLAG_TOKENS},
                                            {"out", required_argument, NULL, FLAG_OUT},
                                            {"pieces", required_argument, NULL, FLAG_PIECES},
                                            {"stepwise", no_argument, NULL, FLAG_STEPWISE},
                                            {"dump", required_argument, NULL, FLAG_DUMP},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct logits_command c = {.flags = model_flags_default()};
    struct error err = {0};
    int option;
    while ((option = getopt_long(argc, argv, ":m:h", options, NULL)) != -1) {
        if (option == 'h') {
            printf("%s%s%s", help, model_flags_help, examples);
            return LAB_OK;
        }
        if (option == '?' || option == ':')
            return lab_bad_option("logits", option, argv);
        if (parse(&c, option, &err) != STATUS_OK)
            return lab_fail("logits", &err, LAB_USAGE);
    }
    if (optind < argc || !c.tokens_path || !c.out_path) {
        (void)error_set(&err, STATUS_ARGUMENT, "--tokens FILE and --out FILE are needed, and nothing else; see --help");
        return lab_fail("logits", &err, LAB_USAGE);
    }
    enum status status = run(&c, &err);
    free(c.tokens);
    return status == STATUS_OK ? LAB_OK : lab_fail("logits", &err, LAB_FAILED);
}
