# phonate in a container: docs/OPERATIONS.md.
#   docker build -t phonate .                     the CPU, with our own native engine
#   docker build -t phonate:cuda --target cuda .  an NVIDIA GPU, with the CUDA wheel beside it
ARG PYTHON=3.12

FROM python:${PYTHON}-slim-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY native native
COPY voices voices
COPY server server
# Without a working compiler the package installs without its engine; an image must not.
RUN python3 -m venv /opt/phonate \
    && /opt/phonate/bin/python -m pip install --no-cache-dir --disable-pip-version-check '.[pico]' \
    && test -f /opt/phonate/lib/python3*/site-packages/phonate/_native/libqt.so \
    && /opt/phonate/bin/phonate doctor

FROM build AS build-cuda
RUN /opt/phonate/bin/python -m pip install --no-cache-dir --disable-pip-version-check '.[qwen-cuda]'

FROM python:${PYTHON}-slim-bookworm AS base
RUN useradd --system --uid 10001 --home-dir /var/lib/phonate --shell /usr/sbin/nologin phonate \
    && install -d -o phonate -g phonate -m 0700 /var/lib/phonate
# Everything that is written: voices and models. The root may be read-only.
VOLUME /var/lib/phonate
# Beyond loopback nothing starts without a key: mount a file of keys at PHONATE_API_KEY_FILE.
# hadolint ignore=DL3064
ENV PATH=/opt/phonate/bin:$PATH \
    HOME=/var/lib/phonate \
    HF_HOME=/var/lib/phonate/hub \
    TMPDIR=/var/lib/phonate \
    PYTHONDONTWRITEBYTECODE=1 \
    PHONATE_HOST=0.0.0.0 \
    PHONATE_PORT=8080 \
    PHONATE_ALLOW_LAN=true \
    PHONATE_API_KEY_FILE=/run/secrets/phonate-keys \
    PHONATE_VOICE_DIR=/var/lib/phonate/voices \
    PHONATE_MODEL_CACHE_DIR=/var/lib/phonate/models \
    PHONATE_LOG_FORMAT=json
EXPOSE 8080
USER 10001
HEALTHCHECK --interval=10s --timeout=5s --start-period=30m --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f\"http://127.0.0.1:{os.environ['PHONATE_PORT']}/health\", timeout=4)"]
ENTRYPOINT ["phonate"]
CMD ["serve"]

FROM base AS cuda
COPY --from=build-cuda /opt/phonate /opt/phonate
ENV PHONATE_DEVICE=gpu \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM base AS cpu
COPY --from=build /opt/phonate /opt/phonate
