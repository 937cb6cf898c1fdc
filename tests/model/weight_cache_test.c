/* The file of converted weights: it is used if it is whole and of these weights, else written anew; whatever ends a
 * process, there is a whole file or none; where no file can be, the model runs all the same. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "model/report.h"
#include "synth_help.h"

enum { N_TOKENS = 24 };

static struct synth_directory checkpoint;
static char folder[64]; /* of the cache file */
static int32_t tokens[N_TOKENS];
static struct answers in_memory; /* what converted weights give, without any file */

/* Every kind of matrix that is converted, experts of BF16. */
static struct synth description(void)
{
    struct synth s = synth_default();
    s.hidden = 96;
    s.inner = 64;
    s.kda_dim = 32;
    s.q_lora = 32;
    s.kv_lora = 32;
    s.v_dim = 32;
    s.expert_inner = 64;
    s.latent = 64;
    return s;
}

static unsigned n_notices;
static char last_notice[PATH_BYTES_MAX + ERROR_TEXT_BYTES];

static void note(void *context, const char *sentence)
{
    (void)context;
    n_notices++;
    snprintf(last_notice, sizeof last_notice, "%s", sentence);
}

static struct model_options converting(void)
{
    struct model_options options = exact_options(N_TOKENS);
    options.weights = (struct weight_types){DTYPE_INT8, DTYPE_MXFP4};
    options.cache_folder = folder;
    options.watch = (struct watch){.notice = note};
    return options;
}

/* What is stored comes into panels of the folder's file. */
static struct model_options packing(enum act act)
{
    struct model_options options = exact_options(N_TOKENS);
    options.act = act;
    options.pack = true;
    options.cache_folder = folder;
    options.watch = (struct watch){.notice = note};
    return options;
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/day0-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    n_notices = 0;
    return 0;
}

/* The files of the folder; `name` gets the last one's, if not NULL. */
static unsigned count_files(char *name)
{
    unsigned n = 0;
    DIR *list = opendir(folder);
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list));)
        if (entry->d_name[0] != '.') {
            n++;
            if (name)
                snprintf(name, PATH_BYTES_MAX, "%s/%s", folder, entry->d_name);
        }
    closedir(list);
    return n;
}

static int remove_folder(void **state)
{
    char name[PATH_BYTES_MAX];
    (void)state;
    while (count_files(name) > 0)
        assert_int_equal(unlink(name), 0);
    assert_int_equal(rmdir(folder), 0);
    return 0;
}

/* Opens and runs; the answers must be those of weights in memory. Says whether the file was written. */
static bool open_and_compare(const struct model_options *options, const char *what)
{
    struct model *model = open_or_fail(checkpoint.path, options);
    bool written = model->weight_cache.was_written;
    struct answers got = feed_pieces(model, tokens, N_TOKENS, NULL, 0);
    model_close(model);
    assert_same_bits(&got, &in_memory, what);
    answers_free(&got);
    return written;
}

static int prepare(void **state)
{
    (void)state;
    struct synth s = description();
    checkpoint = synth_write(&s);
    synth_tokens(tokens, N_TOKENS, s.vocabulary, 7);
    struct model_options options = converting();
    options.cache_folder = NULL;
    in_memory = run_pieces(checkpoint.path, &options, tokens, N_TOKENS, NULL, 0);
    return 0;
}

static int clean_up(void **state)
{
    (void)state;
    answers_free(&in_memory);
    synth_remove(&checkpoint);
    return 0;
}

/* ---- a whole file ---- */

