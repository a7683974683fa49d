/* What a file that trains dense layers ends with: threads that take the rows. `most_of`, `lay_out` and `row`, which
   returns 0 where there was no memory, are the file's. */

#ifndef TRAIN_H
#define TRAIN_H

/* Trains the rows [0, R), those with most steps first, in `threads` threads; returns 0, or 1 where there was no
   memory. */
int train(const Job *j, int threads) {
  const Most most = most_of(j);
  const size_t bytes = (size_t)lay_out(j, NULL, NULL, most) * sizeof(vec);
  int failed = 0;
  (void)threads; /* unused where the compiler does not know OpenMP */
#pragma omp parallel num_threads(threads) reduction(| : failed)
  {
    Room room;
    vec *memory = aligned_alloc(sizeof(vec), bytes);
    failed |= make_order(&room.batch.order, j->of.longest) || !memory;
    if (!failed) lay_out(j, &room, memory, most);
#pragma omp for schedule(dynamic, 1)
    for (int64_t r = 0; r < j->of.rows; r++)
      if (!failed) failed |= !row(j, r, &room);
    forget_order(&room.batch.order);
    free(memory);
  }
  return failed;
}

#endif
