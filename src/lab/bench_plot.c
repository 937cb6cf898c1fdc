#include "lab/bench_plot.h"

#include <math.h>
#include <stdarg.h>

/* The picture, and the frame of the axes in it, in pixels; the legend stands to the right. */
enum {
    WIDTH = 860,
    HEIGHT = 480,
    LEFT = 72,
    RIGHT = 640,
    TOP = 56,
    BOTTOM = 420,
    MARK = 4,
    LINE_HEIGHT = 20,
    LABEL_WIDTH = 44
};

/* Depth 0 has no logarithm: it stands as this one would. */
static const double depth_of_zero = 256;
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"};
enum { N_COLOURS = sizeof colours / sizeof *colours };

struct plot {
    FILE *out;
    const struct bench_result *result;
    double x_low, x_high, y_low, y_high; /* logarithms to base 2 and 10 */
};

static double depth_log(uint32_t depth)
{
    return log2(depth > depth_of_zero ? depth : depth_of_zero);
}

static double x_of(const struct plot *p, double depth_log2)
{
    return LEFT + 16 + (RIGHT - LEFT - 32) * (depth_log2 - p->x_low) / (p->x_high - p->x_low);
}

static double y_of(const struct plot *p, double speed)
{
    return BOTTOM - (BOTTOM - TOP) * (log10(speed) - p->y_low) / (p->y_high - p->y_low);
}

/* Text with what XML reserves written as entities. */
static void escaped(FILE *out, const char *text)
{
    for (; *text; text++)
        if (*text == '&')
            fputs("&amp;", out);
        else if (*text == '<')
            fputs("&lt;", out);
        else if ((unsigned char)*text >= ' ')
            fputc(*text, out);
}

