"""Hyper-parameters chosen by validation examples: what is searched, how, and what it leaves."""
