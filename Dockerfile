# tokenmill with its fast engines and object stores, without PyTorch, as a user without rights.
#   docker build -t tokenmill .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" tokenmill \
#       build data/ --tokenizer tokenizer.json --out corpus/
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE requirements-dev.txt ./
COPY src src
RUN python -m venv /opt/tokenmill \
    && /opt/tokenmill/bin/pip install --no-cache-dir --no-compile \
        --constraint requirements-dev.txt ".[fast,tiktoken,sentencepiece,chat,report,cloud]" \
    && /opt/tokenmill/bin/pip uninstall --yes pip

FROM python:3.13-slim
COPY --from=build /opt/tokenmill /opt/tokenmill
# Compiled code is kept here; any user id may run the image.
RUN mkdir /cache /work && chmod 1777 /cache
ENV PATH=/opt/tokenmill/bin:$PATH XDG_CACHE_HOME=/cache PYTHONDONTWRITEBYTECODE=1
USER 65534:65534
WORKDIR /work
ENTRYPOINT ["tokenmill"]
CMD ["--help"]
