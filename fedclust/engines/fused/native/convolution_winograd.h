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

#define POINTS 6 /* along a side */
#define SQUARE (POINTS * POINTS)
#define MOST_SQUARES 56 /* worked on at once: their values, of 32 channels 0.5 MB, are to stay in the cache of a core */

/* Points besides 0 and the highest coefficient: ±NEAR and ±FAR. */
#define NEAR 0.75f
#define FAR 1.5f
#define NEAR2 (NEAR * NEAR)
#define FAR2 (FAR * FAR)

/* 1 / the product of a point's distances from the other four; nothing of the kind for the highest coefficient. */
#define OF_NEAR (1 / (2 * NEAR2 * (NEAR2 - FAR2)))
#define OF_FAR (1 / (2 * FAR2 * (FAR2 - NEAR2)))
static const float SCALE[POINTS] = {1 / (NEAR2 * FAR2), OF_NEAR, OF_NEAR, OF_FAR, OF_FAR, 1};

/* A map of n vectors x to others y, `from` and `to` being steps between them; x and y do not overlap. */
#define MAP(name) ALWAYS void name(const int n, vec *y, const int64_t to, const vec *x, const int64_t from)

/* n coefficients, two or more, to values: A g and G w but for the scale. */
MAP(values) {
  vec near = x[0], far = x[0], odd_near = NEAR * x[from], odd_far = FAR * x[from];
  if (n > 2) near += NEAR2 * x[2 * from], far += FAR2 * x[2 * from];
  if (n > 4) near += NEAR2 * NEAR2 * x[4 * from], far += FAR2 * FAR2 * x[4 * from];
  if (n > 3) odd_near += NEAR * NEAR2 * x[3 * from], odd_far += FAR * FAR2 * x[3 * from];
  y[0] = x[0];
  y[to] = near + odd_near;
  y[2 * to] = near - odd_near;
  y[3 * to] = far + odd_far;
  y[4 * to] = far - odd_far;
  y[5 * to] = x[(n - 1) * from];
}

/* Its transpose, values to n coefficients: A' and G'. */
MAP(moments) {
  const vec near = x[from] + x[2 * from], far = x[3 * from] + x[4 * from];
  const vec odd_near = x[from] - x[2 * from], odd_far = x[3 * from] - x[4 * from];
  y[0] = x[0] + near + far;
  y[to] = NEAR * odd_near + FAR * odd_far;
  if (n > 2) y[2 * to] = NEAR2 * near + FAR2 * far;
  if (n > 3) y[3 * to] = NEAR * NEAR2 * odd_near + FAR * FAR2 * odd_far;
  if (n > 4) y[4 * to] = NEAR2 * NEAR2 * near + FAR2 * FAR2 * far;
  y[(n - 1) * to] += x[5 * from];
}

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

/* A map of `in` to `out` along both sides of a square. */
#define BOTH_SIDES(map, n, in, out, y, x)                                                    \
  do {                                                                                       \
    vec between[(in) * (out)];                                                               \
    for (int i = 0; i < (in); i++) map(n, between + i * (out), 1, (x) + i * (in), 1);        \
    for (int i = 0; i < (out); i++) map(n, (y) + i, out, between + i, out);                  \
  } while (0)

/* The squares of an output: along its height and width, rows of them that are worked on at once, and images, where
   those of one are few: then the kernel's values, of 256 channels 9 MB, are read once for all; vectors from a point's
   values to the next one's, of pixels and of sums, odd so that 36 points do not push each other out. */
typedef struct {
  int64_t down, across, rows, images, pixels, sums;
} Squares;

static Squares squares_of(const Block *j) {
  Squares q = {.down = (j->out_height + j->side - 1) / j->side, .across = (j->out_width + j->side - 1) / j->side};
  const int64_t most = MOST_SQUARES > q.across ? MOST_SQUARES / q.across : 1, parts = (q.down + most - 1) / most;
  q.rows = (q.down + parts - 1) / parts;
  const int64_t fit = parts > 1 ? 1 : MOST_SQUARES / (q.down * q.across), share = (j->batch + j->parts - 1) / j->parts;
  q.images = fit > share ? share : fit;
  if (q.images < 1) q.images = 1;
  q.pixels = q.images * q.rows * q.across * vectors(j->inputs) | 1;
  q.sums = q.images * q.rows * q.across * vectors(j->outputs) | 1;
  return q;
}

/* Vectors that a thread needs for them. */
static int64_t winograd_space(const Block *j) {
  const Squares q = squares_of(j);
  return SQUARE * (q.pixels + q.sums);
}

/* Kernels [k, k, each] to values [6, 6, each] where they lie; `each` in vectors. */
ALWAYS void kernel_to_values(const int k, vec *w, int64_t each) {
  for (int64_t e = 0; e < each; e++) {
    vec x[SQUARE], y[SQUARE];
    for (int i = 0; i < k * k; i++) x[i] = w[i * each + e];
    BOTH_SIDES(values, k, k, POINTS, y, x);
    for (int i = 0; i < SQUARE; i++) w[i * each + e] = SCALE[i / POINTS] * SCALE[i % POINTS] * y[i];
  }
}

