//! Deltas of another program, with the right digests: any methods, plans, references and copies,
//! also those that take much work and memory for a short new image.

use std::sync::Arc;

use anyhow::{Result, ensure};
use ferofs::read::Image;
use ferofs_codec::{Algorithm, Filling, LzmaBits, Params};
use ferofs_format::Nid;
use ferofs_format::area::MetadataSize;
use ferofs_format::inode::FileType;
use ferofs_tests::{Content, Rng};
use ferofs_update::format::delta_file::{
    CHUNK, Copy, DeltaHeader, DeltaPiece, PAYLOAD_MAX, digest,
};
use ferofs_update::format::delta_memory::PieceMemory;
use ferofs_update::format::piece::{self, base::Base};
use ferofs_update::format::plan::{ExtentKind, Item, Plan, Reference, Unit, UnitExtent};
use ferofs_update::format::prediction::{
    Area, DirForm, Edit, Places, Predict, Prediction, Relocated, Relocations, Rules, Shifts,
    SourceCode, Target,
};
use ferofs_update::format::reencode::Encoders;
use sha2::{Digest as _, Sha256};

use super::Pair;

/// Bytes of the new image after which no piece is added.
const ENOUGH: usize = 3 << 20;
/// Content of a unit at most, in bytes: a payload may have it twice.
const CONTENT: u64 = PAYLOAD_MAX as u64 / 2;

/// A delta, and the image that comes out of it.
pub(super) fn craft(pair: &Pair, rng: &mut Rng) -> Result<(String, Vec<u8>, Vec<u8>)> {
    let image = Image::open(pair.old.clone())?;
    let methods = (0..1 + rng.below(3)).map(|_| method(rng)).collect::<Result<Vec<Params>>>()?;
    let mut encoders = Encoders::new(&methods);
    let relocations = if rng.below(3) == 0 { Some(relocations(&image, rng)?) } else { None };
    // Lists that are refused are in the unit tests.
    let of = |list: &Relocations| Prediction::of_rebuilt(list.clone(), &image).ok();
    let prediction = relocations.as_ref().and_then(of);
    let relocations = relocations.filter(|_| prediction.is_some());
    let mut memory =
        PieceMemory::new(methods.len(), relocations.as_ref(), image.superblock().inodes);
    let (mut new, mut pieces) = (Vec::new(), Vec::new());
    let many = if rng.below(8) == 0 { 60 } else { 1 + rng.below(5) };
    for _ in 0..many {
        let predict = prediction.as_ref().map(|prediction| -> &dyn Predict { prediction });
        let base = (&image, predict);
        let (piece, plan, bytes) = craft_piece(pair, base, &mut encoders, methods.len(), rng)?;
        memory.add(&piece, &plan);
        pieces.push(piece.encode()?);
        new.extend(bytes);
        if new.len() > ENOUGH {
            break;
        }
    }
    if rng.below(12) == 0 {
        // Pieces that make nothing.
        let empty = DeltaPiece::default().encode()?;
        pieces.extend(std::iter::repeat_n(empty, rng.below(30_000) as usize));
    }
    let mut header = DeltaHeader {
        old_size: pair.old.len() as u64,
        old_digest: Sha256::digest(&pair.old).into(),
        new_size: new.len() as u64,
        new_digest: Sha256::digest(&new).into(),
        pieces: u32::try_from(pieces.len())?,
        longest_extent: [1 << 20, 1 << 20, 4 << 20, 4096][rng.below(4) as usize],
        memory: 0,
        seal: None,
        relocations,
        chunks: new.chunks(CHUNK).map(digest).collect(),
    };
    let needed = memory.total(&header, &methods, 0);
    header.memory = match rng.below(8) {
        0 => needed - 1,
        1 => rng.below(needed),
        _ => needed,
    };
    let delta = [header.encode(&methods)?, pieces.concat()].concat();
    Ok(("crafted delta".to_owned(), delta, new))
}

