/* What convolutions are made of: vectors and their sizes, what a block is told, and products of an image's pixels whose
   tiles of sums stay in registers. For convolution.c and convolution_winograd.h. */

#ifndef CONVOLUTION_PRODUCTS_H
#define CONVOLUTION_PRODUCTS_H

#ifdef __AVX2__
#include <immintrin.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

/* Numbers of a vector, and vectors of a tile: its sums must fit the registers. */
#if defined(__AVX512F__)
#define LANES 16
#define WIDE 4
#elif defined(__AVX__)
#define LANES 8
#define WIDE 2
#else
#define LANES 4
#define WIDE 4
#endif
#define MOST_PIXELS (LANES == 8 ? 6 : 7) /* of a tile: with them its sums and factors are all of 16 registers */
/* of the kernel, likewise, beside N vectors */
#define MOST_PLACES(N) (N == 1 || (N == 2 && LANES == 16) ? 12 : 6)

#include "lanes.h"

typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* anywhere in memory */
typedef uint8_t bytes __attribute__((vector_size(LANES), aligned(1), may_alias));

#define CUT 255 /* in `where`: no place of the window, the ReLU let nothing through */

/* [R, B, C, H, W] in memory; an image is [H, W, C] if `last`, else [C, H, W]. */
typedef struct {
  float *data;
  int64_t row, image, last;
} Images;

typedef struct {
  int64_t rows, batch, inputs, height, width, outputs, kernel_rows, kernel_columns;
  int64_t padded_height, padded_width, pad_top, pad_left;
  int64_t out_height, out_width;                       /* before the maximum */
  int64_t row_stride, column_stride;                   /* of the convolution */
  int64_t pooled_height, pooled_width;                 /* after the maximum */
  int64_t window_height, window_width, window_row_stride, window_column_stride, relu;
  int64_t pieces;                         /* that a row of the kernel is in, where it meets an image */
  int64_t parts;                          /* that the images of a row of clients are dealt out in */
  int64_t rounds;                         /* factors are rounded */
  int64_t side;                           /* of the squares of convolution_winograd.h; 0 without */
  int64_t large;                          /* values of a kernel are made anew where they are needed */
  Images x, y, delta, back;               /* back without data: nobody needs the gradient of the images */
  const float *kernel, *bias;             /* [R, out, taps, in], [R, out] or NULL */
  float *kernel_gradient, *bias_gradient; /* likewise */
  const int32_t *places;                  /* [K] where an image has the numbers that a kernel meets */
  const int32_t *meets;                   /* [out_height, 2] first and last + 1 row of the kernel that meets x */
  const int32_t *met;                     /* [kernel rows, 2] rows of g whose pixels meet x by it */
  const int32_t *channels;                /* [in or out] 0, 1, 2, ... */
  /* Room, of the sizes in `Rooms`. */
  vec *turned, *back_turned; /* [R] of [K + 1, v], the bias last; of [kernel rows, pieces, out, u]; by squares 36
                                values in place of the kernel's places */
  float *padded;             /* [R, B] of [padded image, in]; NULL without backward */
  uint8_t *where;            /* [R, B] of [pooled_height, pooled_width, v] place in the window; NULL likewise */
  vec *partial;              /* [R, parts] of [K + 1, v] gradients of some images, the bias' last; likewise */
  vec *scratch;              /* [threads] */
} Block;

/* Float32 numbers of the room for one row, image, image, part and thread. */
typedef struct {
  int64_t turned, back_turned, padded, where, partial, scratch;
} Rooms;

/* Sizes that follow from the others: K and its vectors of outputs, the places of a row of the kernel, those of a
   piece of it and their vectors, numbers of a padded image; pixels from a row of sums to the next one; vectors of the
   turned kernel, and of its gradient, before the bias. */
typedef struct {
  int64_t k, v, each, piece, u, padded, across, turned, back_turned, gradient;
} Sizes;

/* The nearest numbers that bfloat16 has. */
static void round_all(const Block *j, float *x, int64_t count) {
  int32_t *bits = (int32_t *)x;
  for (int64_t i = 0; j->rounds && i < count; i++) bits[i] = ROUNDED(bits[i]);
}

/* Bytes as numbers of four bytes, which compilers take apart one by one. */
ALWAYS ivec widened(const uint8_t *from) {
#if defined(__AVX512F__)
  return (ivec)_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)from));
#elif defined(__AVX2__)
  return (ivec)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)from));
