/* All local steps of perceptrons, a row (client) at a time.

   A row has n examples with k numbers each. With h the outputs of the layer before, negative ones set to 0 where a ReLU
   stands between, d [B, o] the gradient of the batch's loss by the outputs z of a layer, and u only with momentum, a
   layer has

       z = W h + bias;   u = momentum * u + d^T h + decay * W - pull * anchor;   W = W - lr * u

   spanned: layer 0 is trained in the span of the row's examples x [n, k]: its weights are f_0 W_0 + f_1 anchor +
            f_2 u_0 - lr c^T x, see span.py, with coefficients c [n, o] that begin at 0. With the products of the
            examples x x^T, and those with W_0, anchor and u_0, taken once, a step is

       z_e = f_0 W_0 x_e + f_1 anchor x_e + f_2 u_0 x_e + bias - lr * (x x^T)_e c
       u = momentum * u + d at the batch's rows of c - lr * decay * c;   c = c + u

   else:    layer 0 has the examples for h, and c = W^T.

   Examples are read as they are stored, and nothing of a row leaves the cache between its first step and its last.
   Outputs lie in vectors, filled up with zeros, those of the last layer with logits so low that they count for
   nothing. All products are one tile of code: a few rows of factors, number by number, times vectors that lie one
   after the other.

   law: where a solver keeps or divides by more than u, all gradients are gathered first, none in the span, and then
        `moments.h` says what becomes of them.

   rounds: the factors of every product are rounded to bfloat16, as on a GPU; the products are float32 ones. */

#include "dense.h"

/* Rows and vectors of a tile: its sums must fit the registers. */
#ifdef __AVX512F__
#define TALL 7
#define WIDE 4
#else
#define TALL 6
#define WIDE 2
#endif

/* Outputs whose weights are finished at once, and vectors of examples that are turned over at once. */
#define FINISHED (4 * TALL)
#define TURNED 4

/* A layer of one row; v = ceil(o / LANES), w = ceil(i / LANES). */
typedef struct {
  vec *c, *u, *anchor;              /* [o, w], of layer 0 [k, v], in the span [n, v] and no anchor */
  vec *q, *g;                       /* like c: the mean of squares, and the gradient */
  vec *turned;                      /* [i, v] the weights' transpose, as a factor; of layer 0 nothing */
  vec *seen;                        /* c as a factor; c itself where factors are not rounded */
  vec *z, *d;                       /* [B, v] outputs and their gradient, the last layer's in one place */
  vec *bias, *bias_u, *bias_q, *bias_anchor; /* [v] */
  vec *bias_change;                 /* [v] gradient of the bias */
} Part;

/* Most of a thread's rows. */
typedef struct {
  int64_t spanned, batch, looked_at; /* examples of a row in the span, of a batch, of a batch of a row that is not */
} Most;

typedef struct {
  Part *part;      /* [layers] */
  vec *filled;     /* [v] of the last layer: 0 for a class, a very low logit in place of a missing one */
  const float **x; /* rows of factors */
  vec *examples;   /* [n, ceil(k / LANES)] of a row in the span, or [B, ceil(k / LANES)] a batch */
  vec *gram;       /* [n, ceil(n / LANES)] their products with each other, */
  vec *out[3];     /* and [n, v] with the weights of layer 0 as they were, the anchor and the momentum */
  vec *across;     /* [k, TURNED] examples turned over, */
  vec *out_across; /* [o, TURNED] what the layer gives of them, */
  vec *start;      /* [o, ceil(k / LANES)] and its weights where factors are rounded */
  vec *finished;   /* [FINISHED, ceil(k / LANES)] some of the weights at the end */
  Batch batch;
} Room;

