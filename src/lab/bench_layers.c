#include "lab/bench_layers.h"

#include <string.h>

#include "cpu/tiers.h"
#include "lab/bench_predict.h"
#include "lab/rates_find.h"

enum { TIMED_STEPS_MAX = 32, WARM_UP_STEPS = 2 };

struct measuring {
    const struct layers_request *request;
    struct layers_result *result;
    struct bench_rig rig;
    struct recorder recorder;
};

const char *bench_layers_name(uint32_t part)
{
    static const char *const names[LAYERS_PARTS] = {
        [PART_KDA] = "KDA", [PART_MLA] = "attention", [PART_DENSE] = "dense FFN",
        [PART_MOE] = "MoE", [PART_ENDS] = "ends",     [LAYERS_BETWEEN] = "between"};
    return names[part];
}

static uint32_t layers_of(const struct config *config, uint32_t part)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < config->n_layers; l++)
        n += part == PART_KDA     ? config->is_kda[l]
             : part == PART_MLA   ? !config->is_kda[l]
             : part == PART_DENSE ? !config_is_moe(config, l)
             : part == PART_MOE   ? config_is_moe(config, l)
                                  : 1;
    return part == PART_ENDS ? 1 : n;
}

/* The part that a node belongs to, by its label; LAYERS_PARTS if the label does not say. */
static uint32_t part_of_label(const struct config *config, const struct plan_node *node)
{
    static const struct {
        const char *begins;
        uint32_t part;
    } labels[] = {{"kda.", PART_KDA},   {"mla.", PART_MLA},    {"index.", PART_MLA},         {"moe.", PART_MOE},
                  {"embed", PART_ENDS}, {"logits", PART_ENDS}, {"residual.", LAYERS_BETWEEN}};
    if (strncmp(node->label, "ffn.", 4) == 0) /* in a layer of experts the shared one */
        return config_is_moe(config, node->layer) ? PART_MOE : PART_DENSE;
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++)
        if (strncmp(node->label, labels[i].begins, strlen(labels[i].begins)) == 0)
            return labels[i].part;
    return LAYERS_PARTS;
}

/* A node that only prepares belongs to what follows it. */
static uint32_t part_of(const struct config *config, const struct plan *plan, uint32_t node)
{
    for (; node < plan->n_nodes; node++) {
        uint32_t part = part_of_label(config, &plan->nodes[node]);
        if (part < LAYERS_PARTS)
            return part;
    }
    return PART_ENDS;
}

/* Adds what the recorder saw of one step to `busy` [LAYERS_PARTS], and gives the time of its runs. */
static double sum_step(const struct config *config, const struct recorder *recorder, double *busy)
{
    double wall = 0;
    memset(busy, 0, LAYERS_PARTS * sizeof *busy);
    for (unsigned worker = 0; worker < recorder->n_workers; worker++)
        for (uint32_t i = 0; i < recorder->rings[worker].n_events; i++) {
            const struct recorder_event *e = &recorder->rings[worker].events[i];
            if (e->tile != RECORDER_WAIT)
                busy[part_of(config, recorder->runs[e->run].plan, e->node)] += e->end - e->begin;
        }
    for (uint32_t run = 0; run < recorder->n_runs; run++)
        wall += recorder->runs[run].end - recorder->runs[run].begin;
    return wall;
}

static void forget(struct recorder *recorder)
{
    recorder->n_runs = 0;
    for (unsigned worker = 0; worker < recorder->n_workers; worker++)
        recorder->rings[worker].n_events = 0;
}

static enum status one_step(struct bench_rig *rig, const struct layers_work *w, struct error *err)
{
    double seconds;
    uint32_t steps = 1;
    return w->decode ? bench_rig_generate(rig, w->depth, w->batch, &steps, 0, &seconds, err)
                     : bench_rig_prompt(rig, w->depth, w->tokens, &seconds, err);
}

