"""The small tables of the paper's test-bed (Table 2), with the choices of columns that give its d.

d counts the constant 1 that the networks see beside the features, so a table has d - 1 columns here. P is 75 % of the
rows, the test part rounded up. All eleven tables are trained by the mean squared error, class labels included, so
that all are regression here: a label is a number, scaled to [0, 1].

The sha256 of a file is that of a copy at hand, or what other public projects record of the publisher's (Bike Sharing,
Skin NonSkin, Covertype); that of the values was computed from real files.
"""

from __future__ import annotations

from cmalight.datasets.entries.entry import Entry, RemoteFile
from cmalight.datasets.table_formats import Delimited, Keel

UCI = "https://archive.ics.uci.edu"
UCI_OLD = f"{UCI}/ml/machine-learning-databases"
UCI_LICENCE = "CC BY 4.0"
_KEEL = "https://sci2s.ugr.es/keel/dataset/data/regression"
_KEEL_LICENCE = "none stated; KEEL asks for its citation"
_KEEL_PAPER = (
    "J. Alcalá-Fdez et al. (2011), KEEL data-mining software tool: data set repository, integration of algorithms and "
    "experimental analysis framework, J. Multiple-Valued Logic and Soft Computing 17, 255-287"
)

AILERONS = Entry(
    name="ailerons",
    title="Ailerons: the control of an F16's ailerons from the state of the aircraft",
    group="small",
    task="regression",
    rows=13_750,
    features=40,
    source=Keel(file="ailerons.zip", member="ailerons.dat"),
    files=(
        RemoteFile(
            name="ailerons.zip",
            urls=(f"{_KEEL}/ailerons.zip",),
            sha256=("cc39dffc60ce79b5b8d0924f8277b3783a872f6229886c84ee580ae3adc58f3e",),
            other_names=("ailerons.dat",),
        ),
    ),
    values_sha256="fd49310050e3957cd0cb3b828f574d7c2de61d80746c8bee4746c3dfc74eec64",
    encoding="the 40 inputs as they are; target Goal",
    licence=_KEEL_LICENCE,
    citation=f"{_KEEL_PAPER}. Data by R. Camacho, from L. Torgo's regression collection",
    homepage="https://sci2s.ugr.es/keel/datasets.php",
)

BEIJING = Entry(
    name="beijing-pm25",
    title="Beijing PM2.5: hourly fine dust at the US embassy from the weather, 2010 to 2014",
    group="small",
    task="regression",
    rows=41_757,
    features=47,
    source=Delimited(
        file="PRSA_data_2010.1.1-2014.12.31.csv",
        header=True,
        target="pm2.5",
        one_hot=("month", "hour", "cbwd"),
        drop=("No", "day"),
        drop_missing=True,
    ),
    files=(
        RemoteFile(
            name="PRSA_data_2010.1.1-2014.12.31.csv",
            urls=(
                f"{UCI_OLD}/00381/PRSA_data_2010.1.1-2014.12.31.csv",
                f"{UCI}/static/public/381/beijing+pm2+5+data.zip",
            ),
            other_names=("beijing+pm2+5+data.zip",),
        ),
    ),
    encoding=(
        "rows without pm2.5 dropped (2067 of 43824); one-hot month (12), hour (24), cbwd (4); year, DEWP, TEMP, PRES, "
        "Iws, Is, Ir as numbers (7); No and day dropped; target pm2.5. The paper does not state its choice: this is "
        "the one that gives 47 columns and treats the calendar as in Bikes"
    ),
    licence=UCI_LICENCE,
    citation=(
        "X. Liang et al. (2015), Assessing Beijing's PM2.5 pollution: severity, weather impact, APEC and winter "
        "heating, Proc. R. Soc. A 471, 20150257; UCI Machine Learning Repository, doi:10.24432/C5JS49"
    ),
    homepage=f"{UCI}/dataset/381/beijing+pm2+5+data",
)

