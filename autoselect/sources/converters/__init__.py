"""Models of other frameworks (ONNX, PyTorch): converted by another Python, and proved equal before they are used.

It refuses to know samples' files and caches: it is given arrays and a folder to work in.
"""
