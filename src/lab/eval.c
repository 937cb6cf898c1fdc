/* day0 eval: how well a model predicts a text, and what a faster way of computing it costs in quality. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "lab/commands.h"
#include "lab/eval_report.h"
#include "lab/eval_run.h"
#include "lab/model_flags.h"
#include "lab/progress.h"
#include "text/tokenizer.h"

enum {
    FLAG_TEXT = FLAG_LAST,
    FLAG_COMPARE,
    FLAG_LI_COMPARE,
    FLAG_MAX_KL,
    FLAG_JSON,
    FLAG_CTX,
    TEXT_BYTES_MAX = 1 << 28,
};

static const char help[] =
    "usage: day0 eval [-m DIR] --text FILE [--compare POLICY ... | --li-compare] [--max-kl X] [options]\n"
    "Likelihood of a text under the model, for one policy or several side by side: the first is the reference, the\n"
    "others are measured by their distance to it. docs/EVAL.md explains the figures.\n"
    "\n"
    "      --text FILE       the text, UTF-8; - is standard input\n"
    "      --compare POLICY ...  what to compare, each as key=value,key=value: act, cpu, dense, exec, experts, kv, "
    "li,\n"
    "                        li-scale, li-scan, streams, threads, with the values of the flags below; what is not "
    "named\n"
    "                        is as those flags say\n"
    "      --li-compare      short for li=f32 li=bf16 li=mxfp8,li-scale=floor li=mxfp8,li-scale=ceil\n"
    "      --max-kl X        exit status 1 if the mean KL divergence of a policy from the reference is over X\n"
    "      --ctx N           cut the text into windows of N tokens (default: one window for all)\n"
    "  -n, --tokens N        the first N tokens only\n"
    "      --json            one JSON object instead of the table\n";

static const char examples[] =
    "\nExamples:\n"
    "  day0 eval --text models/jargon-k31/eval.txt\n"
    "  day0 eval --text models/jargon-k31/eval.txt --li-compare -n 2000\n"
    "  day0 eval --text models/jargon-k31/eval.txt -n 999 --compare kv=f32 kv=bf16 --max-kl 0.001 --json\n";

struct eval_command {
    struct model_flags flags;
    const char *text_path;
    const char *policy_texts[POLICIES_MAX];
    uint32_t n_policies;
    struct policy policies[POLICIES_MAX];
    bool li_compare, compare, limited, json;
    double kl_max;
    uint32_t context, n_tokens;
    struct token_list tokens;
};

static const char *const li_policies[] = {"li=f32", "li=bf16", "li=mxfp8,li-scale=floor", "li=mxfp8,li-scale=ceil"};

static enum status add_policy(struct eval_command *c, const char *text, struct error *err)
{
    if (c->n_policies == POLICIES_MAX)
        return error_set(err, STATUS_ARGUMENT, "at most %d policies are compared", POLICIES_MAX);
    c->policy_texts[c->n_policies++] = text;
    return STATUS_OK;
}

/* The start mark, if config.json names one and the tokenizer knows it as a special token; else -1. */
static enum status find_bos(const struct eval_command *c, const struct tokenizer *tokenizer, int32_t *bos,
                            struct error *err)
{
    struct config *config;
    TRY(memory_take(&config, 1, sizeof *config, "the config", err));
    enum status status = config_load(config, c->flags.directory, &c->flags.options.config, err);
    *bos = status == STATUS_OK && tokenizer_is_special(tokenizer, config->bos_token) ? config->bos_token : -1;
    free(config);
    return status;
}

static enum status read_text(struct eval_command *c, int32_t *bos, struct error *err)
{
    struct tokenizer *tokenizer = NULL;
    char *text = NULL;
    size_t bytes;
    enum status status = file_read(c->text_path, TEXT_BYTES_MAX, &text, &bytes, err);
    if (status == STATUS_OK)
        status = tokenizer_open(&tokenizer, c->flags.directory, err);
    if (status == STATUS_OK)
        status = tokenizer_encode(tokenizer, text, bytes, &c->tokens, err);
    if (status == STATUS_OK)
        status = find_bos(c, tokenizer, bos, err);
    tokenizer_close(tokenizer);
    free(text);
    if (status == STATUS_OK && c->n_tokens > 0) {
        size_t n = c->n_tokens - (*bos >= 0);
        c->tokens.count = c->tokens.count < n ? c->tokens.count : n;
    }
    return status;
}

static void show_progress(void *context, uint64_t done, uint64_t total)
{
    struct progress *progress = context;
    progress->total = total;
    progress_set(progress, done);
}

