/* Examples of a pool as a model sees them: gathered, converted and normalised, each while it is in the first cache.

   out[r][k] = x[index[r]][k] * scale[k] + shift[k], rounded after the product as well as after the sum. */

#include <stdint.h>

#define COLUMNS 2048 /* of a block */

typedef struct {
  int64_t rows, width;
  const int64_t *index;        /* [R] */
  const uint8_t *stored;       /* [N, width], or NULL where there are floats */
  const float *floats;         /* likewise */
  const float *scale, *shift;  /* [width] */
  float *out;                  /* [R, width] */
} Rows;

#define PRODUCTS(x) \
  for (int64_t k = 0; k < width; k++) to[k] = (float)(x)[k] * scale[k];

void gather(const Rows *g, int threads) {
  (void)threads; /* unused where the compiler does not know OpenMP */
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t r = 0; r < g->rows; r++)
    for (int64_t first = 0; first < g->width; first += COLUMNS) {
      const int64_t width = g->width - first < COLUMNS ? g->width - first : COLUMNS;
      const int64_t from = g->index[r] * g->width + first;
      const float *restrict scale = g->scale + first, *restrict shift = g->shift + first;
      float *restrict to = g->out + r * g->width + first;
      if (g->stored) {
        PRODUCTS(g->stored + from)
      } else {
        PRODUCTS(g->floats + from)
      }
      __asm__ volatile("" ::: "memory"); /* or product and sum would become one operation, rounded once */
      for (int64_t k = 0; k < width; k++) to[k] += shift[k];
    }
}
