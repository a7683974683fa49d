/* All local steps of softmax regression models, a row (client) at a time; at the end, their tests.

   A row has n examples x [n, k] and o classes; its model are weights W [o, k] and a bias. The gradient of a batch's
   loss by its logits is d [B, o], and x_b are the batch's examples. Then (u only with momentum)

       u = momentum * u + d^T x_b + decay * W - pull * anchor;   W = W - lr * u

   spanned: W_t = f_0 W_0 + f_1 anchor + f_2 u_0 - lr c_t^T x, and u likewise, with coefficients c [n, o] that begin
            at 0, see span.py. With the products of the examples x x^T, and those with W_0, anchor and u_0, taken
            once, a step needs n numbers of an example where W would need k, and d itself is the gradient of c.

   law: where a solver keeps or divides by more than u, see `moments.h`; none of its rows is in the span.

   rounds: the factors of every product are rounded to bfloat16; sums, weights and coefficients are not.

   loss: another one than that of a softmax is a matter of d alone, see `losses.h`; `classes` are outputs then.

   Examples are read as they are stored, once, and nothing of a row leaves its core's cache before the last step.
   Features lie in vectors, filled up with zeros; classes too, with logits so low that they count for nothing. */

#include "dense.h"

typedef float loose __attribute__((vector_size(4 * LANES), may_alias, aligned(4))); /* anywhere in memory */

/* Of a tile of inner products, rows and columns; of a tile of mixtures, rows and vectors beside each other: its sums
   must fit the registers. */
#define DOWN 5
#ifdef __AVX512F__
#define SIDE 5
#define ACROSS 5
#define WIDE 4
#else
#define SIDE 4
#define ACROSS 3
#define WIDE 2
#endif

/* z[p][q] = the inner product of x_p and y_q, for P and Q of them; x [P], y [Q, stride], vectors of `k` numbers. */
ALWAYS void inner(const int P, const int Q, float *z, int64_t pitch, const float *const *x, const float *y,
                  int64_t stride, int64_t k) {
  vec sums[SIDE][ACROSS];
  for (int p = 0; p < P; p++)
    for (int q = 0; q < Q; q++) sums[p][q] = (vec){};
  for (int64_t i = 0; i + LANES <= k; i += LANES) {
    vec own[SIDE];
    for (int p = 0; p < P; p++) own[p] = *(const vec *)(x[p] + i);
    for (int q = 0; q < Q; q++) {
      const vec other = *(const loose *)(y + q * stride + i);
      for (int p = 0; p < P; p++) sums[p][q] += own[p] * other;
    }
  }
  for (int p = 0; p < P; p++)
    for (int q = 0; q < Q; q++) {
      float all = sum(sums[p][q]);
      for (int64_t i = k / LANES * LANES; i < k; i++) all += x[p][i] * y[q * stride + i];
      z[p * pitch + q] = all;
    }
}

/* to_q[n] = kept * to_q[n] + factor * sum over e of d_e[q] x_e[n], for Q rows and N vectors; d [count, pitch]. */
ALWAYS void mixed(const int Q, const int N, float *to, int64_t stride, const float *d, int64_t pitch,
                  const float *const *x, int64_t at, int64_t count, float kept, float factor) {
  vec sums[DOWN][WIDE];
  for (int q = 0; q < Q; q++)
    for (int n = 0; n < N; n++) sums[q][n] = (vec){};
  for (int64_t e = 0; e < count; e++) {
    vec own[WIDE];
    for (int n = 0; n < N; n++) own[n] = ((const vec *)(x[e] + at))[n];
    for (int q = 0; q < Q; q++)
      for (int n = 0; n < N; n++) sums[q][n] += d[e * pitch + q] * own[n];
  }
  for (int q = 0; q < Q; q++)
    for (int n = 0; n < N; n++) {
      vec *here = (vec *)(to + q * stride) + n;
      const vec sum = factor * sums[q][n];
      if (kept == 0) /* what was there may be no number */
        *here = sum;
      else
        *here = kept * *here + sum;
    }
}