/* to_p[n] = kept * to_p[n] + factor * sum over i of x_p[i * every] c[i, n] for P rows and N vectors. */
ALWAYS void tile(const int P, const int N, vec *to, int64_t pitch, const float *const *x, int64_t every, int64_t k,
                 const vec *c, int64_t v, float kept, float factor) {
  vec sums[TALL][WIDE];
  for (int p = 0; p < P; p++)
    for (int n = 0; n < N; n++) sums[p][n] = (vec){};
  for (int64_t i = 0; i < k; i++, c += v) {
    vec own[WIDE];
    for (int n = 0; n < N; n++) own[n] = c[n];
    for (int p = 0; p < P; p++)
      for (int n = 0; n < N; n++) sums[p][n] += x[p][i * every] * own[n];
  }
  for (int p = 0; p < P; p++)
    for (int n = 0; n < N; n++) {
      const vec sum = factor * sums[p][n];
      vec *here = to + p * pitch + n;
      if (kept == 0)
        *here = sum;
      else
        *here = kept * *here + sum;
    }
}

#define OF_HEIGHT(P, N) \
  case P: tile(P, N, to + p * pitch + n, pitch, x + p, every, k, c + n, v, kept, factor); break;
#define UP_TO_SIX(N) OF_HEIGHT(1, N) OF_HEIGHT(2, N) OF_HEIGHT(3, N) OF_HEIGHT(4, N) OF_HEIGHT(5, N) OF_HEIGHT(6, N)
#if TALL == 7
#define HEIGHTS(N) UP_TO_SIX(N) OF_HEIGHT(7, N)
#else
#define HEIGHTS(N) UP_TO_SIX(N)
#endif
#define ROWS(N) \
  switch (high) { HEIGHTS(N) }

/* to [rows, v] = kept * to + factor * x c, with x_p[i] = x[p][i * every] for i < k, and c [k, v]; `pitch` vectors from
   row to row of `to`. */
static void product_into(vec *to, int64_t pitch, const float *const *x, int64_t every, int64_t rows, int64_t k, const vec *c, int64_t v,
                    float kept, float factor) {
  const int64_t tiles = (rows + TALL - 1) / TALL; /* of like height */
  for (int64_t n = 0; n < v; n += WIDE) {
    int64_t p = 0;
    for (int64_t t = 0; t < tiles; t++) {
      const int64_t high = (rows - p + tiles - t - 1) / (tiles - t);
#if WIDE == 4
      switch (v - n) {
        case 1: ROWS(1) break;
        case 2: ROWS(2) break;
        case 3: ROWS(3) break;
        default: ROWS(4)
      }
#else
      if (v - n == 1)
        ROWS(1)
      else
        ROWS(2)
#endif
      p += high;
    }
  }
}

static void product(vec *to, const float *const *x, int64_t every, int64_t rows, int64_t k, const vec *c, int64_t v,
                    float kept, float factor) {
  product_into(to, v, x, every, rows, k, c, v, kept, factor);
}

/* The rows of [count, v] as factors. */
static const float *const *rows_of(const Room *room, const vec *from, int64_t count, int64_t v) {
  for (int64_t i = 0; i < count; i++) room->x[i] = (const float *)(from + i * v);
  return room->x;
}

/* The columns of [.., v] as factors. */
static const float *const *columns_of(const Room *room, const vec *from, int64_t count) {
  for (int64_t i = 0; i < count; i++) room->x[i] = (const float *)from + i;
  return room->x;
}

/* The weights [o, w] of a later layer as factors, and turned [i, v]. */
static void turn(const Job *j, const Layer *l, const Part *part) {
  const int64_t v = vectors(l->outputs), w = vectors(l->inputs);
  if (j->rounds) round_to(part->seen, part->c, l->outputs * w);
  turn_over((float *)part->turned, v * LANES, (const float *)part->seen, w * LANES, l->outputs, l->inputs);
}

/* As PyTorch's, which lets pass what is no number: a model that diverges is to be noticed. */
static void relu(vec *z, int64_t count) {
  for (int64_t i = 0; i < count; i++) z[i] = choose(z[i] <= 0.0f, (vec){}, z[i]);
}

/* What the outputs of layer 0 would be in the span if no gradient had moved its weights. */
typedef struct {
  float factor[3];
  const vec *out[3], *bias; /* NULL for what is not there */
  int64_t v;
} Start;

