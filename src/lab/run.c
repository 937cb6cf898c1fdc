/* day0 run: one question, one answer, streamed. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "cpu/tiers.h"
#include "decode/sampler.h"
#include "lab/commands.h"
#include "lab/model_flags.h"
#include "lab/progress.h"
#include "text/chat.h"
#include "text/detokenizer.h"

enum {
    FLAG_TEMP = FLAG_LAST,
    FLAG_TOP_P,
    FLAG_TOP_K,
    FLAG_MIN_P,
    FLAG_SEED,
    FLAG_RAW,
    FLAG_THINK,
    FLAG_STATS,
    PROMPT_BYTES_MAX = 1 << 28,
    TOKENS_DEFAULT = 256,
    PIECE_TOKENS = 256,      /* of a prompt, between two looks at Ctrl-C */
    INPUT_PATIENCE_MS = 1000, /* how long a pipe may take to say its first byte */
    STATUS_INTERRUPT = 130,
};

static const char sample_question[] = "What is a hacker?";

static const char help[] =
    "usage: day0 run [-m DIR] [-p TEXT | -f FILE] [-n N] [options]\n"
    "Answers one question, or with --raw continues a text. Text comes from -p, -f or a pipe; without any, a sample question\n"
    "is answered. Ctrl-C stops.\n"
    "\n"
    "  -p, --prompt TEXT     the question\n"
    "  -f, --file FILE       read it from a file; - is standard input\n"
    "  -n, --tokens N        at most this many tokens of answer (default 256)\n"
    "      --temp T          temperature; 0 takes the best token (default: the model's generation_config.json)\n"
    "      --top-p P --top-k K --min-p M  cuts, in the order temperature, top-k, top-p, min-p\n"
    "      --seed N          the same seed gives the same answer (default: a new one each time)\n"
    "      --think           let the model think before it answers (K3 chat format)\n"
    "      --raw             no chat format: continue the text as it is\n"
    "      --stats           tokens, speed and seed on standard error\n";

static const char examples[] = "\nExamples:\n"
                               "  day0 run\n"
                               "  day0 run -p \"What is a boat anchor?\" --temp 0\n"
                               "  echo \"Define kluge.\" | day0 run -n 64 --seed 7 --stats\n"
                               "  day0 run --raw -p \"hacker: n.\"\n";

struct run_command {
    struct model_flags flags;
    struct sampling sampling;
    double temperature, top_p, min_p; /* -1: as the model says */
    int64_t top_k, seed;
    const char *prompt, *file;
    uint32_t n_tokens;
    bool raw, think, stats;

