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

   The factors of all three products may be rounded to bfloat16, as on a GPU; the products are float32 ones. */

#include "convolution_products.h"
#include "convolution_winograd.h"

static Sizes sizes_of(const Block *j) {
  const int64_t each = j->kernel_columns * j->inputs, piece = each / j->pieces;
  Sizes s = {.k = j->kernel_rows * each, .v = vectors(j->outputs), .each = each, .piece = piece, .u = vectors(piece),
             .padded = j->padded_height * j->padded_width * j->inputs, .across = j->out_width};
  s.turned = s.gradient = s.k * s.v;
  s.back_turned = j->kernel_rows * j->pieces * j->outputs * s.u;
  if (j->side) {
    s.padded = 0;
    s.turned = j->large ? 0 : values_before(j->inputs, s.v, 0, 0);
    s.back_turned = j->large ? 0 : values_before(j->outputs, vectors(j->inputs), 0, 0);
    s.gradient = j->large ? 0 : SQUARE * j->outputs * vectors(j->inputs);
  }
  return s;
}

/* Vectors of a thread for the sums of an image, or g, and an image with its zeros; what is added to its end may reach
   a vector further. */
static int64_t beside_squares(const Block *j, const Sizes *s) {
  return j->out_height * j->out_width * s->v + vectors(s->padded) + 1;
}

