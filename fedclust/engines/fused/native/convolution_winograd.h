/* Convolutions of stride 1 with fewer multiplications, after Winograd.

   An output is made in squares of m x m sums, each from 6 x 6 pixels, m = 7 - the kernel's side. In one dimension the
   kernel w and the pixels x are mapped to values at six points, and their products (*, point by point) to the m sums y:

       y = A' (G w * B' x)

   A and G give the values of polynomials at the points, from m and 7 - m coefficients, G with a scale beside. All
   gradients follow from the transposes:

       dw = G' (A g * B' x),   dx = B (A g * G w).

   In two dimensions every map goes along both sides of a square, so there are 36 points, and at each of them the
   squares of an image are a matrix [squares, channels] and the kernel one of [in, out]: 36 products of matrices in
   place of k² m² / 36 times as many multiplications.

   The points are 0, ±3/4, ±3/2 and the highest coefficient: with them rounding errors are half of those with 0, ±1, ±2.
   They are those of a whole square, so sums over nothing but zeros are not 0 where pixels beside are not. A ReLU
   without a bias would let such noise pass, with a gradient; so it is cleared. */

#ifndef CONVOLUTION_WINOGRAD_H
#define CONVOLUTION_WINOGRAD_H

#include "convolution_products.h"
#include "transpose.h"

#define POINTS 6 /* along a side */
#define SQUARE (POINTS * POINTS)
/* Squares that are worked on at once: their values are to stay in the cache of a core; beside large kernels more, since
   the values of a panel are made anew for each lot. */
#ifndef MOST_SQUARES
#define MOST_SQUARES 56
#endif
#define MOST_BESIDE_LARGE 112
#define BLOCK 64   /* channels of a large kernel whose values are made at once, 36 x 64 vectors of a panel */
#define AHEAD 4     /* outputs whose lines of a kernel are asked for before they are needed */
#define SOME 12     /* outputs whose gradients of values are made at once */

/* Points besides 0 and the highest coefficient: ±NEAR and ±FAR. */
#define NEAR 0.75f
#define FAR 1.5f
#define NEAR2 (NEAR * NEAR)
#define FAR2 (FAR * FAR)

/* The scale beside G: 1 / the product of a point's distances from the other four; 1 for the highest coefficient. */
#define OF_ZERO (1 / (NEAR2 * FAR2))
#define OF_NEAR (1 / (2 * NEAR2 * (NEAR2 - FAR2)))
#define OF_FAR (1 / (2 * FAR2 * (FAR2 - NEAR2)))

/* A map of n vectors x to others y, `from` and `to` being steps between them; x and y do not overlap. */
#define MAP(name) \
  ALWAYS void name(const int n, vec *restrict y, const int64_t to, const vec *restrict x, const int64_t from)

/* n coefficients, two or more, to values, times scales at 0, ±NEAR and ±FAR. */
ALWAYS void scaled_values(const int n, const float at_0, const float at_near, const float at_far, vec *restrict y,
                          const int64_t to, const vec *restrict x, const int64_t from) {
  vec near = at_near * x[0], far = at_far * x[0], odd_near = at_near * NEAR * x[from], odd_far = at_far * FAR * x[from];
  if (n > 2) near += at_near * NEAR2 * x[2 * from], far += at_far * FAR2 * x[2 * from];
  if (n > 4) near += at_near * NEAR2 * NEAR2 * x[4 * from], far += at_far * FAR2 * FAR2 * x[4 * from];
  if (n > 3) odd_near += at_near * NEAR * NEAR2 * x[3 * from], odd_far += at_far * FAR * FAR2 * x[3 * from];
  y[0] = at_0 * x[0];
  y[to] = near + odd_near;
  y[2 * to] = near - odd_near;
  y[3 * to] = far + odd_far;
  y[4 * to] = far - odd_far;
  y[5 * to] = x[(n - 1) * from];
}

