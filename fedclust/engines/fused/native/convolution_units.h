/* Convolutions by a processor's units for matrices of bfloat16 numbers: a part of convolution.c.

   An image is one line of pixels: its rows one after the other, zeros around it and all, and behind it as many zeros
   as tiles may reach. Sums are made for every pixel of that line; where the kernel would reach past the end of a row
   they are never read. So any 16 pixels that follow each other are the rows of a tile, wherever they begin, and no
   pixel is copied for another place of the kernel. Besides,

       forward         left: pixels with their channels, of which a row of the kernel meets neighbours
       of the images   likewise, of g with zeros around it, and the kernel turned round
       of the kernel   left: a line of pixels for every channel; right: pairs of pixels of g

   Few channels would leave tiles empty. Then several rows of an image lie beside each other in a pixel, as if they were
   channels, and every place of the kernel has lines of its own. */

#include "units.h"

/* Sizes that follow from the others; a length is in bfloat16 numbers. */
typedef struct {
  int64_t fold, groups;     /* rows of the kernel that are met in one pixel, and how many times that many there are */
  int64_t numbers, each;    /* length of a pixel; tiles over what a group of rows of the kernel meets */
  int64_t pixels, line;     /* with the zeros behind them; length of a line that is kept */
  int64_t apart;            /* whether every place of the kernel has lines of its own */
  int64_t kept, lines;      /* lines that are kept of an image; those of a place of the kernel, or of all if `apart` */
  int64_t times, deep;      /* that the lines are gone through; tiles of pixels */
  int64_t back_width, back_pixels, back_numbers, back_each; /* of the gradient of the images, likewise */
} Units;

static int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

#define FEW 8     /* channels, below which every place of the kernel has lines of its own */
#define BEYOND 66 /* pixels behind an image that tiles may reach */

static Units units_of(const Block *j) {
  const int64_t side = j->kernel_columns * j->inputs, most = side < 32 ? 32 / side : 1;
  Units t = {.fold = most < j->kernel_rows ? most : j->kernel_rows, .apart = j->inputs < FEW};
  t.groups = (j->kernel_rows + t.fold - 1) / t.fold;
  t.numbers = t.fold * j->inputs;
  t.each = up(t.fold * side, 32) / 32;
  t.pixels = up(j->padded_height * j->padded_width + BEYOND, 32);
  t.line = t.pixels + up((t.fold - 1) * j->padded_width, 32);
  t.line += t.line / 32 % 2 ? 0 : 32; /* lines of the cache: an odd number, so that 16 lines do not push each other out */
  t.kept = t.apart ? j->inputs : up(j->inputs, 16);
  t.lines = t.apart ? up(j->kernel_rows * side, 16) : t.kept;
  t.times = t.apart ? 1 : j->kernel_rows * j->kernel_columns;
  t.deep = up((j->out_height - 1) * j->padded_width + j->out_width, 32) / 32;
  t.back_width = j->width + j->kernel_columns - 1;
  t.back_pixels = up((j->height + j->kernel_rows - 1) * t.back_width + BEYOND, 32);
  t.back_numbers = up(j->outputs, 2);
  t.back_each = up(j->kernel_columns * t.back_numbers, 32) / 32;
  return t;
}

/* Vectors that the passes need, of a thread. */
static int64_t forward_space(const Block *j, const Units *t) {
  return (t->deep + 1) * 32 * vectors(j->outputs) + t->pixels * t->numbers / 32 + 1 + t->kept * t->line / 32;
}

static int64_t backward_space(const Block *j, const Units *t) {
  const int64_t v = vectors(j->outputs), copies = t->apart ? t->lines * t->line / 32 : 0;
  return t->deep * 48 * v + copies + t->back_pixels * t->back_numbers / 32 + 1 + t->back_pixels * vectors(j->inputs);
}

#ifdef UNITS

/* Bits for the first numbers of 32. */
ALWAYS __mmask32 first_of(int64_t count) { return count >= 32 ? 0xffffffffu : (1u << count) - 1; }

static void round_row(uint16_t *to, const float *from, int64_t count) {
  for (int64_t i = 0; i < count; i += 32) {
    const __mmask32 inside = first_of(count - i);
    const __m512 low = _mm512_maskz_loadu_ps((__mmask16)inside, from + i);
    const __m512 high = _mm512_maskz_loadu_ps((__mmask16)(inside >> 16), from + i + 16);
    _mm512_mask_storeu_epi16(to + i, inside, rounded(low, high));
  }
}

/* The even (ODD: odd) numbers of two vectors. */
ALWAYS __m512i every_other(__m512i x, __m512i y, const int ODD) {
  const __m512i even = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26, 24,
                                        22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  return _mm512_permutex2var_epi16(x, ODD ? _mm512_or_si512(even, _mm512_set1_epi16(1)) : even, y);
}

/* The first (HIGH: last) 16 numbers of two vectors, in turn. */
ALWAYS __m512i in_turn(__m512i x, __m512i y, const int HIGH) {
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5,
                                       36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  return _mm512_permutex2var_epi16(x, HIGH ? _mm512_or_si512(low, _mm512_set1_epi16(16)) : low, y);
}

