"""Run by the converter's Python: exports a net out of unpacked wheels: ``export.py NET FOLDER WEIGHTS OUT.pt2``."""

import sys
import types

import torch

net, folder, weights, out = sys.argv[1:]
sys.path.insert(0, folder)


def face(name):
    package = types.ModuleType("facenet_pytorch")  # Its own __init__ wants more than the nets need.
    package.__path__ = [f"{folder}/facenet_pytorch"]
    sys.modules["facenet_pytorch"] = package
    from facenet_pytorch.models import mtcnn

    return getattr(mtcnn, name)(pretrained=False)


def efficientnet():
    from efficientnet_lite_pytorch import EfficientNet

    return EfficientNet.from_name("efficientnet-lite0")


def crepe():
    package = types.ModuleType("torchcrepe")  # Likewise.
    package.__path__ = [f"{folder}/torchcrepe"]
    sys.modules["torchcrepe"] = package
    package.PITCH_BINS = 360
    from torchcrepe import model

    return model.Crepe("tiny")


NETS = {
    "pnet": (lambda: face("PNet"), (1, 3, 96, 96)),
    "rnet": (lambda: face("RNet"), (1, 3, 24, 24)),
    "onet": (lambda: face("ONet"), (1, 3, 48, 48)),
    "efficientnet-lite0": (efficientnet, (1, 3, 224, 224)),
    "crepe-tiny": (crepe, (1, 1024)),
}
make, shape = NETS[net]
module = make()
module.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
program = torch.export.export(module.eval(), (torch.rand(shape),))
torch.export.save(program, out)
