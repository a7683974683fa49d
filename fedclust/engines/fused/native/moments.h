/* What a solver makes of gradients, number by number: `Law` in `fedclust/core/solver.py`. */

#ifndef MOMENTS_H
#define MOMENTS_H

#include <math.h>
#include <stdint.h>

typedef struct {
  int64_t on;                                 /* 0: gradient descent or heavy-ball momentum, which need none of it */
  double lr, keep, take, square, add, eps;    /* keep: 0 for no mean of gradients */
  double decoupled, apart, clip;              /* weight decay beside the gradient, and behind the clipping; 0: none */
  int64_t nesterov, adaptive, unbiased, damped; /* damped: whether only a first step takes all of a gradient */
  const float *count;                         /* [R] steps before the call, or NULL for none */
  const double *rates;                        /* [S] factors of the learning rate by step, or NULL for 1 */
} Law;

/* The numbers of a step. */
typedef struct {
  float keep, take, direct, pushed, square, add, unroot, eps, shrunk, apart, rate;
} Step;

/* Of step s of row r. */
static inline Step step_of(const Law *l, int64_t r, int64_t s) {
  const double t = (double)s + 1 + (l->count ? (double)l->count[r] : 0), lr = l->lr * (l->rates ? l->rates[s] : 1);
  return (Step){(float)l->keep,
                (float)(l->damped && t == 1 ? 1 : l->take),
                l->nesterov ? 1 : 0,
                l->nesterov ? (float)l->keep : 1,
                (float)l->square,
                (float)l->add,
                l->unbiased ? (float)(1 / sqrt(1 - pow(l->square, t))) : 1,
                (float)l->eps,
                (float)(1 - lr * l->decoupled),
                (float)l->apart,
                (float)(l->unbiased ? lr / (1 - pow(l->keep, t)) : lr)};
}

/* w [n] by a gradient g, shortened by a factor; m and q are what is kept of it, NULL for nothing. `bare`: without the
   terms that most laws leave at 0 or 1. */
static inline __attribute__((always_inline))
void move_each(const Step *s, const int bare, const int means, const int squares, float *restrict w,
               float *restrict m, float *restrict q, const float *restrict g, float factor, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    const float x = bare ? g[i] : factor * g[i] + s->apart * w[i];
    float d = x;
    if (means) {
      m[i] = s->keep * m[i] + s->take * x;
      d = bare ? m[i] : s->direct * x + s->pushed * m[i];
    }
    if (squares) {
      q[i] = s->square * q[i] + s->add * (x * x);
      d = d / (sqrtf(q[i]) * s->unroot + s->eps);
    }
    w[i] = (bare ? w[i] : s->shrunk * w[i]) - s->rate * d;
  }
}

#define MOVE(bare)                                  \
  if (m && q)                                       \
    move_each(s, bare, 1, 1, w, m, q, g, factor, n); \
  else if (q)                                       \
    move_each(s, bare, 0, 1, w, m, q, g, factor, n); \
  else if (m)                                       \
    move_each(s, bare, 1, 0, w, m, q, g, factor, n); \
  else                                              \
    move_each(s, bare, 0, 0, w, m, q, g, factor, n);

static inline void move_by(const Step *s, float *w, float *m, float *q, const float *g, float factor, int64_t n) {
  if (factor == 1 && s->direct == 0 && s->pushed == 1 && s->apart == 0 && s->shrunk == 1) {
    MOVE(1)
  } else {
    MOVE(0)
  }
}

/* Sum of squares. */
static inline double square_sum(const float *g, int64_t n) {
  double all = 0;
  for (int64_t i = 0; i < n;) {
    float part[8] = {0};
    const int64_t end = n - i > 4096 ? i + 4096 : n;
    for (; i + 8 <= end; i += 8)
      for (int k = 0; k < 8; k++) part[k] += g[i + k] * g[i + k];
    for (; i < end; i++) part[0] += g[i] * g[i];
    for (int k = 0; k < 8; k++) all += part[k];
  }
  return all;
}

/* By what a gradient of a sum of squares is shortened. */
static inline float shortened(const Law *l, double squares) {
  if (l->clip == 0) return 1;
  const double factor = l->clip / (sqrt(squares) + 1e-6);
  return factor > 1 ? 1 : (float)factor; /* nan stays nan */
}

#endif