/* Lines from pixels. */
static void to_lines(const Block *j, const Units *t, uint16_t *lines, const uint16_t *image) {
  const int64_t c = j->inputs;
  for (int64_t k = 0; k < t->kept; k += 32)
    for (int64_t p = 0; p < t->pixels; p += 32) {
      const __mmask32 inside = first_of(c - k);
      __m512i x[16], y[16];
      for (int i = 0; i < 16; i++) {
        x[i] = _mm512_maskz_loadu_epi16(inside, image + (p + i) * c + k);
        y[i] = _mm512_maskz_loadu_epi16(inside, image + (p + 16 + i) * c + k);
      }
      transpose(x);
      transpose(y);
      for (int i = 0; i < 16; i++) {
        uint16_t *to = lines + (k + 2 * i) * t->line + p;
        if (k + 2 * i < t->kept) _mm512_storeu_si512(to, every_other(x[i], y[i], 0));
        if (k + 2 * i + 1 < t->kept) _mm512_storeu_si512(to + t->line, every_other(x[i], y[i], 1));
      }
    }
  for (int64_t k = 0; k < t->kept; k++)
    memset(lines + k * t->line + t->pixels, 0, (size_t)(t->line - t->pixels) * sizeof *lines);
}

/* Pixels from lines: channel c of the image's rows one after the other. */
static void from_lines(const Block *j, const Units *t, uint16_t *image, const uint16_t *lines) {
  const int64_t c = j->inputs, n = t->numbers;
  for (int64_t k = 0; k < n; k += 32)
    for (int64_t p = 0; p < t->pixels; p += 32) {
      const __mmask32 inside = first_of(n - k);
      __m512i x[16], y[16];
      for (int i = 0; i < 16; i++) {
        __m512i a[2] = {};
        for (int64_t h = 0, at = k + 2 * i; h < 2 && at < n; h++, at++)
          a[h] = _mm512_loadu_si512(lines + at % c * t->line + at / c * j->padded_width + p);
        x[i] = in_turn(a[0], a[1], 0);
        y[i] = in_turn(a[0], a[1], 1);
      }
      transpose(x);
      transpose(y);
      for (int i = 0; i < 16; i++) {
        _mm512_mask_storeu_epi16(image + (p + i) * n + k, inside, x[i]);
        _mm512_mask_storeu_epi16(image + (p + 16 + i) * n + k, inside, y[i]);
      }
    }
}

/* An image as pixels and as lines. */
static void lay_out_image(const Block *j, const Units *t, const float *from, uint16_t *image, uint16_t *lines) {
  const int64_t c = j->inputs, start = j->pad_top * j->padded_width + j->pad_left;
  if (j->x.last && c > 1) {
    memset(image, 0, (size_t)(t->pixels * c) * sizeof *image);
    for (int64_t h = 0; h < j->height; h++)
      round_row(image + (start + h * j->padded_width) * c, from + h * j->width * c, j->width * c);
    if (j->padded || t->fold > 1) to_lines(j, t, lines, image);
    if (t->fold > 1) from_lines(j, t, image, lines);
    return;
  }
  memset(lines, 0, (size_t)(t->kept * t->line) * sizeof *lines);
  for (int64_t k = 0; k < c; k++)
    for (int64_t h = 0; h < j->height; h++)
      round_row(lines + k * t->line + start + h * j->padded_width, from + (k * j->height + h) * j->width, j->width);
  from_lines(j, t, image, lines);
}

/* The kernel as right tiles [groups, each, v]. */
static void turn_to_tiles(const Block *j, const Units *t, const float *kernel, uint16_t *to) {
  const int64_t c = j->inputs, side = j->kernel_columns * c, k = j->kernel_rows * side, v = vectors(j->outputs);
  for (int64_t g = 0; g < t->groups; g++)
    for (int64_t i = 0; i < t->each; i++)
      for (int64_t n = 0; n < v; n++, to += NUMBERS) {
        const float *from = kernel + n * 16 * k;
        const int64_t rows = j->outputs - n * 16 < 16 ? j->outputs - n * 16 : 16;
        if (t->fold == 1) {
          make_tile(1, to, from + g * side + i * 32, k, 1, rows, side - i * 32 < 32 ? side - i * 32 : 32);
          continue;
        }
        float some[16 * 32] = {};
        for (int64_t e = 0; e < 32 && i * 32 + e < j->kernel_columns * t->numbers; e++) {
          const int64_t at = i * 32 + e, column = at / t->numbers, row = g * t->fold + at % t->numbers / c;
          if (row < j->kernel_rows)
            for (int64_t o = 0; o < rows; o++) some[o * 32 + e] = from[o * k + row * side + column * c + at % c];
        }
        make_tile(1, to, some, 32, 1, rows, 32);
      }
}

