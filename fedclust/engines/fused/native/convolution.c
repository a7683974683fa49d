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
  Images x, y, delta, back;               /* back without data: nobody needs the gradient of the images */
  const float *kernel, *bias;             /* [R, out, taps, in], [R, out] or NULL */
  float *kernel_gradient, *bias_gradient; /* likewise */
  const int32_t *places;                  /* [K] where an image has the numbers that a kernel meets */
  const int32_t *meets;                   /* [out_height, 2] first and last + 1 row of the kernel that meets x */
  const int32_t *met;                     /* [kernel rows, 2] rows of g whose pixels meet x by it */
  const int32_t *channels;                /* [out] 0, 1, 2, ... */
  vec *turned, *back_turned;              /* [R, K + 1, v], the bias last; [R, kernel rows, pieces, out, u] */
  float *padded;                          /* [R, B, padded image, in]; NULL without backward */
  uint8_t *where;                         /* [R, B, pooled_height, pooled_width, v] place in the window; NULL likewise */
  vec *partial;                           /* [R, parts, K + 1, v] gradients of some images, the bias' last */
  vec *scratch;                           /* [threads, space] */
  int64_t space;                          /* vectors */
} Block;

/* Sizes that follow from the others: K and its vectors of outputs, the places of a row of the kernel, those of a
   piece of it and their vectors. */
typedef struct {
  int64_t k, v, each, piece, u, padded;
} Sizes;

static int64_t vectors(int64_t channels) { return (channels + LANES - 1) / LANES; }

static Sizes sizes_of(const Block *j) {
  const int64_t each = j->kernel_columns * j->inputs, piece = each / j->pieces;
  return (Sizes){.k = j->kernel_rows * each, .v = vectors(j->outputs), .each = each, .piece = piece, .u = vectors(piece),
                 .padded = j->padded_height * j->padded_width * j->inputs};
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
    for (int64_t p = 0, size; p < rows * columns; p += size) {                                            \
      const float *from[MOST_PIXELS];                                                                     \
      float *into[MOST_PIXELS];                                                                           \
      int64_t row = p / columns, column = p % columns;                                                    \
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
    if (j->x.last || c == 1) {
      memcpy(to, from + h * j->width * c, (size_t)(j->width * c) * sizeof(float));
      continue;
    }
    for (int64_t i = 0; i < c; i++)
      for (int64_t w = 0; w < j->width; w++) to[w * c + i] = from[i * size + h * j->width + w];
  }
}

/* Rows (or columns) of a window that begins at `first` and does not reach past `end`. */
static int64_t inside(int64_t size, int64_t first, int64_t end) { return first + size > end ? end - first : size; }

#define STRIP (24 << 10) /* bytes of g, or of the sums, that a first-level cache keeps beside x */