/* Times of parts and step, each the median over steps. */
static enum status time_parts(struct measuring *m, struct layers_work *w, double parts_s[LAYERS_PARTS], double *step_s,
                              struct error *err)
{
    double of_part[LAYERS_PARTS][TIMED_STEPS_MAX], of_step[TIMED_STEPS_MAX], spent = 0;
    struct model *model = m->rig.model;
    uint32_t n = 0;
    enum status status = bench_rig_fill(&m->rig, w->depth, w->batch, w->decode ? 0 : w->tokens, err);
    for (int i = 0; i < (w->decode ? WARM_UP_STEPS : 1) && status == STATUS_OK; i++)
        status = one_step(&m->rig, w, err);
    while (status == STATUS_OK && n < TIMED_STEPS_MAX &&
           (n < m->request->bench->repeat || spent < m->request->seconds)) {
        double busy[LAYERS_PARTS], all = 0;
        forget(&m->recorder);
        model->runner.recorder = &m->recorder;
        status = one_step(&m->rig, w, err);
        model->runner.recorder = NULL;
        if (status == STATUS_OK && recorder_lost(&m->recorder) > 0)
            status = error_set(err, STATUS_ARGUMENT,
                               "--layers cannot record a prompt of %u tokens; choose a shorter one", w->tokens);
        of_step[n] = sum_step(&model->config, &m->recorder, busy);
        for (uint32_t p = 0; p < LAYERS_PARTS; p++)
            all += busy[p];
        for (uint32_t p = 0; p < LAYERS_PARTS; p++)
            of_part[p][n] = of_step[n] * busy[p] / all;
        spent += of_step[n++];
    }
    if (status != STATUS_OK)
        return status;
    *step_s = bench_median(of_step, n);
    for (uint32_t p = 0; p < LAYERS_PARTS; p++)
        parts_s[p] = bench_median(of_part[p], n);
    return STATUS_OK;
}

/* Costs by part of a step, or of a prompt, which is several. */
static void cost_parts(struct bench_cost out[PART_COUNT], const struct model *model, const struct layers_work *w)
{
    struct bench_cost piece[PART_COUNT];
    memset(out, 0, PART_COUNT * sizeof *out);
    for (uint32_t first = 0, n; first < w->tokens; first += n) {
        n = w->tokens - first < MODEL_ROWS_MAX ? w->tokens - first : MODEL_ROWS_MAX;
        uint32_t logit_rows = w->decode ? w->batch : first + n == w->tokens;
        bench_cost_parts(piece, model, (struct bench_shape){w->batch, n, w->depth + first, logit_rows});
        for (int p = 0; p < PART_COUNT; p++)
            bench_cost_add(&out[p], &piece[p]);
    }
}

static enum status measure_work(struct measuring *m, struct layers_work w, struct error *err)
{
    const struct bench_request *r = m->request->bench;
    const struct model *model = m->rig.model;
    struct bench_cost costs[PART_COUNT];
    double parts_s[LAYERS_PARTS], step_s;
    TRY(time_parts(m, &w, parts_s, &step_s, err));
    cost_parts(costs, model, &w);
    w.ms = 1e3 * step_s;
    for (uint32_t p = 0; p < LAYERS_PARTS; p++) {
        struct layers_part *part = &w.parts[p];
        uint32_t n = layers_of(&model->config, p);
        part->n_layers = n;
        if (n == 0)
            continue;
        part->ms = 1e3 * parts_s[p] / n;
        part->share = parts_s[p] / step_s;
        if (p == LAYERS_BETWEEN)
            continue;
        struct bench_floors floors = bench_cost_floors(&costs[p], &m->result->rates);
        part->megabytes = 1e-6 * costs[p].bytes / n;
        part->read_ms = 1e3 * floors.read_s / n;
        part->compute_ms = 1e3 * floors.compute_s / n;
    }
    m->result->works[m->result->n_works++] = w;
    if (r->progress)
        r->progress(r->progress_context, m->result->n_works,
                    r->prefill_depths.n * r->prefill.n + r->depths.n * r->batches.n);
    return STATUS_OK;
}

/* ---- prediction ---- */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Floor over time of a part; of one that this model lacks, of the whole step. */
static double efficiency(const struct layers_work *w, uint32_t part)
{
    double floors = 0, ms = 0;
    for (uint32_t p = 0; p < PART_COUNT; p++) {
        const struct layers_part *of = &w->parts[p];
        if (w->parts[part].n_layers > 0 && p != part)
            continue;
        floors += larger(of->read_ms, of->compute_ms) * of->n_layers;
        ms += of->ms * of->n_layers;
    }
    return floors / ms;
}