/* The kernel turned round as right tiles [kernel rows, back_each, vectors of channels]. */
static void turn_back_to_tiles(const Block *j, const Units *t, const float *kernel, uint16_t *to) {
  const int64_t c = j->inputs, side = j->kernel_columns * c, k = j->kernel_rows * side;
  for (int64_t row = j->kernel_rows; row--;)
    for (int64_t i = 0; i < t->back_each; i++)
      for (int64_t n = 0; n < c; n += 16, to += NUMBERS)
        for (int64_t e = 0; e < 16; e++) {
          const int64_t at = i * 32 + 2 * e, column = j->kernel_columns - 1 - at / t->back_numbers;
          const int64_t o = at % t->back_numbers;
          const __mmask16 low = column < 0 ? 0 : first(c - n), high = o + 1 < j->outputs ? low : 0;
          const float *from = kernel + (low ? o * k + row * side + column * c + n : 0);
          const __m512 x = _mm512_maskz_loadu_ps(low, from), y = _mm512_maskz_loadu_ps(high, high ? from + k : from);
          _mm512_store_si512(to + e * 32, paired(x, y));
        }
}

/* Sums [p, v] of pixels `from` to `to` and a few more, `width` pixels in a row. */
static void sums_of_pixels(vec *out, const uint16_t *image, int64_t numbers, const uint16_t *tiles, int64_t v,
                           int64_t from, int64_t to, int64_t further, int64_t groups, int64_t each) {
  for (int64_t n = 0; n < v; n += 2)
    for (int64_t p = from; p < to; p += 32) {
      const Tiles left = {image + p * numbers, 2 * numbers, 0, further * numbers};
      const Tiles right = {tiles + n * NUMBERS, 64, NUMBERS, v * NUMBERS};
      const Sums sums = {(float *)(out + p * v + n), v * (int64_t)sizeof(vec), 16};
      sum_up_some(to - p, v - n > 1, 0, sums, left, right, groups, each);
    }
}

/* dw [times, lines, v] += what g [p, v] of an image gives; `lines` are the image's. */
static void kernel_by_units(const Block *j, const Units *t, vec *dw, const uint16_t *lines, const vec *g, vec *scratch) {
  const int64_t v = vectors(j->outputs), c = j->inputs, width = j->padded_width;
  vec *const pairs = scratch;
  for (int64_t p = 0; p < t->deep * 16; p++)
    for (int64_t n = 0; n < v; n++)
      pairs[p * v + n] = (vec)paired((__m512)g[2 * p * v + n], (__m512)g[(2 * p + 1) * v + n]);
  if (t->apart) {
    uint16_t *to = (uint16_t *)(pairs + t->deep * 16 * v);
    const uint16_t *from = lines;
    const size_t size = (size_t)t->deep * 64;
    lines = to;
    for (int64_t i = 0; i < t->lines; i++, to += t->line) {
      const int64_t place = i / c, row = place / j->kernel_columns, column = place % j->kernel_columns;
      if (row < j->kernel_rows)
        memcpy(to, from + i % c * t->line + row * width + column, size);
      else
        memset(to, 0, size);
    }
  }
  for (int64_t i = 0; i < t->times; i++, dw += t->lines * v) {
    const uint16_t *from = lines + i / j->kernel_columns * width + i % j->kernel_columns;
    for (int64_t l = 0; l < t->lines; l += 32)
      for (int64_t n = 0; n < v; n += 2) {
        const Tiles left = {from + l * t->line, 2 * t->line, 0, 0};
        const Tiles right = {(const uint16_t *)(pairs + n), v * (int64_t)sizeof(vec), 32, 16 * 32 * v};
        const Sums sums = {(float *)(dw + l * v + n), v * (int64_t)sizeof(vec), 16};
        sum_up_some(t->lines - l, v - n > 1, 1, sums, left, right, 1, t->deep);
      }
  }
}

/* The gradient of an image, channels last, from g [p, v]. */
static void image_by_units(const Block *j, const Units *t, float *back, const vec *g, const uint16_t *tiles,
                           vec *scratch) {
  const int64_t v = vectors(j->outputs), c = j->inputs, u = vectors(c), n = t->back_numbers, width = t->back_width;
  const int64_t down = j->kernel_rows - 1 - j->pad_top, right = j->kernel_columns - 1 - j->pad_left;
  uint16_t *const image = (uint16_t *)scratch;
  vec *const sums = scratch + t->back_pixels * n / 32 + 1;
  memset(image, 0, (size_t)(t->back_pixels * n) * sizeof *image);
  for (int64_t h = 0; h < j->out_height; h++)
    for (int64_t w = 0; w < j->out_width; w++)
      if (h + down >= 0 && h + down < j->height + j->kernel_rows - 1 && w + right >= 0 && w + right < width)
        round_row(image + ((h + down) * width + w + right) * n, (const float *)(g + (h * j->padded_width + w) * v),
                  j->outputs);
  sums_of_pixels(sums, image, n, tiles, u, 0, (j->height - 1) * width + j->width, width, j->kernel_rows, t->back_each);
  for (int64_t h = 0; h < j->height; h++)
    for (int64_t w = 0; w < j->width; w++, back += c)
      memcpy(back, sums + (h * width + w) * u, (size_t)c * sizeof(float));
}
#endif
