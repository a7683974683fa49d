/* All local steps of perceptrons, a row (client) at a time.

   A row has n examples with k numbers each, x [n, k]. With h the outputs of the layer before, negative ones set to 0
   where a ReLU stands between, d [B, o] the gradient of the batch's loss by the outputs z of a layer, and u only with
   momentum, a layer has

       z = W h + bias;   u = momentum * u + d^T h + decay * W - pull * anchor;   W = W - lr * u

   spanned: layer 0 is trained in the span of the row's examples. x [n, n] are their products, c [n, o] the coefficients
            of the weights in their span, and out what the start, the anchor and the momentum give, see span.py:

       z_e = f_0 out_0[e] + f_1 out_1[e] + f_2 out_2[e] + bias - lr * x_e c
       u = momentum * u + d at the batch's rows of c - lr * decay * c;   c = c + u

   else:    layer 0 has the examples for h, and c = W^T.

   Nothing of a row leaves the cache between its first step and its last. Outputs lie in vectors of 16, filled up with
   zeros, those of the last layer with logits so low that they count for nothing. All products are one tile of code:
   a few rows of factors, number by number, times vectors that lie one after the other.

   rounds: the factors of every product are rounded to bfloat16. The product x c, most of the arithmetic, is then left
   to a processor's units for matrices, where it has them; the rest are float32 products of rounded numbers. */

#include "lanes.h"
#include "transpose.h"
#include "units.h"

/* Rows and vectors of a tile: its sums must fit the registers. */
#ifdef __AVX512F__
#define TALL 7
#define WIDE 4
#else
#define TALL 4
#define WIDE 1
#endif

typedef struct {
  int64_t inputs, outputs, relu; /* relu: whether one follows */
  float *weight, *slot;          /* [R, o, i], in the span c and its momentum [R, n, o]; slot may be NULL */
  const float *anchor;           /* [R, o, i] or NULL, in the span NULL */
  float *bias, *bias_slot;       /* [R, o] or NULL */
  const float *bias_anchor;      /* [R, o] or NULL */
  float decay, bias_decay;
} Layer;

typedef struct {
  int64_t rows, examples, width, layers, steps, batch, early, origins, spanned, rounds;
  int64_t units;                  /* whether this process may use them */
  const float *inputs;            /* [R, n, k] */
  const float *outputs[3];        /* [R, n, o] of every origin */
  const float *factors;           /* [S, origins] */
  const Layer *layer;             /* [layers] */
  const int64_t *example, *label; /* [S, R, B]; examples counted through all rows */
  const int64_t *size;            /* [R, S] examples of the batch, 0 after the row's last step */
  const float *share;             /* [S, R, B] of the examples in their batch's loss, NULL for 1 / size */
  const float *first;             /* [R, early] of the steps' losses in the mean over the first epoch */
  float *loss;                    /* [R, 2] mean over the steps, and over the first epoch */
  float lr, momentum, pull;
} Job;

/* A layer of one row; v = ceil(o / 16), w = ceil(i / 16). */
typedef struct {
  vec *c, *u, *anchor;              /* [o, w], of layer 0 [k, v] */
  vec *turned;                      /* [i, v] the weights' transpose, as a factor; of layer 0 nothing */
  vec *seen;                        /* c as a factor; c itself where factors are not rounded */
  vec *z, *d;                       /* [B, v] outputs and their gradient, the last layer's in one place */
  vec *bias, *bias_u, *bias_anchor; /* [v] */
} Part;

typedef struct {
  Part *part;      /* [layers] */
  vec *out;        /* [origins, n, v] of layer 0 */
  vec *filled;     /* [v] of the last layer: 0 for a class, a very low logit in place of a missing one */
  const float **x; /* rows of factors */
  vec *examples;   /* [B, ceil(k / 16)] the batch, where layer 0 is not in the span */
  int64_t *own;    /* [B] examples of a batch, counted from the row's first */
  vec *inputs;     /* [n, ceil(n / 16)] x rounded, where factors are, in the span */
  uint16_t *left;  /* for units: [n, deep, 32] x, and [B, deep, 32] that of a batch */
  uint16_t *batch;
  vec *right;      /* for units: [deep, 16, v] pairs of c */
} Room;

static int64_t vectors(int64_t numbers) { return (numbers + LANES - 1) / LANES; }

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
  case P: tile(P, N, to + p * v + n, v, x + p, every, k, c + n, v, kept, factor); break;