#else
  return __builtin_convertvector(*(const bytes *)from, ivec);
#endif
}

/* `count` numbers, `spacing` apart from each other; anything for the others where `room` numbers are there to be
   read, else 0. */
ALWAYS vec read(const float *from, int64_t count, int64_t spacing, int64_t room) {
  if (spacing == 1 && room >= LANES) return *(const loose *)from;
  vec x = {};
  for (int64_t i = 0; i < LANES && i < count; i++) x[i] = from[i * spacing];
  return x;
}

/* The reverse; whoever has `room` writes there later. */
ALWAYS void write(float *to, vec x, int64_t count, int64_t spacing, int64_t room) {
  if (spacing == 1 && room >= LANES)
    *(loose *)to = x;
  else
    for (int64_t i = 0; i < LANES && i < count; i++) to[i * spacing] = x[i];
}

/* Pixels: `columns` of them lie `spacing` numbers apart, the next ones `pitch` after these. */
typedef struct {
  float *data;
  int64_t pitch, spacing;
} Grid;

/* to_p[n] = (ADD: +=) sum over k of x_p[places[k]] w[k, n] for P pixels and N vectors. */
ALWAYS void tile(const int P, const int N, const int ADD, float *const *to, const float *const *x,
                 const int32_t *places, int64_t k, const vec *w, int64_t v) {
  vec sums[MOST_PIXELS][WIDE];
  for (int p = 0; p < P; p++)
    for (int n = 0; n < N; n++) sums[p][n] = (vec){};
  for (int64_t i = 0; i < k; i++) {
    const int64_t at = places[i];
    vec b[WIDE];
    for (int n = 0; n < N; n++) b[n] = w[i * v + n];
    for (int p = 0; p < P; p++) {
      const float a = x[p][at];
      for (int n = 0; n < N; n++) sums[p][n] += a * b[n];
    }
  }
  for (int p = 0; p < P; p++)
    for (int n = 0; n < N; n++) {
      loose *place = (loose *)(to[p] + n * LANES);
      if (ADD)
        *place += sums[p][n];
      else
        *place = sums[p][n];
    }
}

/* Size of the next tile, of at most `most`; the last two share what is left, so that none has very few. */
ALWAYS int64_t even_part(int64_t left, int64_t most) {
  return left >= 2 * most ? most : left > most ? (left + 1) / 2 : left;
}

/* Functions of their own, so that nothing but the tile takes registers. */
typedef void (*Tile)(float *const *, const float *const *, const int32_t *, int64_t, const vec *, int64_t);
#define TILE(P, N, ADD)                                                                                   \
  ALONE void tile_##P##_##N##_##ADD(float *const *to, const float *const *x, const int32_t *places,       \
                                    int64_t k, const vec *w, int64_t v) {                                 \
    tile(P <= MOST_PIXELS ? P : 1, N, ADD, to, x, places, k, w, v);                                       \
  }
#define TILES(N, ADD)                                                                                     \
  TILE(1, N, ADD) TILE(2, N, ADD) TILE(3, N, ADD) TILE(4, N, ADD) TILE(5, N, ADD) TILE(6, N, ADD)         \
  TILE(7, N, ADD)                                                                                         \
  static const Tile tiles_##N##_##ADD[] = {0,                tile_1_##N##_##ADD, tile_2_##N##_##ADD,      \
                                           tile_3_##N##_##ADD, tile_4_##N##_##ADD, tile_5_##N##_##ADD,    \
                                           tile_6_##N##_##ADD, tile_7_##N##_##ADD};

#if WIDE == 4
TILES(4, 0) TILES(4, 1)
#endif
TILES(2, 0) TILES(2, 1)
TILES(1, 0) TILES(1, 1)

