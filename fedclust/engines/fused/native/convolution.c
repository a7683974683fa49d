/* Convolutions of many models at once: every row (client) has its own kernels and its own images.

   One call computes a block of a network: zeros around the images, convolution, bias, ReLU and the maximum over
   windows, the last two where there are any. What lies between them never leaves the cache.

   Images lie channels last inside: x [H, W, in]. With k = (row, column, channel) of a kernel

       forward         s[p, o] = sum_k x[p + k] w[k, o];   y = max over windows of relu(s + bias)
       of the kernel   dw[k, o] = sum_p x[p + k] g[p, o]
       of the images   dx[p + k] += sum_o g[p, o] w[k, o]

   g being the gradient of s: that of y at the places the maxima came from, 0 elsewhere. All three are products in
   which a tile of sums stays in registers: pixels by channels, places of the kernel by channels, and pixels by the
   places of a row of the kernel. Channels of an output, and the places of a row, lie in vectors, filled up with
   zeros. What lies in the lanes that fill up is never read.

   Rows of zeros are there, but rows of the kernel that would meet nothing else are left out.

   With strides of 1 and enough channels, kernels of 3 x 3 and 5 x 5 take fewer multiplications: see
   convolution_winograd.h.

   The factors of all three products may be rounded to bfloat16, as on a GPU; the products are float32 ones.

   Longer than most files here: its inlined tiles are shared by the forward and the backward pass. */

#include <stdint.h>
#include <string.h>
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
#define MOST_PIXELS 7 /* of a tile */
/* of the kernel, likewise, beside N vectors */
#define MOST_PLACES(N) (N == 1 || (N == 2 && LANES == 16) ? 12 : 6)

typedef float vec __attribute__((vector_size(4 * LANES), may_alias));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* anywhere in memory */
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef uint8_t bytes __attribute__((vector_size(LANES), aligned(1), may_alias));

#define INLINE static inline __attribute__((always_inline))
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

static int64_t vectors(int64_t channels) { return (channels + LANES - 1) / LANES; }

/* Sizes that follow from the others: K and its vectors of outputs, the places of a row of the kernel, those of a
   piece of it and their vectors, numbers of a padded image; pixels from a row of sums to the next one; vectors of the
   turned kernel, and of its gradient, before the bias. */
typedef struct {
  int64_t k, v, each, piece, u, padded, across, turned, back_turned, gradient;
} Sizes;

/* The nearest numbers that bfloat16 has. */
static void round_all(const Block *j, float *x, int64_t count) {
  int32_t *bits = (int32_t *)x;
  for (int64_t i = 0; j->rounds && i < count; i++) bits[i] = (bits[i] + 0x7fff + ((bits[i] >> 16) & 1)) & -65536;
}

INLINE vec choose(ivec mask, vec yes, vec no) { return (vec)(((ivec)yes & mask) | ((ivec)no & ~mask)); }