/// Any other metadata: many inodes can get the same place.
fn relocations(image: &Image, rng: &mut Rng) -> Result<Relocations> {
    let mut all =
        image.walk().map(|entry| Ok(entry?.inode?.nid())).collect::<Result<Vec<Nid>>>()?;
    all.sort_unstable();
    all.dedup();
    let mut shifts = |most: u64| {
        let near = 1 + rng.below(most);
        let pairs = (0..rng.below(200)).map(|_| match rng.below(8) {
            0 => (rng.next_u64() >> rng.below(64), rng.next_u64() >> rng.below(64)),
            _ => (rng.below(most), rng.below(near)),
        });
        Shifts::of(pairs.collect())
    };
    let (data, packed) = (shifts(16 << 20), shifts(1 << 20));
    let mut list = Relocations {
        // The same superblock.
        superblock: vec![0; image.superblock().size()],
        relative: rng.below(512) as u32,
        data,
        packed,
        ..Relocations::default()
    };
    if rng.below(2) == 0 {
        let start = image.superblock().inode_base().map_or(0, |base| base.get());
        let start = start + (rng.next_u64() >> (8 + rng.below(56)));
        let metabox = (rng.below(3) == 0).then(|| rng.next_u64() >> rng.below(64));
        let area = Area { start, metabox, first_is_apart: rng.below(4) == 0 };
        list.rules = Rules { area: Some(area), consecutive: rng.below(2) == 0 };
    }
    let mut places = Places::new(image, image.superblock(), list.rules);
    let near = 1 + rng.below(all.len() as u64 * 8);
    for nid in all {
        if rng.below(9) == 0 {
            continue;
        }
        let new = match rng.below(50) {
            0 => Nid::metabox_slot(rng.below(1 << 20)),
            1 => Nid::new(rng.next_u64() >> (4 + rng.below(60))),
            _ => Nid::new(nid.get() / near * near + rng.below(near)),
        };
        let number = list.inodes.len() as u32;
        let fields: Vec<u8> = (0..9).filter(|_| rng.below(12) == 0).collect();
        let form = match rng.below(3) {
            0 => [DirForm::Blocks, DirForm::Tail, DirForm::Chunks][rng.below(3) as usize],
            _ => DirForm::AsStored,
        };
        let many = if form == DirForm::AsStored { 0 } else { rng.below(4) };
        list.edits.extend((0..many).map(|entry| (number, Edit::Removed(entry as u32))));
        list.edits.extend((0..many).map(|_| {
            let name = vec![b'a' + rng.below(26) as u8; 1 + rng.below(260) as usize];
            let target = match rng.below(2) {
                0 => Target::New(rng.below(2000) as u32),
                _ => Target::Old(rng.next_u64()),
            };
            (number, Edit::Added { name, file_type: FileType::Regular, target })
        }));
        let values = fields.len() as u8;
        list.values
            .extend(fields.into_iter().map(|field| (field, rng.next_u64() >> rng.below(64))));
        let source = match rng.below(20) {
            0 => SourceCode::None,
            _ => places.code(nid, image.inode(nid)?.is_dir()),
        };
        let old = places.source(source)?;
        let (len, blocks) = match rng.below(30) {
            0 => (rng.below(1 << 20), rng.below(1 << 30)),
            _ => (rng.below(300), rng.below(2)),
        };
        let size = MetadataSize { len, inline: 0, blocks };
        let Ok(predicted) = places.predict(old.as_ref(), size) else { continue };
        let ino = rng.next_u64() as u32;
        places.pass(old.as_ref(), new, ino);
        list.inodes.push(Relocated {
            source,
            nid: match list.rules.area {
                Some(_) if rng.below(9) > 0 => 0,
                _ => new.get().wrapping_sub(predicted.nid.get()).cast_signed(),
            },
            ino: i64::from(ino) - i64::from(predicted.ino),
            len: len as i64,
            blocks: blocks as i64,
            inline: if rng.below(30) == 0 { rng.below(len + 1) as u32 } else { 0 },
            values,
            form,
        });
    }
    Ok(list)
}