#if TALL == 7
#define HEIGHTS(N) \
  OF_HEIGHT(1, N) OF_HEIGHT(2, N) OF_HEIGHT(3, N) OF_HEIGHT(4, N) OF_HEIGHT(5, N) OF_HEIGHT(6, N) OF_HEIGHT(7, N)
#else
#define HEIGHTS(N) OF_HEIGHT(1, N) OF_HEIGHT(2, N) OF_HEIGHT(3, N) OF_HEIGHT(4, N)
#endif
#define ROWS(N) \
  switch (high) { HEIGHTS(N) }

/* to [rows, v] = kept * to + factor * x c, with x_p[i] = x[p][i * every] for i < k, and c [k, v]. */
static void product(vec *to, const float *const *x, int64_t every, int64_t rows, int64_t k, const vec *c, int64_t v,
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
      ROWS(1)
#endif
      p += high;
    }
  }
}

/* Whether units compute x c. */
static int by_units(const Job *j) {
#ifdef UNITS
  return j->rounds && j->units && j->spanned;
#else
  (void)j;
  return 0;
#endif
}

#ifdef UNITS
/* x as left tiles. */
static void lay_out_inputs(const Job *j, const Room *room, int64_t r) {
  const int64_t n = j->examples, width = tiles(n, DEEP) * DEEP;
  for (int64_t e = 0; e < n; e++)
    for (int64_t i = 0; i < n; i += DEEP) {
      const float *from = j->inputs + (r * n + e) * n + i;
      const int64_t left = n - i;
      const uint32_t inside = left >= DEEP ? 0xffffffffu : (1u << left) - 1;
      _mm512_store_si512(room->left + e * width + i, rounded(_mm512_maskz_loadu_ps((__mmask16)inside, from),
                                                            _mm512_maskz_loadu_ps((__mmask16)(inside >> 16), from + SIDE)));
    }
}

/* The rows 2 * pair and 2 * pair + 1 of c in the right tiles. */
static void refresh(const Job *j, const Room *room, int64_t pair, int64_t v) {
  const vec *c = room->part->c + 2 * pair * v;
  const int both = 2 * pair + 1 < j->examples;
  for (int64_t m = 0; m < v; m++)
    room->right[pair * v + m] = (vec)paired((__m512)c[m], both ? (__m512)c[v + m] : _mm512_setzero_ps());
}

/* z [size, v] += factor * x c. */
static void product_by_units(const Job *j, const Room *room, vec *z, const int64_t *own, int64_t size, int64_t v,
                             float factor) {
  const int64_t deep = tiles(j->examples, DEEP), width = deep * DEEP;
  float sums[4 * SIDE * SIDE] __attribute__((aligned(64)));
  const Sums to = {sums, 8 * SIDE, SIDE};
  for (int64_t e = 0; e < size; e++) memcpy(room->batch + e * width, room->left + own[e] * width, (size_t)width * 2);
  for (int64_t e = 0; e < size; e += 2 * SIDE)
    for (int64_t m = 0; m < v; m += 2) {
      const Tiles left = {room->batch + e * width, 2 * width, 0, DEEP};
      const Tiles right = {(const uint16_t *)(room->right + m), v * (int64_t)sizeof(vec), DEEP, SIDE * v * DEEP};
      sum_up_some(size - e, v - m > 1, 0, to, left, right, 1, deep);
      for (int64_t i = 0; i < 2 * SIDE && e + i < size; i++)
        for (int64_t h = 0; h < 2 && m + h < v; h++) z[(e + i) * v + m + h] += factor * ((const vec *)sums)[2 * i + h];
    }
}
#endif

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

/* Adds -lr * x c to the outputs of layer 0. */
static void in_span(const Job *j, const Room *room, int64_t r, const int64_t *own, int64_t size) {
  const int64_t n = j->examples, v = vectors(j->layer->outputs), w = vectors(n);
  const Part *part = room->part;
#ifdef UNITS
  if (by_units(j)) {
    product_by_units(j, room, part->z, own, size, v, -j->lr);
    return;
  }
#endif
  for (int64_t e = 0; e < size; e++)
    room->x[e] = j->rounds ? (const float *)(room->inputs + own[e] * w) : j->inputs + (r * n + own[e]) * n;
  product(part->z, room->x, 1, size, n, part->seen, v, 1, -j->lr);
}

