"""Detectors and segmenters, as frozen classes."""

from fdbr.vision.models.base import Detector, Prepared, SegmentationLogits, Segmenter
from fdbr.vision.models.deeplab_plus import DeepLabV3Plus_Xception65, SeparableASPP, Xception65
from fdbr.vision.models.dense import (
    DenseDetector,
    DenseHead,
    FCOS_ResNet50_FPN,
    RetinaNet_ResNet50_FPN,
    RetinaNet_ResNet50_FPN_V2,
    fcos_losses,
    match_points,
    retinanet_losses,
)
from fdbr.vision.models.faster_rcnn_vgg import FasterRCNN_VGG16, VGG16RoIHead
from fdbr.vision.models.fcis import FCIS_ResNet101, FCISHead, MaskedRegions, mask_voting
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
from fdbr.vision.models.fpn import (
    Backbone,
    FeaturePyramid,
    FrozenBatchNorm,
    LastLevels,
    ResNetBody,
    split_backbone,
)
from fdbr.vision.models.keypoint_rcnn import KeypointRCNN_ResNet50_FPN
from fdbr.vision.models.light_head_rcnn import (
    GlobalContextModule,
    LightHeadRCNN_ResNet101,
    LightHeadRoIHead,
)
from fdbr.vision.models.mask_rcnn import MaskRCNN_ResNet50_FPN, MaskRCNN_ResNet101_FPN
from fdbr.vision.models.matching import Sample, match, sample
from fdbr.vision.models.pspnet import (
    PSPNet_ResNet50,
    PSPNet_ResNet101,
    PyramidPooling,
    convolution_crop,
)
from fdbr.vision.models.rcnn import (
    FasterRCNN,
    FasterRCNN_ResNet50_FPN,
    FasterRCNN_ResNet101_FPN,
    RegionSettings,
)
from fdbr.vision.models.region_losses import (
    AnchorTargets,
    RegionTargets,
    anchor_losses,
    anchor_targets,
    keypoint_losses,
    mask_losses,
    region_losses,
    region_targets,
)
from fdbr.vision.models.segnet import SegNetBasic
from fdbr.vision.models.single_shot import match_default_boxes, multibox_loss
from fdbr.vision.models.ssd import (
    SSD,
    SSD300_VGG16,
    SSD512_VGG16,
    MobileNetExtractor,
    ScoringHead,
    SSDHead,
    SSDLite320_MobileNet_V3_Large,
    VGG16Extractor,
)
from fdbr.vision.models.units import ConvUnit, SeparableConvUnit
from fdbr.vision.models.yolo import (
    Darknet19,
    Darknet53,
    DarknetTiny,
    YOLOTargets,
    YOLOv2,
    YOLOv2Tiny,
    YOLOv3,
    yolo_targets,
)

__all__ = [
    "ASPP",
    "AnchorTargets",
    "Backbone",
    "ConvUnit",
    "Darknet19",
    "Darknet53",
    "DarknetTiny",
    "DeepLabV3Plus_Xception65",
    "DeepLabV3_MobileNet_V3_Large",
    "DeepLabV3_ResNet101",
    "DeepLabV3_ResNet50",
    "DenseDetector",
    "DenseHead",
    "Detector",
    "FCISHead",
    "FCIS_ResNet101",
    "FCN_ResNet101",
    "FCN_ResNet50",
    "FCOS_ResNet50_FPN",
    "FasterRCNN",
    "FasterRCNN_ResNet101_FPN",
    "FasterRCNN_ResNet50_FPN",
    "FasterRCNN_VGG16",
    "FeaturePredictor",
    "FeaturePyramid",
    "FrozenBatchNorm",
    "GlobalContextModule",
    "KeypointRCNN_ResNet50_FPN",
    "LRASPP_MobileNet_V3_Large",
    "LastLevels",
    "LightHeadRCNN_ResNet101",
    "LightHeadRoIHead",
    "MaskRCNN_ResNet101_FPN",
    "MaskRCNN_ResNet50_FPN",
    "MaskedRegions",
    "MobileNetExtractor",
    "PSPNet_ResNet101",
    "PSPNet_ResNet50",
    "Prepared",
    "PyramidPooling",
    "RegionSettings",
    "RegionTargets",
    "ResNetBody",
    "RetinaNet_ResNet50_FPN",
    "RetinaNet_ResNet50_FPN_V2",
    "SSD",
    "SSD300_VGG16",
    "SSD512_VGG16",
    "SSDHead",
    "SSDLite320_MobileNet_V3_Large",
    "Sample",
    "ScoringHead",
    "SegNetBasic",
    "SegmentationLogits",
    "Segmenter",
    "SeparableASPP",
    "SeparableConvUnit",
    "VGG16Extractor",
    "VGG16RoIHead",
    "Xception65",
    "YOLOTargets",
    "YOLOv2",
    "YOLOv2Tiny",
    "YOLOv3",
    "anchor_losses",
    "anchor_targets",
    "convolution_crop",
    "fcos_losses",
    "keypoint_losses",
    "mask_losses",
    "mask_voting",
    "match",
    "match_default_boxes",
    "match_points",
    "multibox_loss",
    "region_losses",
    "region_targets",
    "retinanet_losses",
    "sample",
    "split_backbone",
    "yolo_targets",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