static void second_start_uses_the_file(void **state)
{
    (void)state;
    struct model_options options = converting();
    char name[PATH_BYTES_MAX];
    assert_true(open_and_compare(&options, "the first start"));
    assert_int_equal(count_files(name), 1);
    struct stat before, after;
    assert_int_equal(stat(name, &before), 0);
    assert_int_equal(before.st_mode & 0777, 0644);
    assert_false(open_and_compare(&options, "the second start"));
    options.n_threads = 1;
    options.cpu = "ref"; /* every tier converts to the same bytes */
    assert_false(open_and_compare(&options, "the third start"));
    assert_int_equal(stat(name, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(n_notices, 0);
    options.weights.experts = DTYPE_INT8; /* another policy has another file */
    model_close(open_or_fail(checkpoint.path, &options));
    assert_int_equal(count_files(NULL), 2);
    options.weights = (struct weight_types){DTYPE_AS_STORED, DTYPE_AS_STORED};
    struct model *model = open_or_fail(checkpoint.path, &options);
    assert_null(model->weight_cache.map);
    model_close(model);
    assert_int_equal(count_files(NULL), 2);
}

static void converted_weights_are_those_of_the_codec(void **state)
{
    (void)state;
    struct model_options stored = converting(), options = converting();
    stored.weights = (struct weight_types){DTYPE_AS_STORED, DTYPE_AS_STORED};
    struct model *from = open_or_fail(checkpoint.path, &stored), *to = open_or_fail(checkpoint.path, &options);
    const struct matrix *a = &from->params.layers[0].kda.q_proj, *b = &to->params.layers[0].kda.q_proj;
    assert_int_equal(a->dtype, DTYPE_BF16);
    assert_int_equal(b->dtype, DTYPE_INT8);
    for (size_t block = 0; block < (size_t)a->rows * a->columns / MX_BLOCK; block++) {
        float x[MX_BLOCK];
        int8_t codes[MX_BLOCK];
        for (size_t i = 0; i < MX_BLOCK; i++)
            x[i] = f32_from_bf16(((const uint16_t *)a->data)[block * MX_BLOCK + i]);
        uint16_t scale = mx_quantize_int8(codes, x);
        assert_int_equal(scale, ((const uint16_t *)(const void *)b->scales)[block]);
        assert_memory_equal(codes, (const int8_t *)b->data + block * MX_BLOCK, MX_BLOCK);
    }
    /* What a sequence remembers by, the indexer, the router and the head stay as they are. */
    assert_int_equal(to->params.layers[0].kda.f_b_proj.dtype, DTYPE_BF16);
    assert_int_equal(to->params.layers[1].mla.kv_b_proj.dtype, DTYPE_BF16);
    assert_int_equal(to->params.layers[1].mla.indexer.wk.dtype, DTYPE_BF16);
    assert_int_equal(to->params.layers[1].moe.gate.dtype, DTYPE_BF16);
    assert_int_equal(to->params.lm_head.dtype, DTYPE_BF16);
    /* An expert is one record. */
    const struct expert *expert = &to->params.layers[1].moe.experts[2];
    assert_int_equal(expert->gate.dtype, DTYPE_MXFP4);
    assert_int_equal(((uintptr_t)expert->gate.data - (uintptr_t)to->weight_cache.map) % CONVERSION_ALIGNMENT, 0);
    assert_true((const char *)expert->down.data - (const char *)expert->gate.data < 3 * 96 * 64);
    model_close(from);
    model_close(to);
}

/* What is stored in MXFP4 comes into panels where there is a file for it, the same bits; with float32 activations, and
 * without a file, it stays as it is. */
static void stored_weights_are_packed(void **state)
{
    (void)state;
    char path[PATH_BYTES_MAX], name[PATH_BYTES_MAX];
    struct error err;
    struct model_options options = packing(ACT_INT8), rows = options;
    rows.pack = false;
    assert_int_equal(file_join(path, golden_root(), "k3-s1", &err), STATUS_OK);
    struct answers want = run_pieces(path, &rows, tokens, N_TOKENS, NULL, 0);
    assert_int_equal(count_files(NULL), 0);
    for (int start = 0; start < 4; start++) {
        if (start == 2)
            options.cache_folder = "/dev/null/nowhere";
        if (start == 3)
            options.cache_folder = NULL;
        struct model *model = open_or_fail(path, &options);
        const struct expert *expert = &model->params.layers[model->config.n_layers - 1].moe.experts[0];
        assert_true(expert->gate.dtype == DTYPE_MXFP4 && expert->gate.panels == (start < 2) &&
                    expert->down.panels == (start < 2));
        assert_int_equal(model->weight_cache.was_written, start == 0);
        assert_int_equal(conversion_packed_bytes(&model->params.conversion) > 0, start < 2);
        struct answers got = feed_pieces(model, tokens, N_TOKENS, NULL, 0);
        assert_same_bits(&got, &want, "panels");
        answers_free(&got);
        model_close(model);
        assert_int_equal(n_notices, start == 2); /* once for the start that wanted a file and had none */
        n_notices = 0;
    }
    assert_non_null(strstr(last_notice, "as they are stored"));
    assert_int_equal(count_files(name), 1);
    assert_non_null(strstr(name, "-as-stored-as-stored-all-panels"));
    options.cache_folder = folder;
    struct report *report; /* of day0 check */
    assert_int_equal(report_open(&report, path, &options, 0, &err), STATUS_OK);
    assert_true(conversion_packed_bytes(&report->conversion) > 0 && report->cache_state == WEIGHT_CACHE_WHOLE);
    assert_string_equal(report->cache_path, name);
    report_close(report);
    options.act = ACT_EXACT;
    struct model *model = open_or_fail(path, &options);
    assert_null(model->weight_cache.map);
    model_close(model);
    answers_free(&want);
}

/* So is what is stored in BF16 and meets activations in INT16; only what is read otherwise, too, stays in rows. */
static void bf16_weights_are_packed(void **state)
{
    (void)state;
    char name[PATH_BYTES_MAX];
    struct model_options options = packing(ACT_INT16), rows = options;
    rows.pack = false;
    struct answers want = run_pieces(checkpoint.path, &rows, tokens, N_TOKENS, NULL, 0);
    for (int start = 0; start < 3; start++) {
        if (start == 2)
            options.cache_folder = NULL;
        struct model *model = open_or_fail(checkpoint.path, &options);
        const struct params *params = &model->params;
        const struct matrix *packed[] = {&params->layers[0].kda.q_proj, &params->layers[0].kda.f_a_proj,
                                         &params->layers[1].moe.experts[0].up, &params->layers[1].mla.o_proj};
        const struct matrix *fixed[] = {&params->layers[1].mla.kv_b_proj, &params->lm_head};
        for (int i = 0; i < 4; i++)
            assert_true(packed[i]->dtype == DTYPE_BF16 && packed[i]->panels == (start < 2));
        for (int i = 0; i < 2; i++)
            assert_false(fixed[i]->panels);
        assert_int_equal(model->weight_cache.was_written, start == 0);
        struct answers got = feed_pieces(model, tokens, N_TOKENS, NULL, 0);
        assert_same_bits(&got, &want, "panels");
        answers_free(&got);
        model_close(model);
    }
    assert_int_equal(count_files(name), 1);
    assert_non_null(strstr(name, "-as-stored-as-stored-int16-panels"));
    assert_int_equal(n_notices, 0);
    answers_free(&want);
}

/* Converted weights in panels, in the file and in memory, are the bits of those in rows; each form has its file. */
static void converted_weights_are_packed(void **state)
{
    (void)state;
    struct model_options options = converting(), rows;
    options.act = ACT_INT8;
    options.pack = true;
    rows = options;
    rows.pack = false;
    struct answers want = run_pieces(checkpoint.path, &rows, tokens, N_TOKENS, NULL, 0);
    for (int start = 0; start < 3; start++) {
        options.cache_folder = start < 2 ? folder : NULL;
        struct model *model = open_or_fail(checkpoint.path, &options);
        assert_true(model->params.layers[0].kda.q_proj.panels && model->params.layers[1].moe.experts[0].up.panels);
        assert_false(model->params.layers[1].mla.kv_b_proj.panels);
        struct answers got = feed_pieces(model, tokens, N_TOKENS, NULL, 0);
        assert_same_bits(&got, &want, "panels");
        answers_free(&got);
        model_close(model);
    }
    assert_int_equal(count_files(NULL), 2);
    assert_int_equal(n_notices, 0);
    answers_free(&want);
}

/* ---- damage ---- */

struct file {
    char name[PATH_BYTES_MAX], *bytes;
    size_t size;
};

static struct file load_file(void)
{
    struct file f;
    struct error err;
    assert_int_equal(count_files(f.name), 1);
    assert_int_equal(file_read(f.name, 1 << 26, &f.bytes, &f.size, &err), STATUS_OK);
    return f;
}

/* Puts these bytes in its place; the next start says so once, writes it anew as it was, and gives the same answers. */
static void assert_rebuilt(const struct file *whole, const void *bytes, size_t size, const char *what)
{
    struct model_options options = converting();
    struct error err;
    assert_int_equal(file_write(whole->name, bytes, size, &err), STATUS_OK);
    n_notices = 0;
    if (!open_and_compare(&options, what))
        fail_msg("%s: the file was used", what);
    assert_int_equal(n_notices, 1);
    assert_non_null(strstr(last_notice, "written anew"));
    struct file again = load_file();
    assert_int_equal(again.size, whole->size);
    assert_memory_equal(again.bytes, whole->bytes, whole->size);
    free(again.bytes);
}

static void every_cut_is_noticed(void **state)
{
    (void)state;
    struct model_options options = converting();
    model_close(open_or_fail(checkpoint.path, &options));
    struct file f = load_file();
    const size_t cuts[] = {1, 8, 63, 64, 100, 4095, 4096, 4097, f.size / 2, f.size - 4096, f.size - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        char what[64];
        snprintf(what, sizeof what, "cut to %zu bytes", cuts[i]);
        assert_rebuilt(&f, f.bytes, cuts[i], what);
    }
    char *longer = calloc(f.size + 1, 1);
    memcpy(longer, f.bytes, f.size);
    assert_rebuilt(&f, longer, f.size + 1, "a byte longer");
    assert_rebuilt(&f, "", 0, "empty");
    free(longer);
    free(f.bytes);
}

static void every_flipped_byte_is_noticed(void **state)
{
    (void)state;
    struct model_options options = converting();
    struct model *model = open_or_fail(checkpoint.path, &options);
    size_t n_records = model->params.conversion.n_records, head = 64 + 24 * n_records;
    size_t data = (head + 4095) / 4096 * 4096;
    struct file f = load_file();
    for (size_t at = 0; at < head; at += at < 64 ? 1 : 13) { /* header; offsets, lengths and checksums of the table */
        char what[64];
        snprintf(what, sizeof what, "byte %zu flipped", at);
        f.bytes[at] ^= 0x20;
        char *damaged = malloc(f.size);
        memcpy(damaged, f.bytes, f.size);
        f.bytes[at] ^= 0x20;
        assert_rebuilt(&f, damaged, f.size, what);
        free(damaged);
    }
    /* Records that are sampled at every start: the first, the last and 14 between them. */
    for (size_t k = 0; k < 16; k++) {
        const struct conversion_record *record = &model->params.conversion.records[k * (n_records - 1) / 15];
        char what[64], *damaged = malloc(f.size);
        size_t at = data + record->offset + (k % 2 ? record->bytes - 1 : record->bytes / 2);
        snprintf(what, sizeof what, "byte %zu flipped", at);
        memcpy(damaged, f.bytes, f.size);
        damaged[at] ^= 1;
        assert_rebuilt(&f, damaged, f.size, what);
        free(damaged);
    }
    model_close(model);
    free(f.bytes);
}

static void other_weights_are_noticed(void **state)
{
    (void)state;
    struct model_options options = converting();
    char path[PATH_BYTES_MAX];
    struct error err;
    model_close(open_or_fail(checkpoint.path, &options));
    assert_int_equal(file_join(path, checkpoint.path, "model.safetensors", &err), STATUS_OK);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_true(open_and_compare(&options, "a touched checkpoint"));
    assert_int_equal(n_notices, 1);
    assert_non_null(strstr(last_notice, "other weights"));
    assert_int_equal(count_files(NULL), 1);
    assert_false(open_and_compare(&options, "the start after"));
}

/* ---- ends of processes ---- */

static int calls_left;

static int kill_at_last_call(void *context, const char *what, uint64_t done, uint64_t total)
{
    (void)context;
    (void)what;
    (void)done;
    (void)total;
    if (calls_left-- == 0)
        raise(SIGKILL);
    return 0;
}

static int stop_at_last_call(void *context, const char *what, uint64_t done, uint64_t total)
{
    (void)context;
    (void)what;
    (void)done;
    (void)total;
    return calls_left-- == 0;
}

static void kill_leaves_no_half_file(void **state)
{
    (void)state;
    bool died = true;
    for (int at = 0; died; at++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct model_options options = converting();
            struct model *model;
            struct error err;
            calls_left = at;
            options.watch.progress = kill_at_last_call;
            _exit(model_open(&model, checkpoint.path, &options, &err) != STATUS_OK);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        died = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        assert_true(died || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
        assert_true(at > 3 || died); /* it did die while it wrote */
        char name[PATH_BYTES_MAX];
        assert_int_equal(count_files(name), 1); /* those of earlier rounds were removed */
        assert_true(died == (strstr(name, ".tmp-") != NULL));
    }
    struct model_options options = converting();
    assert_false(open_and_compare(&options, "after the last round"));
    assert_int_equal(n_notices, 0);
}

static void stopping_leaves_nothing(void **state)
{
    (void)state;
    struct model_options options = converting();
    struct model *model;
    struct error err;
    options.watch.progress = stop_at_last_call;
    for (int at = 0; at < 3; at++) {
        calls_left = at;
        assert_int_equal(model_open(&model, checkpoint.path, &options, &err), STATUS_INTERRUPTED);
        assert_int_equal(count_files(NULL), 0);
    }
}

static void temporary_files_of_the_living_stay(void **state)
{
    (void)state;
    struct model_options options = converting();
    char dead[PATH_BYTES_MAX], living[PATH_BYTES_MAX];
    struct error err;
    assert_int_equal(file_join(dead, folder, "weights-other-0-int8-int8.tmp-aaaaaa", &err), STATUS_OK);
    assert_int_equal(file_join(living, folder, "weights-other-0-int8-int8.tmp-bbbbbb", &err), STATUS_OK);
    assert_int_equal(file_write(dead, "x", 1, &err), STATUS_OK);
    assert_int_equal(file_write(living, "x", 1, &err), STATUS_OK);
    int descriptor = open(living, O_RDWR | O_CLOEXEC);
    assert_true(descriptor >= 0 && flock(descriptor, LOCK_EX) == 0);
    assert_true(open_and_compare(&options, "beside temporary files"));
    assert_false(file_exists(dead));
    assert_true(file_exists(living));
    close(descriptor);
}

static void processes_at_once_do_not_disturb_each_other(void **state)
{
    (void)state;
    enum { PROCESSES = 4 };
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            struct model_options options = converting();
            struct answers got = run_pieces(checkpoint.path, &options, tokens, N_TOKENS, NULL, 0);
            _exit(n_notices != 0 || memcmp(got.logits, in_memory.logits, got.n_logits * sizeof(float)) != 0);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_int_equal(count_files(NULL), 1);
    struct model_options options = converting();
    assert_false(open_and_compare(&options, "after all of them"));
}

/* ---- no room, bad data ---- */

static void without_a_file_the_model_runs_all_the_same(void **state)
{
    (void)state;
    struct model_options options = converting();
    options.cache_folder = "/dev/null/nowhere";
    assert_false(open_and_compare(&options, "no folder can be made"));
    assert_int_equal(n_notices, 1);
    assert_non_null(strstr(last_notice, "into memory"));
    options.cache_folder = folder;
    struct rlimit whole, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
    small = (struct rlimit){100000, whole.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bool written = open_and_compare(&options, "no room for the file");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
    assert_false(written);
    assert_int_equal(n_notices, 2);
    assert_non_null(strstr(last_notice, "cannot write its"));
    assert_int_equal(count_files(NULL), 0);
    options.budget_bytes = 1000;
    struct model *model;
    struct error err;
    assert_int_equal(model_open(&model, checkpoint.path, &options, &err), STATUS_MEMORY);
    assert_int_equal(count_files(NULL), 0);
}

static void numbers_that_are_not_finite_are_refused(void **state)
{
    (void)state;
    struct model_options options = converting(), stored = converting();
    stored.weights = (struct weight_types){DTYPE_AS_STORED, DTYPE_AS_STORED};
    struct model *model = open_or_fail(checkpoint.path, &stored);
    const struct tensor *tensor = checkpoint_find(model->checkpoint, "model.layers.1.self_attn.o_proj.weight");
    assert_non_null(tensor);
    char path[PATH_BYTES_MAX], *bytes;
    size_t size;
    struct error err;
    assert_int_equal(file_join(path, checkpoint.path, "model.safetensors", &err), STATUS_OK);
    assert_int_equal(file_read(path, 1 << 26, &bytes, &size, &err), STATUS_OK);
    char *at = memmem(bytes, size, tensor->data, tensor->bytes);
    assert_non_null(at);
    char *damaged = malloc(size);
    memcpy(damaged, bytes, size);
    const uint16_t infinity = 0xff80;
    memcpy(damaged + (at - bytes) + 100, &infinity, sizeof infinity);
    model_close(model);
    assert_int_equal(file_write(path, damaged, size, &err), STATUS_OK);
    for (int i = 0; i < 2; i++) {
        options.cache_folder = i == 1 ? NULL : folder;
        assert_int_equal(model_open(&model, checkpoint.path, &options, &err), STATUS_FORMAT);
        assert_non_null(strstr(err.text, "model.layers.1.self_attn.o_proj.weight"));
        assert_int_equal(count_files(NULL), 0);
    }
    assert_int_equal(file_write(path, bytes, size, &err), STATUS_OK);
    free(damaged);
    free(bytes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(second_start_uses_the_file),
        TEST(converted_weights_are_those_of_the_codec),
        TEST(stored_weights_are_packed),
        TEST(bf16_weights_are_packed),
        TEST(converted_weights_are_packed),
        TEST(every_cut_is_noticed),
        TEST(every_flipped_byte_is_noticed),
        TEST(other_weights_are_noticed),
        TEST(kill_leaves_no_half_file),
        TEST(stopping_leaves_nothing),
        TEST(temporary_files_of_the_living_stay),
        TEST(processes_at_once_do_not_disturb_each_other),
        TEST(without_a_file_the_model_runs_all_the_same),
        TEST(numbers_that_are_not_finite_are_refused),
    };
    return cmocka_run_group_tests_name("weight cache", tests, prepare, clean_up);
}
