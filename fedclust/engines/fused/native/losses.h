/* The losses of a batch that are not the plain cross entropy of a softmax, and their gradients by what the models give:
   `Formula` in `fedclust/core/task.py`. */

#ifndef LOSSES_H
#define LOSSES_H

#include "lanes.h"

typedef uint8_t bytes __attribute__((vector_size(LANES)));

enum { SOFTMAX, SIGMOID, ERROR };

typedef struct {
  int64_t kind;
  int64_t targets, length;    /* T, numbers of an example's target, and N T; of a softmax nothing */
  float smoothing;            /* part of an example that belongs to all classes of a softmax alike */
  float scale, within, slope; /* of the loss of an error a: scale * (a <= within ? a^2 / 2 : slope * (a - within / 2)) */
  const float *weight;        /* [Y] of the classes, or [16 ceil(T / 16)] of labels that hold; NULL for 1 */
  const uint8_t *flags;       /* [N, T] targets; either these */
  const float *numbers;       /* [N, T] or these, or neither */
} Formula;

/* log(1 + a) for 0 <= a <= 1, to 2 units in the last place: 2 artanh(s) with s = a / (2 + a) <= 1 / 3. */
static inline vec log_above_one(vec a) {
  const vec s = a / (a + 2.0f), q = s * s;
  vec y = q * (1.0f / 15) + 1.0f / 13;
  y = y * q + 1.0f / 11;
  y = y * q + 1.0f / 9;
  y = y * q + 1.0f / 7;
  y = y * q + 1.0f / 5;
  y = y * q + 1.0f / 3;
  return 2.0f * (s + s * (q * y));
}

ALWAYS vec magnitude(vec x) { return choose(x < 0.0f, -x, x); }

/* The targets `at` and on of an example, anything past the last of them. */
ALWAYS vec targets_of(const Formula *f, int64_t example, int64_t at) {
  const int64_t from = example * f->targets + at, left = f->length - from;
  bytes flags = {};
  vec y = {};
  if (!f->flags) {
    if (left < LANES)
      memcpy(&y, f->numbers + from, (size_t)left * sizeof(float));
    else
      memcpy(&y, f->numbers + from, sizeof y);
    return y;
  }
  if (left < LANES)
    memcpy(&flags, f->flags + from, (size_t)left);
  else
    memcpy(&flags, f->flags + from, sizeof flags);
  return __builtin_convertvector(flags, vec);
}

/* Of outputs z, turned into the gradient of their losses, these losses: binary cross entropies of labels. What the
   wrong side of 0 costs is chosen and not added up, so that a small loss is as exact as a large one. */
ALWAYS vec by_flags(const Formula *f, vec *z, vec y, int64_t at) {
  const vec a = exp_of(-magnitude(*z)), one = a / (a + 1.0f), s = choose(*z > 0.0f, 1.0f - one, one), nothing = {};
  const vec above = choose(*z > 0.0f, *z, nothing), below = choose(*z > 0.0f, nothing, -*z);
  const vec loss = log_above_one(a) + choose(y > 0.0f, below, above);
  if (!f->weight) {
    *z = s - y;
    return loss;
  }
  vec weight;
  memcpy(&weight, f->weight + at, sizeof weight);
  const vec times = (weight - 1.0f) * y + 1.0f;
  *z = s * times - weight * y;
  return times * loss;
}

/* Likewise of errors; all comparisons with what is no number are false, and it stays none. */
ALWAYS vec by_error(const Formula *f, vec *z, vec y) {
  const vec e = *z - y, a = magnitude(e), zero = (vec){};
  *z = f->scale * choose(e > f->within, zero + f->slope, choose(e < -f->within, zero - f->slope, e));
  return f->scale * choose(a <= f->within, a * a * 0.5f, f->slope * (a - 0.5f * f->within));
}

/* As `descend` with the losses' means over the targets; `place` are the examples' rows of the targets. */
static inline double descend_targets(const Formula *f, vec *outputs, int64_t v, const int64_t *place,
                                     const float *shares, int64_t size) {
  double loss = 0;
  ivec missing = {};
  for (int64_t i = 0; i < LANES; i++) missing[i] = (v - 1) * LANES + i < f->targets ? 0 : -1;
  for (int64_t e = 0; e < size; e++) {
    const float share = (shares ? shares[e] : 1.0f / (float)size) / (float)f->targets;
    vec sums = (vec){};
    for (int64_t w = 0; w < v; w++) {
      vec *z = outputs + e * v + w;
      const vec y = targets_of(f, place[e], w * LANES);
      vec each = f->kind == SIGMOID ? by_flags(f, z, y, w * LANES) : by_error(f, z, y);
      if (w + 1 == v) each = choose(missing, (vec){}, each), *z = choose(missing, (vec){}, *z);
      sums += each;
      *z *= share;
    }
    loss += (double)share * sum(sums);
  }
  return loss;
}

/* As `descend`, of the smoothed cross entropy: with the mean m of an example's logits, smoothing * (z_y - m) more. */
static inline double descend_smoothed(const Formula *f, vec *logits, int64_t v, int64_t classes, const int64_t *label,
                                      const float *shares, int64_t size) {
  const float each = f->smoothing / (float)classes;
  double more = 0;
  for (int64_t e = 0; e < size; e++) {
    const float *z = (const float *)(logits + e * v), share = shares ? shares[e] : 1.0f / (float)size;
    double apart = 0;
    for (int64_t c = 0; c < classes; c++) apart += z[label[e]] - z[c];
    more += (double)(share * each) * apart;
  }
  const double loss = descend(logits, v, label, shares, size);
  for (int64_t e = 0; e < size; e++) {
    const float share = shares ? shares[e] : 1.0f / (float)size;
    float *d = (float *)(logits + e * v);
    for (int64_t c = 0; c < classes; c++) d[c] -= share * each;
    d[label[e]] += share * f->smoothing;
  }
  return loss + more;
}

/* Turn outputs [size, v] of models into the gradient of the batch's loss, the mean or weighted by `shares`; returns
   that loss. `label` are classes, or where the targets lie. A function of its own: within the steps it would change how
   compilers round the rest of them. */
ALONE double descend_by(const Formula *f, vec *outputs, int64_t v, int64_t width,
                                                   const int64_t *label, const float *shares, int64_t size) {
  if (f->kind == SOFTMAX) return descend_smoothed(f, outputs, v, width, label, shares, size);
  return descend_targets(f, outputs, v, label, shares, size);
}

#endif
