//! Random trees, and random changes of trees.

use super::{File, Kind, Model, Name, Piece, is_below, join, parent};
use crate::acl::{self, Entry};
use crate::content::Content;
use crate::rng::Rng;

/// Sizes around limits of the format: blocks, inline tails, clusters of 16 KiB to 128 KiB, blocks
/// of compact indexes.
const EDGES: [usize; 18] = [
    0, 16, 64, 100, 512, 1024, 2048, 3900, 4000, 4064, 4096, 8192, 12288, 16384, 32768, 65536,
    131072, 262_144,
];
/// The same, for the few large files: 1 MiB clusters, segments of 4 MiB.
const LARGE: [usize; 5] = [524_288, 1_048_576, 1_200_000, 2_097_152, 4_194_304];

/// `security.capability` of revision 2: cap_net_raw, permitted and effective.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

impl Model {
    /// Generates a tree. Half of the trees are small, because most failures need only few files.
    pub fn random(rng: &mut Rng) -> Self {
        let mut model = Self::default();
        let root = file(Kind::Directory, rng, &[]);
        model.add(Name::new(), root);
        if rng.chance(10) {
            versions(&mut model, rng);
            return model;
        }
        let count = rng.pick(&[1, 2, 4, 8, 8, 16, 16, 30, 60]);
        let large = rng.chance(25);
        for number in 0..count {
            grow(&mut model, number, large, rng);
        }
        model
    }

    /// Generates a tree whose files have at most `limit` bytes in all.
    pub fn random_up_to(limit: usize, rng: &mut Rng) -> Self {
        loop {
            let model = Self::random(rng);
            let len = |file: &File| match &file.kind {
                Kind::Regular(pieces) => pieces.iter().map(|piece| piece.len).sum(),
                _ => 0,
            };
            if model.files.iter().map(len).sum::<usize>() <= limit {
                return model;
            }
        }
    }

    /// A tree of 13 names or more, and of up to 3 MiB.
    pub fn medium(rng: &mut Rng) -> Self {
        std::iter::repeat_with(|| Self::random_up_to(3 << 20, rng))
            .find(|model| model.names.len() > 12)
            .unwrap_or_default()
    }

    /// Changes a tree like a software update: content, attributes, types; entries are added, removed
    /// and renamed.
    pub fn update(&self, rng: &mut Rng) -> Self {
        self.changed(rng.pick(&[0, 1, 1, 3, 8]), rng)
    }

    /// The same with this many changes, some of which may have no effect.
    pub fn changed(&self, count: usize, rng: &mut Rng) -> Self {
        let mut model = self.clone();
        for change in 0..count {
            let names: Vec<Name> = model.names.keys().cloned().collect();
            let name = names[rng.len(names.len())].clone();
            let number = model.names[&name];
            match rng.below(9) {
                0..3 => {
                    if let Kind::Regular(pieces) = &model.files[number].kind {
                        let pieces = changed(pieces, rng);
                        model.files[number].kind = Kind::Regular(pieces);
                    }
                }
                3 if !name.is_empty() => model.remove(&name),
                4 | 5 => grow(&mut model, 1000 + change, false, rng),
                6 if !name.is_empty() => {
                    let to = join(parent(&name), format!("moved{change}").as_bytes());
                    if model.names.contains_key(&to) {
                        continue;
                    }
                    let below: Vec<(Name, usize)> = model
                        .names
                        .range(name.clone()..)
                        .map(|(name, number)| (name.clone(), *number))
                        .collect();
                    for (old, number) in below.into_iter().filter(|(old, _)| is_below(old, &name)) {
                        model.names.remove(&old);
                        model.names.insert([&to, &old[name.len()..]].concat(), number);
                    }
                }
                7 if !name.is_empty() && !model.files[number].kind.is_directory() => {
                    model.remove(&name);
                    let kind = rng.pick(&[0, 1, 2]);
                    let kind = match kind {
                        0 => Kind::Directory,
                        1 => Kind::Symlink(b"elsewhere".to_vec()),
                        _ => Kind::Regular(Vec::new()),
                    };
                    let file = file(kind, rng, &[]);
                    model.add(name, file);
                }
                _ => {
                    let kind = model.files[number].kind.clone();
                    model.files[number] = file(kind, rng, &[]);
                }
            }
        }
        model
    }

