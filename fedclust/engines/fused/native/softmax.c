/* All local steps of softmax regression models, a row (client) at a time; at the end, their tests.

   A row has n examples with k numbers each, x [n, k], and o classes. Its parameters are kept as c [k, o], with
   the logits of an example e

       z_e = f_0 out_0[e] + f_1 out_1[e] + f_2 out_2[e] + bias - lr * x_e c.

   spanned: x are the products of the row's examples (k = n), c the coefficients of its weights in their span,
            and out what the start, the anchor and the momentum give, see span.py. c and u begin at 0.
   else:    x are the examples, c = -W^T / lr, and there is no out.

   The gradient of the batch by its logits is d [B, o]. Then (u only with momentum)

       g = d at the batch's rows of c (spanned), or x_b^T d
       u = momentum * u + g - lr * decay * c - pull * anchor;   c = c + u.

   Classes lie in vectors of 16, filled up with logits so low that they count for nothing. */

#include "lanes.h"

typedef struct {
  int64_t rows, examples, width, classes, steps, batch, early, origins, spanned;
  const float *inputs;                        /* [R, n, k] */
  const float *outputs[3];                    /* [R, n, o] of every origin */
  const float *factors;                       /* [S, origins] */
  float *weight, *slot;                       /* [R, k, o] if spanned, else [R, o, k]; slot may be NULL */
  const float *anchor;                        /* [R, o, k] or NULL */
  float *bias, *bias_slot;                    /* [R, o] or NULL */
  const float *bias_anchor;                   /* [R, o] or NULL */
  const int64_t *example, *label;             /* [S, R, B]; examples counted through all rows */
  const int64_t *size;                        /* [R, S] examples of the batch, 0 after the row's last step */
  const float *share;                         /* [S, R, B] of the examples in their batch's loss, NULL for 1 / size */
  const float *first;                         /* [R, early] of the steps' losses in the mean over the first epoch */
  float *loss;                                /* [R, 2] mean over the steps, and over the first epoch */
  float lr, momentum, decay, bias_decay, pull;
} Job;

/* Room of a row; everything [.., v] vectors, v = ceil(o / 16). */
typedef struct {
  vec *c, *u, *anchor; /* [k, v] */
  vec *out;            /* [origins, n, v] */
  vec *z;              /* [B, v] logits, then the gradient */
  vec *bias, *bias_u, *bias_anchor; /* [v] */
  vec *filled; /* [v] 0 for a class, a very low logit in place of a missing one */
} Room;

/* z_e = -lr * x_e c for `count` examples from `e` on. */
#define LOGITS(count)                                                                          \
  for (; e + count <= size; e += count) {                                                      \
    const float *x[count];                                                                     \
    vec acc[count];                                                                            \
    for (int i = 0; i < count; i++) x[i] = j->inputs + example[e + i] * j->width, acc[i] = (vec){}; \
    for (int64_t k = 0; k < j->width; k++) {                                                   \
      const vec ck = room->c[k * v + w];                                                       \
      for (int i = 0; i < count; i++) acc[i] += x[i][k] * ck;                                  \
    }                                                                                          \
    for (int i = 0; i < count; i++) room->z[(e + i) * v + w] = -j->lr * acc[i];                \
  }

static void logits(const Job *j, const Room *room, int64_t v, const int64_t *example, int64_t size) {
  for (int64_t w = 0; w < v; w++) {
    int64_t e = 0;
    LOGITS(10)
    LOGITS(4)
    LOGITS(1)
  }
}

/* Add x_b^T d to `to` [k, v]. */
#define GRADIENT(count)                                                                        \
  for (; e + count <= size; e += count) {                                                      \
    const float *x[count];                                                                     \
    vec d[count];                                                                              \
    for (int i = 0; i < count; i++)                                                            \
      x[i] = j->inputs + example[e + i] * j->width, d[i] = room->z[(e + i) * v + w];             \
    for (int64_t k = 0; k < j->width; k++) {                                                   \
      vec a = to[k * v + w], b = (vec){};                                                      \
      for (int i = 0; i + 1 < count; i += 2) a += x[i][k] * d[i], b += x[i + 1][k] * d[i + 1]; \
      if (count % 2) a += x[count - 1][k] * d[count - 1];                                      \
      to[k * v + w] = a + b;                                                                   \
    }                                                                                          \
  }