static void values_of_kernel(const Block *j, vec *w, int64_t each) {
  if (j->side == 2)
    kernel_to_values(5, w, each);
  else
    kernel_to_values(3, w, each);
}

/* Gradients of the values to those of the kernels, likewise. */
ALWAYS void kernel_from_values(const int k, vec *w, int64_t each) {
  for (int64_t e = 0; e < each; e++) {
    vec x[SQUARE], y[SQUARE];
    for (int i = 0; i < SQUARE; i++) x[i] = SCALE[i / POINTS] * SCALE[i % POINTS] * w[i * each + e];
    BOTH_SIDES(moments, k, POINTS, k, y, x);
    for (int i = 0; i < k * k; i++) w[i * each + e] = y[i];
  }
}

static void kernel_of_values(const Block *j, vec *w, int64_t each) {
  if (j->side == 2)
    kernel_from_values(5, w, each);
  else
    kernel_from_values(3, w, each);
}

/* Values of the squares of rows `first` to `last`, from an image with its zeros [H, W, in]. */
static void pixels_to_values(const Block *j, const float *image, vec *to, int64_t pitch, int64_t first, int64_t last,
                             int64_t across) {
  const int64_t c = j->inputs, u = vectors(c), m = j->side, line = j->padded_width * c, all = j->padded_height * line;
  for (int64_t h = first; h < last; h++)
    for (int64_t w = 0; w < across; w++)
      for (int64_t i = 0; i < u; i++, to++) {
        const int64_t at = h * m * line + w * m * c + i * LANES;
        const int64_t rows = inside(POINTS, h * m, j->padded_height), columns = inside(POINTS, w * m, j->padded_width);
        vec x[SQUARE], y[SQUARE];
        for (int64_t a = 0; a < POINTS; a++)
          for (int64_t b = 0; b < POINTS; b++) {
            const int64_t here = at + a * line + b * c;
            x[a * POINTS + b] = a < rows && b < columns ? read(image + here, c - i * LANES, 1, all - here) : (vec){};
          }
        BOTH_SIDES(of_pixels, POINTS, POINTS, POINTS, y, x);
        for (int p = 0; p < SQUARE; p++) to[p * pitch] = y[p];
      }
}

/* The transpose of that map, added to an image, which may be written a vector beyond its end. */
static void values_to_pixels(const Block *j, float *image, const vec *from, int64_t pitch, int64_t first, int64_t last,
                             int64_t across) {
  const int64_t c = j->inputs, u = vectors(c), m = j->side, line = j->padded_width * c;
  for (int64_t h = first; h < last; h++)
    for (int64_t w = 0; w < across; w++)
      for (int64_t i = 0; i < u; i++, from++) {
        float *const at = image + h * m * line + w * m * c + i * LANES;
        const int64_t rows = inside(POINTS, h * m, j->padded_height), columns = inside(POINTS, w * m, j->padded_width);
        vec x[SQUARE], y[SQUARE];
        for (int p = 0; p < SQUARE; p++) x[p] = from[p * pitch];
        BOTH_SIDES(to_pixels, POINTS, POINTS, POINTS, y, x);
        for (int64_t a = 0; a < rows; a++)
          for (int64_t b = 0; b < columns; b++) *(loose *)(at + a * line + b * c) += y[a * POINTS + b];
      }
}

/* Sums [out_height, out_width, v] of some rows of squares from their values. */
ALWAYS void values_to_sums(const Block *j, const int m, vec *sums, const vec *from, int64_t pitch, int64_t first,
                           int64_t last, int64_t across) {
  const int64_t v = vectors(j->outputs), line = j->out_width * v;
  for (int64_t h = first; h < last; h++)
    for (int64_t w = 0; w < across; w++)
      for (int64_t n = 0; n < v; n++, from++) {
        const int64_t rows = inside(m, h * m, j->out_height), columns = inside(m, w * m, j->out_width);
        vec *const at = sums + h * m * line + w * m * v + n;
        vec x[SQUARE], y[SQUARE];
        for (int p = 0; p < SQUARE; p++) x[p] = from[p * pitch];
        BOTH_SIDES(moments, m, POINTS, m, y, x);
        for (int64_t a = 0; a < rows; a++)
          for (int64_t b = 0; b < columns; b++) at[a * line + b * v] = y[a * m + b];
      }
}