static Start start_of(const Job *j, const Room *room, const NoGradient *f) {
  const float *const anchor = j->own_anchor ? j->layer->anchor : NULL;
  return (Start){{(float)(f->value[0] + (anchor ? 0 : f->value[1])), (float)f->value[1], (float)f->value[2]},
                 {room->out[0], anchor ? room->out[1] : NULL, j->layer->slot ? room->out[2] : NULL},
                 room->part->bias, vectors(j->layer->outputs)};
}

ALWAYS vec at_start(const Start *start, int64_t example, int64_t m) {
  vec z = start->bias[m];
  for (int i = 0; i < 3; i++)
    if (start->out[i]) z += start->factor[i] * start->out[i][example * start->v + m];
  return z;
}

/* The outputs of layer 0 in the span. */
static void in_span(const Job *j, const Room *room, const Start *start, int64_t n) {
  const int64_t v = start->v, w = vectors(n), size = room->batch.size, *own = room->batch.own;
  for (int64_t e = 0; e < size; e++) {
    room->x[e] = (const float *)(room->gram + own[e] * w);
    for (int64_t m = 0; m < v; m++) room->part->z[e * v + m] = at_start(start, own[e], m);
  }
  product(room->part->z, room->x, 1, size, n, room->part->seen, v, 1, -j->lr);
}

/* An example, as a factor. */
static void look_at(const Job *j, int64_t example, vec *to) {
  const int64_t w = vectors(j->of.all.width);
  convert(&j->of.all, example, (float *)to, w * LANES);
  if (j->rounds) round_to(to, to, w);
}

/* The outputs of layer 0 where it is not in the span. */
static void outside_span(const Job *j, const Room *room, int64_t r) {
  const Part *part = room->part;
  const int64_t k = j->of.all.width, v = vectors(j->layer->outputs), w = vectors(k), size = room->batch.size;
  const int64_t *index = j->of.index + r * j->of.longest;
  for (int64_t e = 0; e < size; e++) {
    if (e + 2 < size) fetch(&j->of.all, index[room->batch.own[e + 2]]);
    look_at(j, index[room->batch.own[e]], room->examples + e * w);
    memcpy(part->z + e * v, part->bias, (size_t)v * sizeof(vec));
  }
  product(part->z, rows_of(room, room->examples, size, w), 1, size, k, part->seen, v, 1, 1);
}

/* The outputs of all layers of a batch. */
static void forward(const Job *j, const Room *room, const NoGradient *f, int64_t r) {
  const int64_t size = room->batch.size;
  for (int64_t l = 0; l < j->layers; l++) {
    const Layer *layer = j->layer + l;
    const Part *part = room->part + l;
    const int64_t v = vectors(layer->outputs);
    if (l) {
      const int64_t w = vectors(layer->inputs);
      for (int64_t e = 0; e < size; e++) memcpy(part->z + e * v, part->bias, (size_t)v * sizeof(vec));
      product(part->z, rows_of(room, room->part[l - 1].z, size, w), 1, size, layer->inputs, part->turned, v, 1, 1);
    } else if (j->of.spanned[r]) {
      const Start start = start_of(j, room, f);
      in_span(j, room, &start, j->of.count[r]);
    } else {
      outside_span(j, room, r);
    }
    if (layer->relu) relu(part->z, size * v);
    if (j->rounds && l + 1 < j->layers) round_to(part->z, part->z, size * v);
  }
}

/* The coefficients of layer 0 before and after a gradient is added to them, or to their momentum. */
static void before_spread(const Job *j, const Room *room, int64_t n) {
  const Layer *layer = j->layer;
  const Part *part = room->part;
  const int64_t all = n * vectors(layer->outputs);
  const float kept = j->lr * layer->decay;
  if (layer->slot)
    for (int64_t i = 0; i < all; i++) part->u[i] = j->momentum * part->u[i] - kept * part->c[i];
  else if (kept != 0)
    for (int64_t i = 0; i < all; i++) part->c[i] -= kept * part->c[i];
}

