/* day0 trace: which worker did what when, in one step. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "lab/bench_state.h"
#include "lab/commands.h"
#include "lab/model_flags.h"
#include "lab/progress.h"
#include "lab/trace_report.h"

enum {
    FLAG_PREFILL = FLAG_LAST,
    FLAG_DECODE,
    FLAG_JSON,
    WARM_UP_STEPS = 2,
};

static const char help[] =
    "usage: day0 trace [-m DIR] [--prefill N | --decode DEPTH] -o FILE [options]\n"
    "Writes what each worker did when, in one step after a warm-up: a file for chrome://tracing or ui.perfetto.dev, "
    "and\n"
    "a table of where the time went. Critical path: the longest chain of nodes that wait for each other, each shared\n"
    "evenly by all workers. Tokens are random, and so is a deep context.\n"
    "\n"
    "  -o, --out FILE        the trace\n"
    "      --prefill N       a prompt of N tokens (default 256)\n"
    "      --decode DEPTH    one token after so many\n"
    "      --json            the table as one JSON object\n";

static const char examples[] = "\nExamples:\n"
                               "  day0 trace -o step.json\n"
                               "  day0 trace --decode 1000 --streams off -o step.json --json\n";

struct trace_command {
    struct model_flags flags;
    const char *out_path;
    bool decode, chosen, json;
    uint32_t n_tokens, depth;
    struct model *model;
    struct sequence sequence;
    struct recorder recorder;
    int32_t *tokens; /* [n_tokens] */
    float *logits;   /* [vocabulary] */
    struct rng rng;
};

static enum status open_all(struct trace_command *c, struct error *err)
{
    struct model_options *options = &c->flags.options;
    options->context_max = c->depth + c->n_tokens;
    options->sequences_max = 1;
    TRY(model_open(&c->model, c->flags.directory, options, err));
    TRY(model_sequence_init(c->model, &c->sequence, err));
    TRY(recorder_init(&c->recorder, team_size(c->model->team), err));
    TRY(memory_take(&c->tokens, c->n_tokens, sizeof *c->tokens, "token ids", err));
    TRY(memory_take(&c->logits, c->model->config.vocab_size, sizeof *c->logits, "logits", err));
    for (uint32_t i = 0; i < c->n_tokens; i++)
        c->tokens[i] = (int32_t)rng_below(&c->rng, c->model->config.vocab_size);
    return bench_state_fill(&c->sequence, c->depth, &c->rng, err);
}

static void close_all(struct trace_command *c)
{
    recorder_fini(&c->recorder);
    sequence_fini(&c->sequence);
    model_close(c->model);
    free(c->tokens);
    free(c->logits);
}

static enum status run_step(struct trace_command *c, struct error *err)
{
    struct model_span span = {&c->sequence, c->tokens, c->n_tokens, c->n_tokens - 1};
    struct model_outputs outputs = {.logits = c->logits};
    if (c->decode)
        bench_state_shorten(&c->sequence, c->depth);
    else
        sequence_reset(&c->sequence);
    return model_step(c->model, &span, 1, &outputs, err);
}

static enum status record(struct trace_command *c, struct error *err)
{
    TRY(open_all(c, err));
    for (int i = 0; i < (c->decode ? WARM_UP_STEPS : 1); i++)
        TRY(run_step(c, err));
    c->model->runner.recorder = &c->recorder;
    return run_step(c, err);
}

static enum status report(struct trace_command *c, FILE *file, struct error *err)
{
    struct trace_summary summary;
    trace_print_events(file, &c->recorder);
    enum status status = trace_summarize(&summary, &c->recorder, err);
    if (status == STATUS_OK)
        (c->json ? trace_print_json : trace_print_table)(stdout, &summary);
    trace_summary_fini(&summary);
    if (status == STATUS_OK && (fflush(stdout) != 0 || ferror(stdout)))
        return error_set(err, STATUS_IO, "cannot write to standard output");
    return status;
}

static enum status run(struct trace_command *c, struct error *err)
{
    char temporary[PATH_BYTES_MAX];
    FILE *file;
    TRY(output_open(&file, temporary, c->out_path, err));
    enum status status = record(c, err);
    if (status == STATUS_OK)
        status = report(c, file, err);
    close_all(c);
    return output_close(file, temporary, c->out_path, status, err);
}

static enum status parse(struct trace_command *c, int option, struct error *err)
{
    bool known;
    switch (option) {
    case 'o':
        c->out_path = optarg;
        return STATUS_OK;
    case FLAG_PREFILL:
    case FLAG_DECODE:
        if (c->chosen)
            return error_set(err, STATUS_ARGUMENT, "--prefill and --decode exclude each other");
        c->chosen = true;
        c->decode = option == FLAG_DECODE;
        if (!c->decode)
            return flag_count("prefill", optarg, 1, MODEL_CONTEXT_MAX, &c->n_tokens, err);
        c->n_tokens = 1;
        return flag_count("decode", optarg, 0, MODEL_CONTEXT_MAX - 1, &c->depth, err);
    case FLAG_JSON:
        c->json = true;
        return STATUS_OK;
    default:
        return model_flags_take(&c->flags, option, optarg, &known, err);
    }
}

int lab_trace(int argc, char **argv)
{
    static const struct option options[] = {MODEL_FLAGS,
                                            {"out", required_argument, NULL, 'o'},
                                            {"prefill", required_argument, NULL, FLAG_PREFILL},
                                            {"decode", required_argument, NULL, FLAG_DECODE},
                                            {"json", no_argument, NULL, FLAG_JSON},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct trace_command c = {.flags = model_flags_default(), .n_tokens = MODEL_ROWS_MAX, .rng = {42}};
    struct error err = {0};
    for (int option; (option = getopt_long(argc, argv, ":m:o:h", options, NULL)) != -1;) {
        if (option == 'h') {
            printf("%s%s%s", help, model_flags_help, examples);
            return LAB_OK;
        }
        if (option == '?' || option == ':')
            return lab_bad_option("trace", option, argv);
        if (parse(&c, option, &err) != STATUS_OK)
            return lab_fail("trace", &err, LAB_USAGE);
    }
    if (optind < argc || !c.out_path) {
        (void)error_set(&err, STATUS_ARGUMENT, "-o FILE is needed, and nothing but options; see --help");
        return lab_fail("trace", &err, LAB_USAGE);
    }
    return run(&c, &err) == STATUS_OK ? LAB_OK : lab_fail("trace", &err, LAB_FAILED);
}