/* Its transpose. */
ALWAYS void scaled_moments(const int n, const float at_0, const float at_near, const float at_far, vec *restrict y,
                           const int64_t to, const vec *restrict x, const int64_t from) {
  const vec near = x[from] + x[2 * from], far = x[3 * from] + x[4 * from];
  const vec odd_near = x[from] - x[2 * from], odd_far = x[3 * from] - x[4 * from];
  const vec last = x[5 * from], none = {};
  y[0] = at_0 * x[0] + at_near * near + at_far * far;
  y[to] = at_near * NEAR * odd_near + at_far * FAR * odd_far + (n == 2 ? last : none);
  if (n > 2) y[2 * to] = at_near * NEAR2 * near + at_far * FAR2 * far + (n == 3 ? last : none);
  if (n > 3) y[3 * to] = at_near * NEAR * NEAR2 * odd_near + at_far * FAR * FAR2 * odd_far + (n == 4 ? last : none);
  if (n > 4) y[4 * to] = at_near * NEAR2 * NEAR2 * near + at_far * FAR2 * FAR2 * far + last;
}

MAP(a_of) { scaled_values(n, 1, 1, 1, y, to, x, from); }                       /* A */
MAP(a_turned) { scaled_moments(n, 1, 1, 1, y, to, x, from); }                  /* A' */
MAP(g_of) { scaled_values(n, OF_ZERO, OF_NEAR, OF_FAR, y, to, x, from); }      /* G */
MAP(g_turned) { scaled_moments(n, OF_ZERO, OF_NEAR, OF_FAR, y, to, x, from); } /* G' */

/* Six pixels to values: B'. */
MAP(of_pixels) {
  (void)n;
  const vec near = x[4 * from] - FAR2 * x[2 * from], far = x[4 * from] - NEAR2 * x[2 * from];
  const vec odd_near = x[3 * from] - FAR2 * x[from], odd_far = x[3 * from] - NEAR2 * x[from];
  y[0] = x[4 * from] - (NEAR2 + FAR2) * x[2 * from] + NEAR2 * FAR2 * x[0];
  y[to] = near + NEAR * odd_near;
  y[2 * to] = near - NEAR * odd_near;
  y[3 * to] = far + FAR * odd_far;
  y[4 * to] = far - FAR * odd_far;
  y[5 * to] = x[5 * from] - (NEAR2 + FAR2) * x[3 * from] + NEAR2 * FAR2 * x[from];
}

/* Its transpose, values to six pixels: B. */
MAP(to_pixels) {
  (void)n;
  const vec near = x[from] + x[2 * from], far = x[3 * from] + x[4 * from];
  const vec odd_near = NEAR * (x[from] - x[2 * from]), odd_far = FAR * (x[3 * from] - x[4 * from]);
  y[0] = NEAR2 * FAR2 * x[0];
  y[to] = NEAR2 * FAR2 * x[5 * from] - FAR2 * odd_near - NEAR2 * odd_far;
  y[2 * to] = -(NEAR2 + FAR2) * x[0] - FAR2 * near - NEAR2 * far;
  y[3 * to] = odd_near + odd_far - (NEAR2 + FAR2) * x[5 * from];
  y[4 * to] = x[0] + near + far;
  y[5 * to] = x[5 * from];
}

/* A map of `in` to `out` along both sides of a square; steps from a row to the next one, and from a column. */
#define BOTH_SIDES(map, n, in, out, y, y_row, y_column, x, x_row, x_column)                            \
  do {                                                                                                 \
    vec between[(in) * (out)];                                                                         \
    for (int i = 0; i < (in); i++) map(n, between + i * (out), 1, (x) + i * (x_row), x_column);        \
    for (int i = 0; i < (out); i++) map(n, (y) + i * (y_column), y_row, between + i, out);             \
  } while (0)

/* The squares of an output: along its height and width, rows of them that are worked on at once, and images, where
   those of one are few; how many that are, and vectors from a point's values to the next one's, of pixels, of sums and
   of a panel, odd so that 36 points do not push each other out. */
typedef struct {
  int64_t down, across, rows, images, most, pixels, sums, panel;
} Squares;

