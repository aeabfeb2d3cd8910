"""The former place of a function that the file ``load.py`` of a converted model imports."""

from steadyrnn.models.converted import with_layer as with_layer

__all__: list[str] = []
