"""Tiny files in the publishers' formats."""

import gzip
import io
import tarfile
import zipfile

import numpy as np


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def tarred(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def gzipped(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data))
    return path


def lines(rows, separator=",", end="\n"):
    return "".join(separator.join(str(cell) for cell in row) + end for row in rows).encode()


def keel(inputs, output, rows, end="\r\n"):
    head = ["@relation tiny", *(f"@attribute {name} {kind}" for name, kind in inputs.items())]
    head += [f"@attribute {output} real[0,1]", f"@inputs {', '.join(inputs)}", f"@outputs {output}", "@data"]
    return end.join(head).encode() + end.encode() + lines(rows, end=end)


BIKES_HEADER = (
    "instant,dteday,season,yr,mnth,hr,holiday,weekday,workingday,weathersit,temp,atemp,hum,windspeed,"
    "casual,registered,cnt\n"
)
BEIJING_HEADER = "No,year,month,day,hour,pm2.5,DEWP,TEMP,PRES,cbwd,Iws,Is,Ir\n"


def bikes(rows=24):
    """Every season, month, hour, weekday and weather at least once."""
    weather = (0.24, 0.2879, 0.81, 0.5)
    table = [
        [i + 1, "2011-01-01", i % 4 + 1, i % 2, i % 12 + 1, i % 24, 0, i % 7, 1, i % 4 + 1, *weather, 3, 10 + i, 13 + i]
        for i in range(rows)
    ]
    return BIKES_HEADER.encode() + lines(table)


def beijing(rows=24, *, missing=3):
    """Every month, hour and wind at least once, and `missing` more rows without the target."""
    wind = ("NW", "cv", "NE", "SE")
    table = [
        [i, 2010, i % 12 + 1, 1, i % 24, "NA" if i >= rows else 100 + i, -21, -11.0, 1021.0, wind[i % 4], 1.79, 0, 0]
        for i in range(rows + missing)
    ]
    return BEIJING_HEADER.encode() + lines(table)


def cifar(labels, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, size=(len(labels), 3072), dtype=np.uint8)
    return np.concatenate([np.array(labels, dtype=np.uint8), pixels], axis=1).tobytes()
