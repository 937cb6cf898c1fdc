#include "app/flags.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "lab/cache_folder.h"
#include "lab/commands.h"
#include "lab/model_flags.h"
#include "lab/progress.h"

enum {
    TEMP = APP_FLAG_FIRST,
    TOP_P,
    TOP_K,
    MIN_P,
    SEED,
    THINK,
    STATS,
    CTX,
    BUDGET,
    PRELOAD,
    ACT,
    KV,
    LI,
    LI_SCALE,
    DENSE,
    EXPERTS,
    NO_CACHE,
    NO_PACK,
    WITHOUT,
    LI_SCAN,
    THREADS,
    CPU,
    EXEC,
    STREAMS,
    ACCEPT_UNKNOWN,
};

static const struct option shared[] = {
    {"model", required_argument, NULL, 'm'},
    {"tokens", required_argument, NULL, 'n'},
    {"temp", required_argument, NULL, TEMP},
    {"top-p", required_argument, NULL, TOP_P},
    {"top-k", required_argument, NULL, TOP_K},
    {"min-p", required_argument, NULL, MIN_P},
    {"seed", required_argument, NULL, SEED},
    {"think", no_argument, NULL, THINK},
    {"stats", no_argument, NULL, STATS},
    {"ctx", required_argument, NULL, CTX},
    {"budget", required_argument, NULL, BUDGET},
    {"preload", no_argument, NULL, PRELOAD},
    {"act", required_argument, NULL, ACT},
    {"kv", required_argument, NULL, KV},
    {"li", required_argument, NULL, LI},
    {"li-scale", required_argument, NULL, LI_SCALE},
    {"dense", required_argument, NULL, DENSE},
    {"experts", required_argument, NULL, EXPERTS},
    {"no-cache", no_argument, NULL, NO_CACHE},
    {"no-pack", no_argument, NULL, NO_PACK},
    {"without", required_argument, NULL, WITHOUT},
    {"li-scan", required_argument, NULL, LI_SCAN},
    {"threads", required_argument, NULL, THREADS},
    {"cpu", required_argument, NULL, CPU},
    {"exec", required_argument, NULL, EXEC},
    {"streams", required_argument, NULL, STREAMS},
    {"accept-unknown", no_argument, NULL, ACCEPT_UNKNOWN},
};
enum { N_SHARED = sizeof shared / sizeof *shared };

const char app_flags_help[] =
    "Answer:\n"
    "  -n, --tokens N        at most this many tokens (default 256)\n"
    "      --temp T          temperature; 0 takes the best token (default: the model's generation_config.json)\n"
    "      --top-k K --top-p P --min-p M  cuts, in the order temperature, top-k, top-p, min-p\n"
    "      --seed N          the same seed gives the same answer (default: a new one each time)\n"
    "      --think           let the model think before it answers (K3 chat format)\n"
    "      --stats           memory, tokens, speed and seed on standard error\n"
    "Memory:\n"
    "      --ctx N           tokens of context at most (default 8192)\n"
    "      --budget GB       refuse what needs more memory (default: what the machine and its limits leave)\n"
    "      --preload         read all weights at the start, with progress, instead of at first use\n";

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    if (interrupted++ > 0) { /* nobody looked at the first one: do not hold the user up */
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
    }
}

void app_interrupts_catch(void)
{
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_interrupt}, NULL);
}

bool app_interrupted(void)
{
    return interrupted != 0;
}

void app_interrupts_clear(void)
{
    interrupted = 0;
}

struct app_flags app_flags_default(void)
{
    struct app_flags flags = {.options = day0_options_default(),
                              .temperature = -1,
                              .top_p = -1,
                              .min_p = -1,
                              .top_k = -1,
                              .seed = -1,
                              .n_tokens = 256};
    flags.options.model = lab_default_model();
    flags.options.cpu = getenv("DAY0_CPU");
    flags.options.cache = cache_folder_path();
    return flags;
}

void app_flags_join(struct option *out, size_t out_max, const struct option *own, size_t n_own)
{
    CHECK(n_own + N_SHARED < out_max);
    memcpy(out, own, n_own * sizeof *own);
    memcpy(out + n_own, shared, sizeof shared);
    out[n_own + N_SHARED] = (struct option){0};
}

/* Where an option goes whose value the engine reads as a word; NULL: it is none of them. */
static const char **word_of(day0_options *o, int option)
{
    switch (option) {
    case 'm':
        return &o->model;
    case ACT:
        return &o->act;
    case KV:
        return &o->kv;
    case LI:
        return &o->li;
    case LI_SCALE:
        return &o->li_scale;
    case LI_SCAN:
        return &o->li_scan;
    case DENSE:
        return &o->dense;
    case EXPERTS:
        return &o->experts;
    case CPU:
        return &o->cpu;
    case EXEC:
        return &o->exec;
    case STREAMS:
        return &o->streams;
    case WITHOUT:
        return &o->without;
    default:
        return NULL;
    }
}

