/* The driver of the kernel test, see check.h. Options come from the environment:
 *
 *     K=<part of a name>   only these kernels         SEED=<n>   another seed
 *     CPU=<tier>           only that tier and below   BENCH=1    time instead of test
 *     QUICK=1              fewer random blocks, for emulators */
#include "check.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "buffers.h"
#include "cpu/tiers.h"
#include "rates.h"

/* One line of all.def. */
struct entry {
    const char *kernel;
    void (*check)(struct check *c); /* set at a kernel's first entry */
    const char *tier;
    void (*function)(void); /* NULL: not of this architecture */
};

static const struct entry entries[] = {
#define TAKE(name, tier) {#name, NULL, #tier, (void (*)(void))name##_##tier},
#define LEAVE(name, tier) {#name, NULL, #tier, NULL},
#define KERNEL(name, result, parameters) {#name, check_##name, "ref", (void (*)(void))name##_ref},
#if defined(__x86_64__)
#define X86(name, tier) TAKE(name, tier)
#define ARM(name, tier) LEAVE(name, tier)
#elif defined(__aarch64__)
#define X86(name, tier) LEAVE(name, tier)
#define ARM(name, tier) TAKE(name, tier)
#else
#define X86(name, tier) LEAVE(name, tier)
#define ARM(name, tier) LEAVE(name, tier)
#endif
#include "kernels/all.def"
#undef KERNEL
#undef X86
#undef ARM
};

static struct check check;
static sigjmp_buf after_signal;

void fail(struct check *c, const char *format, ...)
{
    struct body *body = &c->bodies[c->running < 0 ? 0 : c->running];
    if (!body->failed) { /* the first failure of a body says enough */
        va_list arguments;
        va_start(arguments, format);
        printf("FAIL %s_%s [%s%s]: ", c->kernel, body->tier, c->description, c->specials ? ", specials" : "");
        vprintf(format, arguments);
        printf("\n");
        va_end(arguments);
    }
    body->failed = true;
}

bool near(struct check *c, const char *what, size_t index, double got, double want, double tolerance)
{
    if (fabs(got - want) <= tolerance)
        return true;
    fail(c, "%s[%zu] is %.9g, float64 has %.9g, off by %.3g with %.3g allowed", what, index, got, want,
         fabs(got - want), tolerance);
    return false;
}

bool exact(const struct check *c)
{
    return !c->specials && !c->bench && c->placement == PLACE_END;
}

bool next_length(struct check *c, size_t *n)
{
    static const size_t lengths[] = {0, 1, 2, 15, 16, 17, 31, 33, 48, 64, 65, 100, 255, 1000, 4099}, model[] = {7168};
    const size_t *list = c->bench ? model : lengths, count = c->bench ? COUNT(model) : COUNT(lengths);
    size_t *used = &c->n_lengths_used;
    while (*used == 0 && list[*used] < *n)
        ++*used;
    if (*used == count)
        return *used = 0, false;
    *n = list[(*used)++];
    return true;
}

void begin(struct check *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->description, sizeof c->description, format, arguments);
    va_end(arguments);
    c->n_buffers = 0;
    c->running = -1;
    c->n_cases++;
    c->work_bytes = c->work_flops = 0.0;
    c->work_unit = UNIT_F32;
    specials_draw(c);
}

void work(struct check *c, double bytes, double flops)
{
    c->work_bytes = bytes;
    c->work_flops = flops;
}

void work_in(struct check *c, enum unit unit)
{
    c->work_unit = unit;
}

/* A line of a table that can go into a document as it is. */
static void report_time(const struct check *c, const struct body *body)
{
    const char *what;
    char ratio[32] = "";
    double share = rates_share(c, body, &what);
    if (c->bodies[0].best_s > 0.0)
        snprintf(ratio, sizeof ratio, "%.1f", c->bodies[0].best_s / body->best_s);
    printf("| %-20s | %-28s | %-10s | %7.2f | %8.2f | %10.2f | %4.0f %% %-4s | %6s |\n", c->kernel, c->description,
           body->tier, c->work_bytes / body->best_s * 1e-9, c->work_flops / body->best_s * 1e-9, body->best_s * 1e6,
           100 * share, what, ratio);
}

static void report_head(void)
{
    printf("| %-20s | %-28s | %-10s | %7s | %8s | %10s | %-11s | %6s |\n"
           "|----------------------|------------------------------|------------|--------:|---------:|-----------:"
           "|------------:|-------:|\n",
           "kernel", "case", "tier", "GB/s", "GFLOP/s", "us", "of the unit", "x ref");
}

