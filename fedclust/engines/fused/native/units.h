/* A processor's units for matrices of bfloat16 numbers (AMX), where the compiler knows them: then UNITS is defined.

   A unit multiplies tiles: 16 rows of 32 numbers by 32 rows of 16, and adds to 16 rows of 16 sums in float32. The left
   tile has 32 neighbours of k in a row, the right one pairs of them: row i has numbers 2i and 2i + 1 of every column
   beside each other. */

#ifndef UNITS_H
#define UNITS_H

#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__linux__)
#define UNITS

#include <immintrin.h>
#include <stdint.h>

#define SIDE 16            /* rows of a tile, and float32 numbers of one */
#define DEEP 32            /* bfloat16 numbers of a row */
#define TILE (SIDE * DEEP) /* bfloat16 numbers */

/* Tiles in memory: bytes from row to row, and bfloat16 numbers from a tile to the one beside it and to that of the
   next 32 of k. */
typedef struct {
  const uint16_t *at;
  int64_t pitch, beside, deeper;
} Tiles;

/* To be called by a thread before its first tile; `_tile_release` is to follow its last. */
static inline void begin_tiles(void) {
  const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } config = {.palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
  _tile_loadconfig(&config);
}

/* sums [P, Q, 16, 16] of P by Q tiles, over `deep` tiles of k. */
static inline __attribute__((always_inline)) void sum_up(const int P, const int Q, float *sums, Tiles left, Tiles right,
                                                         int64_t deep) {
  _tile_zero(0);
  if (Q == 2) _tile_zero(1);
  if (P == 2) _tile_zero(2);
  if (P == 2 && Q == 2) _tile_zero(3);
  for (int64_t t = 0; t < deep; t++, left.at += left.deeper, right.at += right.deeper) {
    _tile_loadd(4, left.at, left.pitch);
    _tile_loadd(6, right.at, right.pitch);
    _tile_dpbf16ps(0, 4, 6);
    if (Q == 2) {
      _tile_loadd(7, right.at + right.beside, right.pitch);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (P == 2) {
      _tile_loadd(5, left.at + left.beside, left.pitch);
      _tile_dpbf16ps(2, 5, 6);
      if (Q == 2) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums, 4 * SIDE);
  if (Q == 2) _tile_stored(1, sums + SIDE * SIDE, 4 * SIDE);
  if (P == 2) _tile_stored(2, sums + 2 * SIDE * SIDE, 4 * SIDE);
  if (P == 2 && Q == 2) _tile_stored(3, sums + 3 * SIDE * SIDE, 4 * SIDE);
}

/* As `sum_up`, for one or two tiles either way. */
static inline void sum_up_some(int two_left, int two_right, float *sums, Tiles left, Tiles right, int64_t deep) {
  if (two_left && two_right)
    sum_up(2, 2, sums, left, right, deep);
  else if (two_left)
    sum_up(2, 1, sums, left, right, deep);
  else if (two_right)
    sum_up(1, 2, sums, left, right, deep);
  else
    sum_up(1, 1, sums, left, right, deep);
}

/* Two rows of 16 numbers, rounded, as a row of a right tile. */
static inline __m512i paired(__m512 x, __m512 y) {
  const __m512i beside = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                          21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(beside, (__m512i)_mm512_cvtne2ps_pbh(y, x));
}

/* 32 numbers, rounded, as a row of a left tile. */
static inline __m512i rounded(__m512 low, __m512 high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

#endif
#endif
