#include "lab/trace_report.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* ---- sums ---- */

static struct trace_label *label_of(struct trace_summary *s, const struct plan_node *node)
{
    for (uint32_t i = 0; i < s->n_labels; i++)
        if (strcmp(s->labels[i].label, node->label) == 0 && strcmp(s->labels[i].stream, node->stream) == 0)
            return &s->labels[i];
    CHECK(s->n_labels < TRACE_LABELS_MAX);
    s->labels[s->n_labels] = (struct trace_label){.label = node->label, .stream = node->stream};
    return &s->labels[s->n_labels++];
}

static void add_event(struct trace_summary *s, const struct recorder *recorder, const struct recorder_event *event,
                      unsigned worker)
{
    struct trace_label *label = label_of(s, &recorder->runs[event->run].plan->nodes[event->node]);
    double seconds = event->end - event->begin;
    if (event->tile == RECORDER_WAIT) {
        label->waited += seconds;
        s->waited += seconds;
        s->worker_waited[worker] += seconds;
        return;
    }
    label->n_tiles++;
    label->busy += seconds;
    s->busy += seconds;
    s->worker_busy[worker] += seconds;
}

/* How long a node takes at least: its tiles shared evenly, but no tile shared. */
struct node_time {
    double busy, longest_tile, path;
};

/* The critical path of one run. `times` has room for its nodes. */
static double critical_path(const struct recorder *recorder, uint32_t run, struct node_time *times)
{
    const struct plan *plan = recorder->runs[run].plan;
    double longest = 0;
    memset(times, 0, plan->n_nodes * sizeof *times);
    for (unsigned worker = 0; worker < recorder->n_workers; worker++)
        for (uint32_t i = 0; i < recorder->rings[worker].n_events; i++) {
            const struct recorder_event *e = &recorder->rings[worker].events[i];
            if (e->run != run || e->tile == RECORDER_WAIT)
                continue;
            double seconds = e->end - e->begin;
            times[e->node].busy += seconds;
            if (seconds > times[e->node].longest_tile)
                times[e->node].longest_tile = seconds;
        }
    for (uint32_t n = 0; n < plan->n_nodes; n++) {
        struct node_time *t = &times[n];
        double share = t->busy / recorder->n_workers;
        for (uint32_t w = 0; w < plan->nodes[n].n_waits; w++) {
            double before = times[plan->nodes[n].waits[w]].path;
            t->path = before > t->path ? before : t->path;
        }
        t->path += share > t->longest_tile ? share : t->longest_tile;
        longest = t->path > longest ? t->path : longest;
    }
    return longest;
}

static int busiest_first(const void *a, const void *b)
{
    double x = ((const struct trace_label *)a)->busy, y = ((const struct trace_label *)b)->busy;
    return (x < y) - (x > y);
}

enum status trace_summarize(struct trace_summary *s, const struct recorder *recorder, struct error *err)
{
    struct node_time *times;
    uint32_t nodes_max = 0;
    *s = (struct trace_summary){.n_workers = recorder->n_workers, .n_lost = recorder_lost(recorder)};
    for (uint32_t run = 0; run < recorder->n_runs; run++) {
        uint32_t n = recorder->runs[run].plan->n_nodes;
        nodes_max = n > nodes_max ? n : nodes_max;
        s->n_nodes += n;
        s->wall += recorder->runs[run].end - recorder->runs[run].begin;
    }
    TRY(memory_take(&s->worker_busy, s->n_workers, sizeof(double), "a trace", err));
    TRY(memory_take(&s->worker_waited, s->n_workers, sizeof(double), "a trace", err));
    TRY(memory_take(&times, nodes_max, sizeof *times, "a trace", err));
    for (unsigned worker = 0; worker < s->n_workers; worker++)
        for (uint32_t i = 0; i < recorder->rings[worker].n_events; i++)
            add_event(s, recorder, &recorder->rings[worker].events[i], worker);
    for (uint32_t run = 0; run < recorder->n_runs; run++)
        s->critical_path += critical_path(recorder, run, times);
    free(times);
    qsort(s->labels, s->n_labels, sizeof *s->labels, busiest_first);
    return STATUS_OK;
}

void trace_summary_fini(struct trace_summary *s)
{
    free(s->worker_busy);
    free(s->worker_waited);
    *s = (struct trace_summary){0};
}

/* ---- for people ---- */

