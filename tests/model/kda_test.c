/* Kinds of faults that KDA invites: gates at their bounds, short prompts and tails, leaks from later tokens, and the
 * two forms of the decay. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cpu/tiers.h"
#include "ops/kda.h"
#include "synth_help.h"

/* ---- the node alone, against the recurrence in float64 ---- */

enum { HEADS = 2, DIM = 24, INNER = HEADS * DIM, TAPS = 3, TOKENS = 256 };

struct node_inputs {
    float q[TOKENS][INNER], k[TOKENS][INNER], v[TOKENS][INNER], f[TOKENS][INNER], g[TOKENS][INNER], b[TOKENS][HEADS];
    float conv[3][TAPS][INNER], rate[HEADS], dt_bias[INNER], o_norm[DIM];
    float bound; /* 0: softplus */
};

static void fill(struct rng *rng, float *out, size_t n, double center, double spread)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(center + spread * (2.0 * rng_uniform(rng) - 1.0));
}

/* Gates by `kind`: 0 all decays at the bound, 1 all near none, 2 channels of both kinds, 3 both in turn over time. */
static void make_inputs(struct node_inputs *in, float bound, int kind)
{
    struct rng rng = {(uint64_t)kind + 5};
    fill(&rng, &in->q[0][0], TOKENS * INNER, 0, 2);
    fill(&rng, &in->k[0][0], TOKENS * INNER, 0, 2);
    fill(&rng, &in->v[0][0], TOKENS * INNER, 0, 2);
    fill(&rng, &in->g[0][0], TOKENS * INNER, 0, 3);
    fill(&rng, &in->b[0][0], TOKENS * HEADS, 0, 6);
    fill(&rng, &in->conv[0][0][0], 3 * TAPS * INNER, 0, 1);
    fill(&rng, in->rate, HEADS, 1.5, 0.5);
    fill(&rng, in->dt_bias, INNER, 0, 1);
    fill(&rng, in->o_norm, DIM, 1, 0.3);
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < INNER; c++) {
            bool closed = kind == 0 || (kind == 2 && c % 2) || (kind == 3 && t / 40 % 2);
            in->f[t][c] = (closed ? 60.0f : -60.0f) + (float)rng_uniform(&rng);
        }
    in->bound = bound;
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static void convolved(double *out, const struct node_inputs *in, const float (*x)[INNER], int which, int t, int head)
{
    for (int d = 0; d < DIM; d++) {
        double sum = 0;
        for (int j = 0; j < TAPS; j++)
            if (t - (TAPS - 1) + j >= 0)
                sum += (double)in->conv[which][j][head * DIM + d] * x[t - (TAPS - 1) + j][head * DIM + d];
        out[d] = sum * sigmoid(sum);
    }
}

static void unit(double *x, double scale)
{
    double squares = 1e-6;
    for (int d = 0; d < DIM; d++)
        squares += x[d] * x[d];
    for (int d = 0; d < DIM; d++)
        x[d] *= scale / sqrt(squares);
}

static double decay_of(const struct node_inputs *in, int t, int head, int d)
{
    double z = (double)in->f[t][head * DIM + d] + in->dt_bias[head * DIM + d], rate = in->rate[head];
    if (in->bound < 0)
        return exp(in->bound * sigmoid(rate * z));
    return exp(-rate * (fmax(z, 0) + log1p(exp(-fabs(z)))));
}

/* S <- diag(decay) S; u = beta (v - S^T k); S <- S + k u^T; o = S^T q; then the output norm and gate. */
static void recurrence(double (*out)[INNER], const struct node_inputs *in, int head, double eps)
{
    static double S[DIM][DIM];
    memset(S, 0, sizeof S);
    for (int t = 0; t < TOKENS; t++) {
        double q[DIM], k[DIM], v[DIM], o[DIM] = {0}, beta = sigmoid(in->b[t][head]), squares = 0;
        convolved(q, in, in->q, 0, t, head);
        convolved(k, in, in->k, 1, t, head);
        convolved(v, in, in->v, 2, t, head);
        unit(q, 1 / sqrt(DIM));
        unit(k, 1);
        for (int i = 0; i < DIM; i++) {
            double decay = decay_of(in, t, head, i);
            for (int j = 0; j < DIM; j++)
                S[i][j] *= decay;
        }
        for (int j = 0; j < DIM; j++) {
            double p = 0;
            for (int i = 0; i < DIM; i++)
                p += S[i][j] * k[i];
            for (int i = 0; i < DIM; i++)
                S[i][j] += k[i] * beta * (v[j] - p);
            for (int i = 0; i < DIM; i++)
                o[j] += S[i][j] * q[i];
            squares += o[j] * o[j];
        }
        for (int j = 0; j < DIM; j++)
            out[t][head * DIM + j] =
                o[j] / sqrt(squares / DIM + eps) * in->o_norm[j] * sigmoid(in->g[t][head * DIM + j]);
    }
}

