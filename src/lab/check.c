/* day0 check: what a checkpoint needs, whether day0 has it and whether it fits, from config.json and the
 * headers alone. */
#include <getopt.h>
#include <stdio.h>

#include "cpu/tiers.h"
#include "lab/check_print.h"
#include "lab/commands.h"
#include "lab/model_flags.h"
#include "lab/rates_find.h"

static const char help[] =
    "usage: day0 check [DIR] [--json] [--ctx N] [--sessions N] [--budget GB]\n"
    "Says what the checkpoint in DIR needs: operators, memory, bandwidth; lists unknown keys and tensors and every "
    "tensor\n"
    "that is missing or misshapen. Only config.json and the headers are read. The first run on a machine measures "
    "what\n"
    "its memory and arithmetic can do, for about 3 s, and keeps that in ~/.cache/day0 (day0 bench --probe measures\n"
    "anew); $DAY0_BANDWIDTH_GB_S, $DAY0_F32_GFLOP_S, $DAY0_INT16_GOP_S, $DAY0_INT8_GOP_S and\n"
    "$DAY0_F16_GFLOP_S give it instead.\n"
    "\n"
    "Exit status: 0 the model can run (it may still not fit, see plan.fits), 1 it cannot, 2 wrong usage.\n"
    "\n"
    "      --json            one JSON object instead of text\n"
    "      --ctx N           plan for contexts of N tokens (default 4096)\n"
    "      --sessions N      and for so many sequences (default 1)\n"
    "      --budget GB       memory to fit in (default: what the machine and its control group leave)\n";

static const char examples[] = "\nExamples:\n"
                               "  day0 check models/jargon-k31\n"
                               "  day0 check models/jargon-k31 --json --ctx 1048576 --budget 64\n";

enum { FLAG_JSON = FLAG_LAST, FLAG_CTX, FLAG_SESSIONS, FLAG_BUDGET };

struct check_command {
    struct model_flags flags;
    uint64_t budget_bytes;
    bool json;
};

static enum status parse(struct check_command *c, int option, struct error *err)
{
    double gigabytes;
    bool known;
    switch (option) {
    case FLAG_JSON:
        c->json = true;
        return STATUS_OK;
    case FLAG_CTX:
        return flag_count("ctx", optarg, 1, MODEL_CONTEXT_MAX, &c->flags.options.context_max, err);
    case FLAG_SESSIONS:
        return flag_count("sessions", optarg, 1, 1 << 16, &c->flags.options.sequences_max, err);
    case FLAG_BUDGET:
        TRY(flag_number("budget", optarg, 0.001, 1e6, &gigabytes, err));
        c->budget_bytes = (uint64_t)(gigabytes * 1e9);
        return STATUS_OK;
    default:
        return model_flags_take(&c->flags, option, optarg, &known, err);
    }
}

static enum status run(const struct check_command *c, bool *runnable, struct error *err)
{
    struct report *report;
    struct team *team = NULL;
    struct rates rates;
    unsigned tiers;
    TRY(tiers_parse(c->flags.options.cpu, &tiers, err));
    TRY(report_open(&report, c->flags.directory, &c->flags.options, c->budget_bytes, err));
    *runnable = report->runnable;
    enum status status = team_open(&team, c->flags.options.n_threads, err);
    if (status == STATUS_OK)
        status = rates_find(&rates, team, tiers, RATES_FROM_CACHE, err);
    team_close(team);
    if (status == STATUS_OK && c->json)
        status = check_print_json(stdout, report, &rates, err);
    else if (status == STATUS_OK)
        check_print_text(stdout, c->flags.directory, report, &rates);
    report_close(report);
    return status;
}

int lab_check(int argc, char **argv)
{
    static const struct option options[] = {MODEL_FLAGS,
                                            {"json", no_argument, NULL, FLAG_JSON},
                                            {"ctx", required_argument, NULL, FLAG_CTX},
                                            {"sessions", required_argument, NULL, FLAG_SESSIONS},
                                            {"budget", required_argument, NULL, FLAG_BUDGET},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct check_command c = {.flags = model_flags_default()};
    c.flags.options.rewinds = true; /* as `run` and `chat` have it */
    struct error err = {0};
    bool runnable = false;
    int option;
    while ((option = getopt_long(argc, argv, ":m:h", options, NULL)) != -1) {
        if (option == 'h') {
            printf("%s%s%s", help, model_flags_help, examples);
            return LAB_OK;
        }
        if (option == '?' || option == ':')
            return lab_bad_option("check", option, argv);
        if (parse(&c, option, &err) != STATUS_OK)
            return lab_fail("check", &err, LAB_USAGE);
    }
    if (optind < argc)
        c.flags.directory = argv[optind++];
    if (optind < argc) {
        (void)error_set(&err, STATUS_ARGUMENT, "one directory is enough, '%s' is a second; see --help", argv[optind]);
        return lab_fail("check", &err, LAB_USAGE);
    }
    if (run(&c, &runnable, &err) != STATUS_OK)
        return lab_fail("check", &err, LAB_FAILED);
    return runnable ? LAB_OK : LAB_FAILED;
}