#define UP_TO_THREE(CASE) CASE(1) CASE(2) CASE(3)
#define UP_TO_FOUR(CASE) UP_TO_THREE(CASE) CASE(4)
#define UP_TO_FIVE(CASE) UP_TO_FOUR(CASE) CASE(5)
#if SIDE == 5
#define EACH_ROW UP_TO_FIVE
#define EACH_COLUMN UP_TO_FIVE
#else
#define EACH_ROW UP_TO_FOUR
#define EACH_COLUMN UP_TO_THREE
#endif
/* Of `left` rows or columns, how many the next tile takes, of at most so many, so that tiles are alike. */
static inline int64_t part(int64_t left, int64_t most) {
  const int64_t tiles = (left + most - 1) / most;
  return (left + tiles - 1) / tiles;
}

#define IN_COLUMNS(Q) \
  case Q: inner(P, Q, z + q, pitch, x, y + q * stride, stride, k); break;
ALWAYS void inner_rows(const int P, float *z, int64_t pitch, const float *const *x, const float *y, int64_t stride,
                       int64_t k, int64_t columns) {
  for (int64_t q = 0, wide; q < columns; q += wide) {
    wide = part(columns - q, ACROSS);
    switch (wide) { EACH_COLUMN(IN_COLUMNS) }
  }
}

#define IN_ROWS(P) \
  case P: inner_rows(P, z + p * pitch, pitch, x + p, y, stride, k, columns); break;
/* z [rows, columns] of all inner products of x [rows] and y [columns, stride]. */
static void inner_all(float *z, int64_t pitch, const float *const *x, int64_t rows, const float *y, int64_t stride,
                      int64_t k, int64_t columns) {
  for (int64_t p = 0, high; p < rows; p += high) {
    high = part(rows - p, SIDE);
    switch (high) { EACH_ROW(IN_ROWS) }
  }
}

#define WIDELY(Q)                                                                                      \
  case Q: mixed(Q, WIDE, to + q * stride + at, stride, d + q, pitch, x, at, count, kept, factor); break;
#define NARROWLY(Q)                                                                                 \
  case Q: mixed(Q, 1, to + q * stride + at, stride, d + q, pitch, x, at, count, kept, factor); break;
/* to [rows, stride] = kept * to + factor * d^T x; x are `count` rows of `stride` numbers. */
static void mix_all(float *to, int64_t rows, int64_t stride, const float *d, int64_t pitch, const float *const *x,
                    int64_t count, float kept, float factor) {
  int64_t at = 0;
  for (; at + WIDE * LANES <= stride; at += WIDE * LANES)
    for (int64_t q = 0, high; q < rows; q += high) {
      high = part(rows - q, DOWN);
      switch (high) { UP_TO_FIVE(WIDELY) }
    }
  for (; at < stride; at += LANES)
    for (int64_t q = 0, high; q < rows; q += high) {
      high = part(rows - q, DOWN);
      switch (high) { UP_TO_FIVE(NARROWLY) }
    }
}

/* ---- training ---- */

#define RESIDENT (64 << 20) /* bytes of a row's examples; with more, every batch is converted by itself */

/* Most of a thread's rows. */
typedef struct {
  int64_t converted, spanned, batch; /* examples that are kept converted, of a row in the span, of a batch */
} Most;

/* v = ceil(o / 16), wide = 16 ceil(k / 16). */
typedef struct {
  float *w[3];                      /* [o, wide] weights, anchor, momentum */
  float *q, *g;                     /* likewise the mean of squares, and the gradient */
  float *x;                         /* [n, wide] examples, or a batch */
  float *seen;                      /* weights as a factor; themselves where factors are not rounded */
  float *gram;                      /* [n, n] */
  float *out[3];                    /* [n, 16 v] of weights, anchor, momentum as they were */
  vec *c, *u;                       /* [n, v] */
  vec *seen_c;                      /* c as a factor, likewise */
  vec *z;                           /* [B, v] logits, then the gradient */
  vec *bias, *bias_u, *bias_q, *bias_g, *bias_anchor; /* [v] */
  vec *filled;                      /* [v] 0 for a class, a very low logit in place of a missing one */
  const float **rows;               /* [n] or [B] examples */
  Batch batch;
} Room;

