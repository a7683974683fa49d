/* Matrices turned over, sixteen by sixteen numbers at a time. */

#ifndef TRANSPOSE_H
#define TRANSPOSE_H

#include "lanes.h"

#ifdef __AVX512F__
#include <immintrin.h>

/* 16 vectors of 16 numbers of four bytes, rows for columns. */
ALWAYS void transpose(__m512i *x) {
  __m512i y[16];
  for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; j++) {
      x[i + 2 * j] = _mm512_unpacklo_epi64(y[i + j], y[i + 2 + j]);
      x[i + 2 * j + 1] = _mm512_unpackhi_epi64(y[i + j], y[i + 2 + j]);
    }
  for (int i = 0; i < 16; i += 8)
    for (int j = 0; j < 4; j++) {
      y[i + j] = _mm512_shuffle_i32x4(x[i + j], x[i + 4 + j], 0x88);
      y[i + 4 + j] = _mm512_shuffle_i32x4(x[i + j], x[i + 4 + j], 0xdd);
    }
  for (int j = 0; j < 8; j++) {
    x[j] = _mm512_shuffle_i32x4(y[j], y[8 + j], 0x88);
    x[8 + j] = _mm512_shuffle_i32x4(y[j], y[8 + j], 0xdd);
  }
}

ALWAYS __mmask16 first(int64_t count) { return count >= 16 ? 0xffff : count <= 0 ? 0 : (__mmask16)((1u << count) - 1); }
#elif defined(__AVX__)
#include <immintrin.h>

/* to [8, 8] = from [8, 8], turned. */
ALWAYS void transpose(float *to, int64_t to_pitch, const float *from, int64_t from_pitch) {
  __m256 x[8], y[8];
  for (int i = 0; i < 4; i++) /* halves of four numbers: rows i and i + 4 in one vector */
    for (int h = 0; h < 2; h++)
      x[4 * h + i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from + i * from_pitch + 4 * h)),
                                          _mm_loadu_ps(from + (i + 4) * from_pitch + 4 * h), 1);
  for (int h = 0; h < 8; h += 4)
    for (int i = 0; i < 2; i++) {
      y[h + i] = _mm256_unpacklo_ps(x[h + 2 * i], x[h + 2 * i + 1]);
      y[h + 2 + i] = _mm256_unpackhi_ps(x[h + 2 * i], x[h + 2 * i + 1]);
    }
  for (int h = 0; h < 8; h += 2) {
    _mm256_storeu_ps(to + h * to_pitch, _mm256_shuffle_ps(y[h], y[h + 1], 0x44));
    _mm256_storeu_ps(to + (h + 1) * to_pitch, _mm256_shuffle_ps(y[h], y[h + 1], 0xee));
  }
}
#endif

/* to [columns, rows] = from [rows, columns], turned; floats from row to row. Written line by line of the cache, which
   otherwise would meet every line of `to` once for each row of `from`. */
static inline void turn_over(float *to, int64_t to_pitch, const float *from, int64_t from_pitch, int64_t rows,
                             int64_t columns) {
  for (int64_t r = 0; r < rows; r += 16)
    for (int64_t c = 0; c < columns; c += 16) {
      const int64_t high = rows - r < 16 ? rows - r : 16, wide = columns - c < 16 ? columns - c : 16;
      const float *const here = from + r * from_pitch + c;
      float *const there = to + c * to_pitch + r;
#ifdef __AVX512F__
      __m512i x[16];
      for (int64_t i = 0; i < 16; i++)
        x[i] = (__m512i)_mm512_maskz_loadu_ps(i < high ? first(wide) : 0, here + (i < high ? i : 0) * from_pitch);
      transpose(x);
      for (int64_t i = 0; i < wide; i++) _mm512_mask_storeu_ps(there + i * to_pitch, first(high), (__m512)x[i]);
#else
#ifdef __AVX__
      if (high == 16 && wide == 16) {
        for (int64_t i = 0; i < 4; i++)
          transpose(there + i / 2 * 8 * to_pitch + i % 2 * 8, to_pitch, here + i % 2 * 8 * from_pitch + i / 2 * 8,
                    from_pitch);
        continue;
      }
#endif
      for (int64_t k = 0; k < wide; k++)
        for (int64_t i = 0; i < high; i++) there[k * to_pitch + i] = here[i * from_pitch + k];
#endif
    }
}

#endif
