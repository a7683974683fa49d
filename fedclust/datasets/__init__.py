"""Files to arrays: each module holds one frozen dataclass whose `load()` returns a `Dataset`."""