static void after_spread(const Job *j, const Room *room, int64_t n) {
  const Layer *layer = j->layer;
  const Part *part = room->part;
  const int64_t v = vectors(layer->outputs), all = n * v;
  if (layer->slot)
    for (int64_t i = 0; i < all; i++) part->c[i] += part->u[i];
  if (j->rounds) round_to(part->seen, part->c, all);
}

/* One pass over the gradient d of a layer's outputs: what the ReLU behind it lets pass; in the span, the coefficients
   of `to`; the bias's gradient; and d as a factor, which layer 0 in the span does not need. */
static void settle(const Job *j, const Room *room, const Layer *layer, const Part *part, vec *to) {
  const int64_t v = vectors(layer->outputs), size = room->batch.size;
  for (int64_t m = 0; m < v; m++) part->bias_change[m] = layer->bias_decay * part->bias[m];
  for (int64_t e = 0; e < size; e++) {
    vec *spread = to ? to + room->batch.own[e] * v : NULL;
    for (int64_t m = 0; m < v; m++) {
      vec d = part->d[e * v + m];
      if (layer->relu) d = choose(part->z[e * v + m] <= 0.0f, (vec){}, d);
      if (spread) spread[m] += d; /* as it is: it is no factor yet */
      if (j->rounds) round_to(&d, &d, 1);
      part->bias_change[m] += d;
      if (!spread) part->d[e * v + m] = d;
    }
  }
}

/* The step of a bias. */
static void move_bias(const Job *j, const Layer *layer, const Part *part) {
  for (int64_t m = 0; m < vectors(layer->outputs); m++) {
    vec g = part->bias_change[m];
    if (layer->bias_anchor) g -= j->pull * part->bias_anchor[m];
    if (layer->bias_slot) g = part->bias_u[m] = j->momentum * part->bias_u[m] + g;
    part->bias[m] -= j->lr * g;
  }
}

/* The step of all layers, whose gradients are there. */
static void move_all(const Job *j, const Room *room, int64_t r, int64_t s) {
  const Step step = step_of(&j->law, r, s);
  double squares = 0;
  for (int64_t l = 0; l < j->layers; l++) {
    const Layer *layer = j->layer + l;
    const Part *part = room->part + l;
    const int64_t v = vectors(layer->outputs), all = l ? layer->outputs * vectors(layer->inputs) : layer->inputs * v;
    if (layer->decay != 0)
      for (int64_t i = 0; i < all; i++) part->g[i] += layer->decay * part->c[i];
    if (layer->anchor)
      for (int64_t i = 0; i < all; i++) part->g[i] -= j->pull * part->anchor[i];
    for (int64_t m = 0; layer->bias_anchor && m < v; m++) part->bias_change[m] -= j->pull * part->bias_anchor[m];
    if (j->law.clip == 0) continue;
    squares += square_sum((const float *)part->g, all * LANES);
    if (layer->bias) squares += square_sum((const float *)part->bias_change, v * LANES);
  }
  const float factor = shortened(&j->law, squares);
  for (int64_t l = 0; l < j->layers; l++) {
    const Layer *layer = j->layer + l;
    const Part *part = room->part + l;
    const int64_t v = vectors(layer->outputs), all = l ? layer->outputs * vectors(layer->inputs) : layer->inputs * v;
    move_by(&step, (float *)part->c, layer->slot ? (float *)part->u : NULL, layer->square ? (float *)part->q : NULL,
            (const float *)part->g, factor, all * LANES);
    if (layer->bias)
      move_by(&step, (float *)part->bias, layer->bias_slot ? (float *)part->bias_u : NULL,
              layer->bias_square ? (float *)part->bias_q : NULL, (const float *)part->bias_change, factor, v * LANES);
    if (l)
      turn(j, layer, part);
    else if (j->rounds)
      round_to(part->seen, part->c, all);
  }
}