struct node_run {
    struct state_layout layout;
    struct sequence sequence;
    struct kernels kernels;
    struct team *team;
    struct plan plan;
    struct runner runner;
    struct kda_op op;
};

static void must(enum status status, const struct error *err)
{
    if (status != STATUS_OK)
        fail_msg("%s", err->text);
}

static struct kda_op make_op(struct plan *plan, const struct node_inputs *in)
{
    struct kda_op op = {.n_heads = HEADS,
                        .head_dim = DIM,
                        .taps = TAPS,
                        .conv_q = in->conv[0][0],
                        .conv_k = in->conv[1][0],
                        .conv_v = in->conv[2][0],
                        .rate = in->rate,
                        .dt_bias = in->dt_bias,
                        .o_norm = in->o_norm,
                        .bounded_decay = in->bound < 0,
                        .decay_bound = in->bound,
                        .eps = 1e-5f,
                        .block = KDA_TOKENS};
    struct buffer *buffers[] = {&op.q, &op.k, &op.v, &op.f, &op.g, &op.out};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        *buffers[i] = plan_buffer(plan, TOKENS, INNER);
    op.b = plan_buffer(plan, TOKENS, HEADS);
    op.state = plan_resource(plan);
    return op;
}

static void open_node(struct node_run *run, const struct node_inputs *in, const char *tier)
{
    struct error err;
    unsigned tiers;
    must(tiers_parse(tier, &tiers, &err), &err);
    kernels_select(&run->kernels, tiers);
    run->layout = (struct state_layout){.n_kda = 1, .kda_heads = HEADS, .kda_head_dim = DIM, .conv_taps = TAPS};
    layout_complete(&run->layout);
    must(sequence_init(&run->sequence, &run->layout, NULL, TOKENS, &err), &err);
    must(team_open(&run->team, 2, &err), &err);
    must(plan_init(&run->plan, 4, 1 << 16, &err), &err);
    run->op = make_op(&run->plan, in);
    op_kda(&run->plan, &run->op);
    plan_seal(&run->plan);
    must(runner_init(&run->runner, run->team, &run->kernels, EXEC_GRAPH, 4, run->plan.workspace_bytes,
                     run->plan.scratch_bytes, &err),
         &err);
}

static void close_node(struct node_run *run)
{
    runner_fini(&run->runner);
    plan_fini(&run->plan);
    team_close(run->team);
    sequence_fini(&run->sequence);
}

/* Feeds rows [first, first + n) and reads their outputs. */
static void run_piece(struct node_run *run, const struct node_inputs *in, uint32_t first, uint32_t n,
                      float (*out)[INNER])
{
    struct plan_context context = {.workspace = run->runner.workspace};
    for (uint32_t i = 0; i < n; i++) {
        memcpy(buffer_row(&context, run->op.q, i), in->q[first + i], sizeof in->q[0]);
        memcpy(buffer_row(&context, run->op.k, i), in->k[first + i], sizeof in->k[0]);
        memcpy(buffer_row(&context, run->op.v, i), in->v[first + i], sizeof in->v[0]);
        memcpy(buffer_row(&context, run->op.f, i), in->f[first + i], sizeof in->f[0]);
        memcpy(buffer_row(&context, run->op.g, i), in->g[first + i], sizeof in->g[0]);
        memcpy(buffer_row(&context, run->op.b, i), in->b[first + i], sizeof in->b[0]);
    }
    struct step_span span = {&run->sequence, 0, n, first};
    struct step step = {.n_rows = n, .n_spans = 1, .spans = &span};
    runner_run(&run->runner, &run->plan, &step);
    for (uint32_t i = 0; i < n; i++)
        memcpy(out[first + i], buffer_row(&context, run->op.out, i), sizeof out[0]);
}

static void gates_at_their_bounds(void **state)
{
    (void)state;
    static struct node_inputs in;
    static double want[TOKENS][INNER];
    static float got[TOKENS][INNER], pieces[TOKENS][INNER];
    static const float bounds[] = {-5.0f, -0.5f, 0.0f};
    const char *tiers[8];
    size_t n_tiers = machine_tiers(tiers, 8);
    for (size_t b = 0; b < 3; b++)
        for (int kind = 0; kind < 4; kind++) {
            make_inputs(&in, bounds[b], kind);
            for (int head = 0; head < HEADS; head++)
                recurrence(want, &in, head, (double)1e-5f);
            for (size_t t = 0; t < n_tiers; t++) {
                struct node_run run;
                open_node(&run, &in, tiers[t]);
                run_piece(&run, &in, 0, TOKENS, got);
                sequence_reset(&run.sequence);
                for (uint32_t at = 0, n = 1; at < TOKENS; at += n, n = n % 23 + 1)
                    run_piece(&run, &in, at, n < TOKENS - at ? n : TOKENS - at, pieces);
                close_node(&run);
                double squares = 0, errors = 0;
                for (int i = 0; i < TOKENS * INNER; i++) {
                    double w = want[i / INNER][i % INNER], e = got[i / INNER][i % INNER] - w;
                    squares += w * w;
                    errors += e * e;
                }
                if (!(sqrt(errors / squares) <= 3e-6)) /* NaN is refused, too */
                    fail_msg("bound %g, gates %d, tier %s: relative RMS %g", (double)bounds[b], kind, tiers[t],
                             sqrt(errors / squares));
                assert_memory_equal(pieces, got, sizeof got);
            }
        }
}