static Squares squares_of(const Block *j) {
  Squares q = {.down = (j->out_height + j->side - 1) / j->side, .across = (j->out_width + j->side - 1) / j->side};
  const int64_t limit = j->large ? MOST_BESIDE_LARGE : MOST_SQUARES, share = (j->batch + j->parts - 1) / j->parts;
  const int64_t high = limit > q.across ? limit / q.across : 1, bands = (q.down + high - 1) / high;
  const int64_t fit = bands > 1 ? 1 : limit / (q.down * q.across), images = j->large ? j->batch : share;
  q.rows = (q.down + bands - 1) / bands;
  q.images = fit > images ? images : fit < 1 ? 1 : fit;
  q.most = q.images * q.rows * q.across;
  q.pixels = q.most * vectors(j->inputs) | 1;
  q.sums = q.most * vectors(j->outputs) | 1;
  q.panel = q.most * WIDE | 1;
  return q;
}

/* Whether sums are what the block gives, as they lie. */
static int is_bare(const Block *j) {
  return !j->relu && !j->bias && j->window_height * j->window_width == 1 && j->window_row_stride == 1 &&
         j->window_column_stride == 1 && j->y.last && j->outputs % LANES == 0;
}

/* Vectors of the sums of some images, where they are not the block's output. */
static int64_t winograd_sums(const Block *j, int64_t images) {
  return is_bare(j) ? 0 : images * j->out_height * j->out_width * vectors(j->outputs);
}

/* Vectors from a point's values of a block to the next one's, or from a tap's numbers: odd, since 36 lines of memory
   that lie 4 KiB apart push each other out of the cache. */
ALWAYS int64_t pitch_of(int64_t count, int64_t wide) { return count * wide | 1; }

/* Vectors of a kernel's values from `k` channels that lie before a block: v of them are in the panels before its own,
   which has `wide`, where it begins with channel `first`. With all v and 0, those of the whole kernel. */
static int64_t values_before(int64_t k, int64_t v, int64_t wide, int64_t first) {
  return SQUARE * (v * (k + (k + BLOCK - 1) / BLOCK) + first * wide + first / BLOCK);
}

/* Vectors that a thread needs for them. */
static int64_t winograd_space(const Block *j) {
  const Squares q = squares_of(j);
  const int64_t taps = j->kernel_rows * j->kernel_columns;
  return winograd_sums(j, q.images) + SQUARE * (q.pixels + q.sums + q.panel) + (SQUARE + taps) * pitch_of(BLOCK, WIDE);
}

/* Vectors of the next panel, of so many that are left. */
static int64_t panel_of(int64_t left) { return left >= WIDE ? WIDE : left >= 2 ? 2 : 1; }

/* Values of a kernel [k, k] or of LANES of them, `pitch` vectors apart. */
ALWAYS void kernel_to_values(const int k, vec *to, int64_t pitch, const vec *x) {
  BOTH_SIDES(g_of, k, k, POINTS, to, POINTS * pitch, pitch, x, k, 1);
}

/* Values [36, count, N] of a panel of N vectors of outputs from n on, of `count` inputs. */
ALWAYS void values_by_outputs(const Block *j, const int k, int64_t r, int64_t n, int64_t wide, int64_t first,
                              int64_t count, vec *to, vec *turned) {
  const int64_t c = j->inputs, all = k * k * c, pitch = pitch_of(count, wide);
  const int64_t outputs = inside(wide * LANES, n * LANES, j->outputs);
  const float *from = j->kernel + (r * j->outputs + n * LANES) * all + first;
  for (int i = 0; i < k * k; i++) {
    turn_over((float *)(turned + i * pitch), wide * LANES, from + i * c, all, outputs, count);
    clear_rest(turned + i * pitch, count, outputs, wide);
  }
  for (int64_t e = 0; e < count * wide; e++) {
    vec x[SQUARE];
    for (int i = 0; i < k * k; i++) x[i] = turned[i * pitch + e];
    kernel_to_values(k, to + e, pitch, x);
  }
}