/* The room that a block needs. */
void rooms(const Block *j, Rooms *to) {
  const Sizes s = sizes_of(j);
  const int64_t scratch = j->side ? winograd_space(j) : beside_squares(j, &s);
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
ALWAYS void maxima(const Block *j, const Sizes *s, const vec *sums, const vec *bias, float *y, uint8_t *where,
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

/* Where an image with its zeros is kept for the backward pass. */
static float *kept_of(const Block *j, const Sizes *s, int64_t r, int64_t b) {
  return j->padded + (r * j->batch + b) * s->padded;
}

/* An image with its zeros, which the sums are made from. */
static float *padded_of(const Block *j, const Sizes *s, int64_t r, int64_t b, vec *scratch) {
  const float *image = image_of(&j->x, r, b);
  float *kept = j->padded ? kept_of(j, s, r, b) : NULL;
  if (!kept) kept = (float *)(scratch + j->out_height * j->out_width * s->v);
  pad(j, s, image, kept);
  return kept;
}

/* y of an image with its zeros x, of which `done` rows of sums are made. */
static void outputs_of(const Block *j, const Sizes *s, int64_t r, int64_t b, float *x, vec *scratch, int64_t done) {
  const int64_t v = s->v, n = j->pooled_height * j->pooled_width;
  float *y = image_of(&j->y, r, b);
  uint8_t *where = j->where ? j->where + (r * j->batch + b) * n * v * LANES : NULL;
  const vec *w = j->turned + r * (s->turned + v), *bias = w + s->turned;
  const int64_t strip = strip_of(s), width = j->window_width;
  /* windows that no edge of the image cuts */
  const int64_t most = j->out_width >= width ? (j->out_width - width) / j->window_column_stride + 1 : 0;
  const int64_t whole = most < j->pooled_width ? most : j->pooled_width;
  for (int64_t h = 0; h < j->pooled_height; h++) {
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

/* y of some images of a client, which are one after the other. */
static void forward_images(const Block *j, const Sizes *s, int64_t r, int64_t first, int64_t end, vec *scratch) {
  if (!j->side) {
    for (int64_t b = first; b < end; b++) outputs_of(j, s, r, b, padded_of(j, s, r, b, scratch), scratch, 0);
    return;
  }
  const Squares q = squares_of(j);
  const int64_t each = winograd_sums(j, 1), images = end - first;
  sums_by_squares(j, &q, r, first, images, j->turned + r * (s->turned + s->v),
                  each ? (float *)scratch : image_of(&j->y, r, first), each ? each * LANES : j->y.image,
                  scratch + winograd_sums(j, q.images));
  for (int64_t b = 0; each && b < images; b++)
    outputs_of(j, s, r, first + b, NULL, scratch + b * each, j->out_height);
}

/* g from d, the gradient of a maximum, at its place in the window; `alone` if no other window reaches there. */
ALWAYS void back_to(vec *g, ivec place, vec d, int64_t rows, int64_t columns, int64_t pitch, int64_t v,
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
                       j->places + row * s->each, (end - row) * s->each, g + first * j->out_width * v, v, v, 1);
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

/* The gradient of an image, from that of the image with its zeros. */
static void inner_part(const Block *j, int64_t r, int64_t b, const float *dx) {
  const int64_t width = j->padded_width * j->inputs;
  float *back = image_of(&j->back, r, b);
  dx += j->pad_top * width + j->pad_left * j->inputs;
  for (int64_t h = 0; h < j->height; h++)
    memcpy(back + h * j->width * j->inputs, dx + h * width, (size_t)(j->width * j->inputs) * sizeof(float));
}

static void backward_image(const Block *j, const Sizes *s, int64_t r, int64_t b, vec *partial, vec *g) {
  const int64_t sums = j->out_height * j->out_width * s->v;
  float *x = kept_of(j, s, r, b), *dx = j->back.data ? (float *)(g + sums) : NULL;
  unpool(j, s, r, b, g, partial + s->gradient);
  round_all(j, (float *)g, sums * LANES);
  kernel_by_rows(j, s, partial, x, g);
  if (!dx) return;
  memset(dx, 0, (size_t)s->padded * sizeof(float));
  image_by_rows(j, s, dx, g, j->back_turned + r * s->back_turned);
  inner_part(j, r, b, dx);
}

/* The gradients of some images, which are one after the other. */
static void backward_images(const Block *j, const Sizes *s, int64_t r, int64_t first, int64_t end, vec *partial,
                            vec *scratch) {
  if (!j->side) {
    for (int64_t b = first; b < end; b++) backward_image(j, s, r, b, partial, scratch);
    return;
  }
  const Squares q = squares_of(j);
  const int64_t each = winograd_sums(j, 1);
  for (int64_t b = first, images; b < end; b += images) {
    images = inside(q.images, b, end);
    for (int64_t i = 0; each && i < images; i++) unpool(j, s, r, b + i, scratch + i * each, partial + s->gradient);
    gradients_by_squares(j, &q, r, b, images, each ? (float *)scratch : image_of(&j->delta, r, b),
                         each ? each * LANES : j->delta.image, j->back_turned + r * s->back_turned, partial,
                         scratch + winograd_sums(j, q.images));
  }
}

/* The kernel of a row as [K, v], or its values, and the bias. */
static void turn(const Block *j, const Sizes *s, int64_t r, vec *scratch) {
  const float *from = j->kernel + r * j->outputs * s->k;
  const int64_t lanes = s->v * LANES;
  vec *const turned = j->turned + r * (s->turned + s->v);
  float *to = (float *)turned, *bias = (float *)(turned + s->turned);
  for (int64_t o = 0; o < lanes; o++) bias[o] = j->bias && o < j->outputs ? j->bias[r * j->outputs + o] : 0;
  if (j->side) {
    if (!j->large) all_values_of_kernel(j, 0, r, turned, scratch);
    return;
  }
  turn_over(to, lanes, from, s->k, j->outputs, s->k);
  clear_rest(turned, s->k, j->outputs, s->v);
  round_all(j, to, s->k * lanes);
}

/* The kernel of a row as [kernel rows, pieces, out, u], or its values. */
static void turn_back(const Block *j, const Sizes *s, int64_t r, vec *scratch) {
  const float *from = j->kernel + r * j->outputs * s->k;
  vec *const turned = j->back_turned + r * s->back_turned;
  if (j->side) {
    if (!j->large) all_values_of_kernel(j, 1, r, turned, scratch);
    return;
  }
  float *to = (float *)turned;
  memset(to, 0, (size_t)s->back_turned * sizeof(vec));
  for (int64_t i = 0; i < j->kernel_rows * j->pieces; i++)
    for (int64_t o = 0; o < j->outputs; o++)
      memcpy(to + (i * j->outputs + o) * s->u * LANES, from + o * s->k + i * s->piece,
             (size_t)s->piece * sizeof(float));
  round_all(j, to, s->back_turned * LANES);
}

/* The gradients of a row, from those of its parts. */
static void collect(const Block *j, const Sizes *s, int64_t r) {
  const int64_t each = s->gradient + s->v;
  vec *sums = j->partial + r * j->parts * each;
  for (int64_t p = 1; p < j->parts; p++)
    for (int64_t i = 0; i < each; i++) sums[i] += sums[p * each + i];
  if (!j->side)
    turn_over(j->kernel_gradient + r * j->outputs * s->k, s->k, (const float *)sums, s->v * LANES, s->k, j->outputs);
  else if (!j->large)
    all_kernel_of_values(j, r, sums);
  if (j->bias_gradient)
    memcpy(j->bias_gradient + r * j->outputs, sums + s->gradient, (size_t)j->outputs * sizeof(float));
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
  const int64_t some = j->side ? squares_of(j).images : 1, groups = (j->batch + some - 1) / some;
  rooms(j, &room);
  (void)threads; /* unused where the compiler does not know OpenMP */
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(dynamic)
    for (int64_t r = 0; r < j->rows; r++) turn(j, &s, r, own_scratch(j, room.scratch / LANES));
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < j->rows * groups; i++) {
      const int64_t first = i % groups * some;
      forward_images(j, &s, i / groups, first, first + inside(some, first, j->batch),
                     own_scratch(j, room.scratch / LANES));
    }
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
      for (int64_t r = 0; r < j->rows; r++) turn_back(j, &s, r, own_scratch(j, room.scratch / LANES));
    }
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < j->rows * j->parts; i++) {
      const int64_t r = i / j->parts, p = i % j->parts, last = j->batch * (p + 1) / j->parts;
      vec *partial = j->partial + i * each, *scratch = own_scratch(j, room.scratch / LANES);
      memset(partial, 0, (size_t)each * sizeof(vec));
      backward_images(j, &s, r, j->batch * p / j->parts, last, partial, scratch);
    }
#pragma omp for schedule(dynamic)
    for (int64_t r = 0; r < j->rows; r++) collect(j, &s, r);
  }
}