static void gradient(const Job *j, const Room *room, vec *to, int64_t v, const int64_t *example, int64_t size) {
  for (int64_t w = 0; w < v; w++) {
    int64_t e = 0;
    GRADIENT(10)
    GRADIENT(4)
    GRADIENT(1)
  }
}

static void step(const Job *j, const Room *room, int64_t v, const int64_t *example, int64_t first, int64_t size) {
  vec *to = j->slot ? room->u : room->c;
  const int64_t all = j->width * v;
  const float kept = j->lr * j->decay;
  if (j->slot)
    for (int64_t i = 0; i < all; i++) room->u[i] = j->momentum * room->u[i] - kept * room->c[i];
  else if (kept != 0)
    for (int64_t i = 0; i < all; i++) room->c[i] -= kept * room->c[i];
  if (room->anchor)
    for (int64_t i = 0; i < all; i++) to[i] -= j->pull * room->anchor[i];
  if (j->spanned) {
    for (int64_t e = 0; e < size; e++)
      for (int64_t w = 0; w < v; w++) to[(example[e] - first) * v + w] += room->z[e * v + w];
  } else {
    gradient(j, room, to, v, example, size);
  }
  if (j->slot)
    for (int64_t i = 0; i < all; i++) room->c[i] += room->u[i];
  if (!j->bias) return;
  for (int64_t w = 0; w < v; w++) {
    vec d = j->bias_decay * room->bias[w];
    for (int64_t e = 0; e < size; e++) d += room->z[e * v + w];
    if (j->bias_anchor) d -= j->pull * room->bias_anchor[w];
    if (j->bias_slot) d = room->bias_u[w] = j->momentum * room->bias_u[w] + d;
    room->bias[w] -= j->lr * d;
  }
}

/* Vectors that a row needs, given to `room` where there is `memory`. */
static int64_t lay_out(const Job *j, Room *room, vec *memory, int64_t v) {
  const int64_t counts[] = {j->width * v, j->slot ? j->width * v : 0, j->anchor ? j->width * v : 0,
                            j->examples * v * j->origins, j->batch * v, v, v, v, v};
  int64_t total = 0;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) total += counts[i];
  if (!memory) return total;
  room->c = take(&memory, counts[0]);
  room->u = take(&memory, counts[1]);
  room->anchor = counts[2] ? take(&memory, counts[2]) : NULL;
  room->out = take(&memory, counts[3]);
  room->z = take(&memory, counts[4]);
  room->bias = take(&memory, v);
  room->bias_u = take(&memory, v);
  room->bias_anchor = take(&memory, v);
  room->filled = take(&memory, v);
  for (int64_t i = j->classes; i < v * LANES; i++) ((float *)room->filled)[i] = NOTHING;
  return total;
}

/* to [k, v] = factor * from [o, k], turned. */
static void turn_in(vec *to, const float *from, float factor, int64_t k, int64_t o, int64_t v) {
  for (int64_t i = 0; from && i < k; i++)
    for (int64_t c = 0; c < o; c++) ((float *)(to + i * v))[c] = factor * from[c * k + i];
}

static void turn_out(float *to, const vec *from, float factor, int64_t k, int64_t o, int64_t v) {
  for (int64_t c = 0; to && c < o; c++)
    for (int64_t i = 0; i < k; i++) to[c * k + i] = factor * ((const float *)(from + i * v))[c];
}

