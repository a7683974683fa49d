/* A dense layer of many models that see few examples each: its weights W [o, i] fill the caches, so that a step takes
   as long as memory needs for them. The outputs y = x W' + b take one pass over W. The gradient of the inputs, dx = d W,
   and the move of the weights, t = beta t + alpha d' x, where t is W or what a rule keeps beside it, take another one
   together.

   Parts for the threads are of outputs, or of inputs, so that every number is added up in one order. */

#ifdef _OPENMP
#include <omp.h>
#endif

#include "lanes.h"

#define EXAMPLES 5                    /* of a tile of outputs, */
#define OUTPUTS (LANES == 16 ? 5 : 2) /* and the outputs: their sums are to stay in the registers */
/* Outputs whose weights are moved together, likewise. */
#define MOVED (LANES == 16 ? 8 : LANES == 8 ? 6 : 4)
#define STRIP (128 << 10) /* bytes of the inputs that the second cache keeps beside weights */
#define WIDTH 1024        /* inputs of a part */
#define SHARE 4           /* parts for every thread, so that none waits long for the others */

typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* anywhere in memory */

/* [R, B, n] in memory; steps in numbers, and the n are neighbours. */
typedef struct {
  float *data;
  int64_t row, example;
} Examples;

typedef struct {
  int64_t rows, batch, inputs, outputs;
  Examples x, y, delta, back;  /* back without data: nobody needs the gradient of the inputs */
  const float *weight, *bias;  /* [R, o, i], [R, o] or NULL */
  float *target;               /* [R, o, i] t */
  float beta, alpha;
} Linear;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Outputs of O neurons and E examples by some inputs, added to y or to the bias. */
ALWAYS void tile(const int O, const int E, const Linear *j, int64_t r, int64_t o, int64_t e, int64_t first,
                 int64_t count) {
  const int64_t inputs = j->inputs, example = j->x.example;
  const float *const w = j->weight + (r * j->outputs + o) * inputs + first;
  const float *const x = j->x.data + r * j->x.row + e * example + first;
  vec sums[OUTPUTS][EXAMPLES];
  for (int a = 0; a < O; a++)
    for (int b = 0; b < E; b++) sums[a][b] = (vec){};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    vec from[OUTPUTS];
    for (int a = 0; a < O; a++) from[a] = *(const loose *)(w + a * inputs + i);
    for (int b = 0; b < E; b++) {
      const vec here = *(const loose *)(x + b * example + i);
      for (int a = 0; a < O; a++) sums[a][b] += from[a] * here;
    }
  }
  float total[EXAMPLES][OUTPUTS];
#pragma GCC unroll 5
  for (int b = 0; b < E; b++)
#pragma GCC unroll 5 /* else the sums are kept in memory */
    for (int a = 0; a < O; a++) total[b][a] = sum(sums[a][b]);
  for (int b = 0; b < E; b++)
    for (int a = 0; a < O; a++) {
      float *const y = j->y.data + r * j->y.row + (e + b) * j->y.example + o + a;
      const float before = first ? *y : j->bias ? j->bias[r * j->outputs + o + a] : 0;
      for (int64_t k = i; k < count; k++) total[b][a] += w[a * inputs + k] * x[b * example + k];
      *y = before + total[b][a];
    }
}

/* Functions of their own, so that nothing but the tile takes registers. */
typedef void (*Tile)(const Linear *, int64_t, int64_t, int64_t, int64_t, int64_t);
#define TILE(name, O, E)                                                                                         \
  ALONE void name##_##E(const Linear *j, int64_t r, int64_t o, int64_t e, int64_t first, int64_t count) {        \
    tile(O, E, j, r, o, e, first, count);                                                                        \
  }
