# docker build -t autoselect .
# docker run --rm -v "$PWD:/work" autoselect evaluate model.tflite --evaluation labelled.npz --reference float.tflite --max-drop 0.01
FROM python:3.12-slim

# The locked packages first: they change less often than the code. The lock is whole, so pip resolves nothing again.
COPY requirements.lock /opt/autoselect/
RUN python -m pip install --no-cache-dir --no-deps -r /opt/autoselect/requirements.lock

COPY pyproject.toml README.md LICENSE /opt/autoselect/
COPY search_spaces /opt/autoselect/search_spaces
COPY autoselect /opt/autoselect/autoselect
RUN python -m pip install --no-cache-dir --no-deps --no-build-isolation /opt/autoselect && python -m pip check

RUN useradd --create-home autoselect
USER autoselect
WORKDIR /work
ENTRYPOINT ["autoselect"]