/* The outputs of layer 0 where it is not in the span. */
static void outside_span(const Job *j, const Room *room, int64_t r, const int64_t *own, int64_t size) {
  const Part *part = room->part;
  const int64_t v = vectors(j->layer->outputs), w = vectors(j->width);
  for (int64_t e = 0; e < size; e++) {
    memcpy(room->examples + e * w, j->inputs + (r * j->examples + own[e]) * j->width, (size_t)j->width * sizeof(float));
    memcpy(part->z + e * v, part->bias, (size_t)v * sizeof(vec));
  }
  if (j->rounds) round_to(room->examples, room->examples, size * w);
  product(part->z, rows_of(room, room->examples, size, w), 1, size, j->width, part->seen, v, 1, 1);
}

/* The outputs of all layers; `own` are the examples, counted from the row's first. */
static void forward(const Job *j, const Room *room, int64_t r, int64_t s, const int64_t *own, int64_t size) {
  const int64_t n = j->examples;
  for (int64_t l = 0; l < j->layers; l++) {
    const Layer *layer = j->layer + l;
    const Part *part = room->part + l;
    const int64_t v = vectors(layer->outputs);
    if (l) {
      const int64_t w = vectors(layer->inputs);
      for (int64_t e = 0; e < size; e++) memcpy(part->z + e * v, part->bias, (size_t)v * sizeof(vec));
      product(part->z, rows_of(room, room->part[l - 1].z, size, w), 1, size, layer->inputs, part->turned, v, 1, 1);
    } else if (!j->spanned) {
      outside_span(j, room, r, own, size);
    } else {
      for (int64_t e = 0; e < size; e++)
        for (int64_t m = 0; m < v; m++) {
          vec z = part->bias[m];
          for (int64_t i = 0; i < j->origins; i++) z += j->factors[s * j->origins + i] * room->out[(i * n + own[e]) * v + m];
          part->z[e * v + m] = z;
        }
      in_span(j, room, r, own, size);
    }
    if (layer->relu) relu(part->z, size * v);
    if (j->rounds && l + 1 < j->layers) round_to(part->z, part->z, size * v);
  }
}

/* The step of a bias. */
static void move_bias(const Job *j, const Layer *layer, const Part *part, int64_t size) {
  const int64_t v = vectors(layer->outputs);
  for (int64_t m = 0; m < v; m++) {
    vec g = layer->bias_decay * part->bias[m];
    for (int64_t e = 0; e < size; e++) g += part->d[e * v + m];
    if (layer->bias_anchor) g -= j->pull * part->bias_anchor[m];
    if (layer->bias_slot) g = part->bias_u[m] = j->momentum * part->bias_u[m] + g;
    part->bias[m] -= j->lr * g;
  }
}