    /// A small tree to overlay on this one: some new names, some existing ones.
    pub fn addition(&self, rng: &mut Rng) -> Self {
        let mut upper = Self::default();
        let root = file(Kind::Directory, rng, &[]);
        upper.add(Name::new(), root);
        for number in 0..rng.pick(&[0, 1, 3, 6]) {
            if rng.chance(50) {
                grow(&mut upper, 2000 + number, false, rng);
                continue;
            }
            let names: Vec<&Name> = self.names.keys().filter(|name| !name.is_empty()).collect();
            if names.is_empty() {
                continue;
            }
            let name = names[rng.len(names.len())].clone();
            // All directories of the path must be directories in the lower tree, too: otherwise they
            // would replace a file.
            let way: Vec<Name> = (0..name.len())
                .filter(|at| name[*at] == b'/')
                .map(|at| name[..at].to_vec())
                .collect();
            if upper.names.contains_key(&name)
                || way.iter().any(|dir| upper.at(dir).is_some_and(|file| !file.kind.is_directory()))
            {
                continue;
            }
            for dir in way {
                if !upper.names.contains_key(&dir) {
                    let same =
                        self.at(&dir).cloned().unwrap_or_else(|| file(Kind::Directory, rng, &[]));
                    upper.add(dir, same);
                }
            }
            let Some(old) = self.at(&name) else { continue };
            let new = match &old.kind {
                Kind::Regular(pieces) => file(Kind::Regular(changed(pieces, rng)), rng, &[]),
                kind => file(kind.clone(), rng, &[]),
            };
            upper.add(name, new);
        }
        upper
    }
}

/// Adds versions of one file: they start with the same content and end differently.
fn versions(model: &mut Model, rng: &mut Rng) {
    let common = Piece { content: Some(Content::Text), ..piece(20_000 + rng.len(400_000), rng) };
    for number in 0..rng.pick(&[3, 8, 20]) {
        let end = Piece {
            content: Some(Content::Text),
            seed: 100 + number as u64,
            start: 0,
            len: 1 + rng.len(6_000),
        };
        let file = file(Kind::Regular(vec![common.clone(), end]), rng, &[]);
        model.add(format!("n{number}").into_bytes(), file);
    }
}

/// Adds one entry.
fn grow(model: &mut Model, number: usize, large: bool, rng: &mut Rng) {
    let dirs = model.list(Kind::is_directory);
    let dir = dirs[rng.len(dirs.len())].clone();
    let name = join(&dir, &last_name(number, rng));
    // Paths are at most 4095 bytes in a system call.
    if name.len() > 2500 || model.names.contains_key(&name) {
        return;
    }
    let roll = rng.below(100);
    if (84..89).contains(&roll) {
        let files = model.list(|kind| !kind.is_directory());
        if !files.is_empty() {
            let other = model.names[&files[rng.len(files.len())]];
            model.names.insert(name, other);
        }
        return;
    }
    let kind = match roll {
        0..12 => Kind::Directory,
        12..84 => Kind::Regular(content(model, large, rng)),
        89..95 => Kind::Symlink(
            b"t/".repeat(2048)[..rng.pick(&[1, 5, 30, 60, 200, 1000, 3000, 4095])].to_vec(),
        ),
        95 => Kind::Fifo,
        96 => Kind::Socket,
        97 | 98 => {
            Kind::Character(rng.pick(&[0, 1, 5, 255, 4095]), rng.pick(&[0, 3, 255, 256, 1_048_575]))
        }
        _ => Kind::Block(rng.pick(&[7, 259]), rng.pick(&[0, 70_000])),
    };
    let known: Vec<_> =
        model.files.iter().filter(|file| !file.xattrs.is_empty()).cloned().collect();
    let file = file(kind, rng, &known);
    model.add(name, file);
}

fn last_name(number: usize, rng: &mut Rng) -> Vec<u8> {
    let stem = format!("n{number}").into_bytes();
    match rng.below(20) {
        0 => [&stem[..], &b"x".repeat(255 - stem.len())].concat(),
        1 => [b"\xff\x80", &stem[..], b"\xc3"].concat(),
        2 => [b" -", &stem[..], b"\n\\\""].concat(),
        3 => [b".", &stem[..]].concat(),
        4 => [&stem[..], &b"long".repeat(rng.len(60))].concat(),
        5 => [b"+!", &stem[..]].concat(),
        _ => stem,
    }
}

