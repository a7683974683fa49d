# fedclust in a container. Without a GPU, which is the default:
#   make image
#   mkdir -p outputs && chmod a+w outputs  # the container's user writes there
#   docker run --rm -v "$PWD/outputs:/work/outputs" fedclust run experiment=quickstart
# With one: make image TORCH=cuda, and `docker run --gpus all …`.
FROM python:3.12-slim

# the compiler makes the fast loops on a machine's first run
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git \
    && rm -rf /var/lib/apt/lists/*

ARG TORCH=cpu
COPY requirements.lock pyproject.toml README.md LICENSE CITATION.cff CHANGELOG.md /source/
COPY conf /source/conf
COPY examples /source/examples
COPY fedclust /source/fedclust
COPY scripts /source/scripts
COPY docs /source/docs
# the versions of requirements.lock; uv knows where PyTorch without CUDA is
RUN sed 's/ *--hash=[^ ]*//; s/ *\\$//; /^ *$/d; /^ *#/d' /source/requirements.lock > /tmp/pins \
    && pip install --no-cache-dir uv==0.13.8 \
    && uv pip install --system --no-cache $([ "$TORCH" = cpu ] && echo --torch-backend cpu) \
      --constraint /tmp/pins /source \
    && rm /tmp/pins

RUN useradd --create-home user && mkdir -p /work/outputs /work/data && chown -R user /work
USER user
WORKDIR /work
ENV FEDCLUST_DATA=/work/data
ENTRYPOINT ["fedclust"]
CMD ["--help"]
