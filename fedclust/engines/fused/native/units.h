/* Products of bfloat16 numbers with float32 sums by a processor's own instructions: its units for matrices (AMX), or
   AVX-512 where that is faster than float32. Where the compiler knows either, UNITS is defined.

   Both multiply tiles: 16 rows of 32 numbers by 32 rows of 16, and add to 16 rows of 16 sums in float32. The left tile
   has 32 neighbours of k in a row, the right one pairs of them: row i has numbers 2i and 2i + 1 of every column beside
   each other. */

#ifndef UNITS_H
#define UNITS_H

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
#define UNITS
#if defined(__AMX_BF16__) && defined(__linux__)
#define MATRICES /* units for them */
#endif

#include "transpose.h"

#define SIDE 16            /* rows of a tile, and float32 numbers of one */
#define DEEP 32            /* bfloat16 numbers of a row */
#define NUMBERS (SIDE * DEEP) /* bfloat16 numbers */
#define MOST 12            /* rows of sums in registers, without units for matrices */

/* Tiles in memory: bytes from row to row, the rows of a left tile followed by those of the one below it; bfloat16
   numbers from a right tile to the one beside it, and from a tile to that of the next stretch of k. */
typedef struct {
  const uint16_t *at;
  int64_t pitch, beside, deeper;
} Tiles;

/* Where sums go: bytes from row to row, and float32 numbers to the tile beside. */
typedef struct {
  float *at;
  int64_t pitch, beside;
} Sums;

#ifdef MATRICES
/* To be called by a thread before its first tile, with how many rows of sums are wanted of the upper and of the lower
   left tiles; `end_tiles` is to follow its last. Fewer rows take less time. */
static inline void begin_tiles_of(int64_t upper, int64_t lower) {
  const uint8_t u = (uint8_t)upper, l = (uint8_t)lower;
  const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16]; /* of the sums, two upper and two lower; of the left tiles; of the right ones */
  } config = {.palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {u, u, l, l, u, l, 16, 16}};
  _tile_loadconfig(&config);
}

static inline void end_tiles(void) { _tile_release(); }

/* to = (ADD: +=) the sums of P by Q tiles over k: `stretches` of `each` tiles; those of a stretch lie one after the
   other, the left ones in the same rows. */
ALWAYS void sum_up(const int P, const int Q, const int ADD, Sums to, Tiles left, Tiles right, int64_t stretches,
                   int64_t each) {
  float *const below = to.at + SIDE * to.pitch / (int64_t)sizeof(float);
  const int64_t next = SIDE * left.pitch / (int64_t)sizeof(uint16_t);
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
        _tile_loadd(5, from + next, left.pitch);
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

/* As `sum_up`, for the first `rows` rows of two left tiles, if there are so many, and one or two right ones. A few
   more rows may be read and written, up to 16 or 32. */
ALWAYS void sum_up_some(int64_t rows, int two_right, const int ADD, Sums to, Tiles left, Tiles right,
                        int64_t stretches, int64_t each) {
  if (rows > SIDE && two_right)
    sum_up(2, 2, ADD, to, left, right, stretches, each);
  else if (rows > SIDE)
    sum_up(2, 1, ADD, to, left, right, stretches, each);
  else if (two_right)
    sum_up(1, 2, ADD, to, left, right, stretches, each);
  else
    sum_up(1, 1, ADD, to, left, right, stretches, each);
}
#else
static inline void begin_tiles_of(int64_t upper, int64_t lower) { (void)upper, (void)lower; }
static inline void end_tiles(void) {}

/* Two neighbours of k, for all columns. */
ALWAYS __m512bh both(const uint16_t *from) {
  int pair;
  __builtin_memcpy(&pair, from, sizeof pair);
  return (__m512bh)_mm512_set1_epi32(pair);
}

/* As above for H rows, whose sums fit the registers, and Q right tiles. */
ALWAYS void sum_up(const int H, const int Q, const int ADD, Sums to, Tiles left, Tiles right, int64_t stretches,
                   int64_t each) {
  const int64_t pitch = to.pitch / (int64_t)sizeof(float), across = left.pitch / 2, down = right.pitch / 2;
  __m512 sums[MOST][2];
  for (int i = 0; i < H; i++)
    for (int q = 0; q < Q; q++)
      sums[i][q] = ADD ? _mm512_loadu_ps(to.at + i * pitch + q * to.beside) : _mm512_setzero_ps();
  for (int64_t s = 0; s < stretches; s++, left.at += left.deeper) {
    const uint16_t *from = left.at;
    for (int64_t t = 0; t < each; t++, from += DEEP, right.at += right.deeper)
      for (int64_t k = 0; k < SIDE; k++) {
        __m512bh own[2];
        for (int q = 0; q < Q; q++) own[q] = (__m512bh)_mm512_loadu_si512(right.at + k * down + q * right.beside);
        for (int i = 0; i < H; i++) {
          const __m512bh x = both(from + i * across + 2 * k);
          for (int q = 0; q < Q; q++) sums[i][q] = _mm512_dpbf16_ps(sums[i][q], x, own[q]);
        }
      }
  }
  for (int i = 0; i < H; i++)
    for (int q = 0; q < Q; q++) _mm512_storeu_ps(to.at + i * pitch + q * to.beside, sums[i][q]);
}

#define ROWS_AT_ONCE(H)                                         \
  case H:                                                    \
    if (two_right)                                           \
      sum_up(H, 2, ADD, to, left, right, stretches, each);   \
    else                                                     \
      sum_up(H, 1, ADD, to, left, right, stretches, each);   \
    break;

ALWAYS void sum_up_some(int64_t rows, int two_right, const int ADD, Sums to, Tiles left, Tiles right,
                        int64_t stretches, int64_t each) {
  int64_t all = rows < 2 * SIDE ? rows : 2 * SIDE;
  for (int64_t parts = (all + MOST - 1) / MOST; parts; parts--) {
    const int64_t high = (all + 2 * parts - 1) / (2 * parts) * 2; /* of like height, and even */
    switch (high) { ROWS_AT_ONCE(2) ROWS_AT_ONCE(4) ROWS_AT_ONCE(6) ROWS_AT_ONCE(8) ROWS_AT_ONCE(10) ROWS_AT_ONCE(12) }
    left.at += high * left.pitch / (int64_t)sizeof(uint16_t);
    to.at += high * to.pitch / (int64_t)sizeof(float);
    all -= high;
  }
}
#endif

static inline void begin_tiles(void) { begin_tiles_of(SIDE, SIDE); }

/* Two rows of 16 numbers, rounded, as a row of a right tile. */
static inline __m512i paired(__m512 x, __m512 y) {
  const __m512i beside = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                          21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(beside, (__m512i)_mm512_cvtne2ps_pbh(y, x));
}

/* 32 numbers, rounded, as a row of a left tile. */
static inline __m512i rounded(__m512 low, __m512 high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

static inline int64_t tiles(int64_t size, int64_t side) { return (size + side - 1) / side; }

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