/* The same of a panel of inputs, of `count` outputs. */
ALWAYS void values_by_inputs(const Block *j, const int k, int64_t r, int64_t n, int64_t wide, int64_t first,
                             int64_t count, vec *to) {
  const int64_t c = j->inputs, all = k * k * c, end = (r + 1) * j->outputs * all;
  for (int64_t o = 0; o < count; o++) {
    for (int t = 0; t < k * k; t++) /* every line is far from the one before */
      __builtin_prefetch(j->kernel + (r * j->outputs + first + o + AHEAD) * all + n * LANES + t * c);
    for (int64_t i = 0; i < wide; i++) {
      const int64_t at = (r * j->outputs + first + o) * all + (n + i) * LANES;
      vec x[SQUARE];
      for (int t = 0; t < k * k; t++)
        x[t] = read(j->kernel + at + t * c, c - (n + i) * LANES, 1, end - at - t * c);
      kernel_to_values(k, to + o * wide + i, pitch_of(count, wide), x);
    }
  }
}

/* One of these two. */
static void values_of_kernel(const Block *j, int back, int64_t r, int64_t n, int64_t wide, int64_t first, int64_t count,
                             vec *to, vec *turned) {
  if (back && j->side == 2)
    values_by_inputs(j, 5, r, n, wide, first, count, to);
  else if (back)
    values_by_inputs(j, 3, r, n, wide, first, count, to);
  else if (j->side == 2)
    values_by_outputs(j, 5, r, n, wide, first, count, to, turned);
  else
    values_by_outputs(j, 3, r, n, wide, first, count, to, turned);
}

/* All values of a row's kernel, panel by panel, block by block of channels. */
static void all_values_of_kernel(const Block *j, int back, int64_t r, vec *to, vec *turned) {
  const int64_t k = back ? j->outputs : j->inputs, v = vectors(back ? j->inputs : j->outputs);
  for (int64_t n = 0, wide; n < v; n += wide) {
    wide = panel_of(v - n);
    for (int64_t first = 0, count; first < k; first += count) {
      count = inside(BLOCK, first, k);
      values_of_kernel(j, back, r, n, wide, first, count, to + values_before(k, n, wide, first), turned);
    }
  }
}

/* to [36, squares, N] = x [36, squares, k] times values of the kernel for a panel, from `stored` or made in `room`. */
static void panel_of_products(const Block *j, const Squares *q, int back, int64_t r, int64_t n, int64_t wide, vec *to,
                              const vec *x, int64_t squares, const vec *stored, vec *room) {
  const int64_t k = back ? j->outputs : j->inputs, pitch = back ? q->sums : q->pixels;
  for (int64_t first = 0, count; first < k; first += count) {
    count = inside(BLOCK, first, k);
    if (j->large) values_of_kernel(j, back, r, n, wide, first, count, room, room + SQUARE * pitch_of(BLOCK, WIDE));
    const vec *w = j->large ? room : stored + values_before(k, n, wide, first);
    for (int p = 0; p < SQUARE; p++)
      product((Grid){(float *)(to + p * q->panel), 0, wide * LANES},
              (Grid){(float *)(x + p * pitch) + first, 0, vectors(k) * LANES}, 1, squares, j->channels, count,
              w + p * pitch_of(count, wide), wide, first > 0);
  }
}

