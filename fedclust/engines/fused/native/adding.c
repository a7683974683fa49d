/* Rows added to the totals of their clusters, in double precision and in the order of the rows.

   total[label[r]] += weight[r] * value[r] for r = 0, 1, …, where rows of totals lie `stride` apart; a column
   belongs to one thread, so the order of its additions depends on neither threads nor blocks. */

#include <stdint.h>

#define COLUMNS 2048 /* of a block: totals of 16 KiB per cluster stay in the first two caches */

void add(const float *value, const int64_t *label, const double *weight, double *total, int64_t rows, int64_t columns,
         int64_t stride, int threads) {
  (void)threads; /* unused where the compiler does not know OpenMP */
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t first = 0; first < columns; first += COLUMNS) {
    const int64_t width = columns - first < COLUMNS ? columns - first : COLUMNS;
    for (int64_t r = 0; r < rows; r++) {
      const float *restrict x = value + r * columns + first;
      double *restrict sum = total + label[r] * stride + first;
      const double factor = weight[r];
      for (int64_t c = 0; c < width; c++) sum[c] += factor * x[c];
    }
  }
}
