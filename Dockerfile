# docker build --tag workbench .
# BASE may be an image with PyTorch and CUDA (docs/install.md): pip keeps the torch that is there.
ARG BASE=python:3.13-slim
FROM ${BASE}
ARG EXTRAS=text,vision,kg
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY . /source
# hadolint ignore=DL3013 # pyproject.toml has the versions
RUN (python -c "import torch" 2>/dev/null || pip install --no-cache-dir --index-url "$TORCH_INDEX" torch torchvision) \
    && pip install --no-cache-dir "/source[$EXTRAS]" \
    && rm -r /source
WORKDIR /data
ENTRYPOINT ["workbench"]