static int resident(const Job *j, int64_t r, int64_t wide) {
  const int64_t n = j->of.count[r];
  return j->of.spanned[r] || n <= j->of.batch || n * wide * (int64_t)sizeof(float) <= RESIDENT;
}

static Most most_of(const Job *j) {
  const int64_t wide = vectors(j->of.all.width) * LANES;
  Most most = {};
  for (int64_t r = 0; r < j->of.rows; r++) {
    const int64_t n = j->of.count[r], batch = n < j->of.batch ? n : j->of.batch, kept = resident(j, r, wide) ? n : batch;
    if (kept > most.converted) most.converted = kept;
    if (j->of.spanned[r] && n > most.spanned) most.spanned = n;
    if (batch > most.batch) most.batch = batch;
  }
  return most;
}

/* Vectors that a thread needs, given to `room` where there is `memory`. */
static int64_t lay_out(const Job *j, Room *room, vec *memory, Most most) {
  const int64_t v = vectors(j->layer->outputs), w = vectors(j->of.all.width), n = most.spanned, model = j->layer->outputs * w;
  const int64_t addresses = vectors(2 * (most.converted > most.batch ? most.converted : most.batch));
  const int64_t counts[] = {most.converted * w, vectors(n * n), model, j->layer->anchor ? model : 0, j->layer->slot ? model : 0,
                            n * v, j->layer->anchor ? n * v : 0, j->layer->slot ? n * v : 0, n * v, n * v, most.batch * v, v, v, v, v,
                            v, v, j->layer->square ? model : 0, j->law.on ? model : 0,
                            j->rounds ? model : 0, j->rounds ? n * v : 0, addresses, vectors(2 * most.batch),
                            vectors(2 * most.batch), vectors(most.batch)};
  int64_t total = 0;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) total += counts[i];
  if (!memory) return total;
  const int64_t *count = counts;
  room->x = (float *)memory; /* these two are written before they are read */
  room->gram = (float *)(memory += *count++);
  memory += *count++;
  for (int i = 0; i < 3; i++) room->w[i] = (float *)take(&memory, *count++);
  for (int i = 0; i < 3; i++) room->out[i] = (float *)take(&memory, *count++);
  room->c = take(&memory, *count++);
  room->u = take(&memory, *count++);
  room->z = take(&memory, *count++);
  room->bias = take(&memory, *count++);
  room->bias_u = take(&memory, *count++);
  room->bias_anchor = take(&memory, *count++);
  room->filled = take(&memory, *count++);
  room->bias_q = take(&memory, *count++);
  room->bias_g = take(&memory, *count++);
  room->q = (float *)take(&memory, *count++);
  room->g = (float *)take(&memory, *count++);
  room->seen = (float *)take(&memory, *count++);
  room->seen_c = take(&memory, *count++);
  if (!j->rounds) room->seen = room->w[0], room->seen_c = room->c;
  room->rows = (const float **)take(&memory, *count++);
  room->batch.own = (int64_t *)take(&memory, *count++);
  room->batch.label = (int64_t *)take(&memory, *count++);
  room->batch.weight = (float *)take(&memory, *count++);
  for (int64_t i = j->layer->outputs; i < v * LANES; i++) ((float *)room->filled)[i] = NOTHING;
  return total;
}

