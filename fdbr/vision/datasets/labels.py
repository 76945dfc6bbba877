"""The names of classes, and the colours of drawings, as the publishers of data sets have them.

A name's position is its label.  Colours are red, green and blue from 0 to 255.
"""

__all__ = [
    "ade20k_label_colors",
    "ade20k_label_names",
    "camvid_ignore_label_color",
    "camvid_label_colors",
    "camvid_label_names",
    "cityscapes_label_colors",
    "cityscapes_label_names",
    "coco_keypoint_names",
    "coco_label_ids",
    "coco_label_names",
    "coco_panoptic_label_colors",
    "coco_panoptic_label_ids",
    "coco_panoptic_label_names",
    "coco_skeleton",
    "coco_torchvision_label_names",
    "cub_label_names",
    "cub_point_names",
    "online_products_super_label_names",
    "voc_ignore_label_color",
    "voc_label_names",
    "voc_segmentation_label_colors",
    "voc_segmentation_label_names",
]

Color = tuple[int, int, int]


def _names(text: str) -> tuple[str, ...]:
    """Return names that commas divide."""
    return tuple(" ".join(name.split()) for name in text.split(","))


def _colors(text: str) -> tuple[Color, ...]:
    """Return colours that are written as six hexadecimal digits."""
    return tuple(_color(word) for word in text.split())


def _color(word: str) -> Color:
    red, green, blue = bytes.fromhex(word)
    return red, green, blue


# --- PASCAL VOC and SBD -------------------------------------------------------------

voc_label_names = _names("""
aeroplane, bicycle, bird, boat, bottle, bus, car, cat, chair, cow, diningtable, dog, horse,
motorbike, person, pottedplant, sheep, sofa, train, tvmonitor
""")
"""The 20 classes of PASCAL VOC's boxes and instances, and of SBD's."""

voc_segmentation_label_names = ("background", *voc_label_names)
"""The 21 classes of PASCAL VOC's label maps."""


def _voc_color(label: int) -> Color:
    """Spread the bits of a label over the channels, as the development kit's `VOClabelcolormap`."""
    red, green, blue = (
        sum((label >> (3 * bit + channel) & 1) << (7 - bit) for bit in range(3))
        for channel in range(3)
    )
    return red, green, blue


voc_segmentation_label_colors = tuple(_voc_color(label) for label in range(21))
"""The colours in which PASCAL VOC's files show label maps."""

voc_ignore_label_color = (224, 224, 192)
"""The colour of PASCAL VOC's pixels of unknown class, which surround objects."""


# --- COCO ---------------------------------------------------------------------------

coco_label_names = _names("""
person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light,
fire hydrant, stop sign, parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant,
bear, zebra, giraffe, backpack, umbrella, handbag, tie, suitcase, frisbee, skis, snowboard,
sports ball, kite, baseball bat, baseball glove, skateboard, surfboard, tennis racket, bottle,
wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot,
hot dog, pizza, donut, cake, chair, couch, potted plant, bed, dining table, toilet, tv, laptop,
mouse, remote, keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, book, clock,
vase, scissors, teddy bear, hair drier, toothbrush
""")
"""The 80 classes of COCO's objects."""

coco_label_ids = tuple(
    map(
        int,
        """
1 2 3 4 5 6 7 8 9 10 11 13 14 15 16 17 18 19 20 21 22 23 24 25 27 28 31 32 33 34 35 36 37 38 39
40 41 42 43 44 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 67 70 72 73 74 75 76
77 78 79 80 81 82 84 85 86 87 88 89 90
""".split(),
    )
)
"""The numbers of COCO's 80 classes in its files (``category_id``), from 1 to 90."""

_BY_ID = dict(zip(coco_label_ids, coco_label_names, strict=True))
coco_torchvision_label_names = tuple(_BY_ID.get(label + 1, "N/A") for label in range(90))
"""The 90 classes of torchvision's detectors, which count ids from 1: label 0 is COCO's id 1.

Ten of the ids belong to no class, and are named ``"N/A"``.  `coco_label_names.index` finds a
label of `coco_boxes` by such a name.
"""

