/* The rows (clients) of a call of local training: their examples as they are stored, and the batches of their steps. */

#ifndef ROWS_H
#define ROWS_H

#include "losses.h"
#include "order.h"
#include "transpose.h"

/* Examples as they are stored. */
typedef struct {
  int64_t width;              /* k */
  const int64_t *image;       /* [N] place of every example's inputs, or NULL where it is its own */
  const int64_t *answer;      /* [N] classes, or NULL where targets are in the formula */
  const uint8_t *stored;      /* [images, k], or NULL where there are floats */
  const float *floats;        /* likewise */
  const float *scale, *shift; /* [k], applied to what is stored */
} Examples;

typedef struct {
  Examples all;
  Formula formula;            /* of the loss */
  int64_t rows, longest;
  int64_t batch, joined;              /* examples of a step; whether passes over them are joined end to end */
  int64_t ordered;                    /* whether every batch is the whole row in order */
  const int64_t *index;               /* [R, longest] examples */
  const int64_t *count, *steps, *key; /* [R] real examples, local steps, randomness */
  const int64_t *spanned;             /* [R] whether the row is trained in the span of its examples */
  const float *share;                 /* [R, longest] weights of the examples in their batch's loss, or NULL */
  const float *rate;                  /* [R] factor of the row's gradients, or NULL */
  float *loss;                        /* [R, 2] mean over the steps, and over the first epoch */
} Rows;

/* A batch of a row. */
typedef struct {
  int64_t size;
  int64_t *own, *label; /* [B] examples, counted from the row's first, and their classes, or rows of the targets */
  float *weight;        /* [B] in the loss */
  Order order;
} Batch;

/* Weights of the classes; NULL for 1. */
static inline const float *class_weights(const Rows *of) {
  return of->formula.kind == SOFTMAX ? of->formula.weight : NULL;
}

/* A row of [R, each], NULL of NULL. */
#define ROW_OF(all, r, each) ((all) ? (all) + (r) * (each) : NULL)

/* The inputs of an example, to [wide], zeros behind the last. */
ALWAYS void convert(const Examples *all, int64_t example, float *restrict to, int64_t wide) {
  const int64_t at = (all->image ? all->image[example] : example) * all->width;
  if (all->stored)
    for (int64_t k = 0; k < all->width; k++) to[k] = (float)all->stored[at + k] * all->scale[k] + all->shift[k];
  else
    for (int64_t k = 0; k < all->width; k++) to[k] = all->floats[at + k] * all->scale[k] + all->shift[k];
  for (int64_t k = all->width; k < wide; k++) to[k] = 0;
}

/* Have the inputs of an example brought from memory, where examples lie anywhere. Inlined at once, since
   compilers drop calls that return nothing and change nothing. */
ALWAYS void fetch(const Examples *all, int64_t example) {
  const int64_t size = all->stored ? 1 : sizeof(float), at = (all->image ? all->image[example] : example) * all->width;
  const char *from = (all->stored ? (const char *)all->stored : (const char *)all->floats) + at * size;
  for (int64_t byte = 0; byte < all->width * size; byte += 64) __builtin_prefetch(from + byte);
}

/* To be called before a row's first step; whether it has none. */
static inline int begin_row(const Rows *of, Batch *batch, int64_t r) {
  of->loss[2 * r] = of->loss[2 * r + 1] = 0;
  order_row(&batch->order, (uint64_t)of->key[r], of->count[r], of->batch, of->joined);
  return !of->steps[r];
}

/* The examples of step s, and what they weigh. */
static inline void take_batch(const Rows *of, Batch *batch, int64_t r, int64_t s) {
  const int64_t *index = of->index + r * of->longest;
  batch->size = of->ordered ? of->count[r] : batch_size(&batch->order, s);
  const float rate = (of->rate ? of->rate[r] : 1.0f) / (float)batch->size;
  if (of->ordered)
    for (int64_t e = 0; e < batch->size; e++) batch->own[e] = e;
  else
    batch_at(&batch->order, s, batch->size, batch->own);
  const float *each = class_weights(of);
  for (int64_t e = 0; e < batch->size; e++) {
    const int64_t row = index[batch->own[e]];
    batch->label[e] = of->all.answer ? of->all.answer[row] : row;
    batch->weight[e] = rate * (of->share ? of->share[r * of->longest + batch->own[e]] : 1.0f);
    if (each) batch->weight[e] *= each[batch->label[e]];
  }
}

/* What the examples of a batch weigh in its loss; NULL for as much as each other. */
static inline const float *weights_of(const Rows *of, const Batch *batch) {
  return of->share || of->rate || class_weights(of) ? batch->weight : NULL;
}

/* Turn the outputs [size, v] of a batch, as many as `width`, into the gradient of its loss; returns that loss. */
static inline double descend_batch(const Rows *of, const Batch *batch, vec *outputs, int64_t v, int64_t width) {
  const Formula *f = &of->formula;
  const float *shares = weights_of(of, batch);
  if (f->kind == SOFTMAX && f->smoothing == 0) return descend(outputs, v, batch->label, shares, batch->size);
  return descend_by(f, outputs, v, width, batch->label, shares, batch->size);
}

/* Of the steps so far: sums of the losses, and over the first epoch, by examples; those examples. */
typedef struct {
  double all, early, met;
} Losses;

static inline void add_loss(const Rows *of, Losses *losses, int64_t r, int64_t s, int64_t size, double now) {
  losses->all += now;
  if (s >= (of->ordered ? 1 : (of->count[r] + of->batch - 1) / of->batch)) return;
  losses->early += (double)size * now, losses->met += (double)size;
}

static inline void tell_losses(const Rows *of, const Losses *losses, int64_t r) {
  of->loss[2 * r] = (float)(losses->all / (double)of->steps[r]);
  of->loss[2 * r + 1] = (float)(losses->early / losses->met);
}

/* What a rule makes of weights, anchor and momentum when every gradient is 0: their coefficients. */
typedef struct {
  double value[3], slot[3];
} NoGradient;

static const NoGradient AT_FIRST = {{1, 0, 0}, {0, 0, 1}};

static inline void no_gradient(NoGradient *f, int slotted, float lr, float momentum, float decay, float pull) {
  for (int i = 0; i < 3; i++) {
    const double own = decay * f->value[i] - (i == 1 ? pull : 0);
    if (slotted) f->slot[i] = momentum * f->slot[i] + own;
    f->value[i] -= lr * (slotted ? f->slot[i] : own);
  }
}

#endif
