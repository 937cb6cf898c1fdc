#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "lab/commands.h"
#include "text/chat.h"
#include "text/json_text.h"

static const char help[] =
    "Usage: day0 render [-m DIR] --request FILE [--json]\n"
    "\n"
    "Renders a chat request (JSON with messages, tools, tool_choice, response_format,\n"
    "thinking, thinking_effort) as the prompt that the model reads, and its token ids.\n"
    "\n"
    "  -m, --model DIR      directory with tiktoken.model and tokenizer_config.json\n"
    "                       (default: DAY0_MODEL, else the bundled model)\n"
    "  -r, --request FILE   the request; - is standard input\n"
    "  -j, --json           write {\"segments\": [[text, is_control], ...], \"ids\": [...]}\n"
    "  -h, --help           this text\n"
    "\n"
    "Examples:\n"
    "  day0 render --request chat.json\n"
    "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' | day0 render --request - --json\n";

struct options {
    const char *model, *request;
    bool json;
};

static enum status write_json(const struct chat_segments *segments, const struct token_list *ids,
                              struct byte_buffer *out, struct error *err)
{
    TRY(byte_buffer_append_text(out, "{\"segments\": [", err));
    for (size_t i = 0; i < segments->count; i++) {
        struct chat_segment segment = chat_segments_at(segments, i);
        TRY(byte_buffer_append_text(out, i ? ", [" : "[", err));
        TRY(json_text_write_string(out, (struct byte_span){segment.text, segment.bytes}, err));
        TRY(byte_buffer_append_text(out, segment.is_control ? ", true]" : ", false]", err));
    }
    TRY(byte_buffer_append_text(out, "], \"ids\": [", err));
    for (size_t i = 0; i < ids->count; i++) {
        char number[16];
        snprintf(number, sizeof number, "%s%d", i ? ", " : "", ids->ids[i]);
        TRY(byte_buffer_append_text(out, number, err));
    }
    return byte_buffer_append_text(out, "]}\n", err);
}

/* The prompt as the model reads it, then how much it is. */
static enum status write_plain(const struct chat_segments *segments, const struct token_list *ids,
                               struct byte_buffer *out, struct error *err)
{
    char summary[96];
    for (size_t i = 0; i < segments->count; i++) {
        struct chat_segment segment = chat_segments_at(segments, i);
        TRY(byte_buffer_append(out, segment.text, segment.bytes, err));
    }
    snprintf(summary, sizeof summary, "\n\n%zu segments, %zu tokens\n", segments->count, ids->count);
    return byte_buffer_append_text(out, summary, err);
}

static enum status render(const struct options *options, const struct tokenizer *tokenizer,
                          const struct chat_request *request, struct chat_segments *segments, struct token_list *ids,
                          struct byte_buffer *out, struct error *err)
{
    TRY(chat_render(chat_format_of(tokenizer), request, segments, err));
    TRY(chat_encode(tokenizer, segments, ids, err));
    TRY(options->json ? write_json(segments, ids, out, err) : write_plain(segments, ids, out, err));
    if (fwrite(out->data, 1, out->bytes, stdout) != out->bytes || fflush(stdout) != 0)
        return error_set(err, STATUS_IO, "cannot write to standard output");
    return STATUS_OK;
}

static enum status run(const struct options *options, struct error *err)
{
    struct tokenizer *tokenizer = NULL;
    struct chat_request request = {0};
    struct chat_segments segments = {0};
    struct token_list ids = {0};
    struct byte_buffer out = {0};
    char *json = NULL;
    size_t bytes;
    enum status status = tokenizer_open(&tokenizer, options->model ? options->model : lab_default_model(), err);
    if (status == STATUS_OK)
        status = file_read(options->request, CHAT_REQUEST_BYTES_MAX, &json, &bytes, err);
    if (status == STATUS_OK)
        status = chat_request_init(&request, json, bytes, err);
    if (status == STATUS_OK)
        status = render(options, tokenizer, &request, &segments, &ids, &out, err);
    free(json);
    byte_buffer_fini(&out);
    token_list_fini(&ids);
    chat_segments_fini(&segments);
    chat_request_fini(&request);
    tokenizer_close(tokenizer);
    return status;
}

int lab_render(int argc, char **argv)
{
    static const struct option names[] = {
        {"model", required_argument, NULL, 'm'},
        {"request", required_argument, NULL, 'r'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    struct options options = {0};
    struct error err;
    optind = 1;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":m:r:jh", names, NULL)) != -1;) {
        switch (option) {
        case 'm':
            options.model = optarg;
            break;
        case 'r':
            options.request = optarg;
            break;
        case 'j':
            options.json = true;
            break;
        case 'h':
            fputs(help, stdout);
            return LAB_OK;
        default:
            return lab_bad_option("render", option, argv);
        }
    }
    if (optind < argc || !options.request) {
        fprintf(stderr, "day0 render: want --request FILE and nothing else; try --help\n");
        return LAB_USAGE;
    }
    if (run(&options, &err) == STATUS_OK)
        return LAB_OK;
    fprintf(stderr, "day0 render: %s\n", err.text);
    return LAB_FAILED;
}
