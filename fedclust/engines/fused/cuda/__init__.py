"""What is for NVIDIA GPUs only: graphs of local training, and kernels in Triton."""
