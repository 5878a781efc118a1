"""The published datasets: what they are, under which terms, how to cite them, where they are downloaded."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Archive:
    """A file on a dataset's own site."""

    url: str
    size_mb: int
    known_hash: str | None = None
    """``md5:...`` or ``sha256:...`` where the publisher states one; otherwise recorded at first use."""
    into: str = ""
    """Folder inside the data folder that it is unpacked in."""


@dataclass(frozen=True)
class Entry:
    """One dataset."""

    title: str
    licence: str
    citation: str
    archives: dict[str, Archive] = field(default_factory=dict)
    """By the name that ``download NAME --form FORM`` takes; the first is the default."""


_GBU = "Xian, Lampert, Schiele, Akata: Zero-Shot Learning - A Comprehensive Evaluation, TPAMI 2018"
# One archive holds the tables, splits and ResNet101 features of AWA1, AWA2, CUB, SUN and APY.
_XLSA17 = {
    "xlsa17": Archive("https://datasets.d2.mpi-inf.mpg.de/xian/xlsa17.zip", 880),
    "standard_split": Archive("https://datasets.d2.mpi-inf.mpg.de/xian/standard_split.zip", 2, into="xlsa17/data"),
}

ENTRIES: dict[str, Entry] = {
    "digits": Entry(
        "Handwritten digits (comes with scikit-learn)",
        "CC BY 4.0",
        "Alpaydin, Kaynak: Optical Recognition of Handwritten Digits, UCI 1998",
    ),
    "synthetic": Entry("Simulated from a known pair of dictionaries", "-", "-"),
    "awa1": Entry(
        "Animals with Attributes 1",
        "features and tables: research use (images are not distributed any more)",
        f"Lampert, Nickisch, Harmeling: Attribute-Based Classification, TPAMI 2014; {_GBU}",
        _XLSA17,
    ),
    "awa2": Entry(
        "Animals with Attributes 2",
        "tables and features free to use; images each under their own free licence",
        _GBU,
        {
            **_XLSA17,
            "base": Archive("https://cvml.ista.ac.at/AwA2/AwA2-base.zip", 1),
            "features": Archive("https://cvml.ista.ac.at/AwA2/AwA2-features.zip", 301),
            "images": Archive("https://cvml.ista.ac.at/AwA2/AwA2-data.zip", 13000),
        },
    ),
    "cub": Entry(
        "Caltech-UCSD Birds 200-2011",
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
    ),
    "sun": Entry(
        "SUN Attribute",
        "research use",
        f"Patterson, Xu, Su, Hays: The SUN Attribute Database, IJCV 2014; {_GBU}",
        {
            **_XLSA17,
            "base": Archive("https://cs.brown.edu/~gmpatter/Attributes/SUNAttributeDB.tar.gz", 1),
            "images": Archive("https://cs.brown.edu/~gmpatter/Attributes/SUNAttributeDB_Images.tar.gz", 1800),
        },
    ),
    "apy": Entry(
        "aPascal and aYahoo",
        "research use",
        f"Farhadi, Endres, Hoiem, Forsyth: Describing Objects by their Attributes, CVPR 2009; {_GBU}",
        _XLSA17,
    ),
}