/* A step of c [rows, v], whose gradient is the product of x, see `product`, and `other` [size, v]. */
static void move(const Job *j, const Layer *layer, const Part *part, const float *const *x, int64_t every, int64_t rows,
                 int64_t size, const vec *other, int64_t v) {
  const int64_t all = rows * v;
  if (layer->slot) {
    product(part->u, x, every, rows, size, other, v, j->momentum, 1);
    if (layer->decay != 0)
      for (int64_t i = 0; i < all; i++) part->u[i] += layer->decay * part->c[i];
    if (layer->anchor)
      for (int64_t i = 0; i < all; i++) part->u[i] -= j->pull * part->anchor[i];
    for (int64_t i = 0; i < all; i++) part->c[i] -= j->lr * part->u[i];
  } else {
    product(part->c, x, every, rows, size, other, v, 1 - j->lr * layer->decay, -j->lr);
    if (layer->anchor)
      for (int64_t i = 0; i < all; i++) part->c[i] += j->lr * j->pull * part->anchor[i];
  }
}

static void backward(const Job *j, const Room *room, int64_t r, int64_t s) {
  const int64_t size = room->batch.size, n = j->of.count[r], k = j->of.all.width;
  for (int64_t l = j->layers - 1; l >= 0; l--) {
    const Layer *layer = j->layer + l;
    const Part *part = room->part + l, *before = part - 1;
    const int64_t v = vectors(layer->outputs), w = vectors(layer->inputs);
    const int spanned = !l && j->of.spanned[r];
    if (spanned) before_spread(j, room, n);
    settle(j, room, layer, part, !spanned ? NULL : layer->slot ? part->u : part->c);
    if (l) {
      product(before->d, rows_of(room, part->d, size, v), 1, size, layer->outputs, part->seen, w, 0, 1);
      const float *const *x = columns_of(room, part->d, layer->outputs);
      if (j->law.on) {
        product(part->g, x, v * LANES, layer->outputs, size, before->z, w, 0, 1);
      } else {
        move(j, layer, part, x, v * LANES, layer->outputs, size, before->z, w);
        turn(j, layer, part);
      }
    } else if (spanned) {
      after_spread(j, room, n);
    } else if (j->law.on) {
      product(part->g, columns_of(room, room->examples, k), vectors(k) * LANES, k, size, part->d, v, 0, 1);
    } else {
      move(j, layer, part, columns_of(room, room->examples, k), vectors(k) * LANES, k, size, part->d, v);
      if (j->rounds) round_to(part->seen, part->c, k * v);
    }
    if (layer->bias && !j->law.on) move_bias(j, layer, part);
  }
  if (j->law.on) move_all(j, room, r, s);
}

static Most most_of(const Job *j) {
  Most most = {};
  for (int64_t r = 0; r < j->of.rows; r++) {
    const int64_t n = j->of.count[r], batch = n < j->of.batch ? n : j->of.batch;
    int64_t *examples = j->of.spanned[r] ? &most.spanned : &most.looked_at;
    const int64_t own = j->of.spanned[r] ? n : batch;
    if (own > *examples) *examples = own;
    if (batch > most.batch) most.batch = batch;
  }
  return most;
}

