"""Detectors and segmenters, as frozen classes."""

from fdbr.vision.models.base import Detector, Prepared, SegmentationLogits, Segmenter
from fdbr.vision.models.deeplab_plus import (
    DeepLabV3Plus_Xception65,
    SeparableASPP,
    Xception65,
)
from fdbr.vision.models.fcn import (
    ASPP,
    DeepLabV3_MobileNet_V3_Large,
    DeepLabV3_ResNet50,
    DeepLabV3_ResNet101,
    FCN_ResNet50,
    FCN_ResNet101,
    LRASPP_MobileNet_V3_Large,
)
from fdbr.vision.models.feature_predictor import FeaturePredictor
from fdbr.vision.models.pspnet import (
    PSPNet_ResNet50,
    PSPNet_ResNet101,
    PyramidPooling,
    convolution_crop,
)
from fdbr.vision.models.segnet import SegNetBasic
from fdbr.vision.models.units import ConvUnit, SeparableConvUnit

__all__ = [
    "ASPP",
    "ConvUnit",
    "DeepLabV3Plus_Xception65",
    "DeepLabV3_MobileNet_V3_Large",
    "DeepLabV3_ResNet101",
    "DeepLabV3_ResNet50",
    "Detector",
    "FCN_ResNet101",
    "FCN_ResNet50",
    "FeaturePredictor",
    "LRASPP_MobileNet_V3_Large",
    "PSPNet_ResNet101",
    "PSPNet_ResNet50",
    "Prepared",
    "PyramidPooling",
    "SegNetBasic",
    "SegmentationLogits",
    "Segmenter",
    "SeparableASPP",
    "SeparableConvUnit",
    "Xception65",
    "convolution_crop",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
