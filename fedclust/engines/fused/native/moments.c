/* The step of a parameter of many rows, all of whose gradient is there. */

#include "moments.h"

typedef struct {
  Law law;
  int64_t rows, size, step;
  float *value, *slot, *square, *gradient; /* [rows, size]; slot and square may be NULL */
  const float *anchor;                     /* [rows, size] or NULL */
  float decay, pull;                       /* of the value and of the anchor in the gradient */
  double *squares;                         /* [rows] sums of squares of a row's gradients, or NULL */
} Move;

/* Adds its penalty terms to the gradient, and its squares to those of the row. */
void gather(const Move *j, int threads) {
  (void)threads; /* unused where the compiler does not know OpenMP */
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t r = 0; r < j->rows; r++) {
    float *restrict g = j->gradient + r * j->size;
    const float *restrict w = j->value + r * j->size;
    if (j->decay != 0)
      for (int64_t i = 0; i < j->size; i++) g[i] += j->decay * w[i];
    if (j->anchor)
      for (int64_t i = 0; i < j->size; i++) g[i] -= j->pull * j->anchor[r * j->size + i];
    if (j->squares) j->squares[r] += square_sum(g, j->size);
  }
}

/* Moves the value. */
void move(const Move *j, int threads) {
  (void)threads; /* unused where the compiler does not know OpenMP */
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t r = 0; r < j->rows; r++) {
    const int64_t at = r * j->size;
    const Step s = step_of(&j->law, r, j->step);
    move_by(&s, j->value + at, j->slot ? j->slot + at : 0, j->square ? j->square + at : 0, j->gradient + at,
            j->squares ? shortened(&j->law, j->squares[r]) : 1, j->size);
  }
}
