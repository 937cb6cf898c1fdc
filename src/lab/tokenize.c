#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/file.h"
#include "lab/commands.h"
#include "text/tokenizer.h"

enum { INPUT_BYTES_MAX = 1 << 30 };

static const char help[] = "Usage: day0 tokenize [-m DIR] [-f FILE] [--decode] [--json]\n"
                           "\n"
                           "Turns text into token ids, or back. Special tokens in the text are text.\n"
                           "\n"
                           "  -m, --model DIR   directory with tiktoken.model and tokenizer_config.json\n"
                           "                    (default: DAY0_MODEL, else the bundled model)\n"
                           "  -f, --file FILE   what to read (default: standard input)\n"
                           "  -d, --decode      read ids, write their bytes\n"
                           "  -j, --json        ids are {\"ids\": [...]} instead of numbers between blanks\n"
                           "  -h, --help        this text\n"
                           "\n"
                           "Examples:\n"
                           "  echo -n 'Hello, world' | day0 tokenize\n"
                           "  day0 tokenize -f README.md --json\n"
                           "  echo -n 'Hello' | day0 tokenize | day0 tokenize --decode\n";

struct options {
    const char *model, *file;
    bool decode, json;
};

static enum status append_id(long long id, struct token_list *ids, struct error *err)
{
    if (id < 0 || id > INT32_MAX)
        return error_set(err, STATUS_ARGUMENT, "%lld is no token id; ids are numbers from 0", id);
    return token_list_push(ids, (int32_t)id, err);
}

static enum status read_json_ids(const char *text, size_t bytes, struct token_list *ids, struct error *err)
{
    json_error_t where;
    json_t *id, *root = json_loadb(text, bytes, 0, &where);
    size_t index;
    enum status status = STATUS_OK;
    if (!json_is_array(json_object_get(root, "ids")))
        status =
            error_set(err, STATUS_FORMAT, "want {\"ids\": [...]}, found %s", root ? "other JSON" : "no JSON at all");
    json_array_foreach (json_object_get(root, "ids"), index, id) {
        if (!json_is_integer(id))
            status = error_set(err, STATUS_FORMAT, "ids[%zu] is not an integer", index);
        if (status == STATUS_OK)
            status = append_id(json_integer_value(id), ids, err);
        if (status != STATUS_OK)
            break;
    }
    json_decref(root);
    return status;
}

/* `text` is terminated. */
static enum status read_plain_ids(const char *text, size_t bytes, struct token_list *ids, struct error *err)
{
    static const char blanks[] = " \t\r\n";
    for (const char *at = text + strspn(text, blanks); at < text + bytes; at += strspn(at, blanks)) {
        char *end;
        size_t found = strcspn(at, blanks);
        errno = 0;
        long long id = strtoll(at, &end, 10);
        if (found == 0 || end != at + found || errno)
            return error_set(err, STATUS_FORMAT, "want ids between blanks, found `%.*s`", found > 40 ? 40 : (int)found,
                             at);
        TRY(append_id(id, ids, err));
        at = end;
    }
    return STATUS_OK;
}

static void print_ids(const struct token_list *ids, bool json)
{
    fputs(json ? "{\"ids\": [" : "", stdout);
    for (size_t i = 0; i < ids->count; i++)
        printf("%s%d", i == 0 ? "" : json ? ", " : " ", ids->ids[i]);
    fputs(json ? "]}\n" : "\n", stdout);
}

static enum status convert(const struct options *options, const struct tokenizer *tokenizer, const char *text,
                           size_t bytes, struct token_list *ids, struct byte_buffer *out, struct error *err)
{
    if (!options->decode) {
        TRY(tokenizer_encode(tokenizer, text, bytes, ids, err));
        print_ids(ids, options->json);
        return STATUS_OK;
    }
    TRY(options->json ? read_json_ids(text, bytes, ids, err) : read_plain_ids(text, bytes, ids, err));
    TRY(tokenizer_decode(tokenizer, ids->ids, ids->count, out, err));
    if (out->bytes)
        fwrite(out->data, 1, out->bytes, stdout);
    return STATUS_OK;
}

static enum status run(const struct options *options, struct error *err)
{
    struct tokenizer *tokenizer = NULL;
    struct token_list ids = {0};
    struct byte_buffer out = {0};
    char *text = NULL;
    size_t bytes;
    enum status status = tokenizer_open(&tokenizer, options->model ? options->model : lab_default_model(), err);
    if (status == STATUS_OK)
        status = file_read(options->file, INPUT_BYTES_MAX, &text, &bytes, err);
    if (status == STATUS_OK)
        status = convert(options, tokenizer, text, bytes, &ids, &out, err);
    if (status == STATUS_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = error_set(err, STATUS_IO, "cannot write to standard output");
    free(text);
    token_list_fini(&ids);
    byte_buffer_fini(&out);
    tokenizer_close(tokenizer);
    return status;
}

int lab_tokenize(int argc, char **argv)
{
    static const struct option names[] = {
        {"model", required_argument, NULL, 'm'}, {"file", required_argument, NULL, 'f'},
        {"decode", no_argument, NULL, 'd'},      {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},        {0},
    };
    struct options options = {.file = "-"};
    struct error err;
    optind = 1;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":m:f:djh", names, NULL)) != -1;) {
        switch (option) {
        case 'm':
            options.model = optarg;
            break;
        case 'f':
            options.file = optarg;
            break;
        case 'd':
            options.decode = true;
            break;
        case 'j':
            options.json = true;
            break;
        case 'h':
            fputs(help, stdout);
            return LAB_OK;
        default:
            return lab_bad_option("tokenize", option, argv);
        }
    }
    if (optind < argc) {
        fprintf(stderr, "day0 tokenize: unexpected argument `%s`; text comes from -f or standard input\n",
                argv[optind]);
        return LAB_USAGE;
    }
    if (run(&options, &err) == STATUS_OK)
        return LAB_OK;
    fprintf(stderr, "day0 tokenize: %s\n", err.text);
    return LAB_FAILED;
}
