"""C code and its Python face: softmax regression, and blocks that begin with a convolution."""