/* Values of the gradients of sums, likewise. */
ALWAYS void sums_to_values(const Block *j, const int m, const vec *g, vec *to, int64_t pitch, int64_t first,
                           int64_t last, int64_t across) {
  const int64_t v = vectors(j->outputs), line = j->out_width * v;
  for (int64_t h = first; h < last; h++)
    for (int64_t w = 0; w < across; w++)
      for (int64_t n = 0; n < v; n++, to++) {
        const int64_t rows = inside(m, h * m, j->out_height), columns = inside(m, w * m, j->out_width);
        const vec *const at = g + h * m * line + w * m * v + n;
        vec x[SQUARE], y[SQUARE];
        for (int64_t a = 0; a < m; a++)
          for (int64_t b = 0; b < m; b++) x[a * m + b] = a < rows && b < columns ? at[a * line + b * v] : (vec){};
        BOTH_SIDES(values, m, m, POINTS, y, x);
        for (int p = 0; p < SQUARE; p++) to[p * pitch] = y[p];
      }
}

/* to [squares, n] = x [squares, k] w [k, n] at every point; k in numbers, the others' rows in vectors. */
static void products_of_values(const Block *j, vec *to, int64_t to_pitch, int64_t n, const vec *x, int64_t x_pitch,
                               int64_t k, const vec *w, int64_t squares) {
  for (int p = 0; p < SQUARE; p++)
    product((Grid){(float *)(to + p * to_pitch), 0, n * LANES},
            (Grid){(float *)(x + p * x_pitch), 0, vectors(k) * LANES}, 1, squares, j->channels, k, w + p * k * n, n, 0);
}

/* Sums over nothing but zeros become 0, unless they are no number: then the kernel is none, which is to be seen. */
static void clear_sums_of_zeros(const Block *j, const float *image, vec *sums) {
  const int64_t v = vectors(j->outputs), line = j->padded_width * j->inputs, each = j->kernel_columns * j->inputs;
  for (int64_t h = 0; h < j->out_height; h++)
    for (int64_t w = 0; w < j->out_width; w++, sums += v) {
      int zero = 1;
      for (int64_t a = 0; zero && a < j->kernel_rows; a++) {
        const float *row = image + (h + a) * line + w * j->inputs;
        for (int64_t i = 0; zero && i < each; i++) zero = row[i] == 0;
      }
      for (int64_t n = 0; zero && n < v; n++) sums[n] = choose(sums[n] == sums[n], (vec){}, sums[n]);
    }
}

/* Sums of some rows of squares from their values, and values of the gradients of sums. */
static void sums_of_values(const Block *j, vec *sums, const vec *from, int64_t pitch, int64_t first, int64_t last,
                           int64_t across) {
  if (j->side == 2)
    values_to_sums(j, 2, sums, from, pitch, first, last, across);
  else
    values_to_sums(j, 4, sums, from, pitch, first, last, across);
}

static void values_of_sums(const Block *j, const vec *g, vec *to, int64_t pitch, int64_t first, int64_t last,
                           int64_t across) {
  if (j->side == 2)
    sums_to_values(j, 2, g, to, pitch, first, last, across);
  else
    sums_to_values(j, 4, g, to, pitch, first, last, across);
}

/* Adds to the gradient of the kernel's values, [36, in, v], what values x of pixels and y of gradients of sums give. */
static void kernel_by_values(const Block *j, const Squares *q, vec *dw, const vec *x, const vec *y, int64_t squares) {
  const int64_t c = j->inputs, v = vectors(j->outputs), u = vectors(c);
  for (int p = 0; p < SQUARE; p++)
    kernel_product(dw + p * c * v, (Grid){(float *)(x + p * q->pixels), 0, u * LANES}, 1, squares, j->channels, c,
                   y + p * q->sums, v);
}

/* All sums of an image with its zeros, band by band, from values of the kernel [36, in, v]. */
static void sums_by_squares(const Block *j, const Squares *q, const float *image, const vec *w, vec *sums, vec *x) {
  vec *const y = x + SQUARE * q->pixels;
  for (int64_t h = 0, end; h < q->down; h = end) {
    end = h + inside(q->rows, h, q->down);
    pixels_to_values(j, image, x, q->pixels, h, end, q->across);
    products_of_values(j, y, q->sums, vectors(j->outputs), x, q->pixels, j->inputs, w, (end - h) * q->across);
    sums_of_values(j, sums, y, q->sums, h, end, q->across);
  }
}

/* Adds to the gradient of the kernel's values, and to that of the image with its zeros, NULL if nobody needs it, what
   g [out_height, out_width, v] gives; `w` as [36, out, vectors of in]. */
static void gradients_by_squares(const Block *j, const Squares *q, const float *image, const vec *g, const vec *w,
                                 vec *dw, float *dx, vec *x) {
  vec *const y = x + SQUARE * q->pixels;
  for (int64_t h = 0, end; h < q->down; h = end) {
    end = h + inside(q->rows, h, q->down);
    const int64_t squares = (end - h) * q->across;
    pixels_to_values(j, image, x, q->pixels, h, end, q->across);
    values_of_sums(j, g, y, q->sums, h, end, q->across);
    kernel_by_values(j, q, dw, x, y, squares);
    if (!dx) continue;
    products_of_values(j, x, q->pixels, vectors(j->inputs), y, q->sums, j->outputs, w, squares);
    values_to_pixels(j, dx, x, q->pixels, h, end, q->across);
  }
}

#endif