/* Vectors that a thread needs, given to `room` where there is `memory`. */
static int64_t lay_out(const Job *j, Room *room, vec *memory, Most most) {
  const int64_t k = j->of.all.width, w = vectors(k), n = most.spanned, o = j->layer->outputs, v = vectors(o);
  const int64_t begun = vectors(j->layers * (int64_t)(sizeof(Part) / sizeof(float))), origin = n * v;
  int64_t total = begun, tallest = n > most.batch ? n : most.batch;
  if (memory) room->part = (Part *)take(&memory, begun);
  if (k > tallest && most.looked_at) tallest = k;
  for (int64_t l = 0; l < j->layers; l++) {
    const Layer *layer = j->layer + l;
    const int64_t wide = vectors(layer->outputs), last = l == j->layers - 1, outside = most.looked_at ? k * v : 0;
    const int64_t own = l ? layer->outputs * vectors(layer->inputs) : outside > origin ? outside : origin;
    const int64_t counts[] = {own, layer->slot ? own : 0, !layer->anchor ? 0 : l ? own : outside,
                              layer->square ? own : 0, j->law.on ? own : 0,
                              l ? layer->inputs * wide : 0, j->rounds ? own : 0, most.batch * wide,
                              last ? 0 : most.batch * wide, wide, wide, wide, wide, wide};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) total += counts[i];
    if (layer->outputs > tallest) tallest = layer->outputs;
    if (!memory) continue;
    Part *part = room->part + l;
    vec **to[] = {&part->c, &part->u, &part->anchor, &part->q, &part->g, &part->turned, &part->seen, &part->z,
                  &part->d, &part->bias, &part->bias_u, &part->bias_q, &part->bias_anchor, &part->bias_change};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) *to[i] = take(&memory, counts[i]);
    if (last) part->d = part->z;
    if (!j->rounds) part->seen = part->c;
  }
  const Layer *last = j->layer + j->layers - 1;
  const int64_t counts[] = {vectors(last->outputs), vectors(2 * tallest), (n > most.looked_at ? n : most.looked_at) * w,
                            n * vectors(n), origin, j->layer->anchor && j->own_anchor ? origin : 0,
                            j->layer->slot ? origin : 0, n ? k * TURNED : 0, n ? o * TURNED : 0,
                            n && j->rounds ? o * w : 0, n ? FINISHED * w : 0, vectors(2 * most.batch),
                            vectors(2 * most.batch), vectors(most.batch)};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) total += counts[i];
  if (!memory) return total;
  void **to[] = {(void **)&room->filled, (void **)&room->x, (void **)&room->examples, (void **)&room->gram,
                 (void **)&room->out[0], (void **)&room->out[1], (void **)&room->out[2], (void **)&room->across,
                 (void **)&room->out_across, (void **)&room->start, (void **)&room->finished, (void **)&room->batch.own,
                 (void **)&room->batch.label, (void **)&room->batch.weight};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) *to[i] = take(&memory, counts[i]);
  for (int64_t i = last->outputs; i < vectors(last->outputs) * LANES; i++) ((float *)room->filled)[i] = NOTHING;
  return total;
}

/* to [i, v] = from [o, i], turned, zeros behind, and back; nothing without the tensor. */
static void turn_in(vec *to, const float *from, int64_t o, int64_t i, int64_t v) {
  if (!from) return;
  turn_over((float *)to, v * LANES, from, i, o, i);
  clear_rest(to, i, o, v);
}

static void turn_out(float *to, const vec *from, int64_t o, int64_t i, int64_t v) {
  if (to) turn_over(to, i, (const float *)from, v * LANES, i, o);
}

/* The products of a row's examples, with each other and with what the span begins with. 1, or 0 where there is no
   memory. */
static int begin_span(const Job *j, const Room *room, int64_t r, int64_t n) {
  const Layer *layer = j->layer;
  const int64_t k = j->of.all.width, w = vectors(k), o = layer->outputs, v = vectors(o), high = vectors(n);
  const int64_t *index = j->of.index + r * j->of.longest;
  const float *const given[] = {layer->weight + r * o * k, j->own_anchor ? ROW_OF(layer->anchor, r, o * k) : NULL,
                                ROW_OF(layer->slot, r, o * k)};
  for (int64_t e = 0; e < n; e++) {
    if (e + 2 < n) fetch(&j->of.all, index[e + 2]);
    look_at(j, index[e], room->examples + e * w);
  }
  memset(room->part->c, 0, (size_t)(n * v) * sizeof(vec));
  if (j->rounds) memset(room->part->seen, 0, (size_t)(n * v) * sizeof(vec));
  if (layer->slot) memset(room->part->u, 0, (size_t)(n * v) * sizeof(vec));
  float *const gram = (float *)room->gram, *const across = (float *)room->across;
  for (int64_t q = 0; q < n; q += TURNED * LANES) { /* one half; the other half is the same */
    const int64_t left = n - q, some = left < TURNED * LANES ? left : TURNED * LANES, u = vectors(some), pitch = u * LANES;
    if (some % LANES) memset(across, 0, (size_t)(k * u) * sizeof(vec));
    turn_over(across, pitch, (const float *)(room->examples + q * w), w * LANES, some, k);
    product_into(room->gram + q * high + q / LANES, high, rows_of(room, room->examples + q * w, left, w), 1, left, k,
                 room->across, u, 0, 1);
    if (left > some)
      turn_over(gram + q * high * LANES + q + some, high * LANES, gram + (q + some) * high * LANES + q, high * LANES,
                left - some, some);
    for (int i = 0; i < 3; i++) {
      if (!given[i]) continue;
      for (int64_t m = 0; m < o; m++) {
        room->x[m] = j->rounds ? (const float *)(room->start + m * w) : given[i] + m * k;
        if (j->rounds) memcpy(room->start + m * w, given[i] + m * k, (size_t)k * sizeof(float));
        if (j->rounds) round_to(room->start + m * w, room->start + m * w, w);
      }
      product(room->out_across, room->x, 1, o, k, room->across, u, 0, 1);
      turn_over((float *)(room->out[i] + q * v), v * LANES, (const float *)room->out_across, pitch, o, some);
    }
  }
  if (j->rounds) round_to(room->gram, room->gram, n * high);
  return 1;
}