/* The products of a row's examples, with each other and with what the span begins with. */
static void begin_span(const Job *j, const Room *room, int64_t n, int64_t v, int64_t wide) {
  for (int64_t p = 0, high; p < n; p += high) { /* one half and the diagonal; the other half is the same */
    high = part(n - p, SIDE);
    inner_all(room->gram + p * n, n, room->rows + p, high, room->x, wide, wide, p + high);
    for (int64_t i = p; i < p + high; i++)
      for (int64_t q = 0; q < i; q++) room->gram[q * n + i] = room->gram[i * n + q];
  }
  if (j->rounds) round_to((vec *)room->gram, (const vec *)room->gram, vectors(n * n));
  const float *const given[] = {j->layer->weight, j->layer->anchor, j->layer->slot};
  for (int i = 0; i < 3; i++) {
    if (!given[i] || (i == 1 && !j->own_anchor)) continue;
    if (j->rounds) round_to((vec *)room->seen, (const vec *)room->w[i], j->layer->outputs * wide / LANES);
    const float *factor = j->rounds ? room->seen : room->w[i];
    inner_all(room->out[i], v * LANES, room->rows, n, factor, wide, wide, j->layer->outputs);
  }
  if (j->layer->anchor && !j->own_anchor) memcpy(room->out[1], room->out[0], (size_t)(n * v) * sizeof(vec));
  memset(room->c, 0, (size_t)(n * v) * sizeof(vec));
  if (j->rounds) memset(room->seen_c, 0, (size_t)(n * v) * sizeof(vec));
  if (j->layer->slot) memset(room->u, 0, (size_t)(n * v) * sizeof(vec));
}

/* z_e of the examples `own` in the span. */
#define IN_SPAN(count)                                                                          \
  for (; e + count <= size; e += count) {                                                       \
    const float *x[count];                                                                      \
    vec acc[count];                                                                             \
    for (int i = 0; i < count; i++) x[i] = room->gram + room->batch.own[e + i] * n, acc[i] = (vec){}; \
    for (int64_t k = 0; k < n; k++) {                                                           \
      const vec ck = room->seen_c[k * v + w];                                                   \
      for (int i = 0; i < count; i++) acc[i] += x[i][k] * ck;                                   \
    }                                                                                           \
    for (int i = 0; i < count; i++) room->z[(e + i) * v + w] = -j->lr * acc[i];                 \
  }

static void forward_in_span(const Job *j, const Room *room, const NoGradient *f, int64_t n, int64_t v, int64_t size) {
  for (int64_t w = 0; w < v; w++) {
    int64_t e = 0;
    IN_SPAN(10)
    IN_SPAN(4)
    IN_SPAN(1)
  }
  const void *const given[] = {j->layer->weight, j->layer->anchor, j->layer->slot};
  for (int i = 0; i < 3; i++)
    if (given[i])
      for (int64_t e = 0; e < size; e++)
        for (int64_t w = 0; w < v; w++)
          room->z[e * v + w] += (float)f->value[i] * ((const vec *)room->out[i])[room->batch.own[e] * v + w];
}

static void backward_in_span(const Job *j, const Room *room, int64_t n, int64_t v, int64_t size) {
  vec *to = j->layer->slot ? room->u : room->c;
  const float kept = j->lr * j->layer->decay;
  if (j->layer->slot)
    for (int64_t i = 0; i < n * v; i++) room->u[i] = j->momentum * room->u[i] - kept * room->c[i];
  else if (kept != 0)
    for (int64_t i = 0; i < n * v; i++) room->c[i] -= kept * room->c[i];
  for (int64_t e = 0; e < size; e++)
    for (int64_t w = 0; w < v; w++) to[room->batch.own[e] * v + w] += room->z[e * v + w];
  if (j->layer->slot)
    for (int64_t i = 0; i < n * v; i++) room->c[i] += room->u[i];
  if (j->rounds) round_to(room->seen_c, room->c, n * v);
}

/* Weights and momentum from the coefficients. */
static void end_span(const Job *j, const Room *room, const NoGradient *f, int64_t n, int64_t v, int64_t wide) {
  vec *w = (vec *)room->w[0], *a = (vec *)room->w[1], *u = (vec *)room->w[2];
  for (int64_t i = 0; i < j->layer->outputs * wide / LANES; i++) {
    const vec start = w[i], anchor = j->layer->anchor ? a[i] : (vec){}, slot = j->layer->slot ? u[i] : (vec){};
    w[i] = (float)f->value[0] * start + (float)f->value[1] * anchor + (float)f->value[2] * slot;
    if (j->layer->slot) u[i] = (float)f->slot[0] * start + (float)f->slot[1] * anchor + (float)f->slot[2] * slot;
  }
  mix_all(room->w[0], j->layer->outputs, wide, (const float *)room->seen_c, v * LANES, room->rows, n, 1, -j->lr);
  if (j->rounds && j->layer->slot) round_to(room->u, room->u, n * v);
  if (j->layer->slot) mix_all(room->w[2], j->layer->outputs, wide, (const float *)room->u, v * LANES, room->rows, n, 1, 1);
}