/* *past is the policy that diverges too far, or NULL. */
static enum status evaluate(struct eval_command *c, const char **past, struct error *err)
{
    struct progress progress = progress_begin("eval", 1);
    struct eval_request request = {.directory = c->flags.directory,
                                   .policies = c->policies,
                                   .n_policies = c->n_policies,
                                   .context = c->context,
                                   .progress = show_progress,
                                   .progress_context = &progress};
    struct eval_result result;
    TRY(read_text(c, &request.bos, err));
    request.tokens = c->tokens.ids;
    request.n_tokens = c->tokens.count;
    enum status status = eval_run(&request, &result, err);
    progress_end(&progress);
    if (status == STATUS_OK)
        status = (c->json ? eval_report_json : eval_report_table)(stdout, c->text_path, &request, &result, err);
    *past = NULL;
    for (uint32_t p = 0; status == STATUS_OK && c->limited && p < result.n_policies && !*past; p++)
        if (result.figures[p].kl_mean > c->kl_max) {
            *past = c->policies[p].name;
            (void)error_set(err, STATUS_ARGUMENT, "policy '%s': the mean KL divergence is %.3g, over --max-kl %g",
                            *past, result.figures[p].kl_mean, c->kl_max);
        }
    eval_result_fini(&result);
    return status;
}

static enum status parse(struct eval_command *c, int option, struct error *err)
{
    switch (option) {
    case FLAG_TEXT:
        c->text_path = optarg;
        return STATUS_OK;
    case FLAG_COMPARE:
        c->compare = true;
        return add_policy(c, optarg, err);
    case FLAG_LI_COMPARE:
        c->li_compare = true;
        return STATUS_OK;
    case FLAG_MAX_KL:
        c->limited = true;
        return flag_number("max-kl", optarg, 0, 1e9, &c->kl_max, err);
    case FLAG_JSON:
        c->json = true;
        return STATUS_OK;
    case FLAG_CTX:
        return flag_count("ctx", optarg, 2, MODEL_CONTEXT_MAX, &c->context, err);
    case 'n':
        return flag_count("tokens", optarg, 2, UINT32_MAX, &c->n_tokens, err);
    default: {
        bool known;
        return model_flags_take(&c->flags, option, optarg, &known, err);
    }
    }
}

/* What is left of the command line, and the policies over the flags, wherever those stood. */
static enum status complete(struct eval_command *c, char *const *operands, int n_operands, struct error *err)
{
    if (n_operands > 0 && !c->compare)
        return error_set(err, STATUS_ARGUMENT, "'%s': text is given with --text FILE; see --help", operands[0]);
    if (!c->text_path)
        return error_set(err, STATUS_ARGUMENT, "--text FILE is needed; see --help");
    if (c->li_compare && c->compare)
        return error_set(err, STATUS_ARGUMENT, "--compare and --li-compare exclude each other");
    for (int i = 0; i < n_operands; i++)
        TRY(add_policy(c, operands[i], err));
    for (size_t i = 0; c->li_compare && i < sizeof li_policies / sizeof *li_policies; i++)
        TRY(add_policy(c, li_policies[i], err));
    if (c->limited && c->n_policies < 2)
        return error_set(err, STATUS_ARGUMENT, "--max-kl needs something to compare: two policies, or --li-compare");
    for (uint32_t p = 0; p < c->n_policies; p++)
        TRY(policy_parse(&c->policies[p], c->policy_texts[p], &c->flags.options, err));
    if (c->n_policies == 0)
        policy_of(&c->policies[c->n_policies++], &c->flags.options);
    return STATUS_OK;
}

int lab_eval(int argc, char **argv)
{
    static const struct option options[] = {MODEL_FLAGS,
                                            {"text", required_argument, NULL, FLAG_TEXT},
                                            {"compare", required_argument, NULL, FLAG_COMPARE},
                                            {"li-compare", no_argument, NULL, FLAG_LI_COMPARE},
                                            {"max-kl", required_argument, NULL, FLAG_MAX_KL},
                                            {"json", no_argument, NULL, FLAG_JSON},
                                            {"ctx", required_argument, NULL, FLAG_CTX},
                                            {"tokens", required_argument, NULL, 'n'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct eval_command c = {.flags = model_flags_default()};
    struct error err = {0};
    for (int option; (option = getopt_long(argc, argv, ":m:n:h", options, NULL)) != -1;) {
        if (option == 'h') {
            printf("%s%s%s", help, model_flags_help, examples);
            return LAB_OK;
        }
        if (option == '?' || option == ':')
            return lab_bad_option("eval", option, argv);
        if (parse(&c, option, &err) != STATUS_OK)
            return lab_fail("eval", &err, LAB_USAGE);
    }
    if (complete(&c, argv + optind, argc - optind, &err) != STATUS_OK)
        return lab_fail("eval", &err, LAB_USAGE);
    const char *past = NULL;
    enum status status = evaluate(&c, &past, &err);
    token_list_fini(&c.tokens);
    return status == STATUS_OK && !past ? LAB_OK : lab_fail("eval", &err, LAB_FAILED);
}
