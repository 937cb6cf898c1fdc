/* Sessions: `m` and then a snapshot, `f` and then a session file (header and zstd frame). What only says whose it is,
 * how long it is and that it is whole (checkpoint, numerics, sizes, checksum) is put right, so that the content
 * counts; behind `M` and `F` it stays as it is. A session is refused with a sentence and as it was, or goes on,
 * whatever state it has. */
#include <dirent.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "engine/engine.h"
#include "engine/session_format.h"
#include "lab/synth.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CONTEXT = 100, TEXT = 20 };

static const char config[] =
    "{\"architectures\":[\"KimiLinearForCausalLM\"],\"vocab_size\":32,\"hidden_size\":16,\"num_hidden_layers\":2,"
    "\"intermediate_size\":16,\"hidden_act\":\"silu\",\"num_attention_heads\":1,\"kv_lora_rank\":16,\"qk_nope_head_"
    "dim\":8,"
    "\"qk_rope_head_dim\":4,\"v_head_dim\":8,\"mla_use_nope\":true,\"q_lora_rank\":16,\"dsa_config\":{\"index_n_"
    "heads\":1,"
    "\"index_head_dim\":32,\"index_topk\":8,\"dsa_layers\":[2]},\"linear_attn_config\":{\"num_heads\":1,\"head_dim\":"
    "16,"
    "\"short_conv_kernel_size\":4,\"kda_layers\":[1],\"full_attn_layers\":[2]}}";

static day0_session *session; /* whose text is 0 1 2 ... before every input */
static struct session_header own;

/* The files stay mapped. */
static void remove_files(const char *directory)
{
    char path[PATH_BYTES_MAX];
    DIR *files = opendir(directory);
    CHECK(files);
    for (struct dirent *entry; (entry = readdir(files));)
        if (entry->d_name[0] != '.' && file_join(path, directory, entry->d_name, NULL) == STATUS_OK)
            unlink(path);
    closedir(files);
    rmdir(directory);
}

static day0_engine *open_engine(void)
{
    char directory[64] = "/tmp/day0_fuzz_XXXXXX", path[PATH_BYTES_MAX], model[128];
    struct error err;
    day0_error error;
    day0_engine *engine;
    CHECK(mkdtemp(directory));
    CHECK(file_join(path, directory, "config.json", &err) == STATUS_OK);
    CHECK(file_write(path, config, sizeof config - 1, &err) == STATUS_OK);
    snprintf(model, sizeof model, "%s/model", directory);
    struct synth_options synth = {.config_path = path, .directory = model, .seed = 1, .shard_bytes = UINT64_MAX};
    struct synth_result result;
    if (synth_checkpoint(&synth, &result, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    day0_options options = day0_options_default();
    options.model = model;
    options.context_max = CONTEXT;
    options.checkpoints_max = 1;
    options.threads = 1;
    if (day0_engine_open(&engine, &options, &error) != DAY0_OK) {
        fprintf(stderr, "%s\n", error.text);
        abort();
    }
    remove_files(model);
    remove_files(directory);
    return engine;
}

static void set_text(day0_engine *engine)
{
    int32_t text[TEXT];
    day0_error error;
    for (int32_t i = 0; i < TEXT; i++)
        text[i] = i;
    CHECK(day0_session_submit(session, text, TEXT, NULL, NULL, &error) == DAY0_OK);
    CHECK(day0_engine_run(engine, &error) == DAY0_OK);
}

static day0_status load(const char *bytes, size_t size, day0_error *error)
{
    char path[64];
    bool recompute;
    int file = memfd_create("session", 0);
    CHECK(file >= 0 && write(file, bytes, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    day0_status status = day0_session_load(session, path, &recompute, error);
    CHECK(status == DAY0_OK || strstr(error->text, path));
    close(file);
    return status;
}

/* One more token after whatever text the session has now. */
static void go_on(day0_engine *engine)
{
    int32_t text[CONTEXT];
    size_t n;
    day0_error error;
    const int32_t *tokens = day0_session_tokens(session, &n);
    CHECK(n <= CONTEXT);
    memcpy(text, tokens, n * sizeof *text);
    if (n < CONTEXT)
        text[n++] = 7;
    CHECK(day0_session_submit(session, text, n, NULL, NULL, &error) == DAY0_OK);
    CHECK(day0_engine_run(engine, &error) == DAY0_OK);
    const float *logits = day0_session_logits(session);
    CHECK(day0_session_finish(session) == DAY0_FINISH_FAILED ? !logits : isfinite(logits[0]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static day0_engine *engine;
    day0_error error = {0};
    void *snapshot;
    size_t bytes, n;
    if (!engine) {
        engine = open_engine();
        CHECK(day0_session_open(&session, engine, &error) == DAY0_OK);
        set_text(engine);
        CHECK(day0_session_snapshot(session, &snapshot, &bytes, &error) == DAY0_OK);
        memcpy(&own, snapshot, sizeof own);
        free(snapshot);
    }
    if (size == 0)
        return 0;
    set_text(engine);
    bool is_file = data[0] == 'f' || data[0] == 'F', mended = data[0] == 'f' || data[0] == 'm';
    char *copy = malloc(size); /* exactly so long, for the sanitizer */
    CHECK(copy);
    size--;
    memcpy(copy, data + 1, size);
    if (mended && size >= sizeof own) {
        struct session_header h;
        memcpy(&h, copy, sizeof h);
        memcpy(h.magic, own.magic, sizeof h.magic);
        memcpy(h.identity, own.identity, sizeof h.identity);
        memcpy(h.numerics, own.numerics, sizeof h.numerics);
        h.stored_bytes = size - sizeof h;
        h.payload_bytes = is_file ? h.payload_bytes : h.stored_bytes;
        session_format_seal(&h, copy + sizeof h);
        memcpy(copy, &h, sizeof h);
    }
    day0_status status = is_file ? load(copy, size, &error) : day0_session_restore(session, copy, size, &error);
    free(copy);
    day0_session_tokens(session, &n);
    CHECK(status == DAY0_OK || (error.text[0] && n == TEXT && day0_session_logits(session)));
    go_on(engine);
    return 0;
}