static void predict_work(struct measuring *m, const struct layers_work *w, const struct model *other)
{
    const struct model *model = m->rig.model;
    struct layers_result *result = m->result;
    struct bench_cost costs[PART_COUNT], token = bench_cost_step(other, (struct bench_shape){1, 1, w->depth, 1});
    double seconds = 0, floor_s = 0, width = (double)other->config.hidden_size / model->config.hidden_size;
    cost_parts(costs, other, w);
    for (uint32_t p = 0; p < PART_COUNT; p++) {
        struct bench_floors floors = bench_cost_floors(&costs[p], &result->rates);
        double least_s = larger(floors.read_s, floors.compute_s);
        floor_s += least_s;
        seconds += least_s / efficiency(w, p);
    }
    double usual[] = {result->rates.read.gb_s, 100, 400};
    const double *bandwidths = m->request->n_bandwidths ? m->request->bandwidths : usual;
    uint32_t n_bandwidths = m->request->n_bandwidths ? m->request->n_bandwidths : 3;
    seconds += 1e-3 * w->parts[LAYERS_BETWEEN].ms * width * other->config.n_layers;
    for (uint32_t i = 0; i < n_bandwidths; i++) {
        double bandwidth = bandwidths[i], times = bandwidth / result->rates.read.gb_s;
        result->predictions[result->n_predictions++] =
            (struct layers_prediction){.depth = w->depth,
                                       .batch = w->batch,
                                       .bandwidth_gb_s = bandwidth,
                                       .tokens_per_s = w->batch * times / seconds,
                                       .limit_tokens_per_s = w->batch * times / floor_s,
                                       .check_tokens_per_s = 1e9 * bandwidth / token.weight_bytes};
    }
}

static enum status predict(struct measuring *m, struct error *err)
{
    struct model *other;
    struct model_options options = m->rig.model->options;
    if (!m->request->config_path)
        return STATUS_OK;
    TRY(bench_predict_model(&other, m->request->config_path, &options, err));
    for (uint32_t i = 0; i < m->result->n_works; i++)
        if (m->result->works[i].decode)
            predict_work(m, &m->result->works[i], other);
    model_close(other);
    return STATUS_OK;
}

/* ---- all of it ---- */

static enum status measure_all(struct measuring *m, struct error *err)
{
    const struct bench_request *r = m->request->bench;
    struct model *model = m->rig.model;
    m->result->n_threads = team_size(model->team);
    m->result->tier = tiers_name(model->kernels.tiers);
    TRY(recorder_init(&m->recorder, team_size(model->team), err));
    m->result->rates = m->request->rates;
    if (m->request->rates.read.gb_s == 0)
        TRY(rates_find(&m->result->rates, model->team, model->kernels.tiers, RATES_FROM_RUN, err));
    for (uint32_t d = 0; d < r->prefill_depths.n; d++)
        for (uint32_t i = 0; i < r->prefill.n; i++)
            TRY(measure_work(
                m, (struct layers_work){false, r->prefill.values[i], r->prefill_depths.values[d], 1, .ms = 0}, err));
    for (uint32_t d = 0; d < r->depths.n; d++)
        for (uint32_t i = 0; i < r->batches.n; i++) {
            uint32_t batch = bench_rig_fits(&m->rig, r->depths.values[d], r->batches.values[i]);
            TRY(measure_work(m, (struct layers_work){true, 1, r->depths.values[d], batch, .ms = 0}, err));
        }
    return predict(m, err);
}

enum status bench_layers_run(const struct layers_request *request, struct layers_result *result, struct error *err)
{
    struct measuring m = {.request = request, .result = result};
    *result = (struct layers_result){0};
    enum status status = bench_rig_open(&m.rig, request->bench->directory, &request->bench->options,
                                        bench_run_needs(request->bench), err);
    if (status == STATUS_OK)
        status = measure_all(&m, err);
    recorder_fini(&m.recorder);
    bench_rig_close(&m.rig);
    return status;
}
