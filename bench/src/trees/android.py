"""Makes a tree like the system partition of a telephone (second argument) of the files of a Debian (first argument)."""
import itertools, os, shutil, sys, zipfile

SOURCE, TARGET = sys.argv[1:]
LIBRARIES, PROGRAMS, SHARE = "usr/lib/x86_64-linux-gnu", "usr/bin", "usr/share"
MB = 1000000
# Bytes of all libraries outside of archives, of all programs, and of the files of one application.
LIBRARY_BYTES, PROGRAM_BYTES, APPLICATION_BYTES, APPLICATIONS = 100 * MB, 60 * MB, 4 * MB, 40
# An archive stores what is compressed already, and what programs map.
STORED = (".png", ".jpg", ".gz", ".xz", ".ogg", ".so")


def files(folder, smallest, limit):
    """Paths of regular files below a folder, until there are `limit` bytes."""
    for path, folders, names in os.walk(os.path.join(SOURCE, folder)):
        folders.sort()
        for name in sorted(names):
            file = os.path.join(path, name)
            if os.path.islink(file) or not os.path.isfile(file):
                continue
            size = os.path.getsize(file)
            if smallest < size < 20 * MB:
                limit -= size
                if limit < 0:
                    return
                yield file


def copy(file, place):
    to = os.path.join(TARGET, place)
    os.makedirs(os.path.dirname(to), exist_ok=True)
    shutil.copyfile(file, to)


def archive(path, members):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with zipfile.ZipFile(path, "w") as out:
        for file, name in members:
            member = zipfile.ZipInfo(name, (2023, 11, 14, 0, 0, 0))
            member.compress_type = zipfile.ZIP_STORED if name.endswith(STORED) else zipfile.ZIP_DEFLATED
            with open(file, "rb") as data:
                out.writestr(member, data.read())


for file in files(LIBRARIES, 0, LIBRARY_BYTES):
    copy(file, "lib64/" + os.path.basename(file))
for file in files(PROGRAMS, 200000, PROGRAM_BYTES):
    name = os.path.basename(file)
    copy(file, f"app/{name}/oat/x86_64/{name}.odex")
for file in files("etc", 0, 10 * MB):
    copy(file, os.path.relpath(file, SOURCE))
resources = files(SHARE, 0, APPLICATIONS * APPLICATION_BYTES)
code = files(PROGRAMS, 50000, sys.maxsize)
libraries = files(LIBRARIES, 50000, sys.maxsize)
for number in range(APPLICATIONS):
    size, members = 0, []
    for file in itertools.takewhile(lambda file: size < APPLICATION_BYTES, resources):
        size += os.path.getsize(file)
        members.append((file, "res/" + os.path.relpath(file, os.path.join(SOURCE, SHARE))))
    members += [(file, "classes.dex") for file in itertools.islice(code, 1)]
    members += [(file, f"lib/x86_64/{index}.so") for index, file in enumerate(itertools.islice(libraries, 2))]
    archive(os.path.join(TARGET, f"app/application{number:02}/application{number:02}.apk"), members)
