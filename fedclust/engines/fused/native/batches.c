/* The shuffled batches of a chunk, a row (client) at a time: what `fedclust/engines/schedule.py` defines, in one
   pass and without the arrays between.

   The p-th pass over a row's n examples takes them in the order of the words

       mix(fold(key, p) + i * GOLDEN) >> 1,   i = 0 … n - 1,

   as `permutations` in `fedclust/helpers/rng.py` does. Step s begins in this endless sequence of passes at s batches,
   or, where a pass ends with a short batch, at the (s mod b)-th batch of pass s / b. */

#include <stdint.h>
#include <stdlib.h>

#define GOLDEN 0x9E3779B97F4A7C15ull
#define BITS 63 /* of a word */

typedef struct {
  int64_t rows, longest, steps, width; /* R, n, S, B */
  int64_t batch;                       /* examples of a whole batch; 0 where passes are joined */
  const int64_t *key, *count;          /* [R] */
  const int64_t *size;                 /* [R, S] examples of the batch, 0 after the row's last step */
  const int64_t *index, *answer;       /* [R, n] rows of the pool, [N] their classes */
  int64_t *example, *label;            /* [S, R, B] examples counted through all rows, and their classes */
  float *share;                        /* [S, R, B] 1 / size, 0 in padding */
} Plan;

typedef struct {
  uint64_t word;
  int64_t place;
} Entry;

/* Room of a thread, for rows of up to n examples. */
typedef struct {
  Entry *drawn, *sorted; /* [n] */
  int64_t *begin;        /* [n + 1] of every bucket */
} Room;

static inline uint64_t mix(uint64_t x) {
  x += GOLDEN;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/* room->sorted: the order of a pass. Words are uniform, so that a bucket of their first bits holds one or two. */
static void permute(const Room *room, uint64_t key, int64_t n) {
  int bits = 0;
  while ((2ll << bits) <= n) bits++;
  const int64_t buckets = 1ll << bits;
  for (int64_t b = 0; b <= buckets; b++) room->begin[b] = 0;
  for (int64_t i = 0; i < n; i++) room->drawn[i] = (Entry){mix(key + (uint64_t)i * GOLDEN) >> (64 - BITS), i};
  for (int64_t i = 0; i < n; i++) room->begin[(room->drawn[i].word >> (BITS - bits)) + 1]++;
  for (int64_t b = 1; b < buckets; b++) room->begin[b] += room->begin[b - 1];
  for (int64_t i = 0; i < n; i++) room->sorted[room->begin[room->drawn[i].word >> (BITS - bits)]++] = room->drawn[i];
  for (int64_t i = 1; i < n; i++) {
    const Entry own = room->sorted[i];
    int64_t at = i;
    for (; at && room->sorted[at - 1].word > own.word; at--) room->sorted[at] = room->sorted[at - 1];
    room->sorted[at] = own;
  }
}

static void row(const Plan *p, int64_t r, const Room *room) {
  const int64_t n = p->count[r], whole = n < p->width ? n : p->width;
  const int64_t in_pass = p->batch && n ? (n + p->batch - 1) / p->batch : 1;
  const int64_t *index = p->index + r * p->longest, none = p->longest ? p->answer[index[0]] : 0;
  int64_t pass = -1;
  for (int64_t s = 0; s < p->steps; s++) {
    const int64_t size = p->size[r * p->steps + s], to = (s * p->rows + r) * p->width;
    const float share = size ? 1.0f / (float)size : 0.0f;
    int64_t at = p->batch ? s % in_pass * whole : n ? s * whole % n : 0;
    int64_t now = p->batch ? s / in_pass : n ? s * whole / n : 0;
    for (int64_t i = 0; i < size; i++, at++) {
      if (at == n) at = 0, now++; /* in the middle of a batch, where passes are joined */
      if (now != pass) permute(room, mix((uint64_t)p->key[r] ^ mix((uint64_t)now)), n), pass = now;
      const int64_t place = room->sorted[at].place;
      p->example[to + i] = r * p->longest + place;
      p->label[to + i] = p->answer[index[place]];
      p->share[to + i] = share;
    }
    for (int64_t i = size; i < p->width; i++) {
      p->example[to + i] = r * p->longest;
      p->label[to + i] = none;
      p->share[to + i] = 0;
    }
  }
}

/* Lays out the rows [0, R) in `threads` threads; returns 0, or 1 where there was no memory. */
int lay_out(const Plan *p, int threads) {
  const size_t n = (size_t)p->longest + 1; /* room for none is room, too */
  int failed = 0;
  (void)threads; /* unused where the compiler does not know OpenMP */
#pragma omp parallel num_threads(threads) reduction(| : failed)
  {
    Entry *entries = malloc(2 * n * sizeof(Entry));
    int64_t *begin = malloc((n + 1) * sizeof(int64_t));
    const Room room = {entries, entries + n, begin};
    failed |= !entries || !begin;
#pragma omp for schedule(dynamic, 1)
    for (int64_t r = 0; r < p->rows; r++)
      if (!failed) row(p, r, &room);
    free(entries);
    free(begin);
  }
  return failed;
}