static void backward(const Job *j, const Room *room, int64_t v, int64_t wide, int64_t size) {
  vec *w = (vec *)room->w[0], *a = (vec *)room->w[1], *u = (vec *)room->w[2];
  const float *d = (const float *)room->z;
  const int64_t all = j->layer->outputs * wide / LANES;
  if (!j->layer->slot) {
    mix_all(room->w[0], j->layer->outputs, wide, d, v * LANES, room->rows, size, 1 - j->lr * j->layer->decay, -j->lr);
    if (j->layer->anchor)
      for (int64_t i = 0; i < all; i++) w[i] += j->lr * j->pull * a[i];
    return;
  }
  mix_all(room->w[2], j->layer->outputs, wide, d, v * LANES, room->rows, size, j->momentum, 1);
  for (int64_t i = 0; i < all; i++) {
    u[i] += j->layer->decay * w[i];
    if (j->layer->anchor) u[i] -= j->pull * a[i];
    w[i] -= j->lr * u[i];
  }
}

/* The step of weights and bias by a law. */
static void move_all(const Job *j, const Room *room, int64_t r, int64_t s, int64_t v, int64_t wide, int64_t size) {
  const vec *w = (const vec *)room->w[0], *a = (const vec *)room->w[1];
  vec *g = (vec *)room->g;
  const int64_t all = j->layer->outputs * wide;
  const Step step = step_of(&j->law, r, s);
  mix_all(room->g, j->layer->outputs, wide, (const float *)room->z, v * LANES, room->rows, size, 0, 1);
  for (int64_t i = 0; j->layer->decay != 0 && i < all / LANES; i++) g[i] += j->layer->decay * w[i];
  for (int64_t i = 0; j->layer->anchor && i < all / LANES; i++) g[i] -= j->pull * a[i];
  for (int64_t i = 0; i < v; i++) {
    vec d = j->layer->bias_decay * room->bias[i];
    if (j->layer->bias_anchor) d -= j->pull * room->bias_anchor[i];
    for (int64_t e = 0; e < size; e++) d += room->z[e * v + i];
    room->bias_g[i] = d;
  }
  double squares = 0;
  if (j->law.clip != 0) squares = square_sum(room->g, all) + (j->layer->bias ? square_sum((float *)room->bias_g, v * LANES) : 0);
  const float factor = shortened(&j->law, squares);
  move_by(&step, room->w[0], j->layer->slot ? room->w[2] : NULL, j->layer->square ? room->q : NULL, room->g, factor, all);
  if (j->layer->bias)
    move_by(&step, (float *)room->bias, j->layer->bias_slot ? (float *)room->bias_u : NULL,
            j->layer->bias_square ? (float *)room->bias_q : NULL, (const float *)room->bias_g, factor, v * LANES);
}

static void move_bias(const Job *j, const Room *room, int64_t v, int64_t size) {
  for (int64_t w = 0; w < v; w++) {
    vec d = j->layer->bias_decay * room->bias[w];
    for (int64_t e = 0; e < size; e++) d += room->z[e * v + w];
    if (j->layer->bias_anchor) d -= j->pull * room->bias_anchor[w];
    if (j->layer->bias_slot) d = room->bias_u[w] = j->momentum * room->bias_u[w] + d;
    room->bias[w] -= j->lr * d;
  }
}

/* An example, as a factor. */
static void convert_factor(const Job *j, int64_t example, float *to, int64_t wide) {
  convert(&j->of.all, example, to, wide);
  if (j->rounds) round_to((vec *)to, (const vec *)to, wide / LANES);
}

