# The agent of a host or container, with Debian's RDMA verbs for Python.
#   docker build --file ops/deploy/agent.Dockerfile --tag skeletonhunter-agent .
#   docker run --network host --device /dev/infiniband --ulimit memlock=-1 --read-only \
#     --tmpfs /run/skeletonhunter:uid=10001 --cap-drop ALL --security-opt no-new-privileges \
#     --volume /etc/skeletonhunter:/etc/skeletonhunter:ro skeletonhunter-agent

FROM debian:bookworm-slim AS build
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev python3 python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/*
COPY ops/deploy/agent.requirements.txt /tmp/
# --system-site-packages: pyverbs comes from Debian, built for Debian's Python.
RUN python3 -m venv /opt/pip \
 && python3 -m venv --system-site-packages --without-pip /opt/skeletonhunter \
 && /opt/pip/bin/pip --python /opt/skeletonhunter/bin/python install --no-cache-dir --no-deps \
      --only-binary :all: --require-hashes --requirement /tmp/agent.requirements.txt
# The two rooms an agent is made of, and no other: no GPU host should carry what only a worker
# needs.
COPY schemas /opt/skeletonhunter/lib/python3.11/site-packages/schemas
COPY probers /opt/skeletonhunter/lib/python3.11/site-packages/probers
# What is written in C, as pyproject.toml has it.
COPY pyproject.toml ops/deploy/extensions.py /tmp/
RUN /opt/skeletonhunter/bin/python /tmp/extensions.py /tmp/pyproject.toml \
      /opt/skeletonhunter/lib/python3.11/site-packages
RUN /opt/skeletonhunter/bin/python -m compileall -q /opt/skeletonhunter/lib

FROM debian:bookworm-slim
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 python3-pyverbs ibverbs-providers \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 skeletonhunter \
 && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin skeletonhunter \
 && install --directory --owner 10001 --group 10001 --mode 0750 /run/skeletonhunter
COPY --from=build /opt/skeletonhunter /opt/skeletonhunter
# The environment goes before the file: the health check below asks where the agent listens.
ENV PATH=/opt/skeletonhunter/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    SKELETONHUNTER_CONFIG=/etc/skeletonhunter/agent.toml \
    SKELETONHUNTER_AGENT_HEALTH=unix:/run/skeletonhunter/agent.sock
USER 10001:10001
WORKDIR /
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
  CMD ["python3", "-P", "-m", "probers", "health", "--live"]
# -P: nothing is imported from the working directory.
ENTRYPOINT ["python3", "-P", "-m", "probers"]
