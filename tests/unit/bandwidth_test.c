/* The bandwidth of the machine: measured once, kept, believed only where the file is whole. */
#include "checkpoint_writer.h"

#include <math.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "cpu/machine.h"
#include "exec/bandwidth.h"

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
    assert_true(bandwidth_believable(0.5) && bandwidth_believable(20) && bandwidth_believable(9000));
    assert_false(bandwidth_believable(0) || bandwidth_believable(-3) || bandwidth_believable(1e9) ||
                 bandwidth_believable((double)NAN));
}

/* Little memory: measured, said, not kept. */
static void test_small(void **state)
{
    (void)state;
    struct bandwidth b;
    struct error err;
    double started = clock_seconds();
    assert_int_equal(bandwidth_get(&b, team, kept_folder, 300 << 20, &err), STATUS_OK);
    print_message("%.1f GB/s over %.0f MB in %.1f s\n", b.gb_s, (double)b.buffer_bytes / 1e6,
                  clock_seconds() - started);
    assert_true(b.small_buffer && !b.cached && b.gb_s > 0.01);
    assert_in_range(b.buffer_bytes, 1 << 20, 75 << 20);
    assert_string_equal(find_kept(), "");
}

static void write_kept(unsigned n_threads, const char *tail)
{
    char name[MACHINE_NAME_BYTES], text[1024];
    machine_name(name);
    int length = snprintf(text, sizeof text, "day0 bandwidth 1\n%s\n%u threads\n%s", name, n_threads, tail);
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
    snprintf(kept, sizeof kept, "%s/bandwidth-%s-2-threads", kept_folder, name);
}

static void test_kept(void **state)
{
    (void)state;
    struct bandwidth b;
    struct error err;
    name_kept();
    write_kept(2, "17.25 GB/s over 1073741824 bytes\nend\n");
    assert_int_equal(bandwidth_get(&b, team, kept_folder, 0, &err), STATUS_OK);
    assert_true(b.cached && fabs(b.gb_s - 17.25) < 1e-9 && b.buffer_bytes == 1 << 30);
}

/* A damaged file is as good as none. */
static void test_damaged(void **state)
{
    (void)state;
    static const char *const tails[] = {"",
                                        "17.25 GB/s",
                                        "17.25 GB/s over 1073741824 bytes\n",
                                        "nan GB/s over 1 bytes\nend\n",
                                        "-1 GB/s over 1 bytes\nend\n",
                                        "1e30 GB/s over 1 bytes\nend\n",
                                        "\1\2\3\4"};
    struct bandwidth b;
    struct error err;
    name_kept();
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        write_kept(2, tails[i]);
        assert_int_equal(bandwidth_get(&b, team, kept_folder, 32 << 20, &err), STATUS_OK);
        assert_false(b.cached);
        assert_true(b.gb_s > 0.01 && b.gb_s < 1e5);
    }
    write_kept(3, "17.25 GB/s over 1073741824 bytes\nend\n"); /* of another team */
    assert_int_equal(bandwidth_get(&b, team, kept_folder, 32 << 20, &err), STATUS_OK);
    assert_false(b.cached);
}

/* The whole way: measured over the usual buffer, kept if there was time to touch it, found again. */
static void test_measured(void **state)
{
    (void)state;
    const char *slow = getenv("DAY0_SLOW");
    if (!slow || strcmp(slow, "1") != 0)
        skip();
    struct bandwidth b, again;
    struct error err;
    double started = clock_seconds();
    assert_int_equal(bandwidth_get(&b, team, kept_folder, 0, &err), STATUS_OK);
    print_message("%.1f GB/s over %.0f MB in %.1f s\n", b.gb_s, (double)b.buffer_bytes / 1e6,
                  clock_seconds() - started);
    if (b.small_buffer)
        return;
    assert_true(b.buffer_bytes >= 1 << 30);
    assert_int_equal(bandwidth_get(&again, team, kept_folder, 0, &err), STATUS_OK);
    assert_true(again.cached && fabs(again.gb_s - b.gb_s) < 0.006 && again.buffer_bytes == b.buffer_bytes);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_believable), TEST(test_small), TEST(test_kept), TEST(test_damaged),
                                       TEST(test_measured)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