/* The next call of a body that is timed, or the next body, or the end of the case. */
static bool next_timed(struct check *c)
{
    enum { RUNS_MIN = 3 };
    const double enough_s = 0.2, reference_flops_max = 3e8; /* the reference would take a second or more */
    const double long_s = 2e-4; /* processor time is too coarse for shorter calls, which are seldom interrupted */
    double took = clock_seconds() - c->started_s;
    if (took > long_s)
        took = fmin(took, processor_seconds() - c->started_processor_s);
    bool another = c->running < 0;
    if (another) {
        c->bodies[0].best_s = 0.0;
        c->running = c->work_flops > reference_flops_max ? 1 : 0;
    } else {
        struct body *body = &c->bodies[c->running];
        body->best_s = c->n_runs++ == 0 || took < body->best_s ? took : body->best_s;
        c->spent_s += took;
        another = c->spent_s > enough_s && (c->n_runs >= RUNS_MIN || c->spent_s > 3 * enough_s);
        if (another) {
            report_time(c, body);
            c->running++;
        }
    }
    if (another) {
        c->n_runs = 0;
        c->spent_s = 0.0;
    }
    if ((size_t)c->running >= c->n_bodies)
        return c->running = -1, false;
    c->body = c->bodies[c->running].function;
    c->started_processor_s = processor_seconds(); /* costs more than the wall clock: outside of it */
    c->started_s = clock_seconds();
    return true;
}

bool next_body(struct check *c)
{
    if (c->bench)
        return next_timed(c);
    if (c->running >= 0)
        buffers_verify(c, c->running == 0);
    if ((size_t)++c->running == c->n_bodies) {
        c->running = -1;
        return false;
    }
    buffers_prepare(c, c->running == 0);
    c->body = c->bodies[c->running].function;
    return true;
}

static void on_signal(int number)
{
    siglongjmp(after_signal, number);
}

/* One pass over a kernel's cases; a signal ends it and names the body. */
static void run_pass(struct check *c, void (*cases)(struct check *c))
{
    int number = sigsetjmp(after_signal, 1);
    if (number) {
        fail(c, "%s", strsignal(number));
        return;
    }
    cases(c);
}

static void run_kernel(struct check *c, void (*cases)(struct check *c), uint64_t seed)
{
    static const struct {
        enum placement placement;
        bool specials;
    } passes[] = {{PLACE_END, false}, {PLACE_FRONT, false}, {PLACE_ODD, true}, {PLACE_END, true}};
    c->n_cases = 0;
    for (size_t i = 0; i < (c->bench ? 1 : COUNT(passes)); i++) {
        c->placement = c->bench ? PLACE_BENCH : passes[i].placement;
        c->specials = passes[i].specials && !c->bench;
        c->rng.state = seed + i;
        c->n_lengths_used = 0;
        run_pass(c, cases);
    }
}

/* Whether the machine has the tier and the mask allows it. */
static bool tier_usable(const char *tier, unsigned allowed)
{
    unsigned needed;
    return tiers_parse(tier, &needed, NULL) == STATUS_OK && (needed & ~allowed) == 0;
}

int main(void)
{
    struct error err;
    unsigned allowed, passed = 0, failed = 0, skipped = 0;
    const char *only = getenv("K"), *seed_text = getenv("SEED");
    uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : 1;
    if (tiers_parse(getenv("CPU"), &allowed, &err) != STATUS_OK) {
        printf("%s\n", err.text);
        return 2;
    }
    check.bench = getenv("BENCH") != NULL;
    check.quick = getenv("QUICK") != NULL;
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    for (size_t i = 0; i < COUNT(signals); i++)
        sigaction(signals[i], &(struct sigaction){.sa_handler = on_signal}, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("kernel test: seed %llu, tiers up to %s\n", (unsigned long long)seed, tiers_name(allowed));
    if (check.bench) {
        rates_find(allowed);
        report_head();
    }
    for (size_t i = 0; i < COUNT(entries);) {
        const struct entry *kernel = &entries[i];
        check.kernel = kernel->kernel;
        check.n_bodies = 0;
        bool chosen = !only || strstr(kernel->kernel, only);
        char absent[64] = "";
        for (; i < COUNT(entries) && strcmp(entries[i].kernel, kernel->kernel) == 0; i++) {
            if (chosen && entries[i].function && tier_usable(entries[i].tier, allowed)) {
                check.bodies[check.n_bodies++] = (struct body){entries[i].tier, entries[i].function, false, 0.0};
            } else if (chosen) {
                skipped++;
                snprintf(absent + strlen(absent), sizeof absent - strlen(absent), " %s", entries[i].tier);
            }
        }
        if (!chosen)
            continue;
        run_kernel(&check, kernel->check, seed);
        char present[64] = "";
        for (size_t b = 0; b < check.n_bodies; b++) {
            check.bodies[b].failed ? failed++ : passed++;
            snprintf(present + strlen(present), sizeof present - strlen(present), " %s", check.bodies[b].tier);
        }
        if (!check.bench)
            printf("%-20s %5zu cases:%s%s%s\n", kernel->kernel, check.n_cases, present, *absent ? "; skipped:" : "",
                   absent);
    }
    printf("%u passed, %u failed, %u skipped\n", passed, failed, skipped);
    return failed ? 1 : 0;
}