void trace_print_table(FILE *out, const struct trace_summary *s)
{
    fprintf(out, "%-18s %-12s %9s %10s %7s %10s\n", "node", "stream", "tiles", "busy ms", "share", "waited ms");
    for (uint32_t i = 0; i < s->n_labels; i++) {
        const struct trace_label *l = &s->labels[i];
        fprintf(out, "%-18s %-12s %9llu %10.3f %6.1f%% %10.3f\n", l->label, l->stream, (unsigned long long)l->n_tiles,
                1e3 * l->busy, s->busy > 0 ? 100 * l->busy / s->busy : 0.0, 1e3 * l->waited);
    }
    for (unsigned worker = 0; worker < s->n_workers; worker++)
        fprintf(out, "worker %-3u busy %.3f ms, waited %.3f ms (%.1f%%)\n", worker, 1e3 * s->worker_busy[worker],
                1e3 * s->worker_waited[worker], s->wall > 0 ? 100 * s->worker_waited[worker] / s->wall : 0.0);
    fprintf(out, "%u nodes, %.3f ms; evenly shared work %.3f ms, critical path %.3f ms\n", s->n_nodes, 1e3 * s->wall,
            1e3 * s->busy / s->n_workers, 1e3 * s->critical_path);
    if (s->n_lost > 0)
        fprintf(out, "%llu events had no room and are missing\n", (unsigned long long)s->n_lost);
}

/* ---- for programs; labels and streams are plain words ---- */

void trace_print_json(FILE *out, const struct trace_summary *s)
{
    fprintf(out,
            "{\"wall_ms\": %.6f, \"busy_ms\": %.6f, \"waited_ms\": %.6f, \"critical_path_ms\": %.6f, \"nodes\": %u, "
            "\"lost_events\": %llu,\n \"workers\": [",
            1e3 * s->wall, 1e3 * s->busy, 1e3 * s->waited, 1e3 * s->critical_path, s->n_nodes,
            (unsigned long long)s->n_lost);
    for (unsigned worker = 0; worker < s->n_workers; worker++)
        fprintf(out, "%s{\"busy_ms\": %.6f, \"waited_ms\": %.6f}", worker ? ", " : "", 1e3 * s->worker_busy[worker],
                1e3 * s->worker_waited[worker]);
    fprintf(out, "],\n \"labels\": [");
    for (uint32_t i = 0; i < s->n_labels; i++) {
        const struct trace_label *l = &s->labels[i];
        fprintf(out,
                "%s\n  {\"label\": \"%s\", \"stream\": \"%s\", \"tiles\": %llu, \"busy_ms\": %.6f, \"waited_ms\": "
                "%.6f}",
                i ? "," : "", l->label, l->stream, (unsigned long long)l->n_tiles, 1e3 * l->busy, 1e3 * l->waited);
    }
    fprintf(out, "]}\n");
}

static void print_event(FILE *out, const struct recorder *recorder, const struct recorder_event *event, unsigned worker,
                        double waited)
{
    const struct plan_node *node = &recorder->runs[event->run].plan->nodes[event->node];
    char name[64];
    bool waits = event->tile == RECORDER_WAIT;
    if (node->layer == PLAN_NO_LAYER)
        snprintf(name, sizeof name, "%s", node->label);
    else
        snprintf(name, sizeof name, "%s %u", node->label, node->layer + 1);
    fprintf(out,
            ",\n{\"ph\": \"X\", \"pid\": 1, \"tid\": %u, \"ts\": %.3f, \"dur\": %.3f, \"name\": \"%s%s\", \"cat\": "
            "\"%s\", \"args\": {\"stream\": \"%s\"",
            worker, 1e6 * (event->begin - recorder->runs[0].begin), 1e6 * (event->end - event->begin),
            waits ? "wait for inputs of " : "", name, waits ? "wait" : "tile", node->stream);
    if (!waits)
        fprintf(out, ", \"tile\": %u, \"wait_us\": %.3f", event->tile, 1e6 * waited);
    fprintf(out, "}}");
}

void trace_print_events(FILE *out, const struct recorder *recorder)
{
    static const double shown_wait = 1e-6; /* shorter ones would only hide the tiles between them */
    fprintf(out, "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n"
                 "{\"ph\": \"M\", \"pid\": 1, \"name\": \"process_name\", \"args\": {\"name\": \"day0\"}}");
    for (unsigned worker = 0; worker < recorder->n_workers; worker++) {
        const struct recorder_ring *ring = &recorder->rings[worker];
        double waited = 0; /* before the tile at hand: only a node's first one waits */
        fprintf(out,
                ",\n{\"ph\": \"M\", \"pid\": 1, \"tid\": %u, \"name\": \"thread_name\", \"args\": {\"name\": \"worker "
                "%u\"}}",
                worker, worker);
        for (uint32_t i = 0; i < ring->n_events; i++) {
            const struct recorder_event *event = &ring->events[i];
            double seconds = event->end - event->begin;
            if (event->tile == RECORDER_WAIT)
                waited = seconds;
            if (event->tile != RECORDER_WAIT || seconds >= shown_wait)
                print_event(out, recorder, event, worker, waited);
            if (event->tile != RECORDER_WAIT)
                waited = 0;
        }
    }
    fprintf(out, "\n]}\n");
}
