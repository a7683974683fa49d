"""Arrays to clients: each module holds one frozen dataclass with `pool` and `split`
(`types.Partition`).
"""