static void row(const Job *j, int64_t r, vec *memory, int64_t v) {
  const int64_t n = j->examples, o = j->classes, k = j->width, own = r * o * k;
  float *weight = j->weight + own, *slot = j->slot ? j->slot + own : NULL;
  float *bias = j->bias ? j->bias + r * o : NULL, *bias_slot = j->bias_slot ? j->bias_slot + r * o : NULL;
  Room room;
  lay_out(j, &room, memory, v);
  if (!j->spanned) {
    turn_in(room.c, weight, -1.0f / j->lr, k, o, v);
    turn_in(room.u, slot, 1.0f, k, o, v);
    if (room.anchor) turn_in(room.anchor, j->anchor + own, 1.0f, k, o, v);
  }
  for (int64_t i = 0; i < j->origins; i++) widen(room.out + i * n * v, j->outputs[i] + r * n * o, n, o, v);
  widen(room.bias, bias, 1, o, v);
  widen(room.bias_u, bias_slot, 1, o, v);
  widen(room.bias_anchor, j->bias_anchor ? j->bias_anchor + r * o : NULL, 1, o, v);

  double loss = 0, early = 0;
  int64_t s = 0;
  for (; s < j->steps && j->size[r * j->steps + s]; s++) {
    const int64_t size = j->size[r * j->steps + s], at = (s * j->rows + r) * j->batch;
    const int64_t *example = j->example + at;
    logits(j, &room, v, example, size);
    for (int64_t e = 0; e < size; e++)
      for (int64_t w = 0; w < v; w++) {
        vec z = room.z[e * v + w] + room.filled[w] + room.bias[w];
        for (int64_t i = 0; i < j->origins; i++)
          z += j->factors[s * j->origins + i] * room.out[(i * n + example[e] - r * n) * v + w];
        room.z[e * v + w] = z;
      }
    const double now = descend(room.z, v, j->label + at, j->share ? j->share + at : NULL, size);
    loss += now;
    if (s < j->early) early += j->first[r * j->early + s] * now;
    step(j, &room, v, example, r * n, size);
  }
  j->loss[2 * r] = s ? (float)(loss / (double)s) : 0.0f;
  j->loss[2 * r + 1] = (float)early;
  if (j->spanned) {
    narrow(weight, room.c, k, o, v);
    narrow(slot, room.u, k, o, v);
  } else if (s) {
    turn_out(weight, room.c, -j->lr, k, o, v);
    turn_out(slot, room.u, 1.0f, k, o, v);
  }
  narrow(bias, room.bias, 1, o, v);
  narrow(bias_slot, room.bias_u, 1, o, v);
}

/* Trains the rows [0, R) in `threads` threads; returns 0, or 1 where there was no memory. */
int train(const Job *j, int threads) {
  const int64_t v = (j->classes + LANES - 1) / LANES;
  const size_t bytes = (size_t)lay_out(j, NULL, NULL, v) * sizeof(vec);
  int failed = 0;
  (void)threads; /* unused where the compiler does not know OpenMP */
#pragma omp parallel num_threads(threads) reduction(| : failed)
  {
    vec *memory = aligned_alloc(sizeof(vec), bytes);
    failed |= !memory;
#pragma omp for schedule(static)
    for (int64_t r = 0; r < j->rows; r++)
      if (memory) row(j, r, memory, v);
    free(memory);
  }
  return failed;
}

/* ---- tests ---- */

typedef float loose __attribute__((vector_size(4 * LANES), may_alias, aligned(4))); /* anywhere in memory */

#define TOGETHER 4 /* examples that read a weight together */
#define OUTPUTS 5  /* classes whose sums stay in registers with them */

typedef struct {
  int64_t rows, longest, width, classes, params;
  const float *models;                    /* [K, params] */
  int64_t weight, bias;                   /* where they lie in a model, [o, k] and [o]; bias < 0 for none */
  const int64_t *model;                   /* [R] of the row */
  const int64_t *index, *count;           /* [R, longest] examples, [R] how many of them are real */
  const int64_t *image;                   /* [N] place of every example's inputs, or NULL where it is its own */
  const int64_t *answer;                  /* [N] classes */
  const uint8_t *stored;                  /* [images, k], or NULL where there are floats */
  const float *floats;                    /* likewise */
  const float *scale, *shift;             /* [k], applied to what is stored */
  double *loss;                           /* [R] sum over the examples */
  int64_t *correct;                       /* [R] */
} Test;

/* z[i][c] = x_i w_c for `count` examples and `number` classes from `c` on. */
#define SUMS(count, number)                                                                         \
  for (; c + number <= t->classes; c += number) {                                                   \
    vec acc[count][number];                                                                         \
    for (int i = 0; i < count; i++)                                                                 \
      for (int m = 0; m < number; m++) acc[i][m] = (vec){};                                         \
    for (int64_t k = 0; k < full; k += LANES)                                                       \
      for (int m = 0; m < number; m++) {                                                            \
        const vec own = *(const loose *)(weight + (c + m) * t->width + k);                          \
        for (int i = 0; i < count; i++) acc[i][m] += *(const vec *)(x + i * wide + k) * own;        \
      }                                                                                             \
    for (int i = 0; i < count; i++)                                                                 \
      for (int m = 0; m < number; m++) {                                                            \
        float all = sum(acc[i][m]);                                                                 \
        for (int64_t k = full; k < t->width; k++) all += x[i * wide + k] * weight[(c + m) * t->width + k]; \
        z[i * most + c + m] = all;                                                                  \
      }                                                                                             \
  }

