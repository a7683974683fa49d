/* Which examples of a row (client) every batch holds: what `fedclust/engines/schedule.py` defines.

   The p-th pass over a row's n examples takes them in the order of the words

       mix(fold(key, p) + i * GOLDEN) >> 1,   i = 0 … n - 1,

   as `permutations` in `fedclust/helpers/rng.py` does. Step s begins in this endless sequence of passes at s batches,
   or, where a pass ends with a short batch, at the (s mod b)-th batch of pass s / b. */

#ifndef ORDER_H
#define ORDER_H

#include <stdint.h>
#include <stdlib.h>

#define GOLDEN 0x9E3779B97F4A7C15ull
#define BITS 63 /* of a word */

typedef struct {
  uint64_t word;
  int64_t place;
} Entry;

/* The passes of a row, one at a time, in room for rows of up to n examples. */
typedef struct {
  Entry *drawn, *sorted; /* [n] */
  int64_t *begin;        /* [n + 1] of every bucket */
  int64_t count, batch;  /* the row's examples, and those of a whole batch of it */
  int64_t joined;        /* whether passes are joined end to end, so that no batch is short */
  int64_t pass;          /* the one in `sorted`, -1 for none */
  uint64_t key;
} Order;

/* Room for rows of up to n examples; 1 where there is no memory. To be given back by `forget_order`. */
static inline int make_order(Order *o, int64_t n) {
  const size_t most = (size_t)n + 1; /* room for none is room, too */
  o->drawn = malloc(2 * most * sizeof(Entry));
  o->begin = malloc((most + 1) * sizeof(int64_t));
  o->sorted = o->drawn ? o->drawn + most : NULL;
  return !o->drawn || !o->begin;
}

static inline void forget_order(Order *o) {
  free(o->drawn);
  free(o->begin);
}

/* Begin with another row; a batch has up to `most` examples. */
static inline void order_row(Order *o, uint64_t key, int64_t count, int64_t most, int64_t joined) {
  o->key = key, o->count = count, o->batch = count < most ? count : most, o->joined = joined, o->pass = -1;
}

static inline uint64_t mix(uint64_t x) {
  x += GOLDEN;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/* o->sorted: the order of a pass. Words are uniform, so that a bucket of their first bits holds one or two. */
static inline void permute(Order *o, int64_t pass) {
  const int64_t n = o->count;
  const uint64_t key = mix(o->key ^ mix((uint64_t)pass));
  int bits = 0;
  while ((2ll << bits) <= n) bits++;
  const int64_t buckets = 1ll << bits;
  for (int64_t b = 0; b <= buckets; b++) o->begin[b] = 0;
  for (int64_t i = 0; i < n; i++) o->drawn[i] = (Entry){mix(key + (uint64_t)i * GOLDEN) >> (64 - BITS), i};
  for (int64_t i = 0; i < n; i++) o->begin[(o->drawn[i].word >> (BITS - bits)) + 1]++;
  for (int64_t b = 1; b < buckets; b++) o->begin[b] += o->begin[b - 1];
  for (int64_t i = 0; i < n; i++) o->sorted[o->begin[o->drawn[i].word >> (BITS - bits)]++] = o->drawn[i];
  for (int64_t i = 1; i < n; i++) {
    const Entry own = o->sorted[i];
    int64_t at = i;
    for (; at && o->sorted[at - 1].word > own.word; at--) o->sorted[at] = o->sorted[at - 1];
    o->sorted[at] = own;
  }
  o->pass = pass;
}

/* Batches of a pass that ends with a short one. */
static inline int64_t in_pass(const Order *o) { return o->count ? (o->count + o->batch - 1) / o->batch : 1; }

/* Examples of step s. */
static inline int64_t batch_size(const Order *o, int64_t s) {
  const int64_t left = o->count - s % in_pass(o) * o->batch;
  return o->joined || left > o->batch ? o->batch : left;
}

/* place [size]: the examples of step s, counted from the row's first. */
static inline void batch_at(Order *o, int64_t s, int64_t size, int64_t *place) {
  const int64_t n = o->count;
  int64_t at = !n ? 0 : o->joined ? s * o->batch % n : s % in_pass(o) * o->batch;
  int64_t now = !n ? 0 : o->joined ? s * o->batch / n : s / in_pass(o);
  for (int64_t i = 0; i < size; i++, at++) {
    if (at == n) at = 0, now++; /* in the middle of a batch, where passes are joined */
    if (now != o->pass) permute(o, now);
    place[i] = o->sorted[at].place;
  }
}

#endif