/* The examples of step s as rows of factors, where the row is not in the span. */
static void look_at_batch(const Job *j, const Room *room, int64_t r, int kept, int64_t wide) {
  const int64_t *index = j->of.index + r * j->of.longest;
  for (int64_t e = 0; e < room->batch.size; e++) {
    const int64_t own = room->batch.own[e];
    room->rows[e] = room->x + (kept ? own : e) * wide;
    if (!kept) convert_factor(j, index[own], room->x + e * wide, wide);
  }
}

/* A row's model, and its examples where they are kept. */
static void load(const Job *j, const Room *room, int64_t r, int kept, int64_t v, int64_t wide) {
  const int64_t n = j->of.count[r], o = j->layer->outputs, k = j->of.all.width, *index = j->of.index + r * j->of.longest;
  widen((vec *)room->w[0], ROW_OF(j->layer->weight, r, o * k), o, k, wide / LANES);
  widen((vec *)room->w[1], ROW_OF(j->layer->anchor, r, o * k), o, k, wide / LANES);
  widen((vec *)room->w[2], ROW_OF(j->layer->slot, r, o * k), o, k, wide / LANES);
  widen((vec *)room->q, ROW_OF(j->layer->square, r, o * k), o, k, wide / LANES);
  widen(room->bias, ROW_OF(j->layer->bias, r, o), 1, o, v);
  widen(room->bias_u, ROW_OF(j->layer->bias_slot, r, o), 1, o, v);
  widen(room->bias_q, ROW_OF(j->layer->bias_square, r, o), 1, o, v);
  widen(room->bias_anchor, ROW_OF(j->layer->bias_anchor, r, o), 1, o, v);
  for (int64_t e = 0; kept && e < n; e++) {
    if (e + 2 < n) fetch(&j->of.all, index[e + 2]);
    convert_factor(j, index[e], room->x + e * wide, wide);
    room->rows[e] = room->x + e * wide;
  }
}

static void store(const Job *j, const Room *room, int64_t r, int64_t v, int64_t wide) {
  const int64_t o = j->layer->outputs, k = j->of.all.width;
  narrow(ROW_OF(j->layer->weight, r, o * k), (vec *)room->w[0], o, k, wide / LANES);
  narrow(ROW_OF(j->layer->slot, r, o * k), (vec *)room->w[2], o, k, wide / LANES);
  narrow(ROW_OF(j->layer->square, r, o * k), (vec *)room->q, o, k, wide / LANES);
  narrow(ROW_OF(j->layer->bias, r, o), room->bias, 1, o, v);
  narrow(ROW_OF(j->layer->bias_slot, r, o), room->bias_u, 1, o, v);
  narrow(ROW_OF(j->layer->bias_square, r, o), room->bias_q, 1, o, v);
}

static int row(const Job *j, int64_t r, Room *room) {
  const int64_t n = j->of.count[r], o = j->layer->outputs, v = vectors(o), wide = vectors(j->of.all.width) * LANES;
  const int kept = resident(j, r, wide), spanned = j->of.spanned[r] != 0;
  NoGradient f = AT_FIRST;
  Losses losses = {};
  if (begin_row(&j->of, &room->batch, r)) return 1;
  load(j, room, r, kept, v, wide);
  if (spanned) begin_span(j, room, n, v, wide);
  if (!spanned && j->rounds) round_to((vec *)room->seen, (const vec *)room->w[0], o * wide / LANES);
  for (int64_t s = 0; s < j->of.steps[r]; s++) {
    take_batch(&j->of, &room->batch, r, s);
    const int64_t size = room->batch.size;
    if (spanned) {
      forward_in_span(j, room, &f, n, v, size);
    } else {
      look_at_batch(j, room, r, kept, wide);
      inner_all((float *)room->z, v * LANES, room->rows, size, room->seen, wide, wide, o);
    }
    for (int64_t e = 0; e < size; e++)
      for (int64_t w = 0; w < v; w++)
        room->z[e * v + w] = choose((ivec)(room->filled[w] < 0.0f), room->filled[w], room->z[e * v + w] + room->bias[w]);
    add_loss(&j->of, &losses, r, s, size, descend_batch(&j->of, &room->batch, room->z, v, o));
    if (spanned) { /* z as it is: it is no factor yet */
      backward_in_span(j, room, n, v, size);
      no_gradient(&f, j->layer->slot != NULL, j->lr, j->momentum, j->layer->decay, j->pull);
    }
    if (j->rounds) round_to(room->z, room->z, size * v);
    if (j->law.on)
      move_all(j, room, r, s, v, wide, size);
    else if (!spanned)
      backward(j, room, v, wide, size);
    if (!spanned && j->rounds) round_to((vec *)room->seen, (const vec *)room->w[0], o * wide / LANES);
    if (j->layer->bias && !j->law.on) move_bias(j, room, v, size);
  }
  tell_losses(&j->of, &losses, r);
  if (spanned) end_span(j, room, &f, n, v, wide);
  store(j, room, r, v, wide);
  return 1;
}

