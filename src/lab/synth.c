/* day0 synth: a random checkpoint of any shape in the family. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "lab/commands.h"
#include "lab/model_flags.h"
#include "lab/synth.h"

static const double gigabyte = 1e9, shard_gb_usual = 5;

static const char help[] =
    "usage: day0 synth --config FILE DIR [--seed N] [--shard-gb X] [--tokenizer DIR]\n"
    "Writes a checkpoint with random weights to DIR, in the published layout of the config's architecture: BF16, "
    "routed\n"
    "experts in MXFP4 if the config has a quantization_config, F32 where the published models have it. It loads and "
    "runs\n"
    "like a trained one and speaks nonsense. The same config and seed give the same bytes.\n"
    "\n"
    "      --config FILE     the config.json of the shape\n"
    "      --seed N          of the random values (default 1)\n"
    "      --shard-gb X      size of one file in GB (default: one file up to 5 GB, else files of 5 GB)\n"
    "      --tokenizer DIR   copy tiktoken.model and tokenizer_config.json from there (default: the bundled model's, "
    "if\n"
    "                        the vocabulary is large enough)\n"
    "\nExamples:\n"
    "  day0 synth --config models/jargon-k31/config.json random\n"
    "  day0 run -m random -p hello -n 20\n";

enum { FLAG_CONFIG = FLAG_LAST, FLAG_SEED, FLAG_SHARD_GB, FLAG_TOKENIZER };

static enum status parse(struct synth_options *options, int option, struct error *err)
{
    double shard_gb;
    uint32_t seed;
    switch (option) {
    case FLAG_CONFIG:
        options->config_path = optarg;
        return STATUS_OK;
    case FLAG_SEED:
        TRY(flag_count("seed", optarg, 0, UINT32_MAX, &seed, err));
        options->seed = seed;
        return STATUS_OK;
    case FLAG_SHARD_GB:
        TRY(flag_number("shard-gb", optarg, 1e-6, 1e6, &shard_gb, err));
        options->shard_bytes = (uint64_t)(shard_gb * gigabyte);
        return STATUS_OK;
    default:
        options->tokenizer = optarg;
        options->tokenizer_optional = false;
        return STATUS_OK;
    }
}

int lab_synth(int argc, char **argv)
{
    static const struct option flags[] = {{"config", required_argument, NULL, FLAG_CONFIG},
                                          {"seed", required_argument, NULL, FLAG_SEED},
                                          {"shard-gb", required_argument, NULL, FLAG_SHARD_GB},
                                          {"tokenizer", required_argument, NULL, FLAG_TOKENIZER},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    struct synth_options options = {.tokenizer = lab_default_model(),
                                    .tokenizer_optional = true,
                                    .seed = 1,
                                    .shard_bytes = (uint64_t)(shard_gb_usual * gigabyte)};
    struct synth_result result;
    struct error err = {0};
    int option;
    while ((option = getopt_long(argc, argv, ":h", flags, NULL)) != -1) {
        if (option == 'h')
            return printf("%s", help) < 0 ? LAB_FAILED : LAB_OK;
        if (option == '?' || option == ':')
            return lab_bad_option("synth", option, argv);
        if (parse(&options, option, &err) != STATUS_OK)
            return lab_fail("synth", &err, LAB_USAGE);
    }
    if (!options.config_path || optind + 1 != argc) {
        (void)error_set(&err, STATUS_ARGUMENT, "--config FILE and one directory are needed; see --help");
        return lab_fail("synth", &err, LAB_USAGE);
    }
    options.directory = argv[optind];
    if (synth_checkpoint(&options, &result, &err) != STATUS_OK)
        return lab_fail("synth", &err, LAB_FAILED);
    printf("%s: %zu tensors, %.3g GB in %u file%s, seed %llu, %s, %.1f s (%.0f MB/s)\n", options.directory,
           result.n_tensors, (double)result.bytes / gigabyte, result.n_files, result.n_files == 1 ? "" : "s",
           (unsigned long long)options.seed, result.has_tokenizer ? "with a tokenizer" : "without a tokenizer",
           result.seconds, (double)result.bytes / 1e6 / (result.seconds > 0 ? result.seconds : 1));
    return LAB_OK;
}
