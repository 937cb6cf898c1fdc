/* The command line: names a command, hands it its arguments. The only place that exits. */
#include <stdio.h>
#include <string.h>

#include "app/commands.h"
#include "lab/commands.h"

static const struct {
    const char *name, *what;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", "answer a question or continue a text", app_run},
    {"chat", "talk with the model", app_chat},
    {"check", "what a checkpoint needs and whether it can run here", lab_check},
    {"synth", "write a random checkpoint of any shape", lab_synth},
    {"logits", "write the raw logits of a list of token ids", lab_logits},
    {"eval", "likelihood of a text, and what a policy costs in quality", lab_eval},
    {"bench", "speed of prompts and of generation, against what the machine can do", lab_bench},
    {"trace", "what each worker does when, in one step", lab_trace},
    {"tokenize", "text to token ids, and back", lab_tokenize},
    {"render", "a chat request as the model sees it", lab_render},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void help(FILE *out)
{
    fprintf(out, "day0: runs Kimi Linear, Kimi K3 and Kimi K3.1 checkpoints\n\nusage: day0 COMMAND [options]\n\n");
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].what);
    fprintf(out, "\nday0 COMMAND --help says more. Example:\n  day0 run -p \"What is a hacker?\"\n");
}

int main(int argc, char **argv)
{
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0))
        return help(stdout), 0;
    for (int i = 0; argc >= 2 && i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    if (argc >= 2)
        fprintf(stderr, "day0: there is no command '%s'; see day0 --help\n", argv[1]);
    else
        help(stderr);
    return LAB_USAGE;
}