#define SUMS_OF(count)     \
  {                        \
    int64_t c = 0;         \
    SUMS(count, OUTPUTS)   \
    SUMS(count, 1)         \
  }

/* Have the inputs of an example brought from memory, where examples lie anywhere. Inlined at once, since
   compilers drop calls that return nothing and change nothing. */
__attribute__((always_inline)) static inline void fetch(const Test *t, int64_t example) {
  const int64_t size = t->stored ? 1 : sizeof(float), at = (t->image ? t->image[example] : example) * t->width;
  const char *from = (t->stored ? (const char *)t->stored : (const char *)t->floats) + at * size;
  for (int64_t byte = 0; byte < t->width * size; byte += 64) __builtin_prefetch(from + byte);
}

/* x [TOGETHER, wide] and z [TOGETHER, most] are room. */
static void test_row(const Test *t, int64_t r, float *x, int64_t wide, float *z, int64_t most) {
  const float *weight = t->models + t->model[r] * t->params + t->weight;
  const float *bias = t->bias < 0 ? NULL : t->models + t->model[r] * t->params + t->bias;
  const int64_t *index = t->index + r * t->longest, full = t->width / LANES * LANES;
  double loss = 0, product = 1; /* the log of a product is cheaper than many logs */
  int64_t correct = 0, size;
  for (int64_t e = 0; e < t->count[r]; e += size) {
    size = t->count[r] - e < TOGETHER ? t->count[r] - e : TOGETHER;
    for (int64_t i = e + size; i < e + 2 * size && i < t->count[r]; i++) fetch(t, index[i]);
    for (int64_t i = 0; i < size; i++) {
      const int64_t at = (t->image ? t->image[index[e + i]] : index[e + i]) * t->width;
      float *restrict to = x + i * wide;
      if (t->stored)
        for (int64_t k = 0; k < t->width; k++) to[k] = (float)t->stored[at + k] * t->scale[k] + t->shift[k];
      else
        for (int64_t k = 0; k < t->width; k++) to[k] = t->floats[at + k] * t->scale[k] + t->shift[k];
    }
    switch (size) {
      case 1: SUMS_OF(1) break;
      case 2: SUMS_OF(2) break;
      case 3: SUMS_OF(3) break;
      default: SUMS_OF(TOGETHER)
    }
    for (int64_t i = 0; i < size; i++) {
      float *own = z + i * most;
      const int64_t right = t->answer[index[e + i]];
      if (bias)
        for (int64_t c = 0; c < t->classes; c++) own[c] += bias[c];
      const float goal = own[right];
      int beaten = 0; /* the first of the largest is the answer */
      for (int64_t c = 0; c < t->classes; c++) beaten |= own[c] > goal || (own[c] == goal && c < right);
      correct += !beaten;
      vec top = ((vec *)own)[0], sums = (vec){};
      for (int64_t w = 1; w < most / LANES; w++) top = choose(((vec *)own)[w] > top, ((vec *)own)[w], top);
      const float highest = largest(top);
      for (int64_t w = 0; w < most / LANES; w++) sums += exp_of(((vec *)own)[w] - highest);
      loss += highest - goal;
      product *= sum(sums);
      if (!(product < 1e200)) loss += log(product), product = 1;
    }
  }
  t->loss[r] = loss + log(product);
  t->correct[r] = correct;
}

/* Tests the rows [0, R) in `threads` threads; returns 0, or 1 where there was no memory. */
int test(const Test *t, int threads) {
  const int64_t most = (t->classes + LANES - 1) / LANES * LANES, wide = (t->width + LANES - 1) / LANES * LANES;
  const size_t bytes = (size_t)(TOGETHER * (wide + most)) * sizeof(float);
  int failed = 0;
  (void)threads; /* unused where the compiler does not know OpenMP */
#pragma omp parallel num_threads(threads) reduction(| : failed)
  {
    float *x = aligned_alloc(sizeof(vec), bytes), *z = x + TOGETHER * wide;
    failed |= !x;
    for (int64_t i = 0; x && i < TOGETHER * most; i++) z[i] = NOTHING;
#pragma omp for schedule(dynamic, 16)
    for (int64_t r = 0; r < t->rows; r++)
      if (x) {
        for (int64_t i = 0; r + 1 < t->rows && i < t->count[r + 1] && i < TOGETHER; i++)
          fetch(t, t->index[(r + 1) * t->longest + i]);
        test_row(t, r, x, wide, z, most);
      }
    free(x);
  }
  return failed;
}
