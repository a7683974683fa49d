"""The vocabulary: data types, requests, interfaces; imports nothing but models and helpers."""