/* Values of the squares of rows `first` to `last` of an image, with zeros around it. */
static void pixels_to_values(const Block *j, const float *image, vec *to, int64_t pitch, int64_t first, int64_t last,
                             int64_t across) {
  const int64_t c = j->inputs, u = vectors(c), m = j->side, line = j->width * c, all = j->height * line;
  const int lie_in_vectors = c % LANES == 0 && (uintptr_t)image % sizeof(vec) == 0;
  for (int64_t h = first; h < last; h++)
    for (int64_t w = 0; w < across; w++) {
      const int64_t top = h * m - j->pad_top, left = w * m - j->pad_left;
      const int inner = top >= 0 && left >= 0 && top + POINTS <= j->height && left + POINTS <= j->width;
      for (int64_t i = 0; i < u; i++, to++) {
        const int64_t at = top * line + left * c + i * LANES;
        if (inner && lie_in_vectors) {
          BOTH_SIDES(of_pixels, POINTS, POINTS, POINTS, to, POINTS * pitch, pitch, (const vec *)(image + at),
                     j->width * u, u);
          continue;
        }
        vec x[SQUARE];
        for (int64_t a = 0; a < POINTS; a++)
          for (int64_t b = 0; b < POINTS; b++) {
            const int64_t here = at + a * line + b * c;
            if (top + a < 0 || top + a >= j->height || left + b < 0 || left + b >= j->width)
              x[a * POINTS + b] = (vec){};
            else
              x[a * POINTS + b] = read(image + here, c - i * LANES, 1, all - here);
          }
        BOTH_SIDES(of_pixels, POINTS, POINTS, POINTS, to, POINTS * pitch, pitch, x, POINTS, 1);
      }
    }
}

/* The transpose of that map for a panel, which makes the gradient of an image; squares that overlap add up. */
ALONE void values_to_pixels(const Block *j, float *image, const vec *from, int64_t pitch, int64_t n,
                            int64_t wide, int64_t first, int64_t last, int64_t across) {
  const int64_t c = j->inputs, m = j->side, line = j->width * c, shared = POINTS - m;
  for (int64_t h = first; h < last; h++)
    for (int64_t w = 0; w < across; w++)
      for (int64_t i = n; i < n + wide; i++, from++) {
        const int64_t top = h * m - j->pad_top, left = w * m - j->pad_left, count = c - i * LANES;
        vec y[SQUARE];
        BOTH_SIDES(to_pixels, POINTS, POINTS, POINTS, y, POINTS, 1, from, POINTS * pitch, pitch);
        for (int64_t a = 0; a < POINTS; a++)
          for (int64_t b = 0; b < POINTS; b++) {
            if (top + a < 0 || top + a >= j->height || left + b < 0 || left + b >= j->width) continue;
            float *const at = image + (top + a) * line + (left + b) * c + i * LANES;
            const vec part = y[a * POINTS + b];
            const int more = (a < shared && h) || (b < shared && w);
            if (count >= LANES && more)
              *(loose *)at += part;
            else if (count >= LANES)
              *(loose *)at = part;
            else
              for (int64_t e = 0; e < count; e++) at[e] = more ? at[e] + part[e] : part[e];
          }
      }
}

/* Sums [out_height, out_width, v] of a panel from its values, for some rows of squares. */
ALWAYS void values_to_sums(const Block *j, const int m, float *sums, const vec *from, int64_t pitch, int64_t n,
                           int64_t wide, int64_t first, int64_t last, int64_t across) {
  const int64_t each = vectors(j->outputs) * LANES, line = j->out_width * each;
  for (int64_t h = first; h < last; h++)
    for (int64_t w = 0; w < across; w++)
      for (int64_t i = n; i < n + wide; i++, from++) {
        const int64_t rows = inside(m, h * m, j->out_height), columns = inside(m, w * m, j->out_width);
        float *const at = sums + h * m * line + w * m * each + i * LANES;
        vec y[SQUARE];
        BOTH_SIDES(a_turned, m, POINTS, m, y, m, 1, from, POINTS * pitch, pitch);
        for (int64_t a = 0; a < rows; a++)
          for (int64_t b = 0; b < columns; b++) *(loose *)(at + a * line + b * each) = y[a * m + b];
      }
}

