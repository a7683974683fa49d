/* The shuffled batches of a chunk, a row (client) at a time, in one pass and without the arrays between. */

#include "order.h"

typedef struct {
  int64_t rows, longest, steps, width; /* R, n, S, B */
  int64_t joined;                      /* whether passes are joined end to end, so that no batch is short */
  const int64_t *key, *count;          /* [R] */
  const int64_t *size;                 /* [R, S] examples of the batch, 0 after the row's last step */
  const int64_t *index, *answer;       /* [R, n] rows of the pool, [N] their classes */
  int64_t *example, *label;            /* [S, R, B] examples counted through all rows, and their classes */
  float *share;                        /* [S, R, B] 1 / size, 0 in padding */
} Plan;

static void row(const Plan *p, int64_t r, Order *order) {
  const int64_t *index = p->index + r * p->longest, none = p->longest ? p->answer[index[0]] : 0;
  order_row(order, (uint64_t)p->key[r], p->count[r], p->width, p->joined);
  for (int64_t s = 0; s < p->steps; s++) {
    const int64_t size = p->size[r * p->steps + s], to = (s * p->rows + r) * p->width;
    const float share = size ? 1.0f / (float)size : 0.0f;
    int64_t *place = p->example + to;
    batch_at(order, s, size, place);
    for (int64_t i = 0; i < size; i++) {
      p->label[to + i] = p->answer[index[place[i]]];
      p->share[to + i] = share;
      place[i] += r * p->longest;
    }
    for (int64_t i = size; i < p->width; i++) {
      place[i] = r * p->longest;
      p->label[to + i] = none;
      p->share[to + i] = 0;
    }
  }
}

/* Lays out the rows [0, R) in `threads` threads; returns 0, or 1 where there was no memory. */
int lay_out(const Plan *p, int threads) {
  int failed = 0;
  (void)threads; /* unused where the compiler does not know OpenMP */
#pragma omp parallel num_threads(threads) reduction(| : failed)
  {
    Order order;
    failed |= make_order(&order, p->longest);
#pragma omp for schedule(dynamic, 1)
    for (int64_t r = 0; r < p->rows; r++)
      if (!failed) row(p, r, &order);
    forget_order(&order);
  }
  return failed;
}
