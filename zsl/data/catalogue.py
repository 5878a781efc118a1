"""The published datasets: under which terms they come, how to cite them, where their archives are downloaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Archive:
    """A file on a dataset's own site."""

    url: str
    size_mb: int
    known_hash: str | None = None
    """``md5:...`` or ``sha256:...`` where the publisher states one."""
    into: str = ""
    """Folder inside the data folder that it is unpacked in."""


@dataclass(frozen=True)
class Entry:
    """One dataset; an option of the group ``dataset`` need not have an entry."""

    licence: str = "-"
    citation: str = ""
    archives: dict[str, Archive] = field(default_factory=dict)
    """By the name that ``download NAME --form FORM`` takes; the first is the default."""
    official: str = ""
    """The folder that its official archive unpacks to, beside the dataset's own."""
    by_hand: dict[str, str] = field(default_factory=dict)
    """What is public but has no address here: its form -> a sentence on where it is and where it goes."""

    def places(self, root: Path) -> list[Path]:
        """The folders where the dataset is looked for, of which ``root`` is its own."""
        beside = [root.parent / self.official] if self.official else []
        return [root, root.parent / "xlsa17" / "data" / root.name, *beside]


_GBU = "Xian, Lampert, Schiele, Akata: Zero-Shot Learning - A Comprehensive Evaluation, TPAMI 2018"
# One archive holds the tables, splits and ResNet101 features of AWA1, AWA2, CUB, SUN and APY.
_XLSA17 = {
    "xlsa17": Archive("https://datasets.d2.mpi-inf.mpg.de/xian/xlsa17.zip", 880),
    "standard_split": Archive("https://datasets.d2.mpi-inf.mpg.de/xian/standard_split.zip", 2, into="xlsa17/data"),
}
_CIFAR = "https://www.cs.toronto.edu/~kriz"
_AWA2, _SUN = "https://cvml.ista.ac.at/AwA2", "https://cs.brown.edu/~gmpatter/Attributes"

ENTRIES: dict[str, Entry] = {
    "digits": Entry("CC BY 4.0", "Alpaydin, Kaynak: Optical Recognition of Handwritten Digits, UCI 1998"),
    "cifar_awa": Entry(
        "images: no licence stated; attributes free to use",
        f"Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009; {_GBU}; Tan, Le: EfficientNet, ICML "
        "2019",
        {
            "cifar10": Archive(f"{_CIFAR}/cifar-10-python.tar.gz", 163, "md5:c58f30108f718f92721af3b95e74349a"),
            "cifar100": Archive(f"{_CIFAR}/cifar-100-python.tar.gz", 161, "md5:eb9058c3a382ffc7106e4002c42a8d85"),
        },
    ),
    "awa1": Entry(
        "features and tables: research use (images are not distributed any more)",
        f"Lampert, Nickisch, Harmeling: Attribute-Based Classification, TPAMI 2014; {_GBU}",
        _XLSA17,
        "Animals_with_Attributes",
        {
            "vgg19": "AwA-features-vgg19.tar.bz2 (the paper's VGG19 features, one text file per image) and "
            "AwA-base.tar.bz2 (the class tables) are on https://cvml.ista.ac.at/AwA/; get both by hand and unpack "
            "them, so that Animals_with_Attributes in the data folder holds classes.txt and Features/vgg19 (then: "
            "dataset=awa1 dataset.layout=official feature=vgg19)"
        },
    ),
    "awa2": Entry(
        "tables and features free to use; images each under their own free licence",
        _GBU,
        {
            **_XLSA17,
            "base": Archive(f"{_AWA2}/AwA2-base.zip", 1),
            "features": Archive(f"{_AWA2}/AwA2-features.zip", 301),
            "images": Archive(f"{_AWA2}/AwA2-data.zip", 13000),
        },
        "Animals_with_Attributes2",
    ),
    "cub": Entry(
        "images: non-commercial research and education",
        f"Wah, Branson, Welinder, Perona, Belongie: CUB-200-2011, CNS-TR-2011-001; {_GBU}",
        {
            **_XLSA17,
            "images": Archive(
                "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
                1150,
                "md5:97eceeb196236b17998738112f37df78",
            ),
        },
        "CUB_200_2011",
    ),
    "sun": Entry(
        "research use",
        f"Patterson, Xu, Su, Hays: The SUN Attribute Database, IJCV 2014; {_GBU}",
        {
            **_XLSA17,
            "base": Archive(f"{_SUN}/SUNAttributeDB.tar.gz", 1),
            "images": Archive(f"{_SUN}/SUNAttributeDB_Images.tar.gz", 1800),
        },
        "SUNAttributeDB",
    ),
    "apy": Entry(
        "research use",
        f"Farhadi, Endres, Hoiem, Forsyth: Describing Objects by their Attributes, CVPR 2009; {_GBU}",
        _XLSA17,
    ),
}

# The features that zsl.extract makes of images and that come with no archive above.
_EXTRACTED = ("vgg19", "inception", "inception_v3", "resnet50", "densenet161", "lite0")


def how_to_make(name: str, feature: str) -> str:
    """How a feature that no archive holds comes to a dataset; empty for one that an archive holds or nobody knows.

    Examples
    --------
    >>> how_to_make("cub", "vgg19")
    'feature=vgg19 is made by zsl extract IMAGES --to FOLDER/vgg19.npz --network vgg19'
    """
    if name in ENTRIES and feature in ENTRIES[name].by_hand:
        return f"zsl data download {name} --form {feature} says where feature={feature} is"
    made = f"feature={feature} is made by zsl extract IMAGES --to FOLDER/{feature}.npz --network {feature}"
    return made if feature in _EXTRACTED else ""
