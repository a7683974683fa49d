/* Normalisation of many models at once, and the ReLU behind it: every row (client) by the statistics of its own batch
   in training, by its running ones elsewhere, or every example by those of its groups of channels. Examples lie
   channels last, [B, pixels, C].

       y = (x - mean) s w + b with s = 1 / sqrt(var + eps);   g = dy where a ReLU let y through
       dx = s w (g - mean(g) - (x - mean) s^2 mean(g (x - mean)));   dw = s sum(g (x - mean)),   db = sum(g)

   Groups have their weights inside of the means: dx = s (w g - mean(w g) - (x - mean) s^2 mean(w g (x - mean))).

   Variances are of distances from the first example's means, or from a group's, so that little is lost where means are
   large. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* [R, B, pixels, C] in memory; steps in numbers. */
typedef struct {
  float *data;
  int64_t row, example;
} Examples;

typedef struct {
  int64_t rows, batch, pixels, channels;
  int64_t groups;                           /* of channels, each of an example by itself; 0 for whole batches */
  int64_t training, relu;
  const int64_t *sizes;                     /* [rows] real examples; the others give 0 */
  const double *factor;                     /* [rows] what a batch weighs in the running statistics */
  Examples x, y, delta, back;
  const float *weight, *bias;               /* [rows, C] or NULL */
  float *mean, *scale;                      /* [rows, C] of the batches, or [rows, B, groups], for the backward pass */
  float *running_mean, *running_var;        /* [rows, C] */
  int64_t moves_mean, moves_var;            /* whether training changes them */
  float *weight_gradient, *bias_gradient;   /* [rows, C] */
  double eps;
} Norm;

static const float *at(const Examples *e, int64_t r, int64_t b) { return e->data + r * e->row + b * e->example; }

/* s and q [C] += sums of x - shift and of its squares. */
static void add_up(const float *restrict x, const float *restrict shift, float *restrict s, float *restrict q, int64_t n,
                   int64_t c) {
  for (int64_t p = 0; p < n; p++, x += c)
    for (int64_t i = 0; i < c; i++) {
      const float d = x[i] - shift[i];
      s[i] += d;
      q[i] += d * d;
    }
}

/* s and q [C] += sums of g and of g (x - shift), where g is d, or what of it a ReLU let through. */
static void add_gradients(const float *restrict d, const float *restrict y, const float *restrict x,
                          const float *restrict shift, float *restrict s, float *restrict q, int64_t n, int64_t c) {
  for (int64_t p = 0; p < n; p++, x += c, d += c, y += y ? c : 0)
    if (y)
      for (int64_t i = 0; i < c; i++) {
        const float g = y[i] <= 0 ? 0 : d[i];
        s[i] += g;
        q[i] += g * (x[i] - shift[i]);
      }
    else
      for (int64_t i = 0; i < c; i++) {
        s[i] += d[i];
        q[i] += d[i] * (x[i] - shift[i]);
      }
}

/* Sums in float64 of every example's, and room for these: [4, C] numbers. */
static void gather(double *to, const float *from, int64_t c) {
  for (int64_t i = 0; i < c; i++) to[i] += from[i];
}

/* Mean and scale of a row's batch, and its running statistics; `sums` [2, C], `part` [3, C]. */
static void statistics(const Norm *j, int64_t r, double *sums, float *part) {
  const int64_t c = j->channels, size = j->sizes[r];
  const double n = (double)(size * j->pixels);
  float *mean = j->mean + r * c, *scale = j->scale + r * c, *shift = part + 2 * c;
  float *kept_mean = j->running_mean + r * c, *kept_var = j->running_var + r * c;
  memset(shift, 0, (size_t)c * sizeof(float));
  for (int64_t b = -1; b < size; b++) { /* first a look at the first example */
    if (b < 1) memset(sums, 0, (size_t)(2 * c) * sizeof(double));
    memset(part, 0, (size_t)(2 * c) * sizeof(float));
    add_up(at(&j->x, r, b < 0 ? 0 : b), shift, part, part + c, j->pixels, c);
    gather(sums, part, 2 * c);
    for (int64_t i = 0; b < 0 && i < c; i++) shift[i] = (float)(sums[i] / (double)j->pixels);
  }
  for (int64_t i = 0; i < c; i++) {
    const double off = sums[i] / n, own = sums[c + i] / n - off * off, var = own < 0 ? 0 : own;
    mean[i] = (float)(shift[i] + off);
    scale[i] = (float)(1 / sqrt(var + j->eps));
    const double f = j->factor[r];
    if (j->moves_mean) kept_mean[i] = (float)((1 - f) * kept_mean[i] + f * mean[i]);
    if (j->moves_var) kept_var[i] = (float)((1 - f) * kept_var[i] + f * var * n / (n - 1));
  }
}

