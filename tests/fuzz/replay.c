/* Runs a fuzz target over its corpus without a fuzzer, so that fuzz cases are ordinary regression tests.
 *
 *     tests/fuzz/X_fuzz [-n MUTATIONS] [-v] DIRECTORY...
 *
 * Every file of the directories is run once as it is, then MUTATIONS times changed; the changes come from the
 * file's name and their number alone, so a failure comes back on the next run, and -v names it before it
 * happens. */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_BYTES_MAX = 1 << 20, MUTATIONS_DEFAULT = 200 };

static size_t mutations = MUTATIONS_DEFAULT, files, runs;
static bool verbose;

/* Runs a copy of exactly that size, so that a sanitizer sees a read past the end. */
static void run(const char *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        return;
    if (size)
        memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    runs++;
}

/* One random change in place; `data` has room for INPUT_BYTES_MAX. Gives the new size. */
static size_t change(char *data, size_t size, struct rng *rng)
{
    static const char *const words[] = {
        "\"", "\\u0000", "[", "]",  "{", "}", ",",  ":",    "null",     "1e999",
        "-",  "NaN",     "0", "\n", " ", "=", "<|", "\xff", "\xf0\x9f", "99999999999999999999"};
    size_t at = rng_below(rng, size + 1), length = 1 + rng_below(rng, 32);
    length = length < size - at ? length : size - at;
    const char *word = words[rng_below(rng, sizeof words / sizeof *words)];
    size_t word_bytes = strlen(word);
    switch (rng_below(rng, 5)) {
    case 0: /* other bits */
        if (at < size)
            data[at] = (char)(data[at] ^ 1 << rng_below(rng, 8));
        return size;
    case 1: /* a stretch less */
        memmove(data + at, data + at + length, size - at - length);
        return size - length;
    case 2: /* a stretch twice */
        if (size + length > INPUT_BYTES_MAX)
            return size;
        memmove(data + at + length, data + at, size - at);
        return size + length;
    case 3: /* an end too early */
        return rng_below(rng, 4) ? size : at;
    default: /* a word that means something somewhere */
        if (size + word_bytes > INPUT_BYTES_MAX)
            return size;
        memmove(data + at + word_bytes, data + at, size - at);
        memcpy(data + at, word, word_bytes);
        return size + word_bytes;
    }
}

static bool run_file(const char *directory, const char *name, char *scratch)
{
    char path[PATH_BYTES_MAX];
    char *data = NULL;
    size_t bytes;
    struct error err;
    if (file_join(path, directory, name, &err) != STATUS_OK ||
        file_read(path, INPUT_BYTES_MAX, &data, &bytes, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        return false;
    }
    struct rng rng = {bytes};
    for (const char *letter = name; *letter; letter++)
        rng.state = rng.state * 31 + (unsigned char)*letter;
    run(data, bytes);
    for (size_t i = 0; i < mutations; i++) {
        size_t size = bytes;
        memcpy(scratch, data, bytes);
        for (uint64_t changes = 1 + rng_below(&rng, 4); changes > 0; changes--)
            size = change(scratch, size, &rng);
        if (verbose)
            printf("%s mutation %zu\n", path, i);
        run(scratch, size);
    }
    free(data);
    files++;
    return true;
}

static bool run_directory(const char *directory, char *scratch)
{
    struct dirent **names;
    int count = scandir(directory, &names, NULL, alphasort);
    if (count < 0)
        fprintf(stderr, "%s: cannot read the directory\n", directory);
    bool good = count >= 0;
    for (int i = 0; i < count; i++) {
        if (names[i]->d_name[0] != '.')
            good = run_file(directory, names[i]->d_name, scratch) && good;
        free(names[i]);
    }
    if (count >= 0)
        free(names);
    return good;
}

int main(int argc, char **argv)
{
    char *scratch = malloc(INPUT_BYTES_MAX);
    bool good = scratch != NULL;
    for (int option; (option = getopt(argc, argv, "n:v")) != -1;) {
        if (option == 'n')
            mutations = strtoul(optarg, NULL, 10);
        else if (option == 'v')
            verbose = true;
        else
            good = false;
    }
    for (int i = optind; good && i < argc; i++)
        good = run_directory(argv[i], scratch);
    free(scratch);
    if (files == 0)
        fprintf(stderr, "usage: %s [-n MUTATIONS] [-v] DIRECTORY...\n", argv[0]);
    printf("%s: %zu files, %zu runs\n", argv[0], files, runs);
    return good && files ? 0 : 1;
}
