/* Plans and their runs: every way of running respects what nodes read and write; a recorder sees each tile once; a
 * worker that waits too long says for what. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "exec/runner.h"

enum { NODES = 60, BUFFERS = 9, TILES = 7, WIDTH = 16 };

/* A node of the test: every row of `out` becomes a mixture of all rows of its inputs and itself. */
struct mix {
    struct buffer in[2], out;
    uint32_t n_in, n_tiles;
    float factor;
    bool fresh; /* what `out` held does not count */
};

static void run_mix(const struct plan_context *context, const void *args, uint32_t tile)
{
    const struct mix *m = args;
    float *out = buffer_row(context, m->out, tile);
    for (uint32_t c = 0; c < WIDTH; c++) {
        float sum = 0;
        for (uint32_t i = 0; i < m->n_in; i++)
            for (uint32_t row = 0; row < TILES; row++)
                sum += buffer_row(context, m->in[i], row)[c];
        out[c] = (m->fresh ? 0 : 0.25f * out[c]) + m->factor * (sum / (float)TILES - (float)tile);
    }
}

static uint32_t tiles_mix(const struct plan_context *context, const void *args)
{
    (void)context;
    return ((const struct mix *)args)->n_tiles;
}

static void must(enum status status, const struct error *err)
{
    if (status != STATUS_OK)
        fail_msg("%s", err->text);
}

/* A plan of random nodes over a few buffers, so that all kinds of hazards occur. */
static void make_plan(struct plan *plan, struct buffer *buffers, uint64_t seed)
{
    struct rng rng = {seed};
    struct error err;
    must(plan_init(plan, NODES, (size_t)NODES * 512, &err), &err);
    for (int b = 0; b < BUFFERS; b++)
        buffers[b] = plan_buffer(plan, TILES, WIDTH);
    for (int n = 0; n < NODES; n++) {
        struct mix *m = plan_args(plan, sizeof *m);
        uint64_t reads = 0;
        m->out = buffers[rng_below(&rng, BUFFERS)];
        m->n_tiles = (uint32_t)rng_below(&rng, TILES + 1); /* some have nothing to do */
        m->factor = (float)rng_uniform(&rng);
        for (; m->n_in < rng_below(&rng, 3); m->n_in++) {
            do
                m->in[m->n_in] = buffers[rng_below(&rng, BUFFERS)];
            while (m->in[m->n_in].resource == m->out.resource);
            reads |= buffer_bit(m->in[m->n_in]);
        }
        plan_layer(plan, (uint32_t)n / 10);
        plan_add(plan,
                 (struct plan_node){.label = "mix", .stream = "main", .run = run_mix, .tiles = tiles_mix, .args = m},
                 reads, buffer_bit(m->out));
    }
    plan_seal(plan);
}

/* What the buffers hold after a few runs. */
static void run_plan(const struct plan *plan, struct runner *runner, float *out)
{
    for (size_t i = 0; i < plan->workspace_bytes / sizeof(float); i++)
        ((float *)(void *)runner->workspace)[i] = (float)(i % 11);
    for (int run = 0; run < 3; run++)
        runner_run(runner, plan, NULL);
    memcpy(out, runner->workspace, plan->workspace_bytes);
}

static void open_runner(struct runner *runner, struct team **team, const struct plan *plan, unsigned n_threads,
                        enum exec_mode mode)
{
    static const struct kernels no_kernels;
    struct error err;
    must(team_open(team, n_threads, &err), &err);
    must(runner_init(runner, *team, &no_kernels, mode, plan->n_nodes, plan->workspace_bytes, plan->scratch_bytes, &err),
         &err);
}

static void every_way_gives_the_same_bits(void **state)
{
    (void)state;
    static float want[BUFFERS * TILES * WIDTH * 2], got[BUFFERS * TILES * WIDTH * 2];
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct plan plan;
        struct buffer buffers[BUFFERS];
        make_plan(&plan, buffers, seed);
        assert_true(plan.workspace_bytes <= sizeof want);
        for (unsigned way = 0; way < 9; way++) {
            struct runner runner;
            struct team *team;
            open_runner(&runner, &team, &plan, way % 3 + 1, way / 3 == 0 ? EXEC_EAGER : EXEC_GRAPH);
            runner.streams = way / 3 == 1;
            run_plan(&plan, &runner, way == 0 ? want : got);
            if (way > 0 && memcmp(want, got, plan.workspace_bytes) != 0)
                fail_msg("seed %d: way %u gives other bits", (int)seed, way);
            runner_fini(&runner);
            team_close(team);
        }
        plan_fini(&plan);
    }
}