    struct model *model;
    struct tokenizer *tokenizer;
    struct sequence sequence;
    struct sampler sampler;
    float *logits;
    struct token_list prompt_ids;
    struct byte_buffer text;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

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

static enum status encode_prompt(struct run_command *c, struct error *err)
{
    char *text;
    size_t bytes;
    TRY(read_prompt(c, &text, &bytes, err));
    enum status status;
    if (c->raw) {
        status = tokenizer_encode(c->tokenizer, text, bytes, &c->prompt_ids, err);
    } else {
        struct chat_request request = {0};
        struct chat_segments segments = {0};
        status = chat_request_user(&request, text, bytes, c->think, NULL, err);
        if (status == STATUS_OK)
            status = chat_render(chat_format_of(c->tokenizer), &request, &segments, err);
        if (status == STATUS_OK)
            status = chat_encode(c->tokenizer, &segments, &c->prompt_ids, err);
        chat_segments_fini(&segments);
        chat_request_fini(&request);
    }
    free(text);
    if (status == STATUS_OK && c->prompt_ids.count == 0)
        status = error_set(err, STATUS_ARGUMENT, "the prompt is empty; give some text with -p or -f");
    if (status == STATUS_OK && c->prompt_ids.count + c->n_tokens > MODEL_CONTEXT_MAX)
        status = error_set(err, STATUS_ARGUMENT, "the prompt has %zu tokens and %u are to follow; %d is the limit",
                           c->prompt_ids.count, c->n_tokens, MODEL_CONTEXT_MAX);
    return status;
}

static enum status open_all(struct run_command *c, struct error *err)
{
    TRY(tokenizer_open(&c->tokenizer, c->flags.directory, err));
    TRY(encode_prompt(c, err));
    TRY(sampling_load(&c->sampling, c->flags.directory, err));
    c->sampling.temperature = c->temperature < 0 ? c->sampling.temperature : (float)c->temperature;
    c->sampling.top_p = c->top_p < 0 ? c->sampling.top_p : (float)c->top_p;
    c->sampling.min_p = c->min_p < 0 ? c->sampling.min_p : (float)c->min_p;
    c->sampling.top_k = c->top_k < 0 ? c->sampling.top_k : (uint32_t)c->top_k;
    c->sampling.seed = c->seed < 0 ? (uint64_t)(clock_seconds() * 1e9) & INT32_MAX : (uint64_t)c->seed;
    c->flags.options.context_max = (uint32_t)c->prompt_ids.count + c->n_tokens;
    TRY(model_open(&c->model, c->flags.directory, &c->flags.options, err));
    if (tokenizer_vocab_size(c->tokenizer) > (int32_t)c->model->config.vocab_size)
        return error_set(err, STATUS_FORMAT, "%s: the tokenizer has %d tokens, config.json a vocabulary of %u",
                         c->flags.directory, tokenizer_vocab_size(c->tokenizer), c->model->config.vocab_size);
    TRY(model_sequence_init(c->model, &c->sequence, err));
    TRY(sampler_init(&c->sampler, &c->sampling, c->model->config.vocab_size, err));
    return memory_take(&c->logits, c->model->config.vocab_size, sizeof *c->logits, "logits", err);
}

static void close_all(struct run_command *c)
{
    free(c->logits);
    sampler_fini(&c->sampler);
    sequence_fini(&c->sequence);
    model_close(c->model);
    tokenizer_close(c->tokenizer);
    token_list_fini(&c->prompt_ids);
    byte_buffer_fini(&c->text);
}

static bool stops(const struct run_command *c, int32_t token)
{
    int32_t ends[CHAT_STOP_TOKENS_MAX];
    size_t n = chat_stop_tokens(c->tokenizer, ends);
    for (size_t i = 0; i < n; i++)
        if (ends[i] == token)
            return true;
    for (uint32_t i = 0; i < c->model->config.n_stop_tokens; i++)
        if (c->model->config.stop_tokens[i] == token)
            return true;
    return false;
}

static enum status feed(struct run_command *c, const int32_t *tokens, uint32_t n, bool logits, struct error *err)
{
    struct model_span span = {&c->sequence, tokens, n, logits ? n - 1 : n};
    struct model_outputs outputs = {.logits = c->logits};
    return model_step(c->model, &span, 1, &outputs, err);
}

static enum status feed_prompt(struct run_command *c, struct error *err)
{
    uint32_t total = (uint32_t)c->prompt_ids.count;
    struct progress progress = progress_begin("prompt", total);
    enum status status = STATUS_OK;
    for (uint32_t done = 0; status == STATUS_OK && done < total && !interrupted;) {
        uint32_t n = total - done < PIECE_TOKENS ? total - done : PIECE_TOKENS;
        status = feed(c, c->prompt_ids.ids + done, n, done + n == total, err);
        progress_set(&progress, done += n);
    }
    progress_end(&progress);
    return status;
}

/* Control tokens frame tags: from <|open|> or <|close|> to <|sep|> the text is a tag's name, not the answer's. */
struct tag_filter {
    int32_t open, close, sep;
    bool in_tag;
};

static enum status print_token(struct run_command *c, struct tag_filter *filter, struct detokenizer *words,
                               int32_t token, struct error *err)
{
    c->text.bytes = 0;
    if (!c->raw && tokenizer_is_special(c->tokenizer, token)) {
        filter->in_tag = token == filter->open || token == filter->close || (filter->in_tag && token != filter->sep);
        if (token == filter->close)
            TRY(byte_buffer_append_text(&c->text, "\n", err));
    } else if (!filter->in_tag) {
        TRY(detokenizer_push(words, token, &c->text, err));
    }
    fwrite(c->text.data, 1, c->text.bytes, stdout);
    if (fflush(stdout) != 0)
        return error_set(err, STATUS_IO, "cannot write to standard output: %s", strerror(errno));
    return STATUS_OK;
}

static enum status generate(struct run_command *c, uint32_t *n_generated, struct error *err)
{
    struct detokenizer words;
    struct tag_filter filter = {tokenizer_special(c->tokenizer, "<|open|>"), tokenizer_special(c->tokenizer, "<|close|>"),
                                tokenizer_special(c->tokenizer, "<|sep|>"), false};
    detokenizer_init(&words, c->tokenizer);
    for (*n_generated = 0; *n_generated < c->n_tokens && !interrupted; ++*n_generated) {
        if (*n_generated > 0)
            TRY(feed(c, &(int32_t){c->prompt_ids.ids[c->prompt_ids.count - 1]}, 1, true, err));
        int32_t token = sampler_pick(&c->sampler, c->logits);
        if (stops(c, token))
            break;
        TRY(token_list_push(&c->prompt_ids, token, err));
        /* Ids past the tokenizer's exist where a model's vocabulary is padded: they have no text. */
        if (token < tokenizer_vocab_size(c->tokenizer))
            TRY(print_token(c, &filter, &words, token, err));
    }
    c->text.bytes = 0;
    TRY(detokenizer_flush(&words, &c->text, err));
    fwrite(c->text.data, 1, c->text.bytes, stdout);
    putchar('\n');
    return fflush(stdout) == 0 ? STATUS_OK : error_set(err, STATUS_IO, "cannot write to standard output");
}

static enum status answer(struct run_command *c, struct error *err)
{
    double opening = clock_seconds();
    TRY(open_all(c, err));
    uint32_t n_prompt = (uint32_t)c->prompt_ids.count, n_generated = 0;
    double start = clock_seconds();
    TRY(feed_prompt(c, err));
    double prompted = clock_seconds();
    if (!interrupted)
        TRY(generate(c, &n_generated, err));
    double end = clock_seconds();
    if (c->stats)
        fprintf(stderr,
                "open %.2f s; prompt %u tokens, %.1f tokens/s; answer %u tokens, %.1f tokens/s; %u threads, tier %s, seed "
                "%llu\n",
                start - opening, n_prompt, n_prompt / (prompted - start), n_generated, n_generated / (end - prompted),
                team_size(c->model->team), tiers_name(c->model->kernels.tiers),
                (unsigned long long)c->sampling.seed);
    return STATUS_OK;
}

static enum status parse(struct run_command *c, int option, struct error *err)
{
    uint32_t count = 0;
    switch (option) {
    case 'p':
        c->prompt = optarg;
        return STATUS_OK;
    case 'f':
        c->file = optarg;
        return STATUS_OK;
    case 'n':
        return flag_count("tokens", optarg, 1, MODEL_CONTEXT_MAX, &c->n_tokens, err);
    case FLAG_TEMP:
        return flag_number("temp", optarg, 0, 100, &c->temperature, err);
    case FLAG_TOP_P:
        return flag_number("top-p", optarg, 1e-6, 1, &c->top_p, err);
    case FLAG_MIN_P:
        return flag_number("min-p", optarg, 0, 1, &c->min_p, err);
    case FLAG_TOP_K:
        TRY(flag_count("top-k", optarg, 0, INT32_MAX, &count, err));
        c->top_k = count;
        return STATUS_OK;
    case FLAG_SEED:
        TRY(flag_count("seed", optarg, 0, INT32_MAX, &count, err));
        c->seed = count;
        return STATUS_OK;
    case FLAG_RAW:
        c->raw = true;
        return STATUS_OK;
    case FLAG_THINK:
        c->think = true;
        return STATUS_OK;
    case FLAG_STATS:
        c->stats = true;
        return STATUS_OK;
    default: {
        bool known;
        return model_flags_take(&c->flags, option, optarg, &known, err);
    }
    }
}

int lab_run(int argc, char **argv)
{
    static const struct option options[] = {MODEL_FLAGS,
                                            {"prompt", required_argument, NULL, 'p'},
                                            {"file", required_argument, NULL, 'f'},
                                            {"tokens", required_argument, NULL, 'n'},
                                            {"temp", required_argument, NULL, FLAG_TEMP},
                                            {"top-p", required_argument, NULL, FLAG_TOP_P},
                                            {"top-k", required_argument, NULL, FLAG_TOP_K},
                                            {"min-p", required_argument, NULL, FLAG_MIN_P},
                                            {"seed", required_argument, NULL, FLAG_SEED},
                                            {"raw", no_argument, NULL, FLAG_RAW},
                                            {"think", no_argument, NULL, FLAG_THINK},
                                            {"stats", no_argument, NULL, FLAG_STATS},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct run_command c = {.flags = model_flags_default(), .temperature = -1, .top_p = -1, .min_p = -1, .top_k = -1,
                            .seed = -1, .n_tokens = TOKENS_DEFAULT};
    struct error err = {0};
    for (int option; (option = getopt_long(argc, argv, ":m:p:f:n:h", options, NULL)) != -1;) {
        if (option == 'h') {
            printf("%s%s%s", help, model_flags_help, examples);
            return LAB_OK;
        }
        if (option == '?' || option == ':')
            return lab_bad_option("run", option, argv);
        if (parse(&c, option, &err) != STATUS_OK)
            return lab_fail("run", &err, LAB_USAGE);
    }
    if (optind < argc || (c.prompt && c.file)) {
        (void)error_set(&err, STATUS_ARGUMENT, "%s; see --help",
                        optind < argc ? "text is given with -p" : "-p and -f exclude each other");
        return lab_fail("run", &err, LAB_USAGE);
    }
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}, NULL);
    enum status status = answer(&c, &err);
    close_all(&c);
    if (status != STATUS_OK)
        return lab_fail("run", &err, LAB_FAILED);
    return interrupted ? STATUS_INTERRUPT : LAB_OK;
}
