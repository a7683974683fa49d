/* Stacks of products of factors rounded to bfloat16, sums in float32, see rounded_product.h.

       out[r] = beta c[r] + alpha a[r] b[r]      a [m, k], b [k, n]

   If columns of out are neighbours in memory, or if n is larger than m and b too large to be held as a whole, the
   transposed product is computed instead. */

#include "rounded_product.h"

#ifdef UNITS
#ifdef MATRICES
#include <sys/syscall.h>
#include <unistd.h>

#define ASK_FOR_UNIT 0x1023
#define UNIT_DATA 18
#endif

/* The instructions that this process may and should use: 0 none, 1 AMX, 2 AVX-512. The latter on AMD's processors
   only, which multiply twice as fast by them; on Intel's PyTorch's products by them were slower than float32 ones. */
int instructions(void) {
#ifdef MATRICES
  return syscall(SYS_arch_prctl, ASK_FOR_UNIT, UNIT_DATA) == 0;
#else
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") ? 2 : 0;
#endif
}

/* 1, or 0 where there is no memory. */
int multiply(const Product *given, int threads) {
  Product turned_round = *given;
  const Product *j = given;
  if (given->out.right != 1 || (given->n > given->m && given->n > most_held(given->k))) {
    turned_round.m = given->n, turned_round.n = given->m;
    turned_round.a = turned(given->b), turned_round.b = turned(given->a);
    turned_round.c = turned(given->c), turned_round.out = turned(given->out);
    j = &turned_round;
  }
  /* every product in as many parts as give every thread the same number of them */
  int64_t parts = 1;
  while (j->count < 4 * threads && j->count * parts % threads) parts++;
  const int64_t high = tiles(tiles(j->m, parts), 2 * SIDE) * 2 * SIDE;
  int all = 1;
#pragma omp parallel num_threads(threads) reduction(&& : all)
  {
    begin_tiles();
#pragma omp for schedule(static)
    for (int64_t i = 0; i < j->count * parts; i++) {
      const int64_t from = i % parts * high;
      if (from < j->m) all = rounded_rows(j, i / parts, from, least(j->m, from + high)) && all;
    }
    end_tiles();
  }
  return all;
}
#else
int instructions(void) { return 0; }
int multiply(const Product *given, int threads) {
  (void)given, (void)threads;
  return 0;
}
#endif