static void waits_name_no_node_twice(void **state)
{
    (void)state;
    struct plan plan;
    struct buffer buffers[BUFFERS];
    uint32_t n_waits = 0, n_last = 0;
    make_plan(&plan, buffers, 5);
    for (uint32_t n = 0; n < plan.n_nodes; n++) {
        const struct plan_node *node = &plan.nodes[n];
        assert_int_equal(node->layer, n / 10);
        n_last += !node->awaited;
        for (uint32_t w = 0; w < node->n_waits; w++) {
            assert_true(node->waits[w] < n && plan.nodes[node->waits[w]].awaited);
            for (uint32_t i = 0; i < w; i++)
                assert_true(node->waits[i] != node->waits[w]);
            n_waits++;
        }
    }
    assert_true(n_waits > NODES / 2 && n_last > 0 && n_last <= BUFFERS);
    plan_fini(&plan);
}

static void a_recorder_sees_every_tile_once(void **state)
{
    (void)state;
    struct plan plan;
    struct buffer buffers[BUFFERS];
    make_plan(&plan, buffers, 3);
    for (int way = 0; way < 3; way++) {
        struct runner runner;
        struct team *team;
        struct recorder recorder;
        struct error err;
        static uint32_t seen[2][NODES][TILES];
        memset(seen, 0, sizeof seen);
        open_runner(&runner, &team, &plan, 3, way == 0 ? EXEC_EAGER : EXEC_GRAPH);
        must(recorder_init(&recorder, 3, &err), &err);
        runner.streams = way == 1;
        runner.recorder = &recorder;
        for (int run = 0; run < 2; run++)
            runner_run(&runner, &plan, NULL);
        assert_int_equal(recorder.n_runs, 2);
        assert_int_equal(recorder_lost(&recorder), 0);
        for (unsigned worker = 0; worker < 3; worker++) {
            double before = 0;
            uint32_t n_waits = 0;
            for (uint32_t i = 0; i < recorder.rings[worker].n_events; i++) {
                const struct recorder_event *e = &recorder.rings[worker].events[i];
                assert_true(e->run < 2 && recorder.runs[e->run].plan == &plan && e->node < NODES);
                assert_true(e->begin >= before && e->end >= e->begin && e->begin >= recorder.runs[e->run].begin);
                before = e->end;
                n_waits += e->tile == RECORDER_WAIT;
                if (e->tile != RECORDER_WAIT)
                    seen[e->run][e->node][e->tile]++;
            }
            assert_int_equal(n_waits, way == 0 ? 0 : 2 * NODES);
        }
        for (uint32_t n = 0; n < NODES; n++)
            for (uint32_t tile = 0; tile < TILES; tile++)
                for (int run = 0; run < 2; run++)
                    assert_int_equal(seen[run][n][tile], tile < ((const struct mix *)plan.nodes[n].args)->n_tiles);
        recorder_fini(&recorder);
        runner_fini(&runner);
        team_close(team);
    }
    plan_fini(&plan);
}

/* ---- shared memory ---- */

enum { LAYERS = 8, LAYER_NODES = 9, TEMPORARIES = 8 };

struct layers {
    struct buffer residual, temporaries[TEMPORARIES];
    struct rng rng;
};

/* One of the temporary buffers that this layer has written, but not `out`; else the residual. */
static struct buffer any_alive(struct layers *l, uint64_t written, struct buffer out)
{
    uint32_t first = (uint32_t)rng_below(&l->rng, TEMPORARIES);
    for (uint32_t i = 0; i < TEMPORARIES; i++) {
        struct buffer b = l->temporaries[(first + i) % TEMPORARIES];
        if (b.resource != out.resource && written & buffer_bit(b))
            return b;
    }
    return l->residual;
}

static void add_layer(struct plan *plan, struct layers *l)
{
    uint64_t written = 0;
    for (int n = 0; n < LAYER_NODES; n++) {
        struct mix *m = plan_args(plan, sizeof *m);
        uint64_t reads = 0;
        bool last = n == LAYER_NODES - 1;
        m->out = last ? l->residual : l->temporaries[rng_below(&l->rng, TEMPORARIES)];
        m->n_tiles = TILES;
        m->factor = (float)rng_uniform(&l->rng);
        m->fresh = !last && !(written & buffer_bit(m->out));
        for (m->n_in = 0; m->n_in < 2; m->n_in++) {
            m->in[m->n_in] = any_alive(l, written, m->out);
            reads |= buffer_bit(m->in[m->n_in]);
        }
        reads |= last ? written : 0; /* as in a model, all that a layer does leads to its end */
        written |= buffer_bit(m->out);
        plan_add(plan,
                 (struct plan_node){.label = "mix", .stream = "main", .run = run_mix, .tiles = tiles_mix, .args = m},
                 reads, buffer_bit(m->out));
    }
    plan_forget(plan, ~buffer_bit(l->residual));
}

