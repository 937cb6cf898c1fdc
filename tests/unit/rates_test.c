/* The rates of the machine: measured, kept, believed only where the file is whole. */
#include "checkpoint_writer.h"

#include <math.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "cpu/machine.h"
#include "cpu/tiers.h"
#include "exec/probe.h"
#include "exec/rates.h"

static char folder[WRITER_PATH_BYTES], kept_folder[WRITER_PATH_BYTES + 8], kept[2 * WRITER_PATH_BYTES];
static struct team *team;

static int setup(void **state)
{
    struct error err;
    (void)state;
    writer_make_folder(folder);
    snprintf(kept_folder, sizeof kept_folder, "%s/day0", folder);
    return team_open(&team, 2, &err);
}

/* The one file that was kept; empty if there is none. */
static const char *find_kept(void)
{
    kept[0] = 0;
    DIR *open_folder = opendir(kept_folder);
    for (struct dirent *entry; open_folder && (entry = readdir(open_folder));)
        if (entry->d_name[0] != '.')
            snprintf(kept, sizeof kept, "%s/%s", kept_folder, entry->d_name);
    if (open_folder)
        closedir(open_folder);
    return kept;
}

static int teardown(void **state)
{
    struct stat info;
    (void)state;
    team_close(team);
    if (stat(kept_folder, &info) == 0)
        writer_remove_folder(kept_folder);
    writer_remove_folder(folder);
    return 0;
}

static void test_believable(void **state)
{
    (void)state;
    assert_true(rates_believable(0.5) && rates_believable(20) && rates_believable(9000));
    assert_false(rates_believable(0) || rates_believable(-3) || rates_believable(1e9) || rates_believable((double)NAN));
}

/* Little memory: measured, said, not kept. */
static void test_small(void **state)
{
    (void)state;
    struct rates r;
    struct error err;
    double started = clock_seconds();
    assert_int_equal(rates_measure(&r, team, tiers_found(), 300 << 20, &err), STATUS_OK);
    print_message("%.1f GB/s over %.0f MB, %.0f GFLOP/s in %.1f s\n", r.read.gb_s, (double)r.read.buffer_bytes / 1e6,
                  r.gop_s[UNIT_F32], clock_seconds() - started);
    assert_true(r.read.small_buffer && r.source == RATES_MEASURED && r.read.gb_s > 0.01);
    assert_in_range(r.read.buffer_bytes, 1 << 20, 75 << 20);
    assert_false(rates_write(&r, kept_folder, 2, tiers_found()));
    assert_string_equal(find_kept(), "");
}

/* A stronger tier is not slower; a tier without a unit has no rate; two threads beat one. */
static void test_units(void **state)
{
    (void)state;
    double plain = probe_unit(team, UNIT_F32, 1u << TIER_REF), best = probe_unit(team, UNIT_F32, tiers_found());
    assert_true(plain > 0.01 && best >= plain / 2); /* other work may disturb one of them */
    assert_true(probe_unit(team, UNIT_INT8, 1u << TIER_REF) == 0 && probe_unit(team, UNIT_F16, 1u << TIER_AVX2) == 0);
    assert_true((probe_unit(team, UNIT_INT8, tiers_found()) > 0) == ((tiers_found() & 1u << TIER_AVX2) != 0));
    assert_true((probe_unit(team, UNIT_INT16, tiers_found()) > 0) == ((tiers_found() & ~(1u << TIER_REF)) != 0));
    assert_true((probe_unit(team, UNIT_F16, tiers_found()) > 0) == ((tiers_found() & 1u << TIER_AVX512FP16) != 0));
}

static void write_kept(unsigned n_threads, const char *tail)
{
    char name[MACHINE_NAME_BYTES], text[1024];
    machine_name(name);
    int length = snprintf(text, sizeof text, "day0 rates 1\n%s\n%u threads, ref\n%s", name, n_threads, tail);
    FILE *out = fopen(kept, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, (size_t)length, out), length);
    fclose(out);
}