/* Weights and momentum of layer 0 as they would be if no gradient had moved them. */
static void unmoved(const Job *j, int64_t r, const NoGradient *f) {
  const Layer *layer = j->layer;
  const int64_t all = layer->outputs * layer->inputs;
  float *weight = layer->weight + r * all, *slot = ROW_OF(layer->slot, r, all);
  const float *anchor = j->own_anchor ? ROW_OF(layer->anchor, r, all) : NULL;
  const float own = (float)(f->value[0] + (anchor ? 0 : f->value[1])), pull = (float)f->value[1], push = (float)f->value[2];
  const float kept = (float)(f->slot[0] + (anchor ? 0 : f->slot[1])), drawn = (float)f->slot[1], still = (float)f->slot[2];
  if (!anchor && !slot && own == 1) return;
  for (int64_t i = 0; i < all; i++) {
    const float w = weight[i], a = anchor ? anchor[i] : 0, u = slot ? slot[i] : 0;
    weight[i] = own * w + pull * a + push * u;
    if (slot) slot[i] = kept * w + drawn * a + still * u;
  }
}

/* to [o, k] += factor * c^T x, with the coefficients c [n, v] of the examples. 1, or 0 where there is no memory. */
static int spread_out(const Job *j, const Room *room, float *to, vec *c, int64_t n, float factor) {
  const int64_t o = j->layer->outputs, k = j->layer->inputs, v = vectors(o), w = vectors(k);
  for (int64_t m = 0; m < o; m += FINISHED) {
    const int64_t count = o - m < FINISHED ? o - m : FINISHED;
    for (int64_t i = 0; i < count; i++) room->x[i] = (const float *)c + m + i;
    widen(room->finished, to + m * k, count, k, w);
    product(room->finished, room->x, v * LANES, count, n, room->examples, w, 1, factor);
    narrow(to + m * k, room->finished, count, k, w);
  }
  return 1;
}

/* Weights and momentum of layer 0 from the coefficients. 1, or 0 where there is no memory. */
static int end_span(const Job *j, const Room *room, const NoGradient *f, int64_t r, int64_t n) {
  const Layer *layer = j->layer;
  const Part *part = room->part;
  const int64_t all = layer->outputs * layer->inputs;
  unmoved(j, r, f);
  if (!spread_out(j, room, layer->weight + r * all, part->seen, n, -j->lr)) return 0;
  if (!layer->slot) return 1;
  if (j->rounds) round_to(part->u, part->u, n * vectors(layer->outputs));
  return spread_out(j, room, layer->slot + r * all, part->u, n, 1);
}

/* Between the tensors of a row and its room, but for a layer in the span: in before the first step, out after the
   last. */