BIKES = Entry(
    name="bikes",
    title="Bike Sharing: hourly rentals in Washington, D.C., 2011 and 2012",
    group="small",
    task="regression",
    rows=17_379,
    features=58,
    source=Delimited(
        file="Bike-Sharing-Dataset.zip",
        member="hour.csv",
        header=True,
        target="cnt",
        one_hot=("season", "mnth", "hr", "weekday", "weathersit"),
        drop=("instant", "dteday", "casual", "registered"),
    ),
    files=(
        RemoteFile(
            name="Bike-Sharing-Dataset.zip",
            urls=(
                f"{UCI}/static/public/275/bike+sharing+dataset.zip",
                f"{UCI_OLD}/00275/Bike-Sharing-Dataset.zip",
            ),
            sha256=(
                "b70182d0d0508e9abbb79306ce5c0cec34869000f8220175ac83d11dbe845401",
                "1f848c516e9a5b0fa7b357cddc315658a272835f82075bfd9f4e4fb5cdd9e6e8",
            ),
            other_names=("bike+sharing+dataset.zip",),
        ),
    ),
    values_sha256="9ad6b21f961aa5cabb3f6cdf01410e168b6cda49ae0afd29cb998b9873194f13",
    encoding=(
        "hour.csv; one-hot season (4), mnth (12), hr (24), weekday (7), weathersit (4); yr, holiday, workingday as 0/1 "
        "(3); temp, atemp, hum, windspeed (4); instant, dteday and the two parts of the target dropped; target cnt"
    ),
    licence=UCI_LICENCE,
    citation=(
        "H. Fanaee-T, J. Gama (2014), Event labeling combining ensemble detectors and background knowledge, "
        "Progress in Artificial Intelligence 2, 113-127; UCI Machine Learning Repository, doi:10.24432/C5W894"
    ),
    homepage=f"{UCI}/dataset/275/bike+sharing+dataset",
)

CALIFORNIA = Entry(
    name="california",
    title="California: median house values of the 1990 census' block groups",
    group="small",
    task="regression",
    rows=20_640,
    features=8,
    source=Keel(file="california.zip", member="california.dat"),
    files=(
        RemoteFile(
            name="california.zip",
            urls=(f"{_KEEL}/california.zip",),
            sha256=("113eb4a531220aa44e32f0a1b61812ac5d4dd836f2fe566fa453bf290f21e303",),
            other_names=("california.dat",),
        ),
    ),
    values_sha256="c58266c77e1480eb1e672a980a4e0cd1768eda0627fbddbf0c54a9604a87f386",
    encoding="the 8 inputs as they are; target MedianHouseValue",
    licence=_KEEL_LICENCE,
    citation=(
        "R. K. Pace, R. Barry (1997), Sparse spatial autoregressions, Statistics & Probability Letters 33, 291-297; "
        f"{_KEEL_PAPER}"
    ),
    homepage="https://sci2s.ugr.es/keel/datasets.php",
)

MV = Entry(
    name="mv",
    title="Mv: an artificial problem whose attributes depend on each other",
    group="small",
    task="regression",
    rows=40_768,
    features=12,
    source=Keel(file="mv.zip", member="mv.dat", one_hot=("X3",)),
    files=(
        RemoteFile(
            name="mv.zip",
            urls=(f"{_KEEL}/mv.zip",),
            sha256=("69012c3864dd914b65c4d316b4e7e4953605fff1aa89538d1a20978edad47d72",),
            other_names=("mv.dat",),
        ),
    ),
    values_sha256="ac167963ac530507c592dc58296f37f129427310daea41cb0aae4ea272553ac3",
    encoding="one-hot X3, a colour in three values (3); the two-valued X7, X8 as 0/1 and the 7 others as they are (9)",
    licence=_KEEL_LICENCE,
    citation=f"{_KEEL_PAPER}. Data by L. Torgo",
    homepage="https://sci2s.ugr.es/keel/datasets.php",
)

SMALL_TABLES = (AILERONS, BEIJING, BIKES, CALIFORNIA, MV)