/* ---- in a model ---- */

enum { LONG = 140 };

static struct model *open_kda(const struct synth *synth)
{
    struct model_options options = exact_options(LONG + 8);
    options.n_threads = 1;
    return synth_open(synth, &options);
}

/* The two forms and a saturated one; all layers KDA but one. */
static struct synth variant(int i)
{
    struct synth s = synth_default();
    s.decay_bound = i == 1 ? 0.0f : -5.0f;
    s.full_rank_gate = i != 1;
    s.decay_bias = i == 2 ? 60.0f : 0.0f;
    return s;
}

/* Prompts of 1 to 130 tokens answer as the long one does so far, and go on from the same state. */
static void prompts_of_any_length(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct synth synth = variant(i);
        struct model *model = open_kda(&synth);
        int32_t tokens[LONG];
        synth_tokens(tokens, LONG, synth.vocabulary, 9);
        struct answers all = feed_pieces(model, tokens, LONG, NULL, 0);
        for (uint32_t n = 1; n <= 130; n += slow_tests() || n < 40 ? 1 : 3) {
            uint32_t pieces[] = {n, 3, LONG};
            struct answers some = feed_pieces(model, tokens, n + 5, pieces, 3);
            char what[64];
            snprintf(what, sizeof what, "variant %d, a prompt of %u, then 3 and 2", i, n);
            if (memcmp(some.logits, all.logits, some.n_logits * sizeof(float)) != 0)
                fail_msg("%s: other logits than in a prompt of %d", what, LONG);
            answers_free(&some);
        }
        answers_free(&all);
        model_close(model);
    }
}

/* Tokens after t change nothing up to t, and do change what follows. */
static void later_tokens_do_not_leak(void **state)
{
    (void)state;
    static const uint32_t cuts[] = {0, 1, 7, 15, 16, 30, 31, 32, 63, 64, 100, 127, 138};
    for (int i = 0; i < 3; i++) {
        struct synth synth = variant(i);
        struct model *model = open_kda(&synth);
        int32_t tokens[LONG], changed[LONG];
        synth_tokens(tokens, LONG, synth.vocabulary, 9);
        struct answers all = feed_pieces(model, tokens, LONG, NULL, 0);
        for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
            size_t kept = (size_t)(cuts[c] + 1) * synth.vocabulary;
            memcpy(changed, tokens, sizeof changed);
            for (uint32_t t = cuts[c] + 1; t < LONG; t++)
                changed[t] = (int32_t)((uint32_t)(tokens[t] + 1) % synth.vocabulary);
            struct answers other = feed_pieces(model, changed, LONG, NULL, 0);
            if (memcmp(other.logits, all.logits, kept * sizeof(float)) != 0)
                fail_msg("variant %d: changes after token %u are seen before", i, cuts[c]);
            assert_memory_not_equal(other.logits + kept, all.logits + kept, synth.vocabulary * sizeof(float));
            answers_free(&other);
        }
        answers_free(&all);
        model_close(model);
    }
}

/* gate_lower_bound chooses between two formulas: nothing about it is a clamp. */
static void bound_is_a_factor(void **state)
{
    (void)state;
    int32_t tokens[20];
    struct answers answers[3];
    for (int i = 0; i < 3; i++) {
        struct synth synth = synth_default();
        synth.decay_bound = i == 0 ? 0.0f : i == 1 ? -5.0f : -1000.0f; /* a clamp this low would be no clamp */
        struct model *model = open_kda(&synth);
        assert_int_equal(model->config.bounded_decay, i > 0);
        synth_tokens(tokens, 20, synth.vocabulary, 9);
        answers[i] = feed_pieces(model, tokens, 20, NULL, 0);
        model_close(model);
    }
    for (int i = 0; i < 3; i++)
        assert_memory_not_equal(answers[i].logits + 19 * 33, answers[(i + 1) % 3].logits + 19 * 33, 33 * sizeof(float));
    for (int i = 0; i < 3; i++)
        answers_free(&answers[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gates_at_their_bounds),
        cmocka_unit_test(prompts_of_any_length),
        cmocka_unit_test(later_tokens_do_not_leak),
        cmocka_unit_test(bound_is_a_factor),
    };
    return cmocka_run_group_tests_name("kda", tests, NULL, NULL);
}