#include "train.h"

/* ---- tests ---- */

typedef struct {
  Examples all;
  int64_t rows, longest, classes, params;
  const float *models;                    /* [K, params] */
  int64_t weight, bias;                   /* where they lie in a model, [o, k] and [o]; bias < 0 for none */
  const int64_t *model;                   /* [R] of the row */
  const int64_t *index, *count;           /* [R, longest] examples, [R] how many of them are real */
  double *loss;                           /* [R] sum over the examples */
  int64_t *correct;                       /* [R] */
  float *outputs;                         /* [T, o] of all examples, row after row, and nothing else; or NULL */
  const int64_t *before;                  /* [R] examples of the rows before */
} Test;

/* x [SIDE, wide] and z [SIDE, most] are room. */
static void test_row(const Test *t, int64_t r, float *x, int64_t wide, float *z, int64_t most) {
  const float *weight = t->models + t->model[r] * t->params + t->weight;
  const float *bias = t->bias < 0 ? NULL : t->models + t->model[r] * t->params + t->bias;
  const int64_t *index = t->index + r * t->longest, k = t->all.width;
  const float *rows[SIDE];
  double loss = 0, product = 1; /* the log of a product is cheaper than many logs */
  int64_t correct = 0, size;
  for (int64_t e = 0; e < t->count[r]; e += size) {
    size = part(t->count[r] - e, SIDE);
    for (int64_t i = e + size; i < e + size + SIDE && i < t->count[r]; i++) fetch(&t->all, index[i]);
    for (int64_t i = 0; i < size; i++) convert(&t->all, index[e + i], x + i * wide, wide), rows[i] = x + i * wide;
    inner_all(z, most, rows, size, weight, k, k, t->classes);
    for (int64_t i = 0; i < size; i++) {
      float *own = z + i * most;
      if (bias)
        for (int64_t c = 0; c < t->classes; c++) own[c] += bias[c];
      if (t->outputs) {
        memcpy(t->outputs + (t->before[r] + e + i) * t->classes, own, (size_t)t->classes * sizeof(float));
        continue;
      }
      const int64_t right = t->all.answer[index[e + i]];
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
  if (t->outputs) return;
  t->loss[r] = loss + log(product);
  t->correct[r] = correct;
}

/* Tests the rows [0, R) in `threads` threads; returns 0, or 1 where there was no memory. */
int test(const Test *t, int threads) {
  const int64_t most = vectors(t->classes) * LANES, wide = vectors(t->all.width) * LANES;
  const size_t bytes = (size_t)(SIDE * (wide + most)) * sizeof(float);
  int failed = 0;
  (void)threads; /* unused where the compiler does not know OpenMP */
#pragma omp parallel num_threads(threads) reduction(| : failed)
  {
    float *x = aligned_alloc(sizeof(vec), bytes), *z = x + SIDE * wide;
    failed |= !x;
    for (int64_t i = 0; x && i < SIDE * most; i++) z[i] = NOTHING;
#pragma omp for schedule(dynamic, 16)
    for (int64_t r = 0; r < t->rows; r++)
      if (x) {
        for (int64_t i = 0; r + 1 < t->rows && i < t->count[r + 1] && i < SIDE; i++)
          fetch(&t->all, t->index[(r + 1) * t->longest + i]);
        test_row(t, r, x, wide, z, most);
      }
    free(x);
  }
  return failed;
}
