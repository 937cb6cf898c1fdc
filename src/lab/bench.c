/* day0 bench: how fast a model reads and writes here, and how far that is from what the machine could do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cpu/tiers.h"
#include "lab/bench_ablate.h"
#include "lab/bench_layers.h"
#include "lab/bench_plot.h"
#include "lab/bench_report.h"
#include "lab/commands.h"
#include "lab/model_flags.h"
#include "lab/progress.h"
#include "lab/rates_find.h"

enum {
    FLAG_PREFILL = FLAG_LAST,
    FLAG_DEPTH,
    FLAG_DECODE,
    FLAG_BATCH,
    FLAG_REPEAT,
    FLAG_JSON,
    FLAG_CSV,
    FLAG_PROBE,
    FLAG_PLOT,
    FLAG_ABLATE,
    FLAG_LAYERS,
    FLAG_PREDICT,
    FLAG_BANDWIDTH,
};

static const double ablate_turn_seconds = 0.25;

/* The lists of numbers that choose the work. */
enum list { LIST_PREFILL, LIST_DEPTH, LIST_DECODE, LIST_BATCH, LIST_COUNT };

enum mode { MODE_SPEED, MODE_ABLATE, MODE_LAYERS, MODE_PROBE };

enum format { FORMAT_TABLE, FORMAT_CSV, FORMAT_JSON };

static const char help[] =
    "usage: day0 bench [-m DIR] [--prefill N,...] [--decode DEPTH,...] [--batch N,...] [options]\n"
    "Tokens a second of prompts (prefill) and of generation (decode), with the bytes that a token must move and the\n"
    "operations it takes, and the time that the machine would need for each alone, by rates measured in the same run.\n"
    "Deep contexts are made of random values, not computed. A model that fits into the caches may read faster than\n"
    "memory: over 100%. All of it on a model of some GB takes minutes; the lists choose less.\n"
    "\n"
    "      --prefill N,...   prompts of these lengths (default 512,2048,8192); none: leave them out\n"
    "      --depth N,...     after so many tokens (default 0)\n"
    "      --decode DEPTH,...  generation after so many tokens (default 0,4096,32768,131072); none: leave it out\n"
    "      --batch N,...     so many sequences at once in generation (default 1,4,16)\n"
    "      --repeat N        timings of each row, the median counts (default 3)\n"
    "      --json            one JSON object: machine, rows\n"
    "      --csv             one line a row\n"
    "      --plot FILE.svg   also draws speed over depth\n"
    "      --ablate[=KEY=VALUE,...]  each switch, or the policy that is named, against the default, by turns, with "
    "the\n"
    "                        ratio of their speeds (default --prefill 512 --decode 4096 --batch 1 --repeat 5)\n"
    "      --layers          where a step's time goes, by kinds of layers, each beside its floors (default\n"
    "                        --prefill 256 --decode 32768 --batch 1)\n"
    "      --predict CONFIG  and how fast the model of that config.json would generate, each part as near its floor "
    "as\n"
    "                        here\n"
    "      --bandwidth GB/S,...  on machines of such bandwidths (default: this one's, 100, 400)\n"
    "      --probe           only measures what the machine can do, and keeps it for day0 check\n";

static const char examples[] =
    "\nExamples:\n"
    "  day0 bench --prefill 512 --decode 0,4096 --batch 1\n"
    "  day0 bench --prefill none --decode 1024,16384 --batch 1 --li mxfp8\n"
    "  day0 bench -m DIR --prefill 256 --depth 0,4096 --decode none --csv > speed.csv\n"
    "  day0 bench -m DIR --prefill 64 --decode 0,1024 --batch 1 --plot speed.svg\n"
    "  day0 bench --ablate --prefill none --decode 64 --repeat 1\n"
    "  day0 bench --ablate=kv=bf16,act=exact --prefill none --decode 1024\n"
    "  day0 bench --layers --prefill 64 --decode 1024 --predict models/jargon-k31/config.json\n"
    "  day0 bench --probe\n";

struct bench_command {
    struct model_flags flags;
    struct bench_request request;
    bool lists[LIST_COUNT]; /* that the command line gave */
    enum format format;
    const char *plot;
    enum mode mode;
    struct layers_request layers;
};

