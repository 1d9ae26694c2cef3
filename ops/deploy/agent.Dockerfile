# The agent of a host or container, with Debian's RDMA verbs for Python.
#   docker build --file ops/deploy/agent.Dockerfile --tag skeletonhunter-agent .
#   docker run --network host --volume /etc/skeletonhunter:/etc/skeletonhunter:ro \
#     skeletonhunter-agent --config /etc/skeletonhunter/agent.toml

FROM debian:bookworm-slim AS build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir uv==0.13.8
WORKDIR /src
COPY . .
# --system-site-packages: pyverbs comes from Debian, built for Debian's Python.
RUN python3 -m venv --system-site-packages /opt/skeletonhunter \
 && /opt/uv/bin/uv pip install --no-cache --python /opt/skeletonhunter/bin/python \
      --constraint requirements.lock --build-constraint requirements.lock '.[prober]'

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 python3-pyverbs \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/skeletonhunter /opt/skeletonhunter
ENV PATH=/opt/skeletonhunter/bin:$PATH \
    PYTHONUNBUFFERED=1
RUN useradd --system --create-home skeletonhunter
USER skeletonhunter
WORKDIR /home/skeletonhunter
# The room itself, not the umbrella command: that needs packages which no GPU host should carry.
ENTRYPOINT ["python3", "-m", "probers"]
CMD ["--help"]