/* Bytes as numbers of four bytes, which compilers take apart one by one. */
INLINE ivec widened(const uint8_t *from) {
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
INLINE vec read(const float *from, int64_t count, int64_t spacing, int64_t room) {
  if (spacing == 1 && room >= LANES) return *(const loose *)from;
  vec x = {};
  for (int64_t i = 0; i < LANES && i < count; i++) x[i] = from[i * spacing];
  return x;
}

/* The reverse; whoever has `room` writes there later. */
INLINE void write(float *to, vec x, int64_t count, int64_t spacing, int64_t room) {
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
INLINE void tile(const int P, const int N, const int ADD, float *const *to, const float *const *x,
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
INLINE int64_t even_part(int64_t left, int64_t most) {
  return left >= 2 * most ? most : left > most ? (left + 1) / 2 : left;
}

/* Functions of their own, so that nothing but the tile takes registers. */
typedef void (*Tile)(float *const *, const float *const *, const int32_t *, int64_t, const vec *, int64_t);
#define TILE(P, N, ADD)                                                                                   \
  static __attribute__((noinline)) void tile_##P##_##N##_##ADD(float *const *to, const float *const *x,   \
                                                               const int32_t *places, int64_t k,          \
                                                               const vec *w, int64_t v) {                 \
    tile(P, N, ADD, to, x, places, k, w, v);                                                              \
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

/* to[i, n] += sum over pixels of x[p + places[i]] g[p, n] for I places and N vectors. */
INLINE void gather(const int I, const int N, vec *to, Grid x, const int32_t *places, int64_t rows, int64_t columns,
                   const vec *g, int64_t v) {
  vec sums[MOST_PLACES(1)][WIDE];
  int64_t at[MOST_PLACES(1)];
  for (int i = 0; i < I; i++) at[i] = places[i];
  for (int i = 0; i < I; i++)
    for (int n = 0; n < N; n++) sums[i][n] = to[i * v + n];
  for (int64_t h = 0; h < rows; h++)
    for (int64_t w = 0; w < columns; w++) {
      const float *here = x.data + h * x.pitch + w * x.spacing;
      vec b[WIDE];
      for (int n = 0; n < N; n++) b[n] = g[(h * columns + w) * v + n];
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
    gather(I <= MOST_PLACES(N) ? I : 1, N, to + i * v + n, x, places + i, rows, columns, g + n, v);       \
    break;

#define GRADIENTS(N)                                                                                      \
  for (; n + N <= v; n += N)                                                                              \
    for (int64_t i = 0, size; i < k; i += size)                                                           \
      switch (size = even_part(k - i, MOST_PLACES(N))) {                                                  \
        PLACES(1, N) PLACES(2, N) PLACES(3, N) PLACES(4, N) PLACES(5, N) PLACES(6, N) PLACES(7, N)        \
        PLACES(8, N) PLACES(9, N) PLACES(10, N) PLACES(11, N) PLACES(12, N)                               \
      }

/* to [k, v] += the gradient of the kernel by some rows of an image. */
static void kernel_product(vec *to, Grid x, int64_t rows, int64_t columns, const int32_t *places, int64_t k,
                           const vec *g, int64_t v) {
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

#include "convolution_winograd.h"

static Sizes sizes_of(const Block *j) {
  const int64_t each = j->kernel_columns * j->inputs, piece = each / j->pieces;
  Sizes s = {.k = j->kernel_rows * each, .v = vectors(j->outputs), .each = each, .piece = piece, .u = vectors(piece),
             .padded = j->padded_height * j->padded_width * j->inputs, .across = j->out_width};
  s.turned = s.gradient = s.k * s.v;
  s.back_turned = j->kernel_rows * j->pieces * j->outputs * s.u;
  if (j->side) {
    s.turned = s.gradient = SQUARE * j->inputs * s.v;
    s.back_turned = SQUARE * j->outputs * vectors(j->inputs);
  }
  return s;
}

/* Vectors of a thread for the sums of an image, or g, and an image with its zeros; what is added to its end may reach
   a vector further. */
static int64_t beside_sums(const Block *j, const Sizes *s) {
  return j->out_height * j->out_width * s->v + vectors(s->padded) + 1;
}

/* The room that a block needs. */
void rooms(const Block *j, Rooms *to) {
  const Sizes s = sizes_of(j);
  const int64_t scratch = beside_sums(j, &s) + (j->side ? winograd_space(j) : 0);
  *to = (Rooms){.turned = (s.turned + s.v) * LANES, .back_turned = s.back_turned * LANES, .padded = s.padded,
                .where = (j->pooled_height * j->pooled_width * s.v * LANES + 3) / 4,
                .partial = (s.gradient + s.v) * LANES, .scratch = scratch * LANES};
}

/* The sums of some rows of an output, by those rows of the kernel that meet the image. */
static void convolve(const Block *j, const Sizes *s, float *x, const vec *w, vec *out, int64_t first, int64_t rows) {
  const int64_t v = s->v, pitch = j->row_stride * j->padded_width * j->inputs;
  const int32_t *meets = j->meets;
  for (int64_t h = first, end; h < first + rows; h = end) {
    const int64_t from = meets[2 * h], to = meets[2 * h + 1];
    for (end = h + 1; end < first + rows && meets[2 * end] == from && meets[2 * end + 1] == to;) end++;
    product((Grid){(float *)(out + h * j->out_width * v), j->out_width * v * LANES, v * LANES},
            (Grid){x + h * pitch, pitch, j->column_stride * j->inputs}, end - h, j->out_width,
            j->places + from * s->each, (to - from) * s->each, w + from * s->each * v, v, 0);
  }
}

/* Pixels `from` to `to` of row h of y, whose windows have these rows and columns; `sums` are of the whole image. */
INLINE void maxima(const Block *j, const Sizes *s, const vec *sums, const vec *bias, float *y, uint8_t *where,
                   int64_t h, int64_t from, int64_t to, int64_t rows, int64_t columns) {
  const int64_t v = s->v, n = j->pooled_height * j->pooled_width, all = n * j->outputs, pitch = s->across * v;
  const vec *window = sums + h * j->window_row_stride * pitch + from * j->window_column_stride * v;
  for (int64_t at = h * j->pooled_width + from; at < h * j->pooled_width + to; at++) {
    for (int64_t c = 0; c < v; c++) {
      const int64_t first = c * LANES, count = j->outputs - first;
      vec most = window[c];
      ivec place = {};
      for (int64_t a = 0; a < rows; a++)
        for (int64_t q = 0; q < columns; q++) {
          if (a + q == 0) continue;
          const vec here = window[a * pitch + q * v + c];
          const ivec more = (here > most) | (here != here); /* what is no number stays visible */
          most = choose(more, here, most);
          place = (place & ~more) | ((int32_t)(a * j->window_width + q) & more);
        }
      most += bias[c];
      if (j->relu) {
        const ivec cut = most <= 0;
        most = choose(cut, (vec){}, most);
        place = (place & ~cut) | (CUT & cut);
      }
      if (where) *(bytes *)(where + (at * v + c) * LANES) = __builtin_convertvector(place, bytes);
      if (j->y.last)
        write(y + at * j->outputs + first, most, count, 1, all - at * j->outputs - first);
      else
        write(y + first * n + at, most, count, n, 0);
    }
    window += j->window_column_stride * v;
  }
}

/* Rows of the sums of an image, at their place in `sums`; by squares they are all made at once. */
static void sum_rows(const Block *j, const Sizes *s, float *x, const vec *w, vec *sums, int64_t first, int64_t rows) {
  if (j->side)
    sums_by_squares(j, x, w, sums, sums + beside_sums(j, s));
  else
    convolve(j, s, x, w, sums, first, rows);
}

/* An image with its zeros, which the sums are made from. */
static float *padded_of(const Block *j, const Sizes *s, int64_t r, int64_t b, vec *scratch) {
  const float *image = image_of(&j->x, r, b);
  float *kept = j->padded ? j->padded + (r * j->batch + b) * s->padded : NULL;
  if (!kept) kept = (float *)(scratch + j->out_height * j->out_width * s->v);
  pad(j, s, image, kept);
  return kept;
}

static void forward_image(const Block *j, const Sizes *s, int64_t r, int64_t b, vec *scratch) {
  const int64_t v = s->v, n = j->pooled_height * j->pooled_width;
  float *x = padded_of(j, s, r, b, scratch);
  float *y = image_of(&j->y, r, b);
  uint8_t *where = j->where ? j->where + (r * j->batch + b) * n * v * LANES : NULL;
  const vec *w = j->turned + r * (s->turned + v), *bias = w + s->turned;
  const int64_t strip = j->side ? j->out_height : strip_of(s), width = j->window_width;
  /* windows that no edge of the image cuts */
  const int64_t most = j->out_width >= width ? (j->out_width - width) / j->window_column_stride + 1 : 0;
  const int64_t whole = most < j->pooled_width ? most : j->pooled_width;
  for (int64_t h = 0, done = 0; h < j->pooled_height; h++) {
    const int64_t top = h * j->window_row_stride, rows = inside(j->window_height, top, j->out_height);
    if (top + rows > done) { /* the maximum follows at once, while the sums are in the cache */
      const int64_t more = inside(strip > top + rows - done ? strip : top + rows - done, done, j->out_height);
      sum_rows(j, s, x, w, scratch, done, more);
      done += more;
    }
    if (rows == 1 && width == 1)
      maxima(j, s, scratch, bias, y, where, h, 0, whole, 1, 1);
    else if (rows == 2 && width == 2)
      maxima(j, s, scratch, bias, y, where, h, 0, whole, 2, 2);
    else
      maxima(j, s, scratch, bias, y, where, h, 0, whole, rows, width);
    for (int64_t q = whole; q < j->pooled_width; q++)
      maxima(j, s, scratch, bias, y, where, h, q, q + 1, rows,
             inside(width, q * j->window_column_stride, j->out_width));
  }
}

/* g from d, the gradient of a maximum, at its place in the window; `alone` if no other window reaches there. */
INLINE void back_to(vec *g, ivec place, vec d, int64_t rows, int64_t columns, int64_t pitch, int64_t v,
                    int64_t width, int alone) {
  for (int64_t a = 0; a < rows; a++)
    for (int64_t q = 0; q < columns; q++) {
      const vec part = choose(place == (int32_t)(a * width + q), d, (vec){});
      vec *to = g + a * pitch + q * v;
      if (alone)
        *to = part;
      else
        *to += part;
    }
}

/* g from the gradient of an image of y; adds its sums to `bias` [v]. */
static void unpool(const Block *j, const Sizes *s, int64_t r, int64_t b, vec *g, vec *bias) {
  const int64_t v = s->v, n = j->pooled_height * j->pooled_width, pitch = s->across * v, all = n * j->outputs;
  const int64_t down = j->window_row_stride, right = j->window_column_stride, width = j->window_width;
  const float *delta = image_of(&j->delta, r, b);
  const uint8_t *where = j->where + (r * j->batch + b) * n * v * LANES;
  const int alone = down >= j->window_height && right >= width;
  if (!alone || down > j->window_height || right > width || j->pooled_height * down < j->out_height ||
      j->pooled_width * right < j->out_width)
    memset(g, 0, (size_t)(j->out_height * pitch) * sizeof(vec));
  for (int64_t h = 0; h < j->pooled_height; h++)
    for (int64_t w = 0; w < j->pooled_width; w++) {
      const int64_t at = h * j->pooled_width + w, top = h * down, left = w * right;
      const int64_t rows = inside(j->window_height, top, j->out_height);
      const int64_t columns = inside(width, left, j->out_width);
      for (int64_t c = 0; c < v; c++) {
        const int64_t first = c * LANES, count = j->outputs - first;
        const ivec place = widened(where + (at * v + c) * LANES);
        vec d = j->delta.last ? read(delta + at * j->outputs + first, count, 1, all - at * j->outputs - first)
                              : read(delta + first * n + at, count, n, 0);
        d = choose(place == CUT, (vec){}, d);
        bias[c] += d;
        vec *to = g + (top * s->across + left) * v + c;
        if (rows == 2 && columns == 2 && alone)
          back_to(to, place, d, 2, 2, pitch, v, width, 1);
        else if (rows == 1 && columns == 1 && alone)
          *to = d;
        else
          back_to(to, place, d, rows, columns, pitch, v, width, alone);
      }
    }
}

/* Adds to the gradient of the kernel what g gives with an image. */
static void kernel_by_rows(const Block *j, const Sizes *s, vec *to, float *x, const vec *g) {
  const int64_t v = s->v, width = j->padded_width * j->inputs, strip = strip_of(s);
  const int64_t down = j->row_stride * width, right = j->column_stride * j->inputs;
  const int32_t *met = j->met;
  for (int64_t h = 0; h < j->out_height; h += strip)
    for (int64_t row = 0, end; row < j->kernel_rows; row = end) { /* rows that meet the same pixels go together */
      const int64_t first = met[2 * row] > h ? met[2 * row] : h, last = met[2 * row + 1];
      const int64_t rows = inside(h + strip - first, first, last);
      for (end = row + 1; end < j->kernel_rows; end++) {
        const int64_t from = met[2 * end] > h ? met[2 * end] : h;
        if (from != first || inside(h + strip - first, first, met[2 * end + 1]) != rows) break;
      }
      if (rows > 0)
        kernel_product(to + row * s->each * v, (Grid){x + first * down, down, right}, rows, j->out_width,
                       j->places + row * s->each, (end - row) * s->each, g + first * j->out_width * v, v);
    }
}

/* Adds to the gradient of an image with its zeros, likewise. */
static void image_by_rows(const Block *j, const Sizes *s, float *to, const vec *g, const vec *w) {
  const int64_t v = s->v, right = j->column_stride * j->inputs, down = j->row_stride * j->padded_width * j->inputs;
  const int32_t *met = j->met;
  for (int64_t i = 0; i < j->kernel_rows * j->pieces; i++, w += j->outputs * s->u) {
    const int64_t row = i / j->pieces, first = met[2 * row];
    /* down a column first: pixels of a row add to the same numbers, which then wait for each other */
    product((Grid){to + j->places[i * s->piece] + first * down, right, down},
            (Grid){(float *)(g + first * j->out_width * v), v * LANES, j->out_width * v * LANES}, j->out_width,
            met[2 * row + 1] - first, j->channels, j->outputs, w, s->u, 1);
  }
}

static void backward_image(const Block *j, const Sizes *s, int64_t r, int64_t b, vec *partial, vec *g) {
  const int64_t sums = j->out_height * j->out_width * s->v, width = j->padded_width * j->inputs;
  float *x = j->padded + (r * j->batch + b) * s->padded, *dx = j->back.data ? (float *)(g + sums) : NULL;
  const vec *w = dx ? j->back_turned + r * s->back_turned : NULL;
  unpool(j, s, r, b, g, partial + s->gradient);
  round_all(j, (float *)g, sums * LANES);
  if (dx) memset(dx, 0, (size_t)s->padded * sizeof(float));
  if (j->side)
    gradients_by_squares(j, x, g, w, partial, dx, g + beside_sums(j, s));
  else {
    kernel_by_rows(j, s, partial, x, g);
    if (dx) image_by_rows(j, s, dx, g, w);
  }
  if (!dx) return;
  float *back = image_of(&j->back, r, b);
  dx += j->pad_top * width + j->pad_left * j->inputs;
  for (int64_t h = 0; h < j->height; h++)
    memcpy(back + h * j->width * j->inputs, dx + h * width, (size_t)(j->width * j->inputs) * sizeof(float));
}

/* The kernel of a row as [K, v], as values, and the bias. */
static void turn(const Block *j, const Sizes *s, int64_t r) {
  const float *from = j->kernel + r * j->outputs * s->k;
  const int64_t lanes = s->v * LANES;
  vec *const turned = j->turned + r * (s->turned + s->v);
  float *to = (float *)turned, *bias = (float *)(turned + s->turned);
  for (int64_t o = 0; o < lanes; o++) bias[o] = j->bias && o < j->outputs ? j->bias[r * j->outputs + o] : 0;
  for (int64_t k = 0; k < s->k; k++)
    for (int64_t o = 0; o < lanes; o++) to[k * lanes + o] = o < j->outputs ? from[o * s->k + k] : 0;
  round_all(j, to, s->k * lanes);
  if (j->side) values_of_kernel(j, turned, j->inputs * s->v);
}

/* The kernel of a row as [kernel rows, pieces, out, u], as values. */
static void turn_back(const Block *j, const Sizes *s, int64_t r) {
  const float *from = j->kernel + r * j->outputs * s->k;
  float *to = (float *)(j->back_turned + r * s->back_turned);
  memset(to, 0, (size_t)s->back_turned * sizeof(vec));
  if (j->side) {
    const int64_t c = j->inputs, u = vectors(c);
    for (int64_t place = 0; place < s->k / c; place++)
      for (int64_t o = 0; o < j->outputs; o++)
        memcpy(to + (place * j->outputs + o) * u * LANES, from + o * s->k + place * c, (size_t)c * sizeof(float));
    values_of_kernel(j, (vec *)to, j->outputs * u);
    return;
  }
  for (int64_t i = 0; i < j->kernel_rows * j->pieces; i++)
    for (int64_t o = 0; o < j->outputs; o++)
      memcpy(to + (i * j->outputs + o) * s->u * LANES, from + o * s->k + i * s->piece,
             (size_t)s->piece * sizeof(float));
  round_all(j, to, s->back_turned * LANES);
}

/* The gradients of a row, from those of its parts. */
static void collect(const Block *j, const Sizes *s, int64_t r) {
  const int64_t each = s->gradient + s->v, c = j->inputs;
  vec *sums = j->partial + r * j->parts * each;
  for (int64_t p = 1; p < j->parts; p++)
    for (int64_t i = 0; i < each; i++) sums[i] += sums[p * each + i];
  if (j->side) kernel_of_values(j, sums, c * s->v);
  const float *from = (const float *)sums;
  float *to = j->kernel_gradient + r * j->outputs * s->k;
  for (int64_t o = 0; o < j->outputs; o++)
    for (int64_t place = 0; place < s->k / c; place++)
      for (int64_t i = 0; i < c; i++) *to++ = from[(place * c + i) * s->v * LANES + o];
  if (j->bias_gradient)
    memcpy(j->bias_gradient + r * j->outputs, from + s->gradient * LANES, (size_t)j->outputs * sizeof(float));
}

static vec *own_scratch(const Block *j, int64_t space) {
#ifdef _OPENMP
  return j->scratch + omp_get_thread_num() * space;
#else
  return j->scratch;
#endif
}

int lanes(void) { return LANES; }

/* y, and what `backward` needs. */
void forward(const Block *j, int threads) {
  const Sizes s = sizes_of(j);
  Rooms room;
  rooms(j, &room);
  (void)threads; /* unused where the compiler does not know OpenMP */
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(dynamic)
    for (int64_t r = 0; r < j->rows; r++) turn(j, &s, r);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < j->rows * j->batch; i++)
      forward_image(j, &s, i / j->batch, i % j->batch, own_scratch(j, room.scratch / LANES));
  }
}

/* The gradients of kernels and biases, and of the images where they are needed; sums are made in an order that
   does not depend on the threads. */
void backward(const Block *j, int threads) {
  const Sizes s = sizes_of(j);
  const int64_t each = s.gradient + s.v;
  Rooms room;
  rooms(j, &room);
  (void)threads;
#pragma omp parallel num_threads(threads)
  {
    if (j->back.data) {
#pragma omp for schedule(dynamic)
      for (int64_t r = 0; r < j->rows; r++) turn_back(j, &s, r);
    }
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < j->rows * j->parts; i++) {
      const int64_t r = i / j->parts, p = i % j->parts;
      vec *partial = j->partial + i * each;
      memset(partial, 0, (size_t)each * sizeof(vec));
      for (int64_t b = j->batch * p / j->parts; b < j->batch * (p + 1) / j->parts; b++)
        backward_image(j, &s, r, b, partial, own_scratch(j, room.scratch / LANES));
    }
#pragma omp for schedule(dynamic)
    for (int64_t r = 0; r < j->rows; r++) collect(j, &s, r);
  }
}