/// Any parameters that are accepted.
fn method(rng: &mut Rng) -> Result<Params> {
    let algorithm = Algorithm::ALL[rng.below(Algorithm::ALL.len() as u64) as usize];
    let levels = Params::levels(algorithm);
    let level = levels[rng.below(levels.len() as u64) as usize];
    let mut params = Params { level, ..Params::new(algorithm, None)? };
    let mut below = |bound: u64| rng.below(bound) as u8;
    if algorithm == Algorithm::Lzma {
        let lc = below(5);
        params.bits = LzmaBits { lc, lp: 4 - lc, pb: below(5) };
    }
    let other = params.with_window(Some(1024 << below(14)));
    params = if other.check().is_ok() { other } else { params };
    let filling = match below(3) {
        0 => Filling::Bytes,
        1 => Filling::Blocks { log: 9 + below(8) },
        _ => Filling::Trials { unused: 2 },
    };
    // Smaller ones fail with large outputs.
    let window = (1 << 20) + rng.below(11 << 20) as usize;
    Ok(Params { window, filling, ..params })
}

/// Content on which compressors differ in speed.
fn content(pair: &Pair, len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = match rng.below(6) {
        0 => Content::Zeroes.bytes(len, rng),
        1 => Content::Mixed.bytes(len, rng),
        2 => {
            let from = rng.below(pair.new.len() as u64) as usize;
            pair.new[from..].iter().cycle().take(len).copied().collect()
        }
        // Few symbols: many short matches.
        3 => (0..len).map(|_| b'a' + (rng.next_u64() & 1) as u8).collect(),
        // A period of which a byte changes now and then: many long matches that are nearly as long.
        4 => {
            let mut period = vec![0; 1 + rng.below(300) as usize];
            rng.fill(&mut period);
            period.iter().copied().cycle().take(len).collect()
        }
        _ => Content::Text.bytes(len, rng),
    };
    if rng.below(2) == 0 {
        let step = 1 + rng.below(500);
        let mut at = rng.below(step) as usize;
        while at < len {
            bytes[at] = rng.next_u64() as u8;
            at += 1 + rng.below(2 * step) as usize;
        }
    }
    bytes
}

fn craft_piece(
    pair: &Pair,
    (image, prediction): (&Image, Option<&dyn Predict>),
    encoders: &mut Encoders,
    methods: usize,
    rng: &mut Rng,
) -> Result<(DeltaPiece, Plan, Vec<u8>)> {
    let references = references(pair, image, prediction.is_some(), rng)?;
    let mut plan = Plan { references, items: Vec::new() };
    let (mut payload, mut made) = (Vec::new(), Vec::new());
    for _ in 0..rng.below(6) {
        let longest = if rng.below(12) == 0 { CONTENT - 1 } else { 1 << (9 + rng.below(9)) };
        let content = content(pair, 1 + rng.below(longest) as usize, rng);
        if payload.len() + 2 * content.len() > PAYLOAD_MAX {
            break;
        }
        if rng.below(4) == 0 {
            plan.items.push(Item::Raw { len: content.len() as u32 });
            made.extend_from_slice(&content);
            payload.extend(content);
            continue;
        }
        let method = rng.below(methods as u64) as u8;
        let (extents, carried) = extents(method, &content, encoders, &mut made, rng)?;
        if !extents.is_empty() {
            plan.items.push(Item::Unit(Unit {
                method,
                content_len: content.len() as u32,
                extents,
            }));
            payload.extend(content);
            payload.extend(carried);
        }
    }
    let (copies, new) = copies(pair, &made, rng);
    if plan.items.is_empty() {
        return Ok((DeltaPiece { copies, ..DeltaPiece::default() }, Plan::default(), new));
    }
    let mut dictionary = Vec::new();
    let old: Arc<[u8]> = pair.old.clone().into();
    let base = Base {
        source: &old,
        size: old.len() as u64,
        image,
        prediction,
        threads: 1,
        longest_extent: u64::MAX,
    };
    base.read(&plan.references, &mut dictionary, || Ok(()))?;
    let compressed = piece::compress(&payload, &dictionary, 1 + rng.below(3) as i32)?;
    let piece = DeltaPiece {
        copies,
        plan: plan.encode()?,
        payload_len: payload.len(),
        made_len: made.len(),
        compressed: compressed.is_some(),
        delta_len: 0,
        payload: compressed.unwrap_or(payload),
    };
    Ok((piece, plan, new))
}

