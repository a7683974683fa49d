/* Numbers in vectors of LANES, those of a register unless the file says otherwise (compilers keep wider ones in memory,
   which is four times slower), and the loss of a batch over them. */

#ifndef LANES_H
#define LANES_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#ifndef LANES
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#endif
#define ALWAYS static inline __attribute__((always_inline))
#define ALONE static __attribute__((noinline)) /* for functions that are to have all registers */
typedef float vec __attribute__((vector_size(4 * LANES), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));

static const float NOTHING = -1e30f; /* logit of a class that does not exist */

/* Vectors of so many numbers. */
static inline int64_t vectors(int64_t numbers) { return (numbers + LANES - 1) / LANES; }

ALWAYS vec choose(ivec mask, vec yes, vec no) { return (vec)(((ivec)yes & mask) | ((ivec)no & ~mask)); }

/* exp(x) for x <= 0, to 2 units in the last place; 0 below -87. */
static inline vec exp_of(vec x) {
  const ivec gone = x < -87.0f;
  x = choose(gone, (vec){} - 87.0f, x);
  const ivec power = __builtin_convertvector(x * 1.44269504f - 0.5f, ivec);
  const vec whole = __builtin_convertvector(power, vec);
  const vec r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  vec y = r * 1.9875691500e-4f + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * (r * r) + r + 1.0f;
  return choose(gone, (vec){}, y * (vec)((power + 127) << 23));
}

static inline float largest(vec x) {
  float t[LANES];
  memcpy(t, &x, sizeof t);
  for (int w = LANES / 2; w; w /= 2)
    for (int i = 0; i < w; i++) t[i] = t[i] > t[i + w] ? t[i] : t[i + w];
  return t[0];
}

static inline float sum(vec x) {
#ifdef __AVX512F__
  return _mm512_reduce_add_ps((__m512)x);
#else
  float t[LANES];
  memcpy(t, &x, sizeof t);
  for (int w = LANES / 2; w; w /= 2)
    for (int i = 0; i < w; i++) t[i] += t[i + w];
  return t[0];
#endif
}

/* Turn logits [size, v] into the gradient of the batch's loss, the mean or weighted by `shares`; returns that loss. */
static inline double descend(vec *logits, int64_t v, const int64_t *label, const float *shares, int64_t size) {
  double loss = 0, product = 1; /* the log of a product is cheaper than many logs */
  float share = 1.0f / (float)size;
  for (int64_t e = 0; e < size; e++) {
    vec *z = logits + e * v;
    vec most = z[0], sums = (vec){};
    for (int64_t w = 1; w < v; w++) most = choose(z[w] > most, z[w], most);
    const float top = largest(most);
    const float right = ((float *)z)[label[e]];
    for (int64_t w = 0; w < v; w++) sums += z[w] = exp_of(z[w] - top);
    const float total = sum(sums);
    if (shares) {
      share = shares[e];
      loss += (double)share * (top - right + log((double)total));
    } else {
      loss += top - right;
      product *= total;
      if (!(product < 1e200)) loss += log(product), product = 1;
    }
    const float scale = share / total;
    for (int64_t w = 0; w < v; w++) z[w] *= scale;
    ((float *)z)[label[e]] -= share;
  }
  return shares ? loss : (loss + log(product)) / (double)size;
}

/* The bits of the nearest number that is exact in bfloat16. */
#define ROUNDED(bits) (((bits) + 0x7fff + (((bits) >> 16) & 1)) & -65536)

static inline void round_to(vec *to, const vec *from, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] = (vec)ROUNDED((ivec)from[i]);
}

static inline vec *take(vec **free, int64_t count) {
  vec *here = *free;
  *free += count;
  memset(here, 0, (size_t)count * sizeof(vec));
  return here;
}

/* Zeros behind the o numbers of each row of [count, v]. A client whose model diverged may have left nan there, which
   stays nan whatever it is multiplied by. */
static inline void clear_rest(vec *to, int64_t count, int64_t o, int64_t v) {
  const size_t rest = (size_t)(v * LANES - o) * sizeof(float);
  for (int64_t i = 0; rest && i < count; i++) memset((float *)(to + i * v) + o, 0, rest);
}

/* to [count, v] from [count, o], zeros behind; nothing from NULL. */
static inline void widen(vec *to, const float *from, int64_t count, int64_t o, int64_t v) {
  for (int64_t i = 0; from && i < count; i++) memcpy(to + i * v, from + i * o, (size_t)o * sizeof(float));
  if (from) clear_rest(to, count, o, v);
}

/* to [count, o] from [count, v]. */
static inline void narrow(float *to, const vec *from, int64_t count, int64_t o, int64_t v) {
  for (int64_t i = 0; to && i < count; i++) memcpy(to + i * o, from + i * v, (size_t)o * sizeof(float));
}

#endif
