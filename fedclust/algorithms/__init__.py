"""Methods, one file each, whole beside what they share.

`steps` holds the steps of a round, `parts` what two or more methods have in common, `layers`
methods around any method. `warmup` and `cold_start` are parts that a config names.
"""