/// Parts of the old image and of its file, often the same ones again and again.
fn references(
    pair: &Pair,
    image: &Image,
    is_predicted: bool,
    rng: &mut Rng,
) -> Result<Vec<Reference>> {
    let file = image.resolve("file".as_ref(), true)?;
    let (nid, size) = (file.nid().get(), file.size());
    ensure!(size > 1 << 20, "the file is short");
    let count = [0, 1, 3, 3, 30, 8000][rng.below(6) as usize];
    let same = rng.below(size - 4096);
    Ok((0..count)
        .map(|_| {
            let bits = 2 + rng.below(11);
            let len = 1 + rng.below(1 << bits) as u32;
            match rng.below(if is_predicted { 6 } else { 3 }) {
                5 => Reference::PredictedMetabox { pos: rng.below(32 << 20), len },
                3.. => Reference::Predicted { pos: rng.below(pair.old.len() as u64), len },
                0 => Reference::Image { pos: rng.below(pair.old.len() as u64), len },
                1 => Reference::File { nid, offset: rng.below(size - 4096), len },
                _ => Reference::File { nid, offset: same, len },
            }
        })
        .collect())
}

/// Extents of a unit, and the bytes that it carries. `made` gets what they make.
fn extents(
    method: u8,
    content: &[u8],
    encoders: &mut Encoders,
    made: &mut Vec<u8>,
    rng: &mut Rng,
) -> Result<(Vec<UnitExtent>, Vec<u8>)> {
    let (mut extents, mut carried, mut at) = (Vec::new(), Vec::new(), 0);
    let most = if rng.below(4) == 0 { 2 } else { content.len() / 512 + 2 };
    let usual = [64, 512, 4096, 65536, 1 << 20][rng.below(5) as usize];
    let kind = [ExtentKind::Fill, ExtentKind::Exact, ExtentKind::Fill][rng.below(3) as usize];
    encoders.begin(method)?;
    let start = made.len();
    while extents.len() < most && at < content.len() && made.len() - start < 1 << 20 {
        let rest = content.len() - at;
        let (kind, capacity) = match rng.below(12) {
            0 => (ExtentKind::Stored, 0),
            1 => (ExtentKind::Carried, 0),
            _ => (kind, usual),
        };
        let len = rest.min(512 + rng.below(4 * u64::from(usual)) as usize) as u32;
        let extent = match kind {
            ExtentKind::Fill => UnitExtent { kind, len: 0, size: capacity, capacity: 0 },
            ExtentKind::Exact => UnitExtent { kind, len, size: len + len / 8 + 1024, capacity: 0 },
            _ => UnitExtent { kind, len, size: len + rng.below(64) as u32, capacity: 0 },
        };
        let before = made.len();
        let consumed = encoders.encode_one(method, &extent, content, at, made)?;
        if let Some(consumed) = consumed {
            extents.push(extent);
            at += consumed;
            continue;
        }
        // Not what the extent says: other bytes are carried, and the compressor starts anew.
        made.truncate(before);
        let size = 64 + rng.below(64) as usize;
        let noise = Content::Noise.bytes(size, rng);
        made.extend_from_slice(&noise);
        carried.extend(noise);
        extents.push(UnitExtent { kind: ExtentKind::Carried, len, size: size as u32, capacity: 0 });
        encoders.begin(method)?;
        at += len as usize;
    }
    Ok((extents, carried))
}

/// Copies between the bytes that are `made`, and all bytes of the new image.
fn copies(pair: &Pair, made: &[u8], rng: &mut Rng) -> (Vec<Copy>, Vec<u8>) {
    let (mut copies, mut new, mut at) = (Vec::new(), Vec::new(), 0);
    let count = [0, 1, 2, 8, 20_000][rng.below(5) as usize];
    let longest =
        [1, 100, 4096, 300_000][rng.below(4) as usize] / if count > 100 { 100 } else { 1 } + 1;
    for _ in 0..count {
        let after = rng.below((made.len() - at) as u64 + 1).min(rng.next_u64() >> 50) as usize;
        let pos = rng.below(pair.old.len() as u64) as usize;
        let len = (1 + rng.below(longest) as usize).min(pair.old.len() - pos);
        copies.push(Copy { after: after as u64, pos: pos as u64, len: len as u64 });
        new.extend_from_slice(&made[at..at + after]);
        new.extend_from_slice(&pair.old[pos..pos + len]);
        at += after;
        if new.len() > ENOUGH {
            break;
        }
    }
    new.extend_from_slice(&made[at..]);
    (copies, new)
}
