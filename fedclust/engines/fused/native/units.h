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
#define NUMBERS (SIDE * DEEP) /* bfloat16 numbers */

/* Tiles in memory: bytes from row to row, and bfloat16 numbers from a tile to the one beside it and to that of the
   next stretch of k. */
typedef struct {
  const uint16_t *at;
  int64_t pitch, beside, deeper;
} Tiles;

/* Where sums go: bytes from row to row, and float32 numbers to the tile beside and to that of the next 16 rows. */
typedef struct {
  float *at;
  int64_t pitch, beside, down;
} Sums;

/* To be called by a thread before its first tile; `_tile_release` is to follow its last. */
static inline void begin_tiles(void) {
  const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } config = {.palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
  _tile_loadconfig(&config);
}

#define ALWAYS static inline __attribute__((always_inline))

/* to = (ADD: +=) the sums of P by Q tiles over k: `stretches` of `each` tiles; those of a stretch lie one after the
   other, the left ones in the same rows. */
ALWAYS void sum_up(const int P, const int Q, const int ADD, Sums to, Tiles left, Tiles right, int64_t stretches,
                   int64_t each) {
  float *const below = to.at + to.down;
  if (ADD) {
    _tile_loadd(0, to.at, to.pitch);
    if (Q == 2) _tile_loadd(1, to.at + to.beside, to.pitch);
    if (P == 2) _tile_loadd(2, below, to.pitch);
    if (P == 2 && Q == 2) _tile_loadd(3, below + to.beside, to.pitch);
  } else {
    _tile_zero(0);
    if (Q == 2) _tile_zero(1);
    if (P == 2) _tile_zero(2);
    if (P == 2 && Q == 2) _tile_zero(3);
  }
  for (int64_t s = 0; s < stretches; s++, left.at += left.deeper) {
    const uint16_t *from = left.at;
    for (int64_t t = 0; t < each; t++, from += DEEP, right.at += right.deeper) {
      _tile_loadd(4, from, left.pitch);
      _tile_loadd(6, right.at, right.pitch);
      _tile_dpbf16ps(0, 4, 6);
      if (Q == 2) {
        _tile_loadd(7, right.at + right.beside, right.pitch);
        _tile_dpbf16ps(1, 4, 7);
      }
      if (P == 2) {
        _tile_loadd(5, from + left.beside, left.pitch);
        _tile_dpbf16ps(2, 5, 6);
        if (Q == 2) _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
  _tile_stored(0, to.at, to.pitch);
  if (Q == 2) _tile_stored(1, to.at + to.beside, to.pitch);
  if (P == 2) _tile_stored(2, below, to.pitch);
  if (P == 2 && Q == 2) _tile_stored(3, below + to.beside, to.pitch);
}

/* As `sum_up`, for one or two tiles either way. */
ALWAYS void sum_up_some(int two_left, int two_right, const int ADD, Sums to, Tiles left, Tiles right,
                        int64_t stretches, int64_t each) {
  if (two_left && two_right)
    sum_up(2, 2, ADD, to, left, right, stretches, each);
  else if (two_left)
    sum_up(2, 1, ADD, to, left, right, stretches, each);
  else if (two_right)
    sum_up(1, 2, ADD, to, left, right, stretches, each);
  else
    sum_up(1, 1, ADD, to, left, right, stretches, each);
}

/* Two rows of 16 numbers, rounded, as a row of a right tile. */
static inline __m512i paired(__m512 x, __m512 y) {
  const __m512i beside = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                          21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(beside, (__m512i)_mm512_cvtne2ps_pbh(y, x));
}

/* 32 numbers, rounded, as a row of a left tile. */
static inline __m512i rounded(__m512 low, __m512 high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

static inline int64_t tiles(int64_t size, int64_t side) { return (size + side - 1) / side; }
ALWAYS __mmask16 first(int64_t count) { return count >= SIDE ? 0xffff : count <= 0 ? 0 : (__mmask16)((1u << count) - 1); }

/* 16 vectors of 16 numbers of four bytes, rows for columns. */
ALWAYS void transpose(__m512i *x) {
  __m512i y[SIDE];
  for (int i = 0; i < SIDE; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  for (int i = 0; i < SIDE; i += 4)
    for (int j = 0; j < 2; j++) {
      x[i + 2 * j] = _mm512_unpacklo_epi64(y[i + j], y[i + 2 + j]);
      x[i + 2 * j + 1] = _mm512_unpackhi_epi64(y[i + j], y[i + 2 + j]);
    }
  for (int i = 0; i < SIDE; i += 8)
    for (int j = 0; j < 4; j++) {
      y[i + j] = _mm512_shuffle_i32x4(x[i + j], x[i + 4 + j], 0x88);
      y[i + 4 + j] = _mm512_shuffle_i32x4(x[i + j], x[i + 4 + j], 0xdd);
    }
  for (int j = 0; j < 8; j++) {
    x[j] = _mm512_shuffle_i32x4(y[j], y[8 + j], 0x88);
    x[8 + j] = _mm512_shuffle_i32x4(y[j], y[8 + j], 0xdd);
  }
}

/* 16 rows of 32 neighbours each, rounded; zeros beyond `rows` and `deep`. */
ALWAYS void neighbours(__m512i *to, const float *from, int64_t stride, int64_t rows, int64_t deep) {
  const __mmask16 low = first(deep), high = first(deep - SIDE);
  for (int i = 0; i < SIDE; i++) {
    const float *row = from + (i < rows ? i : 0) * stride;
    const __mmask16 here = i < rows ? 0xffff : 0;
    to[i] = rounded(_mm512_maskz_loadu_ps(low & here, row), _mm512_maskz_loadu_ps(high & here, row + SIDE));
  }
}

/* 16 pairs of rows of 16 neighbours each, rounded, a pair beside each other; zeros likewise. */
ALWAYS void pairs(__m512i *to, const float *from, int64_t stride, int64_t deep, int64_t columns) {
  const __mmask16 inside = first(columns);
  for (int i = 0; i < SIDE; i++) {
    const int64_t low = 2 * i, high = low + 1;
    const __m512 x = _mm512_maskz_loadu_ps(low < deep ? inside : 0, from + (low < deep ? low : 0) * stride);
    const __m512 y = _mm512_maskz_loadu_ps(high < deep ? inside : 0, from + (high < deep ? high : 0) * stride);
    to[i] = paired(x, y);
  }
}

/* The tile of a [rows, deep] part of a matrix, `across` floats from row to row and `along` from k to k; its left form,
   or its right one, the part's transpose. */
ALWAYS void make_tile(const int RIGHT, uint16_t *to, const float *from, int64_t across, int64_t along, int64_t rows,
                 int64_t deep) {
  __m512i x[SIDE];
  if (along == 1)
    neighbours(x, from, across, rows, deep);
  else
    pairs(x, from, along, deep, rows);
  if ((along == 1) == RIGHT) transpose(x);
  for (int i = 0; i < SIDE; i++) _mm512_store_si512(to + i * DEEP, x[i]);
}

#endif
#endif
