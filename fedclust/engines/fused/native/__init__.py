"""C code and its Python face: what training and tests on a CPU spend their time in."""