_STUFF = _names("""
banner, blanket, bridge, cardboard, counter, curtain, door-stuff, floor-wood, flower, fruit,
gravel, house, light, mirror-stuff, net, pillow, platform, playingfield, railroad, river, road,
roof, sand, sea, shelf, snow, stairs, tent, towel, wall-brick, wall-stone, wall-tile, wall-wood,
water-other, window-blind, window-other, tree-merged, fence-merged, ceiling-merged,
sky-other-merged, cabinet-merged, table-merged, floor-other-merged, pavement-merged,
mountain-merged, grass-merged, dirt-merged, paper-merged, food-other-merged,
building-other-merged, rock-merged, wall-other-merged, rug-merged
""")
coco_panoptic_label_names = coco_label_names + _STUFF
"""The 133 classes of COCO's panoptic maps: 80 of objects and 53 of areas such as sky."""

coco_panoptic_label_ids = coco_label_ids + tuple(
    map(
        int,
        """
92 93 95 100 107 109 112 118 119 122 125 128 130 133 138 141 144 145 147 148 149 151 154 155 156
159 161 166 168 171 175 176 177 178 180 181 184 185 186 187 188 189 190 191 192 193 194 195 196
197 198 199 200
""".split(),
    )
)
"""The numbers of COCO's 133 panoptic classes in its files (``category_id``)."""

coco_panoptic_label_colors = _colors("""
dc143c 770b20 00008e 0000e6 6a00e4 003c64 005064 000046 0000c0 faaa1e 64aa1e dcdc00 af74af
fa001e a52a2a ff4dff 00e2fc b6b6ff 005200 78a69d 6e4c00 ae39ff c76400 480076 ffb3f0 007d5c
d10097 bcd0b6 00dcb0 ff63a4 5c0049 8581ff 4eb4ff 00e400 aefff3 2d59ff 868667 9194ae ffd0ba
c5e2ff ab8601 6d3f36 cf8aff 97005f 09503d 546933 4a4169 a6c466 d0c3d2 ff6d41 008f95 b300c2
d1636a 057900 e3ffcd 93bad0 994501 035fa1 a3ff00 7700aa 00b6c7 00a578 b78258 5f2000 827287
6e8185 a64a76 db8eb9 4fd272 b25a3e 41460f 7fa773 3b696a 8e6c2d c4ac00 5f3650 804cff c93901
f6007a bfa2d0 ffff80 93d3cb 966464 a8abac 9270c6 d2aa64 5c8859 da58b8 f18100 d911ff 7c4ab5
464646 ffe4ff 9ad000 c1005c 4c5b71 ffb4c3 6a9ab0 e6968c 3c8fff 804080 5c5237 fed47c 494dae
ffa062 ffffff 68546d a9a483 e1c7ff 89364a 879edf 07f6e7 6bffc8 3a2995 b7798e ff4961 6b8e23
be9999 928b8d 4682b4 86c79c d1e28c 60246c 606060 40aa40 98fb98 d0e5e4 cebaab 98a140 747000
00728f 66669c fa8dff
""")
"""The colours in which COCO shows its 133 panoptic classes."""

coco_keypoint_names = _names("""
nose, left_eye, right_eye, left_ear, right_ear, left_shoulder, right_shoulder, left_elbow,
right_elbow, left_wrist, right_wrist, left_hip, right_hip, left_knee, right_knee, left_ankle,
right_ankle
""")
"""The 17 points of COCO's persons."""

coco_skeleton = (
    *((15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8)),
    *((7, 9), (8, 10), (1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6)),
)
"""The pairs of COCO's points that drawings connect, as positions in `coco_keypoint_names`."""


# --- streets and rooms --------------------------------------------------------------

camvid_label_names = _names(
    "Sky, Building, Pole, Road, Pavement, Tree, SignSymbol, Fence, Car, Pedestrian, Bicyclist"
)
"""The 11 classes of CamVid, as SegNet uses it."""

camvid_label_colors = _colors(
    "808080 800000 c0c080 804080 3c28de 808000 c08080 404080 400080 404000 0080c0"
)
"""The colours of CamVid's 11 classes."""

camvid_ignore_label_color = (0, 0, 0)
"""The colour of CamVid's pixels of unknown class."""

cityscapes_label_names = _names("""
road, sidewalk, building, wall, fence, pole, traffic light, traffic sign, vegetation, terrain,
sky, person, rider, car, truck, bus, train, motorcycle, bicycle
""")
"""The 19 classes of Cityscapes that are measured, by their train ids."""

cityscapes_label_colors = _colors("""
804080 f423e8 464646 66669c be9999 999999 faaa1e dcdc00 6b8e23 98fb98 4682b4 dc143c ff0000
00008e 000046 003c64 005064 0000e6 770b20
""")
"""The colours of Cityscapes' 19 classes."""

CITYSCAPES_IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
"""The numbers of Cityscapes' 19 classes in its files; there are 34, from 0 on."""

