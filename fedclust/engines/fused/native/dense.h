/* The dense layers whose models are trained, a row (client) each, as the caller fills them. */

#ifndef DENSE_H
#define DENSE_H

#include "moments.h"
#include "rows.h"

typedef struct {
  int64_t inputs, outputs, relu; /* relu: whether one follows */
  float *weight, *slot, *square; /* [R, o, i]; the last two may be NULL */
  const float *anchor;           /* [R, o, i] or NULL */
  float *bias, *bias_slot, *bias_square; /* [R, o] or NULL */
  const float *bias_anchor;      /* [R, o] or NULL */
  float decay, bias_decay;
} Layer;

typedef struct {
  Rows of;
  int64_t layers, rounds;
  int64_t own_anchor; /* whether the anchor is not the start */
  const Layer *layer; /* [layers] */
  float lr, momentum, pull;
  Law law;
} Job;

#endif