/* Where the file must lie: as a measurement would have kept it. */
static void name_kept(void)
{
    char name[MACHINE_NAME_BYTES];
    machine_name(name);
    for (char *at = name; *at; at++)
        if (!((*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || *at == '.' ||
              *at == '-'))
            *at = '_';
    mkdir(kept_folder, 0777);
    snprintf(kept, sizeof kept, "%s/rates-%s-2-threads-ref", kept_folder, name);
}

#define WHOLE "17.25 GB/s over 1073741824 bytes\n340.5 f32\n0.0 int16\n0.0 int8\n0.0 f16\nend\n"

static void test_kept(void **state)
{
    (void)state;
    struct rates r;
    name_kept();
    write_kept(2, WHOLE);
    assert_true(rates_read(&r, kept_folder, 2, 1u << TIER_REF));
    assert_true(r.source == RATES_KEPT && fabs(r.read.gb_s - 17.25) < 1e-9 && r.read.buffer_bytes == 1 << 30);
    assert_true(fabs(r.gop_s[UNIT_F32] - 340.5) < 1e-9 && r.gop_s[UNIT_INT8] == 0 && r.gop_s[UNIT_F16] == 0);
    assert_false(rates_read(&r, kept_folder, 3, 1u << TIER_REF));
    assert_false(rates_read(&r, kept_folder, 2, 1u << TIER_REF | 1u << TIER_AVX2));
    assert_false(rates_read(&r, NULL, 2, 1u << TIER_REF));
}

/* A damaged file is as good as none. */
static void test_damaged(void **state)
{
    (void)state;
    static const char *const tails[] = {
        "",
        "17.25 GB/s",
        "17.25 GB/s over 1073741824 bytes\n",
        "17.25 GB/s over 1073741824 bytes\n340.5 f32\n0.0 int16\n0.0 int8\n0.0 f16\n",
        "17.25 GB/s over 1073741824 bytes\n0.0 f32\n0.0 int16\n0.0 int8\n0.0 f16\nend\n",
        "17.25 GB/s over 1073741824 bytes\n340.5 f32\n0.0 int16\n0.0 f16\n0.0 int8\nend\n",
        "17.25 GB/s over 0 bytes\n340.5 f32\n0.0 int16\n0.0 int8\n0.0 f16\nend\n",
        "nan GB/s over 1 bytes\n340.5 f32\n0.0 int16\n0.0 int8\n0.0 f16\nend\n",
        "-1 GB/s over 1 bytes\n340.5 f32\n0.0 int16\n0.0 int8\n0.0 f16\nend\n",
        "1e30 GB/s over 1 bytes\n340.5 f32\n0.0 int16\n0.0 int8\n0.0 f16\nend\n",
        WHOLE "more",
        "\1\2\3\4"};
    struct rates r;
    name_kept();
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        write_kept(2, tails[i]);
        assert_false(rates_read(&r, kept_folder, 2, 1u << TIER_REF));
    }
    write_kept(3, WHOLE); /* of another team */
    assert_false(rates_read(&r, kept_folder, 2, 1u << TIER_REF));
}

/* The whole way: measured over the usual buffer, kept if there was time to touch it, found again. */
static void test_measured(void **state)
{
    (void)state;
    const char *slow = getenv("DAY0_SLOW");
    if (!slow || strcmp(slow, "1") != 0)
        skip();
    struct rates r, again;
    struct error err;
    assert_int_equal(rates_measure(&r, team, tiers_found(), 0, &err), STATUS_OK);
    if (r.read.small_buffer)
        return;
    assert_true(r.read.buffer_bytes >= 1 << 30 && rates_write(&r, kept_folder, 2, tiers_found()));
    assert_true(rates_read(&again, kept_folder, 2, tiers_found()) && again.source == RATES_KEPT);
    assert_true(fabs(again.read.gb_s - r.read.gb_s) < 0.006 && again.read.buffer_bytes == r.read.buffer_bytes);
    for (int unit = 0; unit < UNIT_COUNT; unit++)
        assert_true(fabs(again.gop_s[unit] - r.gop_s[unit]) < 0.06);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_believable), TEST(test_small),   TEST(test_units),
                                       TEST(test_kept),       TEST(test_damaged), TEST(test_measured)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
