"""Arrays to clients: in each module a frozen dataclass with `pool` and `split`."""