ade20k_label_names = _names("""
wall, building, sky, floor, tree, ceiling, road, bed, windowpane, grass, cabinet, sidewalk,
person, earth, door, table, mountain, plant, curtain, chair, car, water, painting, sofa, shelf,
house, sea, mirror, rug, field, armchair, seat, fence, desk, rock, wardrobe, lamp, bathtub,
railing, cushion, base, box, column, signboard, chest of drawers, counter, sand, sink,
skyscraper, fireplace, refrigerator, grandstand, path, stairs, runway, case, pool table, pillow,
screen door, stairway, river, bridge, bookcase, blind, coffee table, toilet, flower, book, hill,
bench, countertop, stove, palm, kitchen island, computer, swivel chair, boat, bar,
arcade machine, hovel, bus, towel, light, truck, tower, chandelier, awning, streetlight, booth,
television, airplane, dirt track, apparel, pole, land, bannister, escalator, ottoman, bottle,
buffet, poster, stage, van, ship, fountain, conveyer belt, canopy, washer, plaything,
swimming pool, stool, barrel, basket, waterfall, tent, bag, minibike, cradle, oven, ball, food,
step, tank, trade name, microwave, pot, animal, bicycle, lake, dishwasher, screen, blanket,
sculpture, hood, sconce, vase, traffic light, tray, ashcan, fan, pier, crt screen, plate,
monitor, bulletin board, shower, radiator, glass, clock, flag
""")
"""The 150 classes of ADE20K's scene parsing benchmark, each by the first name of its list."""

ade20k_label_colors = _colors("""
787878 b47878 06e6e6 503232 04c803 787850 8c8c8c cc05ff e6e6e6 04fa07 e005ff ebff07 96053d
787846 08ff33 ff0652 8fff8c ccff04 ff3307 cc4603 0066c8 3de6fa ff0633 0b66ff ff0747 ff09e0
0907e6 dcdcdc ff095c 7009ff 08ffd6 07ffe0 ffb806 0aff47 ff290a 07ffff e0ff08 6608ff ff3d06
ffc207 ff7a08 00ff14 ff0829 ff0599 0633ff eb0cff a09614 00a3ff 8c8c8c fa0a0f 14ff00 1fff00
ff1f00 ffe000 99ff00 0000ff ff4700 00ebff 00adff 1f00ff 0bc8c8 ff5200 00fff5 003dff 00ff70
00ff85 ff0000 ffa300 ff6600 c2ff00 008fff 33ff00 0052ff 00ff29 00ffad 0a00ff adff00 00ff99
ff5c00 ff00ff ff00f5 ff0066 ffad00 ff0014 ffb8b8 001fff 00ff3d 0047ff ff00cc 00ffc2 00ff52
000aff 0070ff 3300ff 00c2ff 007aff 00ffa3 ff9900 00ff0a ff7000 8fff00 5200ff a3ff00 ffeb00
08b8aa 8500ff 00ff5c b800ff ff001f 00b8ff 00d6ff ff0070 5cff00 00e0ff 70e0ff 46b8a0 a300ff
9900ff 47ff00 ff00a3 ffcc00 ff008f 00ffeb 85ff00 ff00eb f500ff ff007a fff500 0abed4 d6ff00
00ccff 1400ff ffff00 0099ff 0029ff 00ffcc 2900ff 29ff00 ad00ff 00f5ff 4700ff 7a00ff 00ffb8
005cff b8ff00 0085ff ffd600 19c2c2 66ff00 5c00ff
""")
"""The colours of ADE20K's 150 classes."""


# --- birds and products -------------------------------------------------------------

