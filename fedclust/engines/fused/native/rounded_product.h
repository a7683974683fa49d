/* A product of factors rounded to bfloat16, sums in float32, by a processor's own instructions, see units.h.

   Factors come as float32 in any order. They are rounded and laid out as tiles on the way: b is held, a block of its
   columns at a time that fits the cache; a streams past it, 32 rows at a time.

   Numbers below 1e-38 count as zero, as the processor has it. */

#ifndef ROUNDED_PRODUCT_H
#define ROUNDED_PRODUCT_H

#include <stdint.h>
#include <stdlib.h>

#include "units.h"

/* [R, m, n] in memory: floats from one matrix, row and column to the next. */
typedef struct {
  float *data;
  int64_t matrix, down, right;
} Stack;

typedef struct {
  int64_t count, m, k, n; /* count of products */
  Stack a, b, c, out;     /* c without data where beta is 0 */
  float alpha, beta;
} Product;

#ifdef UNITS
#define HELD 1200000 /* bytes of the cache of a core that are held */

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static inline Stack turned(Stack x) { return (Stack){x.data, x.matrix, x.right, x.down}; }

/* Tiles of `rows` rows from `from` on, 16 rows and 32 of k at a time: for every two of the former one after the other
   those of all k, both beside each other. */
ALWAYS void lay_out_tiles(const int RIGHT, uint16_t *to, const float *from, int64_t across, int64_t along, int64_t rows,
                    int64_t k) {
  const int64_t deep = tiles(k, DEEP);
  for (int64_t i = 0; i < rows; i += 2 * SIDE)
    for (int64_t t = 0; t < deep; t++)
      for (int64_t h = 0; h < 2; h++) {
        const int64_t at = i + h * SIDE;
        if (at < rows)
          make_tile(RIGHT, to + ((i / SIDE) * deep + 2 * t + h) * NUMBERS, from + at * across + t * DEEP * along, across, along,
               least(SIDE, rows - at), least(DEEP, k - t * DEEP));
      }
}

ALWAYS __m512 numbers(const float *from, int64_t stride, __mmask16 inside) {
  if (stride == 1) return _mm512_maskz_loadu_ps(inside, from);
  if (stride == 0) return _mm512_set1_ps(*from);
  const __m512i at = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                        _mm512_set1_epi32((int)stride));
  return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), inside, at, from, 4);
}

/* out = beta c + alpha sums for a tile of `rows` by `columns` numbers, whose rows lie two tiles apart. */
ALWAYS void finish(const Product *j, const float *sums, Stack c, Stack out, int64_t rows, int64_t columns) {
  __m512i x[SIDE];
  for (int i = 0; i < SIDE; i++) x[i] = _mm512_load_si512(sums + 2 * i * SIDE);
  if (out.right != 1) { /* the rows are neighbours */
    transpose(x);
    c = turned(c), out = turned(out);
    const int64_t other = rows;
    rows = columns, columns = other;
  }
  const __mmask16 inside = first(columns);
  const __m512 alpha = _mm512_set1_ps(j->alpha), beta = _mm512_set1_ps(j->beta);
  for (int i = 0; i < SIDE && i < rows; i++) {
    __m512 y = _mm512_mul_ps((__m512)x[i], alpha);
    if (c.data) y = _mm512_fmadd_ps(numbers(c.data + i * c.down, c.right, inside), beta, y);
    _mm512_mask_storeu_ps(out.data + i * out.down, inside, y);
  }
}

/* Room of a thread that is kept for the next call. */
static __thread uint16_t *kept;
static __thread int64_t kept_tiles;

static inline uint16_t *tiles_kept(int64_t wanted) {
  if (wanted > kept_tiles) {
    free(kept);
    kept = aligned_alloc(64, wanted * NUMBERS * sizeof(uint16_t));
    kept_tiles = kept ? wanted : 0;
  }
  return kept;
}

/* Columns of b that can be held at once. */
static inline int64_t most_held(int64_t k) {
  const int64_t fit = HELD / (2 * NUMBERS * (tiles(k, DEEP) + 1));
  return (fit < 2 ? 2 : fit / 2 * 2) * SIDE;
}

/* Rows `from` to `to` of one product; b's columns are the held factor's. 1, or 0 where there is no memory. To be
   called between `begin_tiles` and `end_tiles`. */
static inline int rounded_rows(const Product *j, int64_t which, int64_t from, int64_t to) {
  const int64_t deep = tiles(j->k, DEEP), block = least(tiles(j->n, SIDE) * SIDE, most_held(j->k));
  uint16_t *const left = tiles_kept((tiles(block, SIDE) + 3) * deep + 1), *const right = left + 2 * deep * NUMBERS;
  const float *const a = j->a.data + which * j->a.matrix, *const b = j->b.data + which * j->b.matrix;
  float sums[4 * SIDE * SIDE] __attribute__((aligned(64)));
  const Sums to_sums = {sums, 8 * SIDE, SIDE};
  if (!left) return 0;
  for (int64_t n = 0; n < j->n; n += block) {
    const int64_t width = least(block, j->n - n);
    lay_out_tiles(1, right, b + n * j->b.right, j->b.right, j->b.down, width, j->k);
    for (int64_t m = from; m < to; m += 2 * SIDE) {
      const int64_t height = least(2 * SIDE, to - m);
      lay_out_tiles(0, left, a + m * j->a.down, j->a.down, j->a.right, height, j->k);
      for (int64_t q = 0; q < width; q += 2 * SIDE) {
        const Tiles held = {right + q / SIDE * deep * NUMBERS, 2 * DEEP, NUMBERS, 2 * NUMBERS};
        sum_up_some(height, width - q > SIDE, 0, to_sums, (Tiles){left, 2 * DEEP, 0, 2 * NUMBERS}, held, deep, 1);
        for (int64_t h = 0; h < 4; h++) {
          const int64_t down = h / 2 * SIDE, right_by = h % 2 * SIDE, row = m + down, column = n + q + right_by;
          Stack c = j->c, out = j->out;
          if (down >= height || q + right_by >= width) continue;
          out.data += which * out.matrix + row * out.down + column * out.right;
          if (c.data) c.data += which * c.matrix + row * c.down + column * c.right;
          finish(j, sums + 2 * down * SIDE + right_by, c, out, least(SIDE, height - down), least(SIDE, width - q - right_by));
        }
      }
    }
  }
  return 1;
}
#endif
#endif