/* Layers of random nodes over temporary buffers, which each layer leaves behind, and a residual that goes through. */
static struct buffer add_layers(struct plan *plan, uint64_t seed)
{
    struct layers l = {.rng = {seed}};
    l.residual = plan_buffer(plan, TILES, WIDTH);
    for (int b = 0; b < TEMPORARIES; b++)
        l.temporaries[b] = plan_buffer(plan, TILES, WIDTH * (1 + (uint32_t)rng_below(&l.rng, 5)));
    for (int layer = 0; layer < LAYERS; layer++) {
        l.rng.state = seed + 1000 * (layer % 2); /* layers of two kinds */
        add_layer(plan, &l);
    }
    return l.residual;
}

/* Fills the workspace with NaN, but for the residual, runs, and gives the residual. */
static void run_layers(const struct plan *plan, struct buffer residual, unsigned way, float *out)
{
    struct runner runner;
    struct team *team;
    struct plan_context context;
    size_t bytes = TILES * residual.stride * sizeof *out;
    open_runner(&runner, &team, plan, way % 3 + 1, way < 3 ? EXEC_EAGER : EXEC_GRAPH);
    runner.streams = way < 6;
    context.workspace = runner.workspace;
    memset(runner.workspace, 0xff, plan->workspace_bytes);
    for (uint32_t i = 0; i < TILES * residual.stride; i++)
        buffer_row(&context, residual, 0)[i] = (float)(i % 7);
    runner_run(&runner, plan, NULL);
    memcpy(out, buffer_row(&context, residual, 0), bytes);
    runner_fini(&runner);
    team_close(team);
}

static void shared_places_change_nothing(void **state)
{
    (void)state;
    size_t apart = 0, together = 0;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        static float want[TILES * WIDTH], got[TILES * WIDTH];
        struct plan plan, placed;
        struct error err;
        must(plan_init(&plan, LAYERS * LAYER_NODES, (size_t)LAYERS * LAYER_NODES * 512, &err), &err);
        must(plan_init(&placed, LAYERS * LAYER_NODES, (size_t)LAYERS * LAYER_NODES * 512, &err), &err);
        struct buffer residual = add_layers(&plan, seed);
        run_layers(&plan, residual, 0, want);
        for (size_t i = 0; i < TILES * WIDTH; i++)
            assert_true(want[i] == want[i]); /* no node reads what nobody wrote */
        add_layers(&placed, seed);
        plan_place(&placed);
        residual = add_layers(&placed, seed);
        plan_seal(&placed);
        for (uint32_t n = 0; n < plan.n_nodes; n++)
            assert_int_equal(placed.nodes[n].n_waits, plan.nodes[n].n_waits);
        for (unsigned way = 0; way < 9; way++) {
            run_layers(&placed, residual, way, got);
            if (memcmp(want, got, sizeof want) != 0)
                fail_msg("seed %d: way %u gives other bits where buffers share memory", (int)seed, way);
        }
        apart += plan.workspace_bytes;
        together += placed.workspace_bytes;
        plan_fini(&plan);
        plan_fini(&placed);
    }
    print_message("%zu bytes instead of %zu\n", together, apart);
    assert_true(together < apart * 9 / 10);
}

/* ---- the watchdog ---- */

static void run_sleepy(const struct plan_context *context, const void *args, uint32_t tile)
{
    (void)context;
    (void)args;
    nanosleep(&(struct timespec){.tv_nsec = tile == 0 ? 20000000 : 300000000}, NULL);
}

static uint32_t tiles_two(const struct plan_context *context, const void *args)
{
    (void)context;
    (void)args;
    return 2;
}

/* Runs a plan of a node whose second tile sleeps long and, if asked for, one that waits for it; gives what came on
 * standard error. */