typedef enum status mode_fn(struct bench_command *c, struct error *err);

/* Whole numbers with commas between, or "none". */
static enum status parse_list(struct bench_list *list, const char *name, const char *value, uint32_t low, uint32_t high,
                              struct error *err)
{
    list->n = 0;
    if (strcmp(value, "none") == 0)
        return STATUS_OK;
    for (const char *at = value;;) {
        char number[16];
        size_t digits = strcspn(at, ",");
        if (list->n == BENCH_LIST_MAX || digits >= sizeof number)
            return error_set(err, STATUS_ARGUMENT, "--%s takes up to %d whole numbers with commas between, not '%s'",
                             name, BENCH_LIST_MAX, value);
        memcpy(number, at, digits);
        number[digits] = 0;
        TRY(flag_count(name, number, low, high, &list->values[list->n++], err));
        if (at[digits] == 0)
            return STATUS_OK;
        at += digits + 1;
    }
}

/* Numbers with commas between. */
static enum status parse_bandwidths(struct layers_request *layers, const char *value, struct error *err)
{
    char copy[256], *save;
    if ((size_t)snprintf(copy, sizeof copy, "%s", value) >= sizeof copy)
        return error_set(err, STATUS_ARGUMENT, "--bandwidth: at most %zu characters", sizeof copy - 1);
    layers->n_bandwidths = 0;
    for (char *at = strtok_r(copy, ",", &save); at; at = strtok_r(NULL, ",", &save)) {
        if (layers->n_bandwidths == LAYERS_BANDWIDTHS_MAX)
            return error_set(err, STATUS_ARGUMENT, "--bandwidth takes up to %d numbers", LAYERS_BANDWIDTHS_MAX);
        TRY(flag_number("bandwidth", at, 0.01, 1e6, &layers->bandwidths[layers->n_bandwidths++], err));
    }
    return layers->n_bandwidths ? STATUS_OK : error_set(err, STATUS_ARGUMENT, "--bandwidth takes numbers of GB/s");
}

static enum status choose_mode(struct bench_command *c, enum mode mode, struct error *err)
{
    if (c->mode != MODE_SPEED && c->mode != mode)
        return error_set(err, STATUS_ARGUMENT, "--ablate, --layers and --probe exclude each other");
    c->mode = mode;
    return STATUS_OK;
}

static enum status parse(struct bench_command *c, int option, struct error *err)
{
    struct bench_request *r = &c->request;
    enum format format = option == FLAG_JSON ? FORMAT_JSON : FORMAT_CSV;
    switch (option) {
    case FLAG_PREFILL:
        c->lists[LIST_PREFILL] = true;
        return parse_list(&r->prefill, "prefill", optarg, 1, MODEL_CONTEXT_MAX, err);
    case FLAG_DEPTH:
        c->lists[LIST_DEPTH] = true;
        return parse_list(&r->prefill_depths, "depth", optarg, 0, MODEL_CONTEXT_MAX, err);
    case FLAG_DECODE:
        c->lists[LIST_DECODE] = true;
        return parse_list(&r->depths, "decode", optarg, 0, MODEL_CONTEXT_MAX - BENCH_STEPS_MAX, err);
    case FLAG_BATCH:
        c->lists[LIST_BATCH] = true;
        return parse_list(&r->batches, "batch", optarg, 1, BENCH_BATCH_MAX, err);
    case FLAG_REPEAT:
        return flag_count("repeat", optarg, 1, BENCH_REPEAT_MAX, &r->repeat, err);
    case FLAG_JSON:
    case FLAG_CSV:
        if (c->format != FORMAT_TABLE && c->format != format)
            return error_set(err, STATUS_ARGUMENT, "--json and --csv exclude each other");
        c->format = format;
        return STATUS_OK;
    case FLAG_PLOT:
        c->plot = optarg;
        return STATUS_OK;
    case FLAG_PREDICT:
        c->layers.config_path = optarg;
        return choose_mode(c, MODE_LAYERS, err);
    case FLAG_BANDWIDTH:
        return parse_bandwidths(&c->layers, optarg, err);
    case FLAG_LAYERS:
        return choose_mode(c, MODE_LAYERS, err);
    case FLAG_ABLATE:
        r->policy = optarg;
        return choose_mode(c, MODE_ABLATE, err);
    case FLAG_PROBE:
        return choose_mode(c, MODE_PROBE, err);
    default: {
        bool known;
        return model_flags_take(&c->flags, option, optarg, &known, err);
    }
    }
}