static void load(const Job *j, const Room *room, int64_t r) {
  for (int64_t l = 0; l < j->layers; l++) {
    const Layer *layer = j->layer + l;
    const Part *part = room->part + l;
    const int64_t o = layer->outputs, i = layer->inputs, v = vectors(o), w = vectors(i), at = r * o * i;
    if (l) {
      widen(part->c, layer->weight + at, o, i, w);
      widen(part->u, ROW_OF(layer->slot, r, o * i), o, i, w);
      widen(part->q, ROW_OF(layer->square, r, o * i), o, i, w);
      widen(part->anchor, ROW_OF(layer->anchor, r, o * i), o, i, w);
      turn(j, layer, part);
    } else if (!j->of.spanned[r]) {
      turn_in(part->c, layer->weight + at, o, i, v);
      turn_in(part->u, ROW_OF(layer->slot, r, o * i), o, i, v);
      turn_in(part->q, ROW_OF(layer->square, r, o * i), o, i, v);
      turn_in(part->anchor, ROW_OF(layer->anchor, r, o * i), o, i, v);
      if (j->rounds) round_to(part->seen, part->c, i * v);
    }
    widen(part->bias, ROW_OF(layer->bias, r, o), 1, o, v);
    widen(part->bias_u, ROW_OF(layer->bias_slot, r, o), 1, o, v);
    widen(part->bias_q, ROW_OF(layer->bias_square, r, o), 1, o, v);
    widen(part->bias_anchor, ROW_OF(layer->bias_anchor, r, o), 1, o, v);
  }
}

static void store(const Job *j, const Room *room, int64_t r) {
  for (int64_t l = 0; l < j->layers; l++) {
    const Layer *layer = j->layer + l;
    const Part *part = room->part + l;
    const int64_t o = layer->outputs, i = layer->inputs, v = vectors(o), at = r * o * i;
    if (l) {
      narrow(layer->weight + at, part->c, o, i, vectors(i));
      narrow(ROW_OF(layer->slot, r, o * i), part->u, o, i, vectors(i));
      narrow(ROW_OF(layer->square, r, o * i), part->q, o, i, vectors(i));
    } else if (!j->of.spanned[r]) {
      turn_out(layer->weight + at, part->c, o, i, v);
      turn_out(ROW_OF(layer->slot, r, o * i), part->u, o, i, v);
      turn_out(ROW_OF(layer->square, r, o * i), part->q, o, i, v);
    }
    narrow(ROW_OF(layer->bias, r, o), part->bias, 1, o, v);
    narrow(ROW_OF(layer->bias_slot, r, o), part->bias_u, 1, o, v);
    narrow(ROW_OF(layer->bias_square, r, o), part->bias_q, 1, o, v);
  }
}

/* 1, or 0 where there is no memory. */
static int row(const Job *j, int64_t r, Room *room) {
  const Layer *layer = j->layer, *last = j->layer + j->layers - 1;
  const int64_t v = vectors(last->outputs), n = j->of.count[r];
  const int spanned = j->of.spanned[r] != 0;
  vec *logits = room->part[j->layers - 1].z;
  NoGradient f = AT_FIRST;
  Losses losses = {};
  if (begin_row(&j->of, &room->batch, r)) return 1;
  load(j, room, r);
  if (spanned && !begin_span(j, room, r, n)) return 0;
  for (int64_t s = 0; s < j->of.steps[r]; s++) {
    take_batch(&j->of, &room->batch, r, s);
    const int64_t size = room->batch.size;
    forward(j, room, &f, r);
    for (int64_t i = 0; i < size * v; i++) logits[i] += room->filled[i % v];
    add_loss(&j->of, &losses, r, s, size, descend_batch(&j->of, &room->batch, logits, v, last->outputs));
    backward(j, room, r, s);
    if (spanned) no_gradient(&f, layer->slot != NULL, j->lr, j->momentum, layer->decay, layer->anchor ? j->pull : 0);
  }
  tell_losses(&j->of, &losses, r);
  store(j, room, r);
  return !spanned || end_span(j, room, &f, r, n);
}

#include "train.h"
