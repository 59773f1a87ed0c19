"""Where the advice's thresholds come from: titles to look up; knows no rule."""

from __future__ import annotations

DEBUGGER_GUIDE = "TensorFlow guide “Inspecting Quantization Errors with Quantization Debugger”"
POST_TRAINING_GUIDE = "TensorFlow guide “Post-training quantization”"
KERAS_PREPROCESSING = "Keras Applications, `preprocess_input` of MobileNet (pixels to -1..1)"
LECUN = "LeCun et al. 1998, “Efficient BackProp”, on normalizing the inputs"
KRISHNAMOORTHI = "Krishnamoorthi 2018, “Quantizing deep convolutional networks for efficient inference: A whitepaper”"
NAGEL = "Nagel et al. 2021, “A White Paper on Neural Network Quantization”"
WU = "Wu et al. 2020, “Integer Quantization for Deep Learning Inference: Principles and Empirical Evaluation”"
OWN = "the limit is autoselect's own choice"