#define VECTORS(N)                                                                                        \
  for (; n + N <= v; n += N)                                                                              \
    for (int64_t p = 0, row = 0, column = 0, size; p < rows * columns; p += size) {                       \
      const float *from[MOST_PIXELS];                                                                     \
      float *into[MOST_PIXELS];                                                                           \
      size = even_part(rows * columns - p, MOST_PIXELS);                                                  \
      for (int64_t i = 0; i < size; i++) {                                                                \
        from[i] = x.data + row * x.pitch + column * x.spacing;                                            \
        into[i] = to.data + row * to.pitch + column * to.spacing + n * LANES;                             \
        if (++column == columns) column = 0, row++;                                                       \
      }                                                                                                   \
      (add ? tiles_##N##_1 : tiles_##N##_0)[size](into, from, places, k, w + n, v);                       \
    }

/* As `tile`, for all pixels of two grids and v vectors. */
static void product(Grid to, Grid x, int64_t rows, int64_t columns, const int32_t *places, int64_t k, const vec *w,
                    int64_t v, int add) {
  int64_t n = 0;
#if WIDE == 4
  VECTORS(4)
#endif
  VECTORS(2)
  VECTORS(1)
}

/* to[i, n] = (add: +=) sum over pixels of x[p + places[i]] g[p, n] for I places and N vectors; pixels of g are `pitch`
   vectors apart, places of `to` v. */
ALWAYS void gather(const int I, const int N, int add, vec *to, Grid x, const int32_t *places, int64_t rows, int64_t columns,
                   const vec *g, int64_t pitch, int64_t v) {
  vec sums[MOST_PLACES(1)][WIDE];
  int64_t at[MOST_PLACES(1)];
  for (int i = 0; i < I; i++) at[i] = places[i];
  for (int i = 0; i < I; i++)
    for (int n = 0; n < N; n++) sums[i][n] = add ? to[i * v + n] : (vec){};
  for (int64_t h = 0; h < rows; h++)
    for (int64_t w = 0; w < columns; w++) {
      const float *here = x.data + h * x.pitch + w * x.spacing;
      vec b[WIDE];
      for (int n = 0; n < N; n++) b[n] = g[(h * columns + w) * pitch + n];
      for (int i = 0; i < I; i++) {
        const float a = here[at[i]];
        for (int n = 0; n < N; n++) sums[i][n] += a * b[n];
      }
    }
  for (int i = 0; i < I; i++)
    for (int n = 0; n < N; n++) to[i * v + n] = sums[i][n];
}

#define PLACES(I, N)                                                                                      \
  case I:                                                                                                 \
    gather(I <= MOST_PLACES(N) ? I : 1, N, add, to + i * v + n, x, places + i, rows, columns, g + n, pitch, v); \
    break;

#define GRADIENTS(N)                                                                                      \
  for (; n + N <= v; n += N)                                                                              \
    for (int64_t i = 0, size; i < k; i += size)                                                           \
      switch (size = even_part(k - i, MOST_PLACES(N))) {                                                  \
        PLACES(1, N) PLACES(2, N) PLACES(3, N) PLACES(4, N) PLACES(5, N) PLACES(6, N) PLACES(7, N)        \
        PLACES(8, N) PLACES(9, N) PLACES(10, N) PLACES(11, N) PLACES(12, N)                               \
      }

/* to [k, v] = (add: +=) the gradient of the kernel by some rows of an image. */
ALONE void kernel_product(vec *to, Grid x, int64_t rows, int64_t columns, const int32_t *places, int64_t k,
                          const vec *g, int64_t pitch, int64_t v, int add) {
  int64_t n = 0;
#if WIDE == 4
  GRADIENTS(4)
#endif
  GRADIENTS(2)
  GRADIENTS(1)
}

static float *image_of(const Images *x, int64_t r, int64_t b) { return x->data + r * x->row + b * x->image; }

/* The image with zeros around it, channels last. */
static void pad(const Block *j, const Sizes *s, const float *from, float *to) {
  const int64_t c = j->inputs, pitch = j->padded_width * c, size = j->height * j->width;
  memset(to, 0, (size_t)s->padded * sizeof(float));
  to += j->pad_top * pitch + j->pad_left * c;
  for (int64_t h = 0; h < j->height; h++, to += pitch) {
    if (j->x.last || c == 1)
      memcpy(to, from + h * j->width * c, (size_t)(j->width * c) * sizeof(float));
    else
      for (int64_t i = 0; i < c; i++)
        for (int64_t w = 0; w < j->width; w++) to[w * c + i] = from[i * size + h * j->width + w];
    round_all(j, to, j->width * c);
  }
}

/* Rows (or columns) of a window that begins at `first` and does not reach past `end`. */
static int64_t inside(int64_t size, int64_t first, int64_t end) { return first + size > end ? end - first : size; }

#define STRIP (24 << 10) /* bytes of g, or of the sums, that a first-level cache keeps beside x */

/* Rows of an output to work on at once. */
static int64_t strip_of(const Sizes *s) {
  const int64_t bytes = s->across * s->v * (int64_t)sizeof(vec);
  return bytes >= STRIP ? 1 : STRIP / bytes;
}

#endif