/// Generates attributes for a file. It may share those of the files in `known`.
fn file(kind: Kind, rng: &mut Rng, known: &[File]) -> File {
    let mode = match &kind {
        Kind::Symlink(_) => 0o777,
        _ => rng.pick(&[0o644, 0o644, 0o755, 0o755, 0o600, 0, 0o4755, 0o2711, 0o1777, 0o7777]),
    };
    let id = |rng: &mut Rng| rng.pick(&[0, 0, 0, 0, 1000, 65_534, 65_535, 65_536, 4_294_967_294]);
    let (uid, gid) = (id(rng), id(rng));
    let nanoseconds =
        if rng.chance(50) { 0 } else { rng.pick(&[1, 999_999_999, 500_000_000, 123_456_789]) };
    let seconds = match rng.below(10) {
        0..4 => 1_600_000_000,
        4..7 => 1_500_000_000 + rng.below(100_000_000) as i64,
        7 => rng.pick(&[0, 1, -1, i64::from(i32::MIN), i64::from(i32::MAX), 1 << 31]),
        8 => rng.pick(&[i64::from(u32::MAX), 1 << 32, 1 << 33, -5_000_000_000]),
        _ => 1_700_000_000,
    };
    let mut file =
        File { kind, mode, uid, gid, time: (seconds, nanoseconds), xattrs: Default::default() };
    if rng.chance(18) {
        if !known.is_empty() && rng.chance(60) && fits(&file.kind) {
            let other = &known[rng.len(known.len())];
            file.xattrs = other.xattrs.clone();
            // A list of access sets permissions; a default one is for directories only.
            file.xattrs.retain(|key, _| key.starts_with(b"user.") || key.starts_with(b"trusted."));
        } else {
            xattrs(&mut file, rng);
        }
    }
    file
}

/// Whether Linux allows user xattrs on this file.
fn fits(kind: &Kind) -> bool {
    matches!(kind, Kind::Directory | Kind::Regular(_))
}

fn xattrs(file: &mut File, rng: &mut Rng) {
    let noise = |len: usize, rng: &mut Rng| Content::Noise.bytes(len, rng);
    let keys: &[&[u8]] = &[
        b"user.a",
        b"user.number.1",
        b"user.number.22",
        b"trusted.overlay.origin",
        b"trusted.x",
        b"security.ima",
    ];
    for _ in 0..rng.pick(&[1, 1, 2, 4, 12]) {
        let key = rng.pick(keys);
        if !fits(&file.kind) && key.starts_with(b"user.") {
            continue;
        }
        let len = rng.pick(&[0, 1, 3, 4, 20, 200, 2000, 3500, 3990, 4050, 4100, 20_000, 65_000]);
        // Long values are rare in trees.
        let len = if rng.chance(70) { len.min(200) } else { len };
        file.xattrs.insert(key.to_vec(), noise(len, rng));
    }
    if fits(&file.kind) && rng.chance(15) {
        let long = [b"user.".as_slice(), &b"k".repeat(rng.pick(&[100, 249, 250]))].concat();
        file.xattrs.insert(long, noise(5, rng));
    }
    if matches!(file.kind, Kind::Regular(_)) && rng.chance(20) {
        file.xattrs.insert(b"security.capability".to_vec(), CAPABILITY.to_vec());
    }
    if fits(&file.kind) && rng.chance(25) {
        // Permissions of the group are those of the mask, as Linux sets them.
        let bits = |shift: u32| (file.mode >> shift & 7) as u16;
        let list = [
            Entry::Owner(bits(6)),
            Entry::User(rng.pick(&[1000, 70_000]), 4),
            Entry::OwningGroup(bits(3)),
            Entry::Group(4_294_967_000, 5),
            Entry::Mask(bits(3)),
            Entry::Other(bits(0)),
        ];
        file.xattrs.insert(acl::ACCESS.to_vec(), acl::encode(&list));
        if file.kind.is_directory() {
            file.xattrs.insert(acl::DEFAULT.to_vec(), acl::encode(&list));
        }
    }
}