static void label(const struct plot *p, double x, double y, const char *anchor, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static void label(const struct plot *p, double x, double y, const char *anchor, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(p->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    escaped(p->out, text);
    fprintf(p->out, "</text>\n");
}

static void line(const struct plot *p, double x1, double y1, double x2, double y2, const char *style)
{
    fprintf(p->out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, style);
}

/* What the larger floor allows; 0 if it is not known. */
static double limit_of(const struct bench_row *row)
{
    double floor_ms = fmax(row->read_ms, row->compute_ms);
    return floor_ms > 0 ? row->tokens_per_s * row->ms / floor_ms : 0;
}

static void find_ranges(struct plot *p)
{
    double low = INFINITY, high = 0;
    p->x_low = p->x_high = depth_log(p->result->rows[0].depth);
    for (uint32_t i = 0; i < p->result->n_rows; i++) {
        const struct bench_row *row = &p->result->rows[i];
        p->x_low = fmin(p->x_low, depth_log(row->depth));
        p->x_high = fmax(p->x_high, depth_log(row->depth));
        low = fmin(low, row->tokens_per_s);
        high = fmax(high, fmax(row->tokens_per_s, limit_of(row)));
    }
    p->x_high = p->x_high > p->x_low ? p->x_high : p->x_low + 1;
    p->y_low = floor(log10(low));
    p->y_high = fmax(ceil(log10(high)), p->y_low + 1);
}

/* A tick at each depth that was measured, with its number where there is room. */
static void draw_depths(const struct plot *p, const char *style)
{
    double last = -INFINITY;
    for (int64_t depth = -1, next;; depth = next) {
        next = INT64_MAX;
        for (uint32_t i = 0; i < p->result->n_rows; i++)
            if (p->result->rows[i].depth > depth && p->result->rows[i].depth < next)
                next = p->result->rows[i].depth;
        if (next == INT64_MAX)
            return;
        double x = x_of(p, depth_log((uint32_t)next));
        line(p, x, BOTTOM, x, BOTTOM + 5, style);
        if (x - last < LABEL_WIDTH)
            continue;
        bool kilo = next >= 1024 && next % 1024 == 0;
        label(p, x, BOTTOM + 20, "middle", kilo ? "%lldK" : "%lld", (long long)(kilo ? next / 1024 : next));
        last = x;
    }
}

static void draw_axes(const struct plot *p)
{
    static const char grid[] = "stroke=\"#dddddd\"", axis[] = "stroke=\"#333333\"";
    for (int power = (int)p->y_low; power <= (int)p->y_high; power++)
        for (int step = 1; step <= 5; step += step == 1 ? 1 : 3) { /* 1, 2, 5 */
            double value = step * pow(10, power);
            if (power == (int)p->y_high && step > 1)
                break;
            line(p, LEFT, y_of(p, value), RIGHT, y_of(p, value), grid);
            label(p, LEFT - 8, y_of(p, value) + 4, "end", "%g", value);
        }
    draw_depths(p, axis);
    line(p, LEFT, TOP, LEFT, BOTTOM, axis);
    line(p, LEFT, BOTTOM, RIGHT, BOTTOM, axis);
    label(p, (LEFT + RIGHT) / 2.0, BOTTOM + 44, "middle", "depth: tokens before");
    label(p, LEFT - 8, TOP - 12, "middle", "tokens/s");
}

/* Rows of one line: the same kind, and the same batch or length of prompt. */
static bool same_series(const struct bench_row *a, const struct bench_row *b)
{
    return a->decode == b->decode && (a->decode ? a->batch_asked == b->batch_asked : a->tokens == b->tokens);
}

/* A line through the speeds, or the limits, of a row's series. */
static void draw_line(const struct plot *p, uint32_t first, const char *colour, bool limits)
{
    fprintf(p->out, "<polyline fill=\"none\" stroke=\"%s\" %s points=\"", colour,
            limits ? "stroke-width=\"1\" stroke-dasharray=\"5 4\"" : "stroke-width=\"2\"");
    for (uint32_t i = first; i < p->result->n_rows; i++) {
        const struct bench_row *row = &p->result->rows[i];
        double value = limits ? limit_of(row) : row->tokens_per_s;
        if (same_series(row, &p->result->rows[first]) && value > 0)
            fprintf(p->out, "%.1f,%.1f ", x_of(p, depth_log(row->depth)), y_of(p, value));
    }
    fprintf(p->out, "\"/>\n");
}

static void draw_series(const struct plot *p, uint32_t first, uint32_t number)
{
    const struct bench_row *rows = p->result->rows, *row = &rows[first];
    const char *colour = colours[number % N_COLOURS];
    double y = TOP + 8 + LINE_HEIGHT * (double)number;
    draw_line(p, first, colour, false);
    draw_line(p, first, colour, true);
    for (uint32_t i = first; i < p->result->n_rows; i++)
        if (same_series(&rows[i], row))
            fprintf(p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\"/>\n",
                    x_of(p, depth_log(rows[i].depth)), y_of(p, rows[i].tokens_per_s), MARK, colour);
    fprintf(p->out, "<circle cx=\"%d\" cy=\"%.1f\" r=\"%d\" fill=\"%s\"/>\n", RIGHT + 24, y - 4, MARK, colour);
    if (row->decode)
        label(p, RIGHT + 36, y, "start", "decode, batch %u", row->batch_asked);
    else
        label(p, RIGHT + 36, y, "start", "prefill of %u tokens", row->tokens);
}

void bench_plot_print(FILE *out, const struct bench_request *request, const struct bench_result *result)
{
    struct plot plot = {.out = out, .result = result}, *p = &plot;
    uint32_t n_series = 0;
    find_ranges(p);
    fprintf(p->out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"13\">\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    label(p, LEFT, 24, "start", "%s: %u threads, %s", request->directory, p->result->n_threads, p->result->tier);
    draw_axes(p);
    for (uint32_t i = 0; i < p->result->n_rows; i++) {
        uint32_t first = 0;
        while (!same_series(&p->result->rows[first], &p->result->rows[i]))
            first++;
        if (first == i)
            draw_series(p, i, n_series++);
    }
    label(p, RIGHT + 16, TOP + 16 + LINE_HEIGHT * (double)n_series, "start", "dashed: the machine's limit");
    fprintf(p->out, "</svg>\n");
}