/* y = x factor + rest of an example, and the ReLU; `part` [2, C] are these. */
static void scale_example(const Norm *j, int64_t r, int64_t b, const float *part) {
  const int64_t c = j->channels;
  const float *restrict x = at(&j->x, r, b), *restrict factor = part, *restrict rest = part + c;
  float *restrict y = (float *)at(&j->y, r, b);
  if (b >= j->sizes[r])
    memset(y, 0, (size_t)(j->pixels * c) * sizeof(float));
  else
    for (int64_t p = 0; p < j->pixels; p++, x += c, y += c)
      for (int64_t i = 0; i < c; i++) {
        const float own = x[i] * factor[i] + rest[i];
        y[i] = j->relu && own < 0 ? 0 : own;
      }
}

/* dx = factor g - along x + rest of an example; `part` [3, C] are these. */
static void carry_example(const Norm *j, int64_t r, int64_t b, const float *part) {
  const int64_t c = j->channels;
  const float *restrict x = at(&j->x, r, b), *restrict d = at(&j->delta, r, b), *restrict y = at(&j->y, r, b);
  const float *restrict factor = part, *restrict along = part + c, *restrict rest = part + 2 * c;
  float *restrict to = (float *)at(&j->back, r, b);
  if (b >= j->sizes[r])
    memset(to, 0, (size_t)(j->pixels * c) * sizeof(float));
  else
    for (int64_t p = 0; p < j->pixels; p++, x += c, d += c, y += c, to += c)
      for (int64_t i = 0; i < c; i++) {
        const float g = j->relu && y[i] <= 0 ? 0 : d[i];
        to[i] = factor[i] * g - along[i] * x[i] + rest[i];
      }
}

/* Mean and scale of every group of an example. */
static void group_statistics(const Norm *j, int64_t r, int64_t b, float *part) {
  const int64_t c = j->channels, each = c / j->groups, first = (r * j->batch + b) * j->groups;
  const double n = (double)(each * j->pixels);
  float *shift = part + 2 * c;
  memset(shift, 0, (size_t)c * sizeof(float));
  for (int look = 0; look < 2; look++) { /* the first one finds what distances are measured from */
    memset(part, 0, (size_t)(2 * c) * sizeof(float));
    add_up(at(&j->x, r, b), shift, part, part + c, j->pixels, c);
    for (int64_t g = 0; g < j->groups; g++) {
      double sum = 0, square = 0;
      for (int64_t i = g * each; i < (g + 1) * each; i++) sum += part[i], square += part[c + i];
      const double off = sum / n, own = square / n - off * off, var = own < 0 ? 0 : own;
      j->mean[first + g] = (float)(shift[g * each] + off);
      j->scale[first + g] = (float)(1 / sqrt(var + j->eps));
      for (int64_t i = g * each; i < (g + 1) * each; i++) shift[i] = j->mean[first + g];
    }
  }
}

static void forward_groups(const Norm *j, int64_t r, double *sums, float *part) {
  const int64_t c = j->channels, each = c / j->groups;
  (void)sums;
  for (int64_t b = 0; b < j->batch; b++) {
    if (b < j->sizes[r]) group_statistics(j, r, b, part);
    for (int64_t i = 0; i < c; i++) {
      const int64_t g = (r * j->batch + b) * j->groups + i / each;
      part[i] = j->scale[g] * (j->weight ? j->weight[r * c + i] : 1);
      part[c + i] = (j->bias ? j->bias[r * c + i] : 0) - j->mean[g] * part[i];
    }
    scale_example(j, r, b, part);
  }
}