static void show_progress(void *context, uint64_t done, uint64_t total)
{
    struct progress *progress = context;
    progress->total = total;
    progress_set(progress, done);
}

static enum status measure(struct bench_command *c, struct error *err)
{
    static bench_report_fn *const reports[] = {bench_report_table, bench_report_csv, bench_report_json};
    static struct bench_result result; /* many kilobytes */
    char temporary[PATH_BYTES_MAX];
    FILE *plot = NULL;
    if (c->plot) /* first of all: a bad path must not cost minutes */
        TRY(output_open(&plot, temporary, c->plot, err));
    struct progress progress = progress_begin("bench", 1);
    c->request.progress_context = &progress;
    enum status status = bench_run(&c->request, &result, err);
    progress_end(&progress);
    if (status == STATUS_OK)
        status = reports[c->format](stdout, &c->request, &result, err);
    if (status == STATUS_OK && plot)
        bench_plot_print(plot, &c->request, &result);
    return plot ? output_close(plot, temporary, c->plot, status, err) : status;
}

static enum status ablate(struct bench_command *c, struct error *err)
{
    static bench_ablate_fn *const reports[] = {bench_ablate_table, bench_ablate_csv, bench_ablate_json};
    struct ablate_result *result;
    TRY(memory_take(&result, 1, sizeof *result, "the ablation's rows", err));
    struct progress progress = progress_begin("ablate", 1);
    c->request.progress_context = &progress;
    enum status status = bench_ablate_run(&c->request, result, err);
    progress_end(&progress);
    if (status == STATUS_OK)
        status = reports[c->format](stdout, &c->request, result, err);
    free(result);
    return status;
}

static enum status layers(struct bench_command *c, struct error *err)
{
    static bench_layers_fn *const reports[] = {bench_layers_table, bench_layers_csv, bench_layers_json};
    struct layers_result *result;
    TRY(memory_take(&result, 1, sizeof *result, "the times of layers", err));
    c->layers.bench = &c->request;
    c->layers.seconds = 2;
    struct progress progress = progress_begin("layers", 1);
    c->request.progress_context = &progress;
    enum status status = bench_layers_run(&c->layers, result, err);
    progress_end(&progress);
    if (status == STATUS_OK)
        status = reports[c->format](stdout, &c->layers, result, err);
    free(result);
    return status;
}

/* Measures the machine anew. */
static enum status probe(struct bench_command *c, struct error *err)
{
    const struct model_options *o = &c->flags.options;
    struct team *team;
    struct rates rates;
    unsigned tiers;
    TRY(tiers_parse(o->cpu, &tiers, err));
    TRY(team_open(&team, o->n_threads, err));
    enum status status = rates_find(&rates, team, tiers, RATES_FROM_PROBE, err);
    if (status == STATUS_OK && c->format == FORMAT_JSON) {
        json_t *report = json_object();
        json_object_set_new(report, "machine",
                            bench_report_machine(&c->request, &rates, team_size(team), tiers_name(tiers)));
        status = bench_report_dump(stdout, report, err);
    } else if (status == STATUS_OK) {
        printf("%u threads, %s: ", team_size(team), tiers_name(tiers));
        rates_print(stdout, &rates);
        printf("\n");
    }
    team_close(team);
    return status;
}