#define TILES(name, O)                                                                                           \
  TILE(name, O, 1) TILE(name, O, 2) TILE(name, O, 3) TILE(name, O, 4) TILE(name, O, 5)                           \
  static const Tile name[] = {0, name##_1, name##_2, name##_3, name##_4, name##_5};
TILES(some, OUTPUTS) TILES(one, 1)

/* Outputs [low, high) of a row. */
static void outputs_of(const Linear *j, int64_t r, int64_t low, int64_t high) {
  const int64_t strip = STRIP / (int64_t)sizeof(vec) / j->batch, each = (strip ? strip : 1) * LANES;
  for (int64_t first = 0, count; first < j->inputs; first += count) {
    count = least(each, j->inputs - first);
    for (int64_t o = low, step; o < high; o += step) {
      step = high - o >= OUTPUTS ? OUTPUTS : 1;
      for (int64_t e = 0, size; e < j->batch; e += size) {
        const int64_t left = j->batch - e; /* the last two tiles share it */
        size = left >= 2 * EXAMPLES ? EXAMPLES : left > EXAMPLES ? (left + 1) / 2 : left;
        (step > 1 ? some : one)[size](j, r, o, e, first, count);
      }
    }
  }
}

/* `count` numbers, of which a vector has the first LANES; 0 for those that are not there. */
ALWAYS vec read(const float *from, int64_t count) {
  if (count >= LANES) return *(const loose *)from;
  float x[LANES] = {0};
  for (int64_t i = 0; i < count; i++) x[i] = from[i];
  return *(const loose *)x;
}

ALWAYS void write(float *to, vec x, int64_t count) {
  if (count >= LANES)
    *(loose *)to = x;
  else
    for (int64_t i = 0; i < count; i++) to[i] = x[i];
}

/* What O outputs from o on give to the gradient of the `count` inputs from i on, a vector or less, and the move of
   their weights. */
ALWAYS void move(const int O, const int back, const Linear *j, int64_t r, int64_t o, int64_t i, int64_t count) {
  const int64_t n = j->inputs, at = (r * j->outputs + o) * n + i;
  const float *d = j->delta.data + r * j->delta.row + o, *x = j->x.data + r * j->x.row + i;
  float *dx = back ? j->back.data + r * j->back.row + i : 0;
  vec w[MOVED], g[MOVED];
  for (int a = 0; a < O; a++) {
    g[a] = (vec){};
    if (back) w[a] = read(j->weight + at + a * n, count);
  }
  for (int64_t b = 0; b < j->batch; b++, d += j->delta.example, x += j->x.example) {
    const vec here = read(x, count);
    vec part = {};
    for (int a = 0; a < O; a++) {
      g[a] += d[a] * here;
      if (back) part += d[a] * w[a];
    }
    if (!back) continue;
    write(dx, o ? (vec)(part + read(dx, count)) : part, count);
    dx += j->back.example;
  }
  for (int a = 0; a < O; a++) {
    float *const to = j->target + at + a * n;
    g[a] *= j->alpha;
    write(to, j->beta == 0 ? g[a] : (vec)(j->beta * read(to, count) + g[a]), count);
  }
}

/* All of the inputs [first, end) of a row. */
ALWAYS void moves(const int O, const int back, const Linear *j, int64_t r, int64_t o, int64_t first, int64_t end) {
  int64_t i = first;
  for (; i + LANES <= end; i += LANES) move(O, back, j, r, o, i, LANES);
  if (i < end) move(O, back, j, r, o, i, end - i);
}

#define MOVES(name, O, back) \
  ALONE void name(const Linear *j, int64_t r, int64_t o, int64_t first, int64_t end) { moves(O, back, j, r, o, first, end); }
MOVES(move_one, 1, 0) MOVES(move_one_back, 1, 1) MOVES(move_some, MOVED, 0) MOVES(move_some_back, MOVED, 1)

static void gradients_of(const Linear *j, int64_t r, int64_t first, int64_t end) {
  for (int64_t o = 0, step; o < j->outputs; o += step) {
    step = j->outputs - o >= MOVED ? MOVED : 1;
    if (j->back.data)
      (step > 1 ? move_some_back : move_one_back)(j, r, o, first, end);
    else
      (step > 1 ? move_some : move_one)(j, r, o, first, end);
  }
}

/* Size of the parts of a row, whole units of outputs or inputs. */
static int64_t part_of(const Linear *j, int64_t numbers, int64_t unit, int threads) {
  const int64_t parts = (SHARE * threads + j->rows - 1) / j->rows, units = (numbers + unit - 1) / unit;
  return (units + parts - 1) / parts * unit;
}

void forward(const Linear *j, int threads) {
  const int64_t size = part_of(j, j->outputs, OUTPUTS, threads), parts = (j->outputs + size - 1) / size;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (int64_t part = 0; part < j->rows * parts; part++) {
    const int64_t low = part % parts * size;
    outputs_of(j, part / parts, low, least(low + size, j->outputs));
  }
}

void backward(const Linear *j, int threads) {
  const int64_t size = part_of(j, j->inputs, WIDTH, threads), parts = (j->inputs + size - 1) / size;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (int64_t part = 0; part < j->rows * parts; part++) {
    const int64_t first = part % parts * size;
    gradients_of(j, part / parts, first, least(first + size, j->inputs));
  }
}
