"""Updates: hostile ones, clipped and noised ones, means of them, and the server's step along a
mean.
"""