static void watch(bool followed, enum exec_mode mode, double patience_seconds, char *said, size_t said_bytes)
{
    struct plan plan;
    struct runner runner;
    struct team *team;
    struct error err;
    FILE *capture = tmpfile();
    int kept = dup(STDERR_FILENO);
    must(plan_init(&plan, 2, 64, &err), &err);
    struct buffer buffer = plan_buffer(&plan, 2, 1);
    struct plan_node node = {.label = "sleepy", .stream = "main", .run = run_sleepy, .tiles = tiles_two};
    plan_layer(&plan, 6);
    plan_add(&plan, node, 0, buffer_bit(buffer));
    plan_layer(&plan, PLAN_NO_LAYER);
    node.label = "patient";
    if (followed)
        plan_add(&plan, node, buffer_bit(buffer), 0);
    plan_seal(&plan);
    open_runner(&runner, &team, &plan, 2, mode);
    runner.patience_seconds = patience_seconds;
    assert_non_null(capture);
    dup2(fileno(capture), STDERR_FILENO);
    runner_run(&runner, &plan, NULL);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(capture);
    said[fread(said, 1, said_bytes - 1, capture)] = 0;
    fclose(capture);
    runner_fini(&runner);
    team_close(team);
    plan_fini(&plan);
}

static void who_waits_too_long_says_so_once(void **state)
{
    (void)state;
    char said[1024];
    watch(true, EXEC_GRAPH, 0.05, said, sizeof said);
    const char *line = strstr(said, "has waited");
    assert_non_null(line);
    assert_null(strstr(line + 1, "has waited"));
    assert_non_null(strstr(said, "of 2 has waited 0."));
    assert_non_null(strstr(said, " at patient for sleepy of layer 7: 1 of 2 tiles are done"));
    watch(true, EXEC_GRAPH, 20, said, sizeof said);
    assert_string_equal(said, "");
}

/* Nothing comes after the sleeper: the caller waits for the step, unless it took the second tile itself. */
static void the_end_of_a_step_is_watched_too(void **state)
{
    (void)state;
    for (int mode = EXEC_GRAPH; mode <= EXEC_EAGER; mode++) {
        char said[1024] = "";
        for (int turn = 0; turn < 20 && !said[0]; turn++)
            watch(false, (enum exec_mode)mode, 0.05, said, sizeof said);
        assert_non_null(strstr(said, " at the end of the step for sleepy of layer 7: 1 of 2 tiles are done"));
    }
}

/* ---- early start ---- */

static _Atomic unsigned n_fetched, n_strange;

static void note_fetched(const void *args, unsigned share, unsigned shares)
{
    (void)args;
    n_fetched++;
    n_strange += share >= 2 || shares != 2;
}

/* How often workers had the weights of a node fetched that waits for another's two tiles. */
static unsigned count_fetches(bool early_start, bool streams)
{
    struct plan plan;
    struct runner runner;
    struct team *team;
    struct error err;
    must(plan_init(&plan, 2, 64, &err), &err);
    struct buffer buffer = plan_buffer(&plan, 2, 1);
    struct plan_node node = {.label = "sleepy", .stream = "main", .run = run_sleepy, .tiles = tiles_two};
    plan_add(&plan, node, 0, buffer_bit(buffer));
    node.ahead = note_fetched;
    plan_add(&plan, node, streams ? buffer_bit(buffer) : 0, 0);
    plan_seal(&plan);
    open_runner(&runner, &team, &plan, 2, EXEC_GRAPH);
    assert_true(runner.early_start);
    runner.early_start = early_start;
    runner.streams = streams;
    n_fetched = n_strange = 0;
    runner_run(&runner, &plan, NULL);
    runner_fini(&runner);
    team_close(team);
    plan_fini(&plan);
    assert_int_equal(n_strange, 0);
    return n_fetched;
}

/* The worker that is through first must wait for the other: it fetches its own share, once, if it is to. */
static void who_waits_fetches_meanwhile(void **state)
{
    (void)state;
    for (int streams = 0; streams < 2; streams++) {
        unsigned n = 0;
        assert_int_equal(count_fetches(false, streams), 0);
        for (int turn = 0; turn < 20 && n == 0; turn++) /* a worker that took both tiles has nobody to wait for */
            n = count_fetches(true, streams);
        assert_int_equal(n, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_gives_the_same_bits),   cmocka_unit_test(waits_name_no_node_twice),
        cmocka_unit_test(a_recorder_sees_every_tile_once), cmocka_unit_test(shared_places_change_nothing),
        cmocka_unit_test(who_waits_too_long_says_so_once), cmocka_unit_test(the_end_of_a_step_is_watched_too),
        cmocka_unit_test(who_waits_fetches_meanwhile),
    };
    return cmocka_run_group_tests_name("runner", tests, NULL, NULL);
}