static enum status take(struct app_flags *f, int option, const char *value, bool *known, struct error *err)
{
    uint32_t count = 0;
    double number = 0;
    const char **word = word_of(&f->options, option);
    *known = true;
    if (word) {
        *word = value;
        return STATUS_OK;
    }
    switch (option) {
    case 'n':
        return flag_count("tokens", value, 1, INT32_MAX, &f->n_tokens, err);
    case TEMP:
        return flag_number("temp", value, 0, 100, &f->temperature, err);
    case TOP_P:
        return flag_number("top-p", value, 1e-6, 1, &f->top_p, err);
    case MIN_P:
        return flag_number("min-p", value, 0, 1, &f->min_p, err);
    case TOP_K:
        TRY(flag_count("top-k", value, 0, INT32_MAX, &count, err));
        f->top_k = count;
        return STATUS_OK;
    case SEED:
        TRY(flag_count("seed", value, 0, INT32_MAX, &count, err));
        f->seed = count;
        return STATUS_OK;
    case THINK:
        f->think = true;
        return STATUS_OK;
    case STATS:
        f->stats = true;
        return STATUS_OK;
    case CTX:
        return flag_count("ctx", value, 1, 1 << 24, &f->options.context_max, err);
    case BUDGET:
        TRY(flag_number("budget", value, 1e-3, 1e6, &number, err));
        f->options.budget_bytes = (uint64_t)(number * 1e9);
        return STATUS_OK;
    case PRELOAD:
        f->options.preload = true;
        return STATUS_OK;
    case NO_CACHE:
        f->options.cache = NULL;
        return STATUS_OK;
    case NO_PACK:
        f->options.pack = "off";
        return STATUS_OK;
    case THREADS:
        return flag_count("threads", value, 1, 256, &f->options.threads, err);
    case ACCEPT_UNKNOWN:
        f->options.accept_unknown = true;
        return STATUS_OK;
    default:
        *known = false;
        return STATUS_OK;
    }
}

day0_status app_flags_take(struct app_flags *flags, int option, const char *value, day0_error *error)
{
    struct error err;
    bool known;
    enum status status = take(flags, option, value, &known, &err);
    if (status != STATUS_OK) {
        error->status = (day0_status)status;
        snprintf(error->text, sizeof error->text, "%s", err.text);
    }
    return status != STATUS_OK ? (day0_status)status : known ? DAY0_OK : DAY0_NOT_FOUND;
}

day0_sampling app_flags_sampling(struct app_flags *flags, const day0_engine *engine)
{
    day0_sampling sampling = day0_engine_sampling(engine);
    if (flags->temperature >= 0)
        sampling.temperature = (float)flags->temperature;
    if (flags->top_p >= 0)
        sampling.top_p = (float)flags->top_p;
    if (flags->min_p >= 0)
        sampling.min_p = (float)flags->min_p;
    if (flags->top_k >= 0)
        sampling.top_k = (uint32_t)flags->top_k;
    sampling.seed = flags->seed >= 0 ? (uint64_t)flags->seed
                                     : ((uint64_t)time(NULL) * 1000003 + (uint64_t)(clock_seconds() * 1e9)) & INT32_MAX;
    return sampling;
}

static int show_progress(void *context, const char *what, uint64_t done, uint64_t total)
{
    struct progress *progress = context;
    if (!progress->what || strcmp(progress->what, what) != 0) {
        progress_end(progress);
        *progress = progress_begin(what, total);
    }
    progress_set(progress, done);
    return app_interrupted();
}

static void show_notice(void *context, const char *sentence)
{
    progress_end(context);
    fprintf(stderr, "day0: %s\n", sentence);
}

day0_status app_flags_open(const struct app_flags *flags, day0_engine **engine, day0_error *error)
{
    struct progress progress = {0};
    day0_options options = flags->options;
    options.progress = show_progress;
    options.notice = show_notice;
    options.progress_context = &progress;
    day0_status status = day0_engine_open(engine, &options, error);
    progress_end(&progress);
    if (status != DAY0_OK || !flags->stats)
        return status;
    day0_memory m = day0_engine_memory(*engine);
    fprintf(stderr,
            "%s\nmemory: weights %.1f MB + cache %.1f MB + states %.1f MB + kept states %.1f MB + workspace %.1f MB = "
            "%.1f MB of %.1f MB\n",
            day0_engine_description(*engine), (double)m.weights_bytes / 1e6, (double)m.cache_bytes / 1e6,
            (double)m.sessions_bytes / 1e6, (double)m.checkpoints_bytes / 1e6, (double)m.workspace_bytes / 1e6,
            (double)m.total_bytes / 1e6, (double)m.budget_bytes / 1e6);
    return DAY0_OK;
}

int app_fail(const char *command, const day0_error *error, int exit_status)
{
    fprintf(stderr, "day0 %s: %s\n", command, error->text);
    return error->status == DAY0_INTERRUPTED ? APP_INTERRUPTED : exit_status;
}
