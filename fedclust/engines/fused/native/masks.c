/* Masks of dropout: what `keep` in `fedclust/models/dropout.py` gives, in one pass. The i-th number of an example is
   kept where the first 24 bits of its word, as a fraction of one, reach p. */

#include "order.h"

typedef struct {
  int64_t rows, batch, features;
  int64_t purpose, step, layer; /* folded into the key of a row, and then the place in the batch */
  const int64_t *key;           /* [rows] */
  float *out;                   /* [rows, batch, features] */
  float p, kept;                /* probability of a zero, and what stands where there is none */
} Masks;

static uint64_t fold(uint64_t key, int64_t identity) { return mix(key ^ mix((uint64_t)identity)); }

void draw(const Masks *m, int threads) {
  (void)threads; /* unused where the compiler does not know OpenMP */
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t e = 0; e < m->rows * m->batch; e++) {
    const uint64_t row = fold(fold(fold((uint64_t)m->key[e / m->batch], m->purpose), m->step), m->layer);
    const uint64_t key = fold(row, e % m->batch);
    float *restrict out = m->out + e * m->features;
    for (int64_t i = 0; i < m->features; i++) {
      const int32_t word = (int32_t)(mix(key + (uint64_t)i * GOLDEN) >> 40);
      out[i] = (float)word * 0x1p-24f >= m->p ? m->kept : 0.0f;
    }
  }
}