fn size(large: bool, rng: &mut Rng) -> usize {
    let edge = match rng.below(100) {
        0..6 if large => rng.pick(&LARGE),
        6..55 if large => return rng.len(450_000),
        0..60 => rng.pick(&EDGES),
        60..80 => return rng.len(5_000),
        80..95 => return rng.len(60_000),
        _ => return rng.len(300_000),
    };
    let away = rng.pick(&[0, 0, 1, 1, 30, 700, 3_000]);
    if rng.chance(50) { edge + away } else { edge.saturating_sub(away) }
}

fn piece(len: usize, rng: &mut Rng) -> Piece {
    let content = match rng.below(100) {
        0..45 => Some(Content::Text),
        45..60 => Some(Content::Noise),
        60..70 => Some(Content::Zeroes),
        70..78 => Some(Content::Period),
        78..94 => Some(Content::Mixed),
        _ => None,
    };
    // Few seeds, so that files share parts also by chance.
    Piece { content, seed: rng.pick(&[1, 2, 3, 4, 5, 6, 7, 8]), start: 0, len }
}

/// Data between long runs of zeroes, which are holes of the source or not.
fn sparse(rng: &mut Rng) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for _ in 0..1 + rng.len(6) {
        let zeroes = rng.pick(&[
            60_000,
            1 << 16,
            1 << 16,
            70_000,
            100_000,
            300_000,
            1 << 20,
            4 << 20,
            9 << 20,
        ]);
        let away = rng.pick(&[0, 0, 1, 511, 4095, 5000]);
        let content = rng.pick(&[None, None, Some(Content::Zeroes)]);
        let data = rng.pick(&[0, 1, 4096, 8192, 10_000, 200_000]);
        pieces.push(piece(rng.len(data + 1), rng));
        pieces.push(Piece { content, seed: 1, start: 0, len: zeroes + away });
    }
    if rng.chance(70) {
        pieces.push(piece(1 + rng.len(20_000), rng));
    }
    pieces.retain(|piece| piece.len > 0);
    pieces
}

/// Generates new content, or content that is similar to another file's.
fn content(model: &Model, large: bool, rng: &mut Rng) -> Vec<Piece> {
    if rng.chance(if large { 20 } else { 6 }) {
        return sparse(rng);
    }
    let others = model.list(|kind| matches!(kind, Kind::Regular(pieces) if !pieces.is_empty()));
    if others.is_empty() || rng.chance(55) {
        let parts = rng.pick(&[1, 1, 1, 1, 2, 3, 6]);
        let size = size(large, rng);
        return (0..parts)
            .map(|_| piece(size / parts, rng))
            .filter(|piece| piece.len > 0)
            .collect();
    }
    let Some(Kind::Regular(pieces)) =
        model.at(&others[rng.len(others.len())]).map(|file| &file.kind)
    else {
        return Vec::new();
    };
    changed(pieces, rng)
}

/// The same content, or a copy with another start, middle or end.
fn changed(pieces: &[Piece], rng: &mut Rng) -> Vec<Piece> {
    let mut pieces = pieces.to_vec();
    let at = rng.len(pieces.len().max(1));
    let small = rng.pick(&[1, 2, 100, 3_000, 4_096, 9_000]);
    let small = 1 + rng.len(small);
    let mut new = piece(small, rng);
    new.seed = 100 + rng.below(1000);
    match rng.below(7) {
        0 => {}
        1 => pieces.push(new),
        2 => pieces.insert(0, new),
        3 => pieces.truncate(at),
        4 => {
            if let Some(last) = pieces.last_mut() {
                last.len -= rng.len(last.len.clamp(1, 5_000));
                pieces.push(new);
            }
        }
        5 => {
            if let Some(first) = pieces.first_mut() {
                let cut = rng.len(first.len.clamp(1, 5_000));
                first.start += cut;
                first.len -= cut;
            }
        }
        _ => {
            // A change in the middle of a piece.
            if let Some(old) = pieces.get(at).cloned() {
                let cut = rng.len(old.len.max(1));
                let rest = old.len - cut - small.min(old.len - cut);
                let second = Piece { start: old.start + old.len - rest, len: rest, ..old.clone() };
                pieces.splice(at..=at, [Piece { len: cut, ..old }, new, second]);
            }
        }
    }
    pieces.retain(|piece| piece.len > 0);
    pieces
}