/* The step of the coefficients of layer 0. */
static void spread(const Job *j, const Room *room, const int64_t *own, int64_t size) {
  const Layer *layer = j->layer;
  const Part *part = room->part;
  const int64_t v = vectors(layer->outputs), all = j->examples * v;
  const float kept = j->lr * layer->decay;
  vec *to = layer->slot ? part->u : part->c;
  if (layer->slot)
    for (int64_t i = 0; i < all; i++) part->u[i] = j->momentum * part->u[i] - kept * part->c[i];
  else if (kept != 0)
    for (int64_t i = 0; i < all; i++) part->c[i] -= kept * part->c[i];
  for (int64_t e = 0; e < size; e++)
    for (int64_t m = 0; m < v; m++) to[own[e] * v + m] += part->d[e * v + m];
  if (layer->slot)
    for (int64_t i = 0; i < all; i++) part->c[i] += part->u[i];
  if (!j->rounds) return;
#ifdef UNITS
  if (by_units(j)) {
    const int everywhere = layer->slot || kept != 0;
    for (int64_t i = 0; i < (everywhere ? (j->examples + 1) / 2 : size); i++)
      refresh(j, room, everywhere ? i : own[i] / 2, v);
    return;
  }
#endif
  round_to(part->seen, part->c, all);
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

static void backward(const Job *j, const Room *room, const int64_t *own, int64_t size) {
  for (int64_t l = j->layers - 1; l >= 0; l--) {
    const Layer *layer = j->layer + l;
    const Part *part = room->part + l, *before = part - 1;
    const int64_t v = vectors(layer->outputs), w = vectors(layer->inputs);
    if (!l && j->spanned) spread(j, room, own, size); /* as it is: it is no factor yet */
    if (j->rounds) round_to(part->d, part->d, size * v);
    if (l) {
      product(before->d, rows_of(room, part->d, size, v), 1, size, layer->outputs, part->seen, w, 0, 1);
      if (layer[-1].relu)
        for (int64_t i = 0; i < size * w; i++) before->d[i] = choose(before->z[i] <= 0.0f, (vec){}, before->d[i]);
      move(j, layer, part, columns_of(room, part->d, layer->outputs), v * LANES, layer->outputs, size, before->z, w);
      turn(j, layer, part);
    } else if (!j->spanned) {
      const vec *x = room->examples;
      move(j, layer, part, columns_of(room, x, j->width), vectors(j->width) * LANES, j->width, size, part->d, v);
      if (j->rounds) round_to(part->seen, part->c, j->width * v);
    }
    if (layer->bias) move_bias(j, layer, part, size);
  }
}

/* Vectors that a row needs, given to `room` where there is `memory`. */
static int64_t lay_out(const Job *j, Room *room, vec *memory) {
  int64_t total = 0, tallest = j->batch > j->width ? j->batch : j->width;
  for (int64_t l = 0; l < j->layers; l++) {
    const Layer *layer = j->layer + l;
    const int64_t v = vectors(layer->outputs), last = l == j->layers - 1;
    const int64_t own = l ? layer->outputs * vectors(layer->inputs) : j->width * v;
    const int64_t counts[] = {own, layer->slot ? own : 0, layer->anchor ? own : 0, l ? layer->inputs * v : 0,
                              j->rounds ? own : 0, j->batch * v, last ? 0 : j->batch * v, v, v, v};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) total += counts[i];
    if (layer->outputs > tallest) tallest = layer->outputs;
    if (!memory) continue;
    Part *part = room->part + l;
    vec **to[] = {&part->c, &part->u, &part->anchor, &part->turned, &part->seen, &part->z,
                  &part->d, &part->bias, &part->bias_u, &part->bias_anchor};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) *to[i] = take(&memory, counts[i]);
    if (last) part->d = part->z;
    if (!j->rounds) part->seen = part->c;
  }
  const Layer *last = j->layer + j->layers - 1;
  const int64_t v = vectors(last->outputs), u = vectors(j->layer->outputs), outs = j->origins * j->examples * u;
  const int64_t n = j->examples, deep = by_units(j) ? (n + 31) / 32 : 0, high = (j->batch + 31) / 32 * 32;
  const int64_t counts[] = {j->spanned && j->rounds && !deep ? n * vectors(n) : 0, n * deep, high * deep, 16 * deep * u,
                            j->spanned ? 0 : j->batch * vectors(j->width)};
  const int64_t parts = vectors(j->layers * (int64_t)(sizeof(Part) / sizeof(float))), rows = vectors(2 * tallest);
  if (memory) {
    room->out = take(&memory, outs);
    room->filled = take(&memory, v);
    for (int64_t i = last->outputs; i < v * LANES; i++) ((float *)room->filled)[i] = NOTHING;
    room->x = (const float **)take(&memory, rows);
    room->own = (int64_t *)take(&memory, vectors(2 * j->batch));
    room->inputs = take(&memory, counts[0]);
    room->left = (uint16_t *)take(&memory, counts[1]);
    room->batch = (uint16_t *)take(&memory, counts[2]);
    room->right = take(&memory, counts[3]);
    room->examples = take(&memory, counts[4]);
  }
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) total += counts[i];
  return total + outs + v + parts + rows + vectors(2 * j->batch);
}

/* to [i, v] = from [o, i], turned, and back; nothing without the tensor. */
static void turn_in(vec *to, const float *from, int64_t o, int64_t i, int64_t v) {
  if (from) turn_over((float *)to, v * LANES, from, i, o, i);
}

static void turn_out(float *to, const vec *from, int64_t o, int64_t i, int64_t v) {
  if (to) turn_over(to, i, (const float *)from, v * LANES, i, o);
}

