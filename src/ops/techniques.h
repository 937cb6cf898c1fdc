/* Techniques that a plan can be built without, to measure what each is worth. The bits are the same either way. */
#ifndef DAY0_OPS_TECHNIQUES_H
#define DAY0_OPS_TECHNIQUES_H

#include "base/error.h"

enum technique {
    TECHNIQUE_PROJECTIONS, /* matrices that read the same input are one node; without: a node each */
    TECHNIQUE_ATTN_RES,    /* Attention Residuals in two stages; without: every slot scores all blocks itself */
    TECHNIQUE_GROUPING,    /* rows of one expert meet its weights together; without: one after the other */
    TECHNIQUE_SHARING,     /* heads, and rows of a prompt, read a latent once; without: each of them reads it */
    TECHNIQUE_NORMS,       /* a slot's mixture is normed where it is made; without: by a node of its own */
    TECHNIQUE_EPILOGUE,    /* gates and ups meet in the tile that made them; without: in a node of their own */
    TECHNIQUE_KDA_REGION,  /* a head of KDA is one node from convolution to output gate; without: it is three */
    TECHNIQUE_FLASH_KDA,   /* a state slice stays in the L1 cache for many tokens; without: for one */
    TECHNIQUE_EARLY_START, /* a worker that must wait fetches the weights that it will begin with; without: it waits */
    TECHNIQUE_SEGMENTS,    /* the keys of a single token are split over threads; without: its heads alone are */
    TECHNIQUE_COUNT,
};

/* Reads names in any order, "attn-res" or "grouping,sharing" ('+' will do for a comma), into a set: bit t is technique
 * t. "all" is all of them. NULL and "" are the empty set. Fails with STATUS_ARGUMENT. */
NEEDS_CHECK enum status techniques_parse(unsigned *set, const char *text, struct error *err);

#endif