static void backward_groups(const Norm *j, int64_t r, double *sums, float *part) {
  const int64_t c = j->channels, each = c / j->groups;
  const double n = (double)(each * j->pixels);
  memset(sums, 0, (size_t)(2 * c) * sizeof(double));
  for (int64_t b = 0; b < j->batch; b++) {
    const float *mean = j->mean + (r * j->batch + b) * j->groups, *scale = j->scale + (r * j->batch + b) * j->groups;
    if (b < j->sizes[r]) {
      memset(part, 0, (size_t)(2 * c) * sizeof(float));
      for (int64_t i = 0; i < c; i++) part[2 * c + i] = mean[i / each];
      add_gradients(at(&j->delta, r, b), j->relu ? at(&j->y, r, b) : NULL, at(&j->x, r, b), part + 2 * c, part,
                    part + c, j->pixels, c);
    }
    for (int64_t g = 0; g < j->groups && b < j->sizes[r]; g++) {
      double whole = 0, turned = 0; /* sums of w g and of w g (x - mean) */
      for (int64_t i = g * each; i < (g + 1) * each; i++) {
        const double w = j->weight ? j->weight[r * c + i] : 1;
        whole += w * part[i];
        turned += w * part[c + i];
        sums[i] += part[i];
        sums[c + i] += part[c + i] * (double)scale[g];
      }
      const double along = scale[g] * (double)scale[g] * scale[g] * turned / n;
      for (int64_t i = g * each; i < (g + 1) * each; i++) {
        part[i] = scale[g] * (j->weight ? j->weight[r * c + i] : 1);
        part[c + i] = (float)along;
        part[2 * c + i] = (float)(along * mean[g] - scale[g] * whole / n);
      }
    }
    carry_example(j, r, b, part);
  }
  for (int64_t i = 0; i < c; i++) {
    if (j->bias_gradient) j->bias_gradient[r * c + i] = (float)sums[i];
    if (j->weight_gradient) j->weight_gradient[r * c + i] = (float)sums[c + i];
  }
}

static void forward_row(const Norm *j, int64_t r, double *sums, float *part) {
  const int64_t c = j->channels, size = j->sizes[r];
  float *restrict mean = j->mean + r * c, *restrict scale = j->scale + r * c;
  if (j->training && size)
    statistics(j, r, sums, part);
  else
    for (int64_t i = 0; i < c; i++) {
      mean[i] = j->running_mean[r * c + i];
      scale[i] = (float)(1 / sqrt((double)j->running_var[r * c + i] + j->eps));
    }
  float *restrict factor = part, *restrict rest = part + c;
  for (int64_t i = 0; i < c; i++) {
    factor[i] = scale[i] * (j->weight ? j->weight[r * c + i] : 1);
    rest[i] = (j->bias ? j->bias[r * c + i] : 0) - mean[i] * factor[i];
  }
  for (int64_t b = 0; b < j->batch; b++) scale_example(j, r, b, part);
}

static void backward_row(const Norm *j, int64_t r, double *sums, float *part) {
  const int64_t c = j->channels, size = j->sizes[r];
  const double n = (double)(size * j->pixels);
  const float *restrict mean = j->mean + r * c, *restrict scale = j->scale + r * c;
  memset(sums, 0, (size_t)(2 * c) * sizeof(double));
  for (int64_t b = 0; b < size; b++) {
    memset(part, 0, (size_t)(2 * c) * sizeof(float));
    add_gradients(at(&j->delta, r, b), j->relu ? at(&j->y, r, b) : NULL, at(&j->x, r, b), mean, part, part + c,
                  j->pixels, c);
    gather(sums, part, 2 * c);
  }
  float *restrict factor = part, *restrict along = part + c, *restrict rest = part + 2 * c;
  for (int64_t i = 0; i < c; i++) {
    if (j->bias_gradient) j->bias_gradient[r * c + i] = (float)sums[i];
    if (j->weight_gradient) j->weight_gradient[r * c + i] = (float)(sums[c + i] * scale[i]);
    factor[i] = scale[i] * (j->weight ? j->weight[r * c + i] : 1);
    /* dx = factor g - along x + rest */
    along[i] = j->training && size ? (float)(factor[i] * scale[i] * (double)scale[i] * sums[c + i] / n) : 0;
    rest[i] = j->training && size ? (float)(along[i] * (double)mean[i] - factor[i] * sums[i] / n) : 0;
  }
  for (int64_t b = 0; b < j->batch; b++) carry_example(j, r, b, part);
}

static void each_row(const Norm *j, void (*work)(const Norm *, int64_t, double *, float *), int threads) {
  (void)threads; /* unused where the compiler does not know OpenMP */
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (int64_t r = 0; r < j->rows; r++) {
    double *sums = malloc((size_t)j->channels * (2 * sizeof(double) + 3 * sizeof(float)));
    if (!sums) abort();
    work(j, r, sums, (float *)(sums + 2 * j->channels));
    free(sums);
  }
}

void forward(const Norm *j, int threads) { each_row(j, j->groups ? forward_groups : forward_row, threads); }

/* The gradient of x, and those of scale and shift. */
void backward(const Norm *j, int threads) { each_row(j, j->groups ? backward_groups : backward_row, threads); }
