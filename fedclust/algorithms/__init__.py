"""Methods, one file each, beside the parts that several of them share.

`steps` holds the steps of a round, `start` the initial models, `cold_start`, `shift`, `warmup` and
others a subject each; `wrappers` are methods around any method.
"""