cub_label_names = tuple(
    """
Black_footed_Albatross Laysan_Albatross Sooty_Albatross Groove_billed_Ani Crested_Auklet
Least_Auklet Parakeet_Auklet Rhinoceros_Auklet Brewer_Blackbird Red_winged_Blackbird
Rusty_Blackbird Yellow_headed_Blackbird Bobolink Indigo_Bunting Lazuli_Bunting Painted_Bunting
Cardinal Spotted_Catbird Gray_Catbird Yellow_breasted_Chat Eastern_Towhee Chuck_will_Widow
Brandt_Cormorant Red_faced_Cormorant Pelagic_Cormorant Bronzed_Cowbird Shiny_Cowbird
Brown_Creeper American_Crow Fish_Crow Black_billed_Cuckoo Mangrove_Cuckoo Yellow_billed_Cuckoo
Gray_crowned_Rosy_Finch Purple_Finch Northern_Flicker Acadian_Flycatcher
Great_Crested_Flycatcher Least_Flycatcher Olive_sided_Flycatcher Scissor_tailed_Flycatcher
Vermilion_Flycatcher Yellow_bellied_Flycatcher Frigatebird Northern_Fulmar Gadwall
American_Goldfinch European_Goldfinch Boat_tailed_Grackle Eared_Grebe Horned_Grebe
Pied_billed_Grebe Western_Grebe Blue_Grosbeak Evening_Grosbeak Pine_Grosbeak
Rose_breasted_Grosbeak Pigeon_Guillemot California_Gull Glaucous_winged_Gull Heermann_Gull
Herring_Gull Ivory_Gull Ring_billed_Gull Slaty_backed_Gull Western_Gull Anna_Hummingbird
Ruby_throated_Hummingbird Rufous_Hummingbird Green_Violetear Long_tailed_Jaeger Pomarine_Jaeger
Blue_Jay Florida_Jay Green_Jay Dark_eyed_Junco Tropical_Kingbird Gray_Kingbird Belted_Kingfisher
Green_Kingfisher Pied_Kingfisher Ringed_Kingfisher White_breasted_Kingfisher
Red_legged_Kittiwake Horned_Lark Pacific_Loon Mallard Western_Meadowlark Hooded_Merganser
Red_breasted_Merganser Mockingbird Nighthawk Clark_Nutcracker White_breasted_Nuthatch
Baltimore_Oriole Hooded_Oriole Orchard_Oriole Scott_Oriole Ovenbird Brown_Pelican White_Pelican
Western_Wood_Pewee Sayornis American_Pipit Whip_poor_Will Horned_Puffin Common_Raven
White_necked_Raven American_Redstart Geococcyx Loggerhead_Shrike Great_Grey_Shrike Baird_Sparrow
Black_throated_Sparrow Brewer_Sparrow Chipping_Sparrow Clay_colored_Sparrow House_Sparrow
Field_Sparrow Fox_Sparrow Grasshopper_Sparrow Harris_Sparrow Henslow_Sparrow Le_Conte_Sparrow
Lincoln_Sparrow Nelson_Sharp_tailed_Sparrow Savannah_Sparrow Seaside_Sparrow Song_Sparrow
Tree_Sparrow Vesper_Sparrow White_crowned_Sparrow White_throated_Sparrow Cape_Glossy_Starling
Bank_Swallow Barn_Swallow Cliff_Swallow Tree_Swallow Scarlet_Tanager Summer_Tanager Artic_Tern
Black_Tern Caspian_Tern Common_Tern Elegant_Tern Forsters_Tern Least_Tern Green_tailed_Towhee
Brown_Thrasher Sage_Thrasher Black_capped_Vireo Blue_headed_Vireo Philadelphia_Vireo
Red_eyed_Vireo Warbling_Vireo White_eyed_Vireo Yellow_throated_Vireo Bay_breasted_Warbler
Black_and_white_Warbler Black_throated_Blue_Warbler Blue_winged_Warbler Canada_Warbler
Cape_May_Warbler Cerulean_Warbler Chestnut_sided_Warbler Golden_winged_Warbler Hooded_Warbler
Kentucky_Warbler Magnolia_Warbler Mourning_Warbler Myrtle_Warbler Nashville_Warbler
Orange_crowned_Warbler Palm_Warbler Pine_Warbler Prairie_Warbler Prothonotary_Warbler
Swainson_Warbler Tennessee_Warbler Wilson_Warbler Worm_eating_Warbler Yellow_Warbler
Northern_Waterthrush Louisiana_Waterthrush Bohemian_Waxwing Cedar_Waxwing
American_Three_toed_Woodpecker Pileated_Woodpecker Red_bellied_Woodpecker
Red_cockaded_Woodpecker Red_headed_Woodpecker Downy_Woodpecker Bewick_Wren Cactus_Wren
Carolina_Wren House_Wren Marsh_Wren Rock_Wren Winter_Wren Common_Yellowthroat
""".split()
)
"""The 200 species of CUB-200-2011."""

cub_point_names = _names(
    "back, beak, belly, breast, crown, forehead, left eye, left leg, left wing, nape, "
    "right eye, right leg, right wing, tail, throat"
)
"""The 15 points of CUB-200-2011's birds."""

online_products_super_label_names = tuple(
    """
bicycle cabinet chair coffee_maker fan kettle lamp mug sofa stapler table toaster
""".split()
)
"""The 12 groups of the Stanford Online Products."""
