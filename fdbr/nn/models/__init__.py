"""Models of known shapes, under torchvision's and Hugging Face's names."""

from fdbr.nn.models.bert import (
    BERT,
    BERTAttention,
    BERTLayer,
    BERTOutputs,
)
from fdbr.nn.models.convnext import (
    ConvNeXt,
    ConvNeXt_Base,
    ConvNeXt_Large,
    ConvNeXt_Small,
    ConvNeXt_Tiny,
    LayerNorm2d,
)
from fdbr.nn.models.generation import (
    generate,
    sample,
)
from fdbr.nn.models.googlenet import (
    BasicConv,
    GoogLeNet,
    GoogLeNetOutputs,
    InceptionAux,
    InceptionBranches,
)
from fdbr.nn.models.gpt2 import (
    GPT2,
    Conv1D,
    GPT2Attention,
    GPT2Block,
)
from fdbr.nn.models.mobilenet import (
    InvertedResidual,
    MobileNet_V3_Large,
    MobileNet_V3_Small,
    MobileNetV3,
)
from fdbr.nn.models.network import (
    ImageNetwork,
    Network,
)
from fdbr.nn.models.residual import (
    BasicBlock,
    Bottleneck,
)
from fdbr.nn.models.resnet import (
    ResNet,
    ResNet18,
    ResNet34,
    ResNet50,
    ResNet101,
    ResNet152,
    ResNeXt50_32x4d,
    ResNeXt101_32x8d,
    ResNeXt101_64x4d,
    SEResNet50,
    SEResNet101,
    SEResNet152,
    SEResNeXt50,
    SEResNeXt101,
    Wide_ResNet50_2,
    Wide_ResNet101_2,
)
from fdbr.nn.models.vgg import (
    VGG,
    VGG11,
    VGG13,
    VGG16,
    VGG19,
)
from fdbr.nn.models.vit import (
    ViT,
    ViT_B_16,
    ViT_B_32,
    ViT_H_14,
    ViT_L_16,
    ViT_L_32,
    ViTEncoder,
)

__all__ = [
    "BERT",
    "BERTAttention",
    "BERTLayer",
    "BERTOutputs",
    "BasicBlock",
    "BasicConv",
    "Bottleneck",
    "Conv1D",
    "ConvNeXt",
    "ConvNeXt_Base",
    "ConvNeXt_Large",
    "ConvNeXt_Small",
    "ConvNeXt_Tiny",
    "GPT2",
    "GPT2Attention",
    "GPT2Block",
    "GoogLeNet",
    "GoogLeNetOutputs",
    "ImageNetwork",
    "InceptionAux",
    "InceptionBranches",
    "InvertedResidual",
    "LayerNorm2d",
    "MobileNetV3",
    "MobileNet_V3_Large",
    "MobileNet_V3_Small",
    "Network",
    "ResNeXt101_32x8d",
    "ResNeXt101_64x4d",
    "ResNeXt50_32x4d",
    "ResNet",
    "ResNet101",
    "ResNet152",
    "ResNet18",
    "ResNet34",
    "ResNet50",
    "SEResNeXt101",
    "SEResNeXt50",
    "SEResNet101",
    "SEResNet152",
    "SEResNet50",
    "VGG",
    "VGG11",
    "VGG13",
    "VGG16",
    "VGG19",
    "ViT",
    "ViTEncoder",
    "ViT_B_16",
    "ViT_B_32",
    "ViT_H_14",
    "ViT_L_16",
    "ViT_L_32",
    "Wide_ResNet101_2",
    "Wide_ResNet50_2",
    "generate",
    "sample",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