/* Rows of an output to work on at once. */
static int64_t strip_of(const Block *j, const Sizes *s) {
  const int64_t bytes = j->out_width * s->v * (int64_t)sizeof(vec);
  return bytes >= STRIP ? 1 : STRIP / bytes;
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
  const int64_t v = s->v, n = j->pooled_height * j->pooled_width, all = n * j->outputs, pitch = j->out_width * v;
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

static void forward_image(const Block *j, const Sizes *s, int64_t r, int64_t b, vec *scratch) {
  const int64_t v = s->v, n = j->pooled_height * j->pooled_width, pixels = j->out_height * j->out_width;
  float *x = j->padded ? j->padded + (r * j->batch + b) * s->padded : (float *)(scratch + pixels * v);
  float *y = image_of(&j->y, r, b);
  uint8_t *where = j->where ? j->where + (r * j->batch + b) * n * v * LANES : NULL;
  const vec *w = j->turned + r * (s->k + 1) * v, *bias = w + s->k * v;
  pad(j, s, image_of(&j->x, r, b), x);
  const int64_t strip = strip_of(j, s), width = j->window_width;
  /* windows that no edge of the image cuts */
  const int64_t most = j->out_width >= width ? (j->out_width - width) / j->window_column_stride + 1 : 0;
  const int64_t whole = most < j->pooled_width ? most : j->pooled_width;
  for (int64_t h = 0, done = 0; h < j->pooled_height; h++) {
    const int64_t top = h * j->window_row_stride, rows = inside(j->window_height, top, j->out_height);
    if (top + rows > done) { /* the maximum follows at once, while the sums are in the cache */
      const int64_t more = inside(strip > top + rows - done ? strip : top + rows - done, done, j->out_height);
      convolve(j, s, x, w, scratch, done, more);
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
  const int64_t v = s->v, n = j->pooled_height * j->pooled_width, pitch = j->out_width * v, all = n * j->outputs;
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
        vec *to = g + (top * j->out_width + left) * v + c;
        if (rows == 2 && columns == 2 && alone)
          back_to(to, place, d, 2, 2, pitch, v, width, 1);
        else if (rows == 1 && columns == 1 && alone)
          *to = d;
        else
          back_to(to, place, d, rows, columns, pitch, v, width, alone);
      }
    }
}

static void backward_image(const Block *j, const Sizes *s, int64_t r, int64_t b, vec *partial, vec *g) {
  const int64_t v = s->v, width = j->padded_width * j->inputs;
  const int64_t down = j->row_stride * width, right = j->column_stride * j->inputs;
  float *x = j->padded + (r * j->batch + b) * s->padded;
  const int32_t *met = j->met;
  const int64_t strip = strip_of(j, s);
  unpool(j, s, r, b, g, partial + s->k * v);
  for (int64_t h = 0; h < j->out_height; h += strip)
    for (int64_t row = 0, end; row < j->kernel_rows; row = end) { /* rows that meet the same pixels go together */
      const int64_t first = met[2 * row] > h ? met[2 * row] : h, last = met[2 * row + 1];
      const int64_t rows = inside(h + strip - first, first, last);
      for (end = row + 1; end < j->kernel_rows; end++) {
        const int64_t from = met[2 * end] > h ? met[2 * end] : h;
        if (from != first || inside(h + strip - first, first, met[2 * end + 1]) != rows) break;
      }
      if (rows > 0)
        kernel_product(partial + row * s->each * v, (Grid){x + first * down, down, right}, rows, j->out_width,
                       j->places + row * s->each, (end - row) * s->each, g + first * j->out_width * v, v);
    }
  if (!j->back.data) return;
  float *dx = (float *)(g + j->out_height * j->out_width * v), *back = image_of(&j->back, r, b);
  memset(dx, 0, (size_t)s->padded * sizeof(float));
  const vec *w = j->back_turned + r * j->kernel_rows * j->pieces * j->outputs * s->u;
  for (int64_t i = 0; i < j->kernel_rows * j->pieces; i++, w += j->outputs * s->u) {
    const int64_t row = i / j->pieces, first = met[2 * row];
    /* down a column first: pixels of a row add to the same numbers, which then wait for each other */
    product((Grid){dx + j->places[i * s->piece] + first * down, right, down},
            (Grid){(float *)(g + first * j->out_width * v), v * LANES, j->out_width * v * LANES}, j->out_width,
            met[2 * row + 1] - first, j->channels, j->outputs, w, s->u, 1);
  }
  dx += j->pad_top * width + j->pad_left * j->inputs;
  for (int64_t h = 0; h < j->height; h++)
    memcpy(back + h * j->width * j->inputs, dx + h * width, (size_t)(j->width * j->inputs) * sizeof(float));
}

/* The kernel of a row as [K, v], and the bias. */
static void turn(const Block *j, const Sizes *s, int64_t r) {
  const float *from = j->kernel + r * j->outputs * s->k;
  const int64_t lanes = s->v * LANES;
  float *to = (float *)(j->turned + r * (s->k + 1) * s->v);
  for (int64_t k = 0; k < s->k; k++)
    for (int64_t o = 0; o < lanes; o++) to[k * lanes + o] = o < j->outputs ? from[o * s->k + k] : 0;
  for (int64_t o = 0; o < lanes; o++)
    to[s->k * lanes + o] = j->bias && o < j->outputs ? j->bias[r * j->outputs + o] : 0;
}

/* The kernel of a row as [kernel rows, pieces, out, u]. */
static void turn_back(const Block *j, const Sizes *s, int64_t r) {
  const int64_t pieces = j->kernel_rows * j->pieces;
  const float *from = j->kernel + r * j->outputs * s->k;
  float *to = (float *)(j->back_turned + r * pieces * j->outputs * s->u);
  memset(to, 0, (size_t)(pieces * j->outputs * s->u) * sizeof(vec));
  for (int64_t i = 0; i < pieces; i++)
    for (int64_t o = 0; o < j->outputs; o++)
      memcpy(to + (i * j->outputs + o) * s->u * LANES, from + o * s->k + i * s->piece,
             (size_t)s->piece * sizeof(float));
}

/* The gradients of a row, from those of its parts. */
static void collect(const Block *j, const Sizes *s, int64_t r) {
  const int64_t each = (s->k + 1) * s->v;
  vec *sums = j->partial + r * j->parts * each;
  for (int64_t p = 1; p < j->parts; p++)
    for (int64_t i = 0; i < each; i++) sums[i] += sums[p * each + i];
  const float *from = (const float *)sums;
  float *to = j->kernel_gradient + r * j->outputs * s->k;
  for (int64_t o = 0; o < j->outputs; o++)
    for (int64_t k = 0; k < s->k; k++) to[o * s->k + k] = from[k * s->v * LANES + o];
  if (j->bias_gradient)
    memcpy(j->bias_gradient + r * j->outputs, from + s->k * s->v * LANES, (size_t)j->outputs * sizeof(float));
}

static vec *own_scratch(const Block *j) {
#ifdef _OPENMP
  return j->scratch + omp_get_thread_num() * j->space;
#else
  return j->scratch;
#endif
}

int lanes(void) { return LANES; }

/* y, and what `backward` needs. */
void forward(const Block *j, int threads) {
  const Sizes s = sizes_of(j);
  (void)threads; /* unused where the compiler does not know OpenMP */
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(dynamic)
    for (int64_t r = 0; r < j->rows; r++) turn(j, &s, r);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < j->rows * j->batch; i++)
      forward_image(j, &s, i / j->batch, i % j->batch, own_scratch(j));
  }
}

/* The gradients of kernels and biases, and of the images where they are needed; sums are made in an order that
   does not depend on the threads. */
void backward(const Block *j, int threads) {
  const Sizes s = sizes_of(j);
  const int64_t each = (s.k + 1) * s.v;
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
        backward_image(j, &s, r, b, partial, own_scratch(j));
    }
#pragma omp for schedule(dynamic)
    for (int64_t r = 0; r < j->rows; r++) collect(j, &s, r);
  }
}