/* Between the tensors of a row and its room: in before the first step, out after the last. */
static void load(const Job *j, const Room *room, int64_t r) {
  for (int64_t l = 0; l < j->layers; l++) {
    const Layer *layer = j->layer + l;
    const Part *part = room->part + l;
    const int64_t o = layer->outputs, i = layer->inputs, v = vectors(o), w = vectors(i);
    if (l) {
      widen(part->c, layer->weight + r * o * i, o, i, w);
      widen(part->u, layer->slot ? layer->slot + r * o * i : NULL, o, i, w);
      widen(part->anchor, layer->anchor ? layer->anchor + r * o * i : NULL, o, i, w);
      turn(j, layer, part);
    } else if (!j->spanned) {
      turn_in(part->c, layer->weight + r * o * i, o, i, v);
      turn_in(part->u, layer->slot ? layer->slot + r * o * i : NULL, o, i, v);
      turn_in(part->anchor, layer->anchor ? layer->anchor + r * o * i : NULL, o, i, v);
      if (j->rounds) round_to(part->seen, part->c, i * v);
    }
    widen(part->bias, layer->bias ? layer->bias + r * o : NULL, 1, o, v);
    widen(part->bias_u, layer->bias_slot ? layer->bias_slot + r * o : NULL, 1, o, v);
    widen(part->bias_anchor, layer->bias_anchor ? layer->bias_anchor + r * o : NULL, 1, o, v);
  }
  const int64_t n = j->examples, o = j->layer->outputs, v = vectors(o);
  for (int64_t i = 0; i < j->origins; i++) widen(room->out + i * n * v, j->outputs[i] + r * n * o, n, o, v);
#ifdef UNITS
  if (by_units(j)) lay_out_inputs(j, room, r);
#endif
  if (!j->spanned || !j->rounds || by_units(j)) return;
  widen(room->inputs, j->inputs + r * n * n, n, n, vectors(n));
  round_to(room->inputs, room->inputs, n * vectors(n));
}

static void store(const Job *j, const Room *room, int64_t r) {
  for (int64_t l = 0; l < j->layers; l++) {
    const Layer *layer = j->layer + l;
    const Part *part = room->part + l;
    const int64_t o = layer->outputs, v = vectors(o);
    const int64_t rows = l ? o : j->width, own = l ? layer->inputs : o, at = r * rows * own;
    float *slot = layer->slot ? layer->slot + at : NULL;
    if (l || j->spanned) {
      narrow(layer->weight + at, part->c, rows, own, vectors(own));
      narrow(slot, part->u, rows, own, vectors(own));
    } else {
      turn_out(layer->weight + at, part->c, o, rows, v);
      turn_out(slot, part->u, o, rows, v);
    }
    narrow(layer->bias ? layer->bias + r * o : NULL, part->bias, 1, o, v);
    narrow(layer->bias_slot ? layer->bias_slot + r * o : NULL, part->bias_u, 1, o, v);
  }
}

static void row(const Job *j, int64_t r, vec *memory) {
  const int64_t v = vectors(j->layer[j->layers - 1].outputs);
  Room room = {.part = (Part *)memory};
  lay_out(j, &room, memory + vectors(j->layers * (int64_t)(sizeof(Part) / sizeof(float))));
  load(j, &room, r);
  vec *logits = room.part[j->layers - 1].z;
  double loss = 0, early = 0;
  int64_t s = 0;
  for (; s < j->steps && j->size[r * j->steps + s]; s++) {
    const int64_t size = j->size[r * j->steps + s], at = (s * j->rows + r) * j->batch;
    for (int64_t e = 0; e < size; e++) room.own[e] = j->example[at + e] - r * j->examples;
    forward(j, &room, r, s, room.own, size);
    for (int64_t i = 0; i < size * v; i++) logits[i] += room.filled[i % v];
    const double now = descend(logits, v, j->label + at, j->share ? j->share + at : NULL, size);
    loss += now;
    if (s < j->early) early += j->first[r * j->early + s] * now;
    backward(j, &room, room.own, size);
  }
  j->loss[2 * r] = s ? (float)(loss / (double)s) : 0.0f;
  j->loss[2 * r + 1] = (float)early;
  store(j, &room, r);
}

/* Trains the rows [0, R) in `threads` threads; returns 0, or 1 where there was no memory. */
int train(const Job *j, int threads) {
  const size_t bytes = (size_t)lay_out(j, NULL, NULL) * sizeof(vec);
  int failed = 0;
  (void)threads; /* unused where the compiler does not know OpenMP */
#pragma omp parallel num_threads(threads) reduction(| : failed)
  {
    vec *memory = aligned_alloc(sizeof(vec), bytes);
    failed |= !memory;
#ifdef UNITS
    if (by_units(j)) begin_tiles();
#endif
#pragma omp for schedule(dynamic, 1)
    for (int64_t r = 0; r < j->rows; r++)
      if (memory) row(j, r, memory);
    free(memory);
#ifdef UNITS
    if (by_units(j)) end_tiles();
#endif
  }
  return failed;
}