/* Values of the gradients of sums, of all channels. */
ALWAYS void sums_to_values(const Block *j, const int m, const float *g, vec *to, int64_t pitch, int64_t first,
                           int64_t last, int64_t across) {
  const int64_t v = vectors(j->outputs), each = v * LANES, line = j->out_width * each;
  for (int64_t h = first; h < last; h++)
    for (int64_t w = 0; w < across; w++)
      for (int64_t n = 0; n < v; n++, to++) {
        const int64_t rows = inside(m, h * m, j->out_height), columns = inside(m, w * m, j->out_width);
        const float *const at = g + h * m * line + w * m * each + n * LANES;
        vec x[SQUARE];
        for (int64_t a = 0; a < m; a++)
          for (int64_t b = 0; b < m; b++)
            x[a * m + b] = a < rows && b < columns ? (vec)*(const loose *)(at + a * line + b * each) : (vec){};
        BOTH_SIDES(a_of, m, m, POINTS, to, POINTS * pitch, pitch, x, m, 1);
      }
}

/* Sums over nothing but zeros become 0, unless they are no number: then the kernel is none, which is to be seen. */
static void clear_sums_of_zeros(const Block *j, const float *image, float *sums) {
  const int64_t v = vectors(j->outputs), c = j->inputs;
  for (int64_t h = 0; h < j->out_height; h++)
    for (int64_t w = 0; w < j->out_width; w++, sums += v * LANES) {
      const int64_t top = h - j->pad_top, left = w - j->pad_left, first = left < 0 ? 0 : left;
      const int64_t each = (inside(j->kernel_columns, left, j->width) + left - first) * c;
      int zero = 1;
      for (int64_t a = 0; zero && a < j->kernel_rows; a++) {
        if (top + a < 0 || top + a >= j->height) continue;
        const float *row = image + ((top + a) * j->width + first) * c;
        for (int64_t i = 0; zero && i < each; i++) zero = row[i] == 0;
      }
      for (int64_t n = 0; zero && n < v; n++) {
        loose *const here = (loose *)(sums + n * LANES);
        *here = choose(*here == *here, (vec){}, *here);
      }
    }
}

/* All sums of some images, [images, out_height, out_width, v] from `sums` on. */
static void sums_by_squares(const Block *j, const Squares *q, int64_t r, int64_t b, int64_t images, const vec *stored,
                            float *sums, int64_t pitch, vec *x) {
  const int64_t u = vectors(j->inputs), v = vectors(j->outputs);
  vec *const y = x + SQUARE * q->pixels, *const room = y + SQUARE * q->panel;
  for (int64_t h = 0, end; h < q->down; h = end) {
    end = h + inside(q->rows, h, q->down);
    const int64_t each = (end - h) * q->across;
    for (int64_t i = 0; i < images; i++)
      pixels_to_values(j, image_of(&j->x, r, b + i), x + i * each * u, q->pixels, h, end, q->across);
    for (int64_t n = 0, wide; n < v; n += wide) {
      wide = panel_of(v - n);
      panel_of_products(j, q, 0, r, n, wide, y, x, images * each, stored, room);
      for (int64_t i = 0; i < images; i++)
        if (j->side == 2)
          values_to_sums(j, 2, sums + i * pitch, y + i * each * wide, q->panel, n, wide, h, end, q->across);
        else
          values_to_sums(j, 4, sums + i * pitch, y + i * each * wide, q->panel, n, wide, h, end, q->across);
    }
  }
  for (int64_t i = 0; j->side > 2 && i < images; i++) /* in squares of 2 x 2 they are 0 by themselves */
    clear_sums_of_zeros(j, image_of(&j->x, r, b + i), sums + i * pitch);
}

/* The gradient of kernels, of a panel of inputs and some outputs, from that of their values [36, count, N]. */
ALWAYS void kernel_from_values(const Block *j, const int k, int64_t r, const vec *dw, int64_t n, int64_t wide,
                               int64_t first, int64_t count, int add) {
  const int64_t c = j->inputs, all = k * k * c, each = count * wide;
  for (int64_t o = 0; o < count; o++) {
    float *const kernel = j->kernel_gradient + (r * j->outputs + first + o) * all + n * LANES;
    for (int t = 0; t < k * k; t++) __builtin_prefetch(kernel + AHEAD * all + t * c, 1);
    for (int64_t i = 0; i < wide; i++, dw++) {
      float *const to = kernel + i * LANES;
      const int64_t room = c - (n + i) * LANES;
      vec y[SQUARE];
      BOTH_SIDES(g_turned, k, POINTS, k, y, k, 1, dw, POINTS * each, each);
      for (int t = 0; t < k * k; t++)
        write(to + t * c, add ? (vec)(y[t] + read(to + t * c, room, 1, room)) : y[t], room, 1, room);
    }
  }
}

