/* A loaded model: config, bound parameters, the caches' pool, compiled plans, and the step that runs them.
 *
 * One thread at a time uses a model. After model_open and model_sequence_init a step allocates nothing. */
#ifndef DAY0_MODEL_MODEL_H
#define DAY0_MODEL_MODEL_H

#include "exec/runner.h"
#include "model/budget.h"
#include "model/config.h"
#include "model/params.h"
#include "ops/dsa.h"
#include "ops/narrow.h"
#include "ops/residual.h"
#include "ops/step.h"
#include "ops/techniques.h"
#include "weights/weight_cache.h"

enum {
    MODEL_BUCKETS = 5,
    MODEL_ROWS_MAX = 256, /* rows of the largest plan; larger steps run as several */
    MODEL_SPANS_MAX = MODEL_ROWS_MAX,
    MODEL_TAPS_MAX = 16,
    MODEL_CONTEXT_MAX = 1 << 24,
};

struct model_options {
    const char *cpu;    /* strongest tier to use, NULL: the machine's best */
    unsigned n_threads; /* 0: one a core */
    enum exec_mode exec;
    bool streams;                /* --streams: in a graph run, what is independent may overlap */
    enum act act;                /* --act: how activations meet weights */
    enum dtype latent_dtype;     /* --kv: INT16, BF16 or F32 */
    enum dtype index_dtype;      /* --li: F32, BF16 or MXFP8 */
    enum mx_rule index_rule;     /* --li-scale */
    enum dsa_scan index_scan;    /* --li-scan: the same choices either way */
    bool masked;                 /* policy sfa=masked: the unselected positions are masked, not left out */
    unsigned without;            /* --without: a set of enum technique */
    struct weight_types weights; /* --dense, --experts: MXFP4 or INT8, dense MXFP8 too; DTYPE_AS_STORED */
    bool pack;                   /* panels for what meets integers (--no-pack: rows as they are) */
    const char *cache_folder;    /* for the file of converted and packed weights; NULL (--no-cache): what is converted
                                    is in memory alone, what is stored is not packed */
    struct watch watch;          /* of what opening does */
    uint32_t context_max;        /* tokens of one sequence */
    uint32_t sequences_max;      /* the cache holds this many full sequences */
    bool reports_selected;       /* model_outputs.selected may be asked for: takes room for it */
    bool rewinds;                /* sequences keep what model_rewind needs */
    uint64_t budget_bytes;       /* the memory plan must fit in it; 0: what the machine and its limits leave */
    uint32_t kept_max;           /* further sequences that share the pages (kept states), counted in the plan */
    struct config_options config;
    /* Hidden states for draft models: per tap and row, what enters layer id + 1 before its norm (TAP_MIXTURE; the
     * last layer has none) or the running sum after layer id (TAP_SUM). */
    enum tap_kind tap_kind;
    uint32_t n_taps;
    uint32_t tap_layers[MODEL_TAPS_MAX]; /* ascending, from 0 */
};

/* Sensible values: ACT_DEFAULT, LATENT_DEFAULT, BF16 index keys, floor rule, graph runs with streams, 4096 tokens, one
 * sequence. */
struct model_options model_options_default(void);

struct model {
    struct config config;
    struct model_options options;
    struct checkpoint *checkpoint;
    enum packing packing; /* decided once: the memory that it depends on changes */
    struct params params;
    struct weight_cache weight_cache;
    struct budget budget;
    struct state_layout layout;
    struct mla_slot *mla_slots;
    struct pages pages;
    struct kernels kernels;
    struct team *team;
    struct runner runner;
    struct plan plans[MODEL_BUCKETS];
    uint32_t n_index_layers;
    uint32_t topk; /* entries of a selection: index_topk, no more than context_max */
    struct step_arrays *arrays;
    _Atomic uint64_t counters[STEP_COUNTERS]; /* since the model was opened */
    uint32_t *selected, *n_selected;          /* of one inner step, see model_step; NULL without reports_selected */
};

/* Opens the checkpoint in `directory`. Owns everything until model_close (accepts NULL). The memory plan is made from
 * headers alone and must fit in the budget before caches and workspace are reserved. */
NEEDS_CHECK enum status model_open(struct model **out, const char *directory, const struct model_options *options,
                                   struct error *err);
void model_close(struct model *model);

/* What model_open does between reading and reserving: from options, config and the shapes of the parameters, checks
 * the options and makes the team, the cache layout and topk. For plans of memory; `model` is zero else, and closed as
 * usual. */
NEEDS_CHECK enum status model_prepare(struct model *model, struct error *err);

/* The request for the converted weights of a model that has its parameters, its team and its kernels. `suffix` gets a
 * name of the types that there is something to convert to. */
enum { WEIGHT_SUFFIX_BYTES = 40 };
struct weight_cache_request model_weight_request(const struct model *model, const char *directory,
                                                 struct conversion *conversion, char suffix[WEIGHT_SUFFIX_BYTES]);

/* Which matrices are to lie in panels, by options and checkpoint: what is stored is packed only where there is a file
 * for it, and memory for all of it, since weights that come from the disk again and again gain nothing. */
enum packing model_packing(const struct model *model);

/* "int8", "as-stored" */
const char *model_weight_type_name(enum dtype dtype);

/* Bytes of all weights, the converted ones in their new type. */
uint64_t model_weight_bytes(const struct checkpoint *checkpoint, const struct conversion *conversion);

/* Pages of the cache for so many full sequences; 0 without full-attention layers. */
uint64_t model_pages(const struct model *model, uint32_t context, uint32_t sequences);

/* An empty sequence of up to context_max tokens. Owned by the caller (sequence_fini), before model_close. */
NEEDS_CHECK enum status model_sequence_init(struct model *model, struct sequence *sequence, struct error *err);

/* New tokens of one sequence. Rows from `first_logit` on give logits: 0 all, n_tokens none. */
struct model_span {
    struct sequence *sequence;
    const int32_t *tokens;
    uint32_t n_tokens, first_logit;
};

/* Positions that layer `layer` (from 0) chose for the token at `position` of span `span`, ascending. */
typedef void model_selected_fn(void *context, uint32_t layer, uint32_t span, uint32_t position, const uint32_t *chosen,
                               uint32_t n_chosen);

struct model_outputs {
    float *logits; /* [rows that give logits][vocabulary], in order of span and row; NULL if none do */
    float *taps;   /* [rows][n_taps][hidden], or NULL */
    uint32_t
        *bad_layers; /* [n_spans] per span the first layer that a NaN or infinity came to (n_layers: only the output
                             sees it), SOUND if none did; or NULL */
    model_selected_fn *selected; /* or NULL; only with model_options.reports_selected */
    void *selected_context;
};

/* Feeds all spans, each of another sequence, and advances their lengths. Tokens are checked against the vocabulary,
 * room is taken in the cache before anything runs: on failure every sequence is as it was. */
NEEDS_CHECK enum status model_step(struct model *model, const struct model_span *spans, uint32_t n_spans,
                                   const struct model_outputs *outputs, struct error *err);

/* Undoes the last n tokens, at most REWIND_TOKENS and no more than were fed since the sequence was empty or restored:
 * the same bits as if they had never been fed (law 4). */
NEEDS_CHECK enum status model_rewind(struct model *model, struct sequence *sequence, uint32_t n, struct error *err);

/* Builds the plan for up to `rows` rows (model_plan.c). */
NEEDS_CHECK enum status model_plan(struct plan *plan, const struct model *model, uint32_t rows, struct error *err);

#endif
