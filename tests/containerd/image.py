#!/usr/bin/env python3
"""Writes an OCI image layout for run.sh: image.py BUSYBOX DIR.

Three layers: a root with busybox; changed, added and large files; whiteouts of a file and of a directory's content.
Nothing of ferofs takes part, so that the layers are what other tools would make.
"""

import gzip
import hashlib
import io
import json
import os
import sys
import tarfile

MTIME = 1_700_000_000


class Layer:
    def __init__(self):
        self.bytes = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.bytes, mode="w", format=tarfile.PAX_FORMAT)

    def add(self, name, kind=tarfile.REGTYPE, mode=0o644, data=b"", **fields):
        member = tarfile.TarInfo(name)
        member.type, member.mode, member.mtime, member.size = kind, mode, MTIME, len(data)
        for field, value in fields.items():
            setattr(member, field, value)
        self.tar.addfile(member, io.BytesIO(data))

    def close(self):
        self.tar.close()
        return self.bytes.getvalue()


def layers(busybox):
    base = Layer()
    for name in ("bin", "etc", "dev", "proc", "sys", "tmp", "data", "data/old"):
        base.add(name, tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755)
    base.add("bin/busybox", mode=0o755, data=busybox)
    for name in ("sh", "cat", "ls", "sha256sum", "stat", "sort", "find", "readlink"):
        base.add("bin/" + name, tarfile.SYMTYPE, 0o777, linkname="busybox")
    base.add("etc/passwd", data=b"root:x:0:0:root:/:/bin/sh\n")
    base.add("data/kept", data=b"kept\n")
    base.add("data/gone", data=b"gone\n")
    base.add("data/changed", data=b"first\n")
    base.add("data/old/a", data=b"a\n")
    yield base.close()

    second = Layer()
    second.add("data/changed", data=b"second\n", mode=0o600, uid=7, gid=8)
    second.add("data/link", tarfile.LNKTYPE, linkname="data/changed")
    second.add("data/large", data=b"".join(b"%d\n" % number for number in range(400_000)))
    second.add("data/" + "n" * 200, data=b"a long name\n")
    second.add("data/null", tarfile.CHRTYPE, 0o666, devmajor=1, devminor=3)
    yield second.close()

    third = Layer()
    third.add("data/.wh.gone")
    third.add("data/old", tarfile.DIRTYPE, 0o755)
    third.add("data/old/.wh..wh..opq")
    third.add("data/old/b", data=b"b\n")
    yield third.close()


def main(busybox, directory):
    blobs = os.path.join(directory, "blobs", "sha256")
    os.makedirs(blobs, exist_ok=True)

    def blob(kind, data):
        digest = hashlib.sha256(data).hexdigest()
        with open(os.path.join(blobs, digest), "wb") as file:
            file.write(data)
        return {"mediaType": kind, "digest": "sha256:" + digest, "size": len(data)}

    def as_json(kind, value):
        return blob(kind, json.dumps(value).encode())

    with open(busybox, "rb") as file:
        tars = list(layers(file.read()))
    oci = "application/vnd.oci.image."
    config = {
        "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
        "os": "linux",
        "config": {"Cmd": ["/bin/sh"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest() for tar in tars]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": oci + "manifest.v1+json",
        "config": as_json(oci + "config.v1+json", config),
        "layers": [blob(oci + "layer.v1.tar+gzip", gzip.compress(tar, mtime=0)) for tar in tars],
    }
    index = {"schemaVersion": 2, "manifests": [as_json(oci + "manifest.v1+json", manifest)]}
    index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": "test"}
    for name, value in (("index.json", index), ("oci-layout", {"imageLayoutVersion": "1.0.0"})):
        with open(os.path.join(directory, name), "w") as file:
            json.dump(value, file)


main(*sys.argv[1:])