ALONE void kernel_of_values(const Block *j, int64_t r, const vec *dw, int64_t n, int64_t wide,
                            int64_t first, int64_t count, int add) {
  if (j->side == 2)
    kernel_from_values(j, 5, r, dw, n, wide, first, count, add);
  else
    kernel_from_values(j, 3, r, dw, n, wide, first, count, add);
}

/* Adds to the gradients `dw` of a kernel's values what values x of pixels and y of gradients of sums give, for a panel
   of inputs. Those of a large kernel become a gradient at once, in `room`. */
static void kernel_by_values(const Block *j, const Squares *q, int64_t r, int64_t n, int64_t wide, const vec *x,
                             const vec *y, int64_t squares, vec *dw, vec *room, int add) {
  const int64_t v = vectors(j->outputs);
  for (int64_t first = 0, count; first < j->outputs; first += count) {
    count = inside(SOME, first, j->outputs);
    vec *const to = j->large ? room : dw + SQUARE * (n * j->outputs + first * wide);
    for (int p = 0; p < SQUARE; p++)
      kernel_product(to + p * count * wide, (Grid){(float *)(y + p * q->sums) + first, 0, v * LANES}, 1, squares,
                     j->channels, count, x + p * q->pixels + n, vectors(j->inputs), wide,
                     !j->large);
    if (j->large) kernel_of_values(j, r, to, n, wide, first, count, add);
  }
}

/* The gradient of a row's kernel from that of its values. */
static void all_kernel_of_values(const Block *j, int64_t r, const vec *dw) {
  const int64_t u = vectors(j->inputs);
  for (int64_t n = 0, wide; n < u; n += wide) {
    wide = panel_of(u - n);
    for (int64_t first = 0, count; first < j->outputs; first += count) {
      count = inside(SOME, first, j->outputs);
      kernel_of_values(j, r, dw + SQUARE * (n * j->outputs + first * wide), n, wide, first, count, 0);
    }
  }
}

/* Adds to the gradient of the kernel, and writes that of some images, if anybody needs it, what the gradients g of
   their sums give, [images, out_height, out_width, v]. */
static void gradients_by_squares(const Block *j, const Squares *q, int64_t r, int64_t b, int64_t images, const float *g,
                                 int64_t pitch, const vec *stored, vec *dw, vec *x) {
  const int64_t u = vectors(j->inputs), v = vectors(j->outputs);
  vec *const y = x + SQUARE * q->pixels, *const dx = y + SQUARE * q->sums, *const room = dx + SQUARE * q->panel;
  for (int64_t h = 0, end; h < q->down; h = end) {
    end = h + inside(q->rows, h, q->down);
    const int64_t each = (end - h) * q->across;
    for (int64_t i = 0; i < images; i++) {
      pixels_to_values(j, image_of(&j->x, r, b + i), x + i * each * u, q->pixels, h, end, q->across);
      if (j->side == 2)
        sums_to_values(j, 2, g + i * pitch, y + i * each * v, q->sums, h, end, q->across);
      else
        sums_to_values(j, 4, g + i * pitch, y + i * each * v, q->sums, h, end, q->across);
    }
    for (int64_t n = 0, wide; n < u; n += wide) {
      wide = panel_of(u - n);
      kernel_by_values(j, q, r, n, wide, x, y, images * each, dw, room, b + h > 0);
      if (!j->back.data) continue;
      panel_of_products(j, q, 1, r, n, wide, dx, y, images * each, stored, room);
      for (int64_t i = 0; i < images; i++)
        values_to_pixels(j, image_of(&j->back, r, b + i), dx + i * each * wide, q->panel, n, wide, h, end, q->across);
    }
  }
}

#endif
