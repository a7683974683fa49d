"""Which devices clients have, and how long a server waits for them; `fedclust.core.clock` says what
a clock is.
"""