/* Fills in what the command line left open, and refuses what fits nothing. */
static enum status complete(struct bench_command *c, bool stray, struct error *err)
{
    static const struct bench_list prefill[] = {{{512, 2048, 8192}, 3}, {{512}, 1}, {{256}, 1}},
                                   decode[] = {{{0, 4096, 32768, 131072}, 4}, {{4096}, 1}, {{32768}, 1}},
                                   batch[] = {{{1, 4, 16}, 3}, {{1}, 1}, {{1}, 1}};
    enum mode mode = c->mode == MODE_PROBE ? MODE_SPEED : c->mode;
    struct bench_request *r = &c->request;
    r->directory = c->flags.directory;
    r->options = c->flags.options;
    if (!c->lists[LIST_PREFILL])
        r->prefill = prefill[mode];
    if (!c->lists[LIST_DEPTH])
        r->prefill_depths = (struct bench_list){{0}, 1};
    if (!c->lists[LIST_DECODE])
        r->depths = decode[mode];
    if (!c->lists[LIST_BATCH])
        r->batches = batch[mode];
    if (r->repeat == 0)
        r->repeat = mode == MODE_ABLATE ? 5 : 3;
    if (mode == MODE_ABLATE)
        r->seconds_min = ablate_turn_seconds * r->repeat;
    if (stray)
        return error_set(err, STATUS_ARGUMENT, "only options are taken; see --help");
    if (c->plot && c->mode != MODE_SPEED)
        return error_set(err, STATUS_ARGUMENT, "--plot draws what is measured without --ablate, --layers and --probe");
    if (c->format == FORMAT_CSV && c->mode == MODE_PROBE)
        return error_set(err, STATUS_ARGUMENT, "--probe prints text or --json");
    if (c->layers.n_bandwidths > 0 && !c->layers.config_path)
        return error_set(err, STATUS_ARGUMENT, "--bandwidth goes with --predict");
    if ((r->prefill.n == 0 && r->depths.n == 0) || (r->depths.n > 0 && r->batches.n == 0) ||
        (r->prefill.n > 0 && r->prefill_depths.n == 0))
        return error_set(err, STATUS_ARGUMENT, "nothing is left to measure; see --help");
    uint32_t works = r->prefill.n * r->prefill_depths.n + r->depths.n * r->batches.n;
    if (mode != MODE_SPEED && works > BENCH_LIST_MAX)
        return error_set(err, STATUS_ARGUMENT, "--ablate and --layers measure at most %d pieces of work, not %u",
                         BENCH_LIST_MAX, works);
    return STATUS_OK;
}

int lab_bench(int argc, char **argv)
{
    static const struct option options[] = {MODEL_FLAGS,
                                            {"prefill", required_argument, NULL, FLAG_PREFILL},
                                            {"depth", required_argument, NULL, FLAG_DEPTH},
                                            {"decode", required_argument, NULL, FLAG_DECODE},
                                            {"batch", required_argument, NULL, FLAG_BATCH},
                                            {"repeat", required_argument, NULL, FLAG_REPEAT},
                                            {"json", no_argument, NULL, FLAG_JSON},
                                            {"csv", no_argument, NULL, FLAG_CSV},
                                            {"plot", required_argument, NULL, FLAG_PLOT},
                                            {"ablate", optional_argument, NULL, FLAG_ABLATE},
                                            {"layers", no_argument, NULL, FLAG_LAYERS},
                                            {"predict", required_argument, NULL, FLAG_PREDICT},
                                            {"bandwidth", required_argument, NULL, FLAG_BANDWIDTH},
                                            {"probe", no_argument, NULL, FLAG_PROBE},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    static mode_fn *const modes[] = {measure, ablate, layers, probe};
    struct bench_command c = {.flags = model_flags_default(),
                              .request = {.probe = true, .seconds_min = 1.2, .progress = show_progress}};
    struct error err = {0};
    for (int option; (option = getopt_long(argc, argv, ":m:h", options, NULL)) != -1;) {
        if (option == 'h') {
            printf("%s%s%s", help, model_flags_help, examples);
            return LAB_OK;
        }
        if (option == '?' || option == ':')
            return lab_bad_option("bench", option, argv);
        if (parse(&c, option, &err) != STATUS_OK)
            return lab_fail("bench", &err, LAB_USAGE);
    }
    if (complete(&c, optind < argc, &err) != STATUS_OK)
        return lab_fail("bench", &err, LAB_USAGE);
    return modes[c.mode](&c, &err) == STATUS_OK ? LAB_OK : lab_fail("bench", &err, LAB_FAILED);
}
