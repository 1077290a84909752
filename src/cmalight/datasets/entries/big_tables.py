"""The big tables of the paper's test-bed (Table 2); what small_tables.py says of d, P and checksums holds here too."""

from __future__ import annotations

from cmalight.datasets.entries.entry import Entry, RemoteFile
from cmalight.datasets.entries.small_tables import UCI, UCI_LICENCE, UCI_OLD
from cmalight.datasets.table_formats import Delimited, MatrixWithTargets

BLOGFEEDBACK = Entry(
    name="blogfeedback",
    title="BlogFeedback: comments a blog post gets within a day",
    group="big",
    task="regression",
    rows=52_397,
    features=280,
    source=Delimited(file="BlogFeedback.zip", member="blogData_train.csv", target=280),
    files=(
        RemoteFile(
            name="BlogFeedback.zip",
            urls=(f"{UCI}/static/public/304/blogfeedback.zip", f"{UCI_OLD}/00304/BlogFeedback.zip"),
            sha256=("1ba74e5ad920f7cd037502b2968581cc695146a226a73eff52fe8ad875ed4bcf",),
            size=2_583_605,
            other_names=("blogfeedback.zip", "blogData_train.csv"),
        ),
    ),
    values_sha256="930d85fc0b8d5546f9506a256005a064fffdf840d246f18301e778b131f285a9",
    encoding="blogData_train.csv alone; the 280 columns as they are; target the last column",
    licence=UCI_LICENCE,
    citation=(
        "K. Buza (2014), Feedback prediction for blogs, in Data Analysis, Machine Learning and Knowledge Discovery, "
        "Springer, 145-152; UCI Machine Learning Repository, doi:10.24432/C58S3F"
    ),
    homepage=f"{UCI}/dataset/304/blogfeedback",
)

COVTYPE = Entry(
    name="covtype",
    title="Covertype: forest cover from cartography, seven kinds",
    group="big",
    task="regression",
    rows=581_012,
    features=54,
    source=Delimited(file="covtype.data.gz", member="covtype.data", target=54),
    files=(
        RemoteFile(
            name="covtype.data.gz",
            urls=(f"{UCI_OLD}/covtype/covtype.data.gz", "https://ndownloader.figshare.com/files/5976039"),
            sha256=("614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",),
        ),
    ),
    encoding="the 54 columns as they are (10 numbers, 44 indicators); target the cover type 1 to 7 as a number",
    licence=UCI_LICENCE,
    citation=(
        "J. A. Blackard, D. J. Dean (1999), Comparative accuracies of artificial neural networks and discriminant "
        "analysis in predicting forest cover types, Computers and Electronics in Agriculture 24, 131-151; "
        "UCI Machine Learning Repository, doi:10.24432/C50K5N"
    ),
    homepage=f"{UCI}/dataset/31/covertype",
)

PROTEIN = Entry(
    name="protein",
    title="Protein: KDD Cup 2004, is a protein homologous to the one of its block",
    group="big",
    task="regression",
    rows=145_751,
    features=74,
    source=Delimited(file="data_kddcup04.tar.gz", member="bio_train.dat", separator=" ", target=2, drop=(0, 1)),
    files=(
        RemoteFile(
            name="data_kddcup04.tar.gz",
            urls=(
                "https://kdd.org/cupfiles/KDDCupData/2004/data_kddcup04.tar.gz",
                "https://www.kdd.org/cupfiles/KDDCupData/2004/data_kddcup04.tar.gz",
            ),
            other_names=("bio_train.dat",),
        ),
    ),
    encoding="bio_train.dat; the 74 features as they are; block and example numbers dropped; target 0 or 1 as a number",
    licence="none stated",
    citation=(
        "R. Caruana, T. Joachims, L. Backstrom (2004), KDD-Cup 2004: results and analysis, "
        "SIGKDD Explorations 6(2), 95-108"
    ),
    homepage="https://www.kdd.org/kdd-cup/view/kdd-cup-2004/Data",
)

SIDO = Entry(
    name="sido",
    title="Sido: activity of molecules against HIV from binary descriptors",
    group="big",
    task="regression",
    rows=12_678,
    features=4_932,
    source=MatrixWithTargets(file="sido0_text.zip", data="sido0_train.data", targets="sido0_train.targets"),
    files=(RemoteFile(name="sido0_text.zip", urls=("http://www.causality.inf.ethz.ch/data/sido0_text.zip",)),),
    encoding="SIDO0's training part; the 4932 binary columns as they are; target -1 or 1 as a number",
    licence="none stated",
    citation=(
        "I. Guyon et al. (2008), Design and analysis of the causation and prediction challenge, "
        "JMLR Workshop and Conference Proceedings 3, 1-33"
    ),
    homepage="http://www.causality.inf.ethz.ch/data/SIDO.html",
)

SKIN = Entry(
    name="skin-nonskin",
    title="Skin NonSkin: is a pixel's colour that of skin",
    group="big",
    task="regression",
    rows=245_057,
    features=3,
    source=Delimited(file="Skin_NonSkin.txt", separator="\t", target=3),
    files=(
        RemoteFile(
            name="Skin_NonSkin.txt",
            urls=(f"{UCI_OLD}/00229/Skin_NonSkin.txt", f"{UCI}/static/public/229/skin+segmentation.zip"),
            sha256=(
                "e30c0a845385dcc95a45c45ed263465674a49638e98ef740afd520769c7714a4",
                "008f1fb6a169498dec54fb5951be6478e5465942cc4f6df3b5dabbe484c9a98f",
            ),
            size=3_400_818,
            other_names=("skin+segmentation.zip",),
        ),
    ),
    values_sha256="11dc060ee547cfbd434d13bfa5600f671a7367544864d725ac1f4e20d91ebbc5",
    encoding="B, G, R as they are; target 1 (skin) or 2 as a number",
    licence=UCI_LICENCE,
    citation="R. Bhatt, A. Dhall (2012), Skin Segmentation, UCI Machine Learning Repository, doi:10.24432/C5T30C",
    homepage=f"{UCI}/dataset/229/skin+segmentation",
)

YEAR = Entry(
    name="year-prediction-msd",
    title="YearPredictionMSD: a song's year from its timbre",
    group="big",
    task="regression",
    rows=515_345,
    features=90,
    source=Delimited(file="YearPredictionMSD.txt.zip", member="YearPredictionMSD.txt", target=0),
    files=(
        RemoteFile(
            name="YearPredictionMSD.txt.zip",
            urls=(
                f"{UCI}/static/public/203/yearpredictionmsd.zip",
                f"{UCI_OLD}/00203/YearPredictionMSD.txt.zip",
            ),
            other_names=("yearpredictionmsd.zip", "YearPredictionMSD.txt"),
        ),
    ),
    encoding="the 90 columns as they are; target the year; split at random as in the paper, not by artist as published",
    licence=UCI_LICENCE,
    citation=(
        "T. Bertin-Mahieux, D. P. W. Ellis, B. Whitman, P. Lamere (2011), The Million Song Dataset, ISMIR; "
        "UCI Machine Learning Repository, doi:10.24432/C50K61"
    ),
    homepage=f"{UCI}/dataset/203/yearpredictionmsd",
)

BIG_TABLES = (BLOGFEEDBACK, COVTYPE, PROTEIN, SIDO, SKIN, YEAR)
