"""A model as bytes, as objects and as a graph: each is made when it is first asked for, once; edits none of them."""

from __future__ import annotations

from functools import cached_property

from autoselect.domain.graph import Graph
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb


class TfliteFile:
    """One model that goes from hand to hand: who needs bytes and who needs objects take it alike."""

    def __init__(self, content: bytes | None = None, model: fb.Model | None = None) -> None:
        """Take bytes, objects that nobody changes any more, or both where they are of one model."""
        assert content is not None or model is not None
        self._content, self._model = content, model

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TfliteFile) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)

    def __reduce__(self) -> tuple[type[TfliteFile], tuple[bytes]]:
        return TfliteFile, (self.content,)

    @property
    def content(self) -> bytes:
        """The bytes; serialised where only objects were given."""
        if self._content is None:
            self._content = fb.serialise(self.model)
        return self._content

    @property
    def model(self) -> fb.Model:
        """The objects, not to be changed; parsed where only bytes were given.

        Raises:
            ModelError: If the bytes are no TFLite file.
        """
        if self._model is None:
            self._model = fb.parse(self.content)
        return self._model

    @cached_property
    def graph(self) -> Graph:
        """The main subgraph, as the rest of autoselect reasons about it.

        Raises:
            ModelError: As :attr:`model`.
        """
        return reader.read_graph(self.model)

    def taken(self) -> fb.Model:
        """The objects to be changed, for who alone holds the file: it would parse its bytes anew.

        Raises:
            ModelError: As :attr:`model`.
        """
        if self._content is None:
            return self.copied()
        model, self._model = self.model, None
        return model

    def copied(self) -> fb.Model:
        """The objects to be changed, where others hold the file; the data of buffers is shared.

        Raises:
            ModelError: As :attr:`model`.
        """
        return editing.copied(self.model)
